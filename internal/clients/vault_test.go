package clients_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/internal/clients"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// key is what the servers want, and is nowhere in a sandbox.
const key = "rein_RealRealRealRealRealReal01234567"

// keyed is a program that sends a key: $KEY is the placeholder, or another key.
type keyed struct {
	name, needs, command string
	short                bool // also in every test run
	asked                bool // it sends no key before the server asks for one, which none does: it is given the right one
}

const greet = `"` + clients.Greeting + `"`

const goKeyed = `cat >k.go <<'END'
package main

import ("fmt"; "io"; "net/http"; "os")

func main() {
	r, _ := http.NewRequest("GET", "https://` + clients.Site + `/", nil)
	r.SetBasicAuth("me", os.Getenv("KEY"))
	res, err := http.DefaultClient.Do(r)
	if err != nil { fmt.Println(err); os.Exit(1) }
	b, _ := io.ReadAll(res.Body)
	fmt.Println(res.Proto, string(b))
}
END
export GOTOOLCHAIN=local GOPATH=$PWD/gopath GOCACHE=/tmp/gocache && ` + goCommand + ` run k.go`

// javaKeyed is Fetch.java with a field.
const javaKeyed = `sed 's|newBuilder(URI.create(a\[0\]))|newBuilder(URI.create(a[0])).header("Authorization", "Basic " + java.util.Base64.getEncoder().encodeToString(("me:" + System.getenv("KEY")).getBytes()))|; s/class Fetch/class K/' Fetch.java >K.java && java K.java https://` + clients.Site + "/"

var keyedClients = []keyed{
	{"curl, bearer", "curl", `curl -sSf -H "Authorization: Bearer $KEY" https://` + clients.NPM + "/" + clients.Package + ` >answer && grep -q tarball answer && echo ` + greet, true, false},
	{"curl, password", "curl", `curl -sS -u "me:$KEY" https://` + clients.Site + "/", true, false},
	{"git clone", "git", `git clone -q "https://x-access-token:$KEY@` + clients.GitHub + `/rein-lab/hello" && cat hello/hello.txt`, true, true},
	{"git, a helper", "git", `git config --global credential.helper '!f() { echo username=x-access-token; echo "password=$KEY"; }; f' && git clone -q https://` + clients.GitHub + `/rein-lab/hello && cat hello/hello.txt`, false, true},
	{"pip install", "/usr/bin/python3 -m pip", `printf 'machine ` + clients.PyPI + `\nlogin me\npassword %s\nmachine ` + clients.PyPIFiles + `\nlogin me\npassword %s\n' "$KEY" "$KEY" >.netrc && chmod 600 .netrc && /usr/bin/python3 -m pip install -q --disable-pip-version-check --no-cache-dir --target pip ` + clients.Package + ` && PYTHONPATH=pip /usr/bin/python3 -m rein_lab_hello`, false, false},
	{"npm install", "npm", `mkdir npm && cd npm && echo '//` + clients.NPM + `/:_authToken=${KEY}' >.npmrc && npm install --no-update-notifier --no-audit --no-fund --loglevel error ` + clients.Package + ` && node -e 'require("` + clients.Package + `")'`, false, false},
	{"node fetch", "node", `node -e 'fetch("https://` + clients.Site + `/", {headers: {Authorization: "Basic " + btoa("me:" + process.env.KEY)}}).then(r=>r.text()).then(t=>process.stdout.write(t))'`, false, false},
	{"python urllib", "/usr/bin/python3", `/usr/bin/python3 -c 'import base64,os,urllib.request as u; print(u.urlopen(u.Request("https://` + clients.Site + `/", headers={"Authorization": "Basic " + base64.b64encode(("me:" + os.environ["KEY"]).encode()).decode()})).read().decode())'`, false, false},
	{"python httpx, HTTP/2", `/usr/bin/python3 -c "import httpx, h2" && true`, `/usr/bin/python3 -c 'import httpx,os; r = httpx.Client(http2=True, auth=("me", os.environ["KEY"])).get("https://` + clients.Site + `/"); assert r.http_version == "HTTP/2", r.http_version; print(r.text)'`, false, false},
	{"java HttpClient", "java", javaKeyed, false, false},
	{"go net/http", goCommand, goKeyed, false, false},
}

