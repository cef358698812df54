package sandboxtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// isolationCases are about what a command can see and do that is not its own.
func isolationCases() []Case {
	processes := caps(sandbox.CapExec, sandbox.CapFiles, sandbox.CapProcesses)
	separation := append(caps(sandbox.CapSeparation), processes...)
	bare := append(caps(sandbox.CapUnprivileged), processes...)
	guard := append(caps(sandbox.CapExecdGuard), processes...)
	return []Case{
		{Name: "isolation/no host environment", Needs: caps(sandbox.CapExec), run: noHostEnvironment},
		{Name: "isolation/no environment in /proc", Needs: processes, run: procEnvironment},
		{Name: "isolation/no inherited descriptors", Needs: bare, run: descriptors},
		{Name: "isolation/no host files", Needs: caps(sandbox.CapExec, sandbox.CapFiles), run: noHostFiles},
		{Name: "isolation/execd's token is nowhere", Needs: processes, run: tokenHidden},
		{Name: "isolation/survives kill -9 -1", Needs: guard, fresh: true, run: killEverything},
		{Name: "isolation/no new privileges", Needs: bare, run: noPrivileges},
		{Name: "isolation/execd cannot be touched", Needs: separation, Programs: []string{"perl", "stat"}, fresh: true, run: untouchable},
		{Name: "isolation/spill cannot be written", Needs: append(caps(sandbox.CapSpill, sandbox.CapCallIDs), separation...), run: spillReadOnly},
		{Name: "isolation/execd needs its token", Needs: guard, Programs: []string{"bash"}, run: needsToken},
	}
}

func noHostEnvironment(e *env) {
	r := e.run("env")
	for _, part := range []string{marker, e.suite.secret} {
		if strings.Contains(stdout(r), part) {
			e.Errorf("the environment holds %q:\n%s", part, stdout(r))
		}
	}
}

func procEnvironment(e *env) {
	r := e.run(`cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2> /dev/null | tr '\0' '\n'`)
	for _, part := range []string{marker, e.suite.secret} {
		if strings.Contains(stdout(r), part) {
			e.Errorf("a process shows %q", part)
		}
	}
	first := e.run(`cat /proc/1/environ 2> /dev/null | tr '\0' '\n'`)
	for line := range strings.Lines(stdout(first)) {
		name, _, _ := strings.Cut(line, "=")
		switch name {
		case "PATH", "HOME", "TERM", "HOSTNAME", "container", "LANG", "LC_ALL", "PWD", "SHLVL", "_", "USER", "LOGNAME", "SHELL", "TMPDIR", "OPENSANDBOX_ID", "REIN_SUITE", "second line\n":
		default:
			e.Errorf("/proc/1/environ has %q", line)
		}
	}
}

func descriptors(e *env) {
	// ls has the directory open that it lists; nothing else may be there.
	for line := range strings.Lines(e.sh("ls -l /proc/self/fd")) {
		_, target, ok := strings.Cut(strings.TrimSpace(line), " -> ")
		if !ok || strings.HasPrefix(target, "pipe:") || strings.HasPrefix(target, "/proc/") || strings.HasPrefix(target, "host:[") {
			continue
		}
		if target != "/dev/null" && target != "/null" && target != "/" {
			e.Errorf("a command inherits %s", target)
		}
	}
	count := strings.TrimSpace(e.sh("ls /proc/self/fd | wc -l"))
	e.equal("descriptors, with that of ls", count, "4")
}

func noHostFiles(e *env) {
	r := e.command(sandbox.Command{Shell: `cat "$FILE"`, Env: map[string]string{"FILE": e.suite.hostFile}})
	if r.OK() || strings.Contains(stdout(r), e.suite.secret) {
		e.Errorf("a file of the host can be read: %s", describe(r))
	}
	_, err := e.ReadFile(e.Context(), e.suite.hostFile, sandbox.ReadOptions{})
	e.wantKind(err, sandbox.KindNotFound, sandbox.KindDenied)
}

func tokenHidden(e *env) {
	ep, err := e.suite.provider.Endpoint(e.Context(), e.ID(), execd.Port)
	e.must(err)
	token := ep.Header.Get(execd.TokenHeader)
	if token == "" {
		e.Skip("this provider's execd has no token of its own")
	}
	// Half of it in two variables, and put together by the shell itself, so that
	// it is in no environment or argument: other cases print what they find there.
	half := len(token) / 2
	r := e.command(sandbox.Command{Env: map[string]string{"A": token[:half], "B": token[half:]},
		Shell: `all=$(cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2> /dev/null | tr -d '\0')
			case $all in *"$A$B"*) echo a process ;; esac
			printf %s "$A$B" | grep -r -l -s -F -f - /etc /run /tmp /var/run /workspace 2> /dev/null | head -3`})
	e.equal("where it is", strings.TrimSpace(stdout(r)), "")
}

func killEverything(e *env) {
	// Everything the command may signal, itself among it.
	_, err := e.Sandbox.Run(e.Context(), sandbox.Command{Shell: "kill -9 -1; sleep 0.2; true"})
	e.must(err)
	for range 3 {
		e.wantExit(e.run("exit 3"), 3)
	}
}

func noPrivileges(e *env) {
	r := e.run(`grep -E '^(CapEff|CapPrm|CapAmb|CapInh):' /proc/self/status; grep '^NoNewPrivs' /proc/self/status`)
	for line := range strings.Lines(stdout(r)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		if strings.HasPrefix(name, "Cap") && strings.Trim(value, "0") != "" {
			e.Errorf("user code has %s %s", name, value)
		}
		if name == "NoNewPrivs" && value != "1" {
			e.Error("user code may gain privileges")
		}
	}
	refused := []string{"mount -t tmpfs none /mnt", "chroot / true", "mknod /tmp/dev-" + e.dir[5:] + " b 8 0"}
	if e.Info().Image == "host" { // an image's files may be its user's
		refused = append(refused, "echo x > /usr/x")
	}
	for _, shell := range refused {
		if r := e.run(shell); r.OK() {
			e.Errorf("%q was allowed", shell)
		}
	}
}

// untouchable has a command try what it may not do to processes of another user,
// execd among them.
func untouchable(e *env) {
	uid := strings.TrimSpace(e.sh("id -u"))
	pids := strings.Fields(e.sh(`for p in /proc/[0-9]*; do test "$(stat -c %u $p 2> /dev/null)" = ` + uid + ` || echo ${p#/proc/}; done`))
	if len(pids) == 0 {
		pids = []string{"1"} // not even visible
	}
	for _, pid := range pids {
		// PTRACE_ATTACH is 16; ptrace is system call 101 on amd64, 117 on arm64.
		r := e.run(fmt.Sprintf(`kill -9 %[1]s 2> /dev/null && echo killed
			cat /proc/%[1]s/environ > /dev/null 2>&1 && echo environ
			head -c 1 /proc/%[1]s/mem > /dev/null 2>&1 && echo memory
			ls /proc/%[1]s/fd > /dev/null 2>&1 && echo descriptors
			perl -e 'exit(syscall($ARGV[0], 16, %[1]s, 0, 0) == 0 ? 0 : 1)' $(test "$(uname -m)" = x86_64 && echo 101 || echo 117) 2> /dev/null && echo traced
			true`, pid))
		if stdout(r) != "" {
			e.Errorf("user code did to process %s of another user: %s", pid, strings.Join(strings.Fields(stdout(r)), ", "))
		}
	}
	e.wantExit(e.run("exit 3"), 3)
}

func spillReadOnly(e *env) {
	id := e.id("spill")
	r := e.command(sandbox.Command{CallID: id, Shell: "echo original"})
	if r.Spill == nil {
		e.Fatal("no spill")
	}
	e.run(fmt.Sprintf("echo forged > %[1]s; rm -f %[1]s; mv /tmp %[2]s/x; echo forged > %[2]s/other; chmod 777 %[2]s %[1]s", r.Spill.Path, execd.SpillDir))
	e.equal("spill", e.get(r.Spill.Path), "original\n")
	_, err := e.Stat(e.Context(), execd.SpillDir+"/other", sandbox.Access{})
	e.wantKind(err, sandbox.KindNotFound)
}

func needsToken(e *env) {
	e.within(10*time.Second, func() {
		for _, host := range []string{"127.0.0.1", "$(hostname -I 2> /dev/null | cut -d' ' -f1)"} {
			r := e.command(sandbox.Command{Timeout: 5 * time.Second, Shell: fmt.Sprintf(
				`h=%s; test -n "$h" || exit 1; exec 3<> /dev/tcp/$h/%d || exit 1; printf 'GET /ping HTTP/1.0\r\n\r\n' >&3; head -n 1 <&3`, host, execd.Port)})
			if strings.Contains(stdout(r), " 200") {
				e.Errorf("user code was answered by execd at %s: %q", host, stdout(r))
			}
		}
	})
}