// secrets bind the key to every server, in the form that its clients send.
func secrets() []vault.Secret {
	s := vault.Secret{Name: "key", Value: secret.New("key", key), Variable: "KEY"}
	for _, host := range []string{clients.PyPI, clients.PyPIFiles, clients.Site} {
		s.Use = append(s.Use, vault.Binding{Host: host, As: vault.Basic})
	}
	s.Use = append(s.Use, vault.Binding{Host: clients.NPM, As: vault.Bearer}, vault.Binding{Host: clients.GitHub, As: vault.Basic, User: "x-access-token"})
	return []vault.Secret{s}
}

// Real clients use a key that they never see, and are refused another one.
func TestVault(t *testing.T) {
	registry, err := clients.NewGuarded(t.TempDir(), key)
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skipf("ports 443 and 80 are root's: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(registry.Close)
	runtimes := []string{"runc"}
	if *all {
		runtimes = []string{"gvisor", "runc"}
	}
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) { tryKeys(t, registry, runtime) })
	}
}

func tryKeys(t *testing.T, registry *clients.Registry, runtime string) {
	p := provider(t, registry, runtime)
	with, without := createWith(t, p, secrets()), createWith(t, p, nil)
	for _, c := range keyedClients {
		if !c.short && !*all {
			continue
		}
		if r := run(t, with, c.needs+" --version || "+c.needs+" version"); !r.OK() {
			t.Logf("%-22s not tried: %s is not installed", c.name, c.needs)
			continue
		}
		r := run(t, with, c.command)
		said := string(r.Stdout.Head) + string(r.Stderr.Head)
		if !r.OK() || !strings.Contains(string(r.Stdout.Head), clients.Greeting) || strings.Contains(said, key) {
			t.Errorf("%s, with the right to: %v: %s %+v", c.name, r.Outcome.ExitCode, said, r.Network)
		}
		t.Logf("%-22s %-20s %6d ms  it was served", c.name, "with the right to:", r.DurationMS)
		refusedKey(t, c, "without a secret:", without, "export KEY=none; "+c.command, "")
		if c.asked {
			continue
		}
		refusedKey(t, c, "another's key:", with, "export KEY=rein_AnotherAnotherAnotherAn01234567; "+c.command, vault.RuleForeign)
	}
}

// refusedKey judges a client that must not be served. rule is the gateway's; where
// it has none, the server refuses.
func refusedKey(t *testing.T, c keyed, what string, box *sandbox.Sandbox, command, rule string) {
	t.Helper()
	r := run(t, box, command)
	said := strings.Join(strings.Fields(string(r.Stdout.Head)+string(r.Stderr.Head)), " ")
	if r.OK() && strings.Contains(said, clients.Greeting) {
		t.Errorf("%s, %s it was served: %s", c.name, what, said)
	}
	t.Logf("%-22s %-20s %6d ms  %.100s", c.name, what, r.DurationMS, said)
	if rule != "" && !slices.ContainsFunc(r.Network, func(n sandbox.NetworkRecord) bool { return n.Verdict == "deny" && n.Rule == rule }) {
		t.Errorf("%s, %s %s %+v, want %s", c.name, what, said, r.Network, rule)
	}
}

// createWith makes a sandbox with secrets.
func createWith(t *testing.T, p sandbox.Provider, list []vault.Secret) *sandbox.Sandbox {
	t.Helper()
	return made(t, p, sandbox.Spec{TTL: 10 * time.Minute, Network: allowed, Secrets: list}, sandbox.Options{Log: audit.New(discard{}, audit.Options{})})
}
