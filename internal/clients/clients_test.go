package clients_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/internal/clients"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
	"github.com/rein-sh/rein/tool"
)

// all is make test-clients: every client, both runtimes.
var all = flag.Bool("all", false, "every client with both runtimes, and the table")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is a program and what it fetches. Nothing in its command says where
// the network is.
type client struct {
	name, needs, host, command string
	short                      bool // also in every test run
}

const java = `
import java.net.URI;
import java.net.http.*;
public class Fetch {
    public static void main(String[] a) throws Exception {
        System.out.print(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.ofString()).body());
    }
}
`

// goCommand finds Go where PATH inside does not have it.
const goCommand = "PATH=$PATH:/usr/local/go/bin && go"

var list = []client{
	{"curl", "curl", clients.Site, "curl -sS https://" + clients.Site + "/", true},
	{"curl, http", "curl", clients.Site, "curl -sSf http://" + clients.Site + "/", true},
	{"curl, HTTPS_PROXY", "curl", clients.Site, "https_proxy=http://10.88.0.1:3128 curl -sS https://" + clients.Site + "/", true},
	{"wget", "wget", clients.Site, "wget -nv -O- -t 1 https://" + clients.Site + "/", false},
	{"git clone", "git", clients.GitHub, "git clone -q https://" + clients.GitHub + "/rein-lab/hello && cat hello/hello.txt", true},
	{"pip install", "/usr/bin/python3 -m pip", clients.PyPI, "/usr/bin/python3 -m pip install -q --disable-pip-version-check --no-cache-dir --target pip " + clients.Package + " && PYTHONPATH=pip /usr/bin/python3 -m rein_lab_hello", false},
	{"npm install", "npm", clients.NPM, "mkdir npm && cd npm && npm install --no-update-notifier --no-audit --no-fund --loglevel error " + clients.Package + " && node -e 'require(\"" + clients.Package + "\")'", false},
	{"node fetch", "node", clients.Site, "node -e 'fetch(\"https://" + clients.Site + "/\").then(r=>r.text()).then(t=>process.stdout.write(t))'", false},
	// The database of checksums signs with a key of its own, and is left out.
	{"go mod download", goCommand, clients.GoProxy, "export GONOSUMDB=* GOTOOLCHAIN=local GOPATH=$PWD/gopath GOCACHE=$PWD/gocache GOFLAGS=-modcacherw && " + goCommand + " mod download -json " + clients.Module + "@v1.0.0 && cat gopath/pkg/mod/" + clients.Module + "@v1.0.0/main.go", false},
	{"java HttpClient", "java", clients.Site, "java Fetch.java https://" + clients.Site + "/", false},
	{"python urllib", "/usr/bin/python3", clients.Site, "/usr/bin/python3 -c 'import urllib.request; print(urllib.request.urlopen(\"https://" + clients.Site + "/\").read().decode())'", false},
}

// understandable are the words in which clients say that a name is not there,
// that a connection was refused or reset, or what the refusal page says.
var understandable = regexp.MustCompile(`(?i)resolv|not known|getaddrinfo|ENOTFOUND|EAI_AGAIN|no such host|lookup |UnresolvedAddress|UnknownHost|refused|reset|ConnectException|connect to|403`)

func TestClients(t *testing.T) {
	registry, err := clients.New(t.TempDir())
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
		t.Run(runtime, func(t *testing.T) { try(t, registry, runtime) })
	}
}

func provider(t *testing.T, registry *clients.Registry, runtime string) sandbox.Provider {
	t.Helper()
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	o := local.Options{Keep: filepath.Join(bin, "rein-keep"), Execd: filepath.Join(bin, "rein-execd"), Runtime: runtime, StateDir: t.TempDir()}
	if runtime == "gvisor" {
		o.RuntimePath = filepath.Join(bin, "rein-runsc")
	}
	o.Egress = local.Egress{Resolvers: []netip.AddrPort{registry.Resolver}, CA: registry.CA}
	p, err := local.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// create makes a sandbox with a policy.
func create(t *testing.T, p sandbox.Provider, d policy.Document) *sandbox.Sandbox {
	t.Helper()
	return made(t, p, sandbox.Spec{TTL: 10 * time.Minute, Network: d}, sandbox.Options{Log: audit.New(discard{}, audit.Options{})})
}

func made(t *testing.T, p sandbox.Provider, spec sandbox.Spec, o sandbox.Options) *sandbox.Sandbox {
	t.Helper()
	box, err := sandbox.Create(t.Context(), p, spec, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Kill(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		box.Close()
	})
	if _, err := box.WriteFile(t.Context(), "Fetch.java", []byte(java), sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	return box
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// allowed lets the registries through by their bundles, the site by its name, and
// the range where they all are.
var allowed = policy.Document{Bundles: []string{"pypi", "npm", "go", "github-read"}, Rules: []policy.Rule{{Host: clients.Site}, {CIDR: "127.0.0.0/8"}}}

// try runs every client where it may and where it may not.
func try(t *testing.T, registry *clients.Registry, runtime string) {
	p := provider(t, registry, runtime)
	open, closed := create(t, p, allowed), create(t, p, policy.Document{})
	// Names alone: the second rule, for the range, is missing.
	half := create(t, p, policy.Document{Bundles: allowed.Bundles, Rules: []policy.Rule{{Host: clients.Site}}})
	for _, c := range list {
		if !c.short && !*all {
			continue
		}
		if r := run(t, open, c.needs+" --version || "+c.needs+" version"); !r.OK() {
			t.Logf("%-18s not tried: %s is not installed", c.name, c.needs)
			continue
		}
		before := registry.Asked(c.host)
		r := run(t, open, c.command)
		if !r.OK() || !strings.Contains(string(r.Stdout.Head), clients.Greeting) || registry.Asked(c.host) == before {
			t.Errorf("%s, allowed: %+v: %s %s %+v", c.name, r.Outcome.ExitCode, r.Stdout.Head, r.Stderr.Head, r.Network)
		}
		t.Logf("%-18s %-22s %6d ms  it was fetched", c.name, "allowed:", r.DurationMS)
		var results [2]tool.Result
		var both sync.WaitGroup
		for i, box := range []*sandbox.Sandbox{closed, half} {
			both.Go(func() { results[i] = call(t, box, c.command) })
		}
		both.Wait()
		refusal(t, c, "no rule for the name:", policy.RuleDefault, results[0])
		refusal(t, c, "no rule for the range:", "address.loopback", results[1])
	}
}

// refusal judges a client that must fail, and shows what it says. Whatever that is,
// the result of the call has to name the host and the rule, to the model as well.
func refusal(t *testing.T, c client, word, rule string, r tool.Result) {
	t.Helper()
	said := strings.Join(strings.Fields(r.Stderr+" "+r.Stdout), " ")
	reason := ""
	for _, n := range r.Network {
		if n.Verdict == "deny" && n.Name == c.host && n.Rule == rule {
			reason = n.Reason
		}
	}
	if r.OK || r.Timeout || strings.Contains(said, clients.Greeting) || !understandable.MatchString(said) || reason == "" {
		t.Errorf("%s, %s timed out %v: %s; network %+v", c.name, word, r.Timeout, said, r.Network)
	}
	want := "which was refused: " + reason
	if rule != policy.RuleDefault { // which is that there is none
		want += " (" + rule + ")"
	}
	if e := r.Err; e == nil || e.Code != tool.CodeNetworkDenied || !strings.Contains(e.Message, "it tried to reach "+c.host) || !strings.HasSuffix(e.Message, want) {
		t.Errorf("%s, %s the model is told %+v, want %s", c.name, word, e, want)
	}
	t.Logf("%-18s %-22s %6d ms  %s | on record: %s (%s)", c.name, word, r.DurationMS, around(said), reason, rule)
}

// around is the place in a client's words that says why.
func around(said string) string {
	at := understandable.FindStringIndex(said)
	if at == nil {
		return said[:min(len(said), 160)]
	}
	return said[max(0, at[0]-60):min(len(said), at[1]+80)]
}

var count atomic.Int64

// inItsOwn has a command run in a directory of its own.
func inItsOwn(command string) string {
	dir := fmt.Sprintf("c%d", count.Add(1))
	return "mkdir " + dir + " && cp Fetch.java " + dir + " && cd " + dir + " && HOME=$PWD && export HOME && " + command
}

// patience is for npm, which tries again for more than a minute.
const patience = 2 * time.Minute

func run(t *testing.T, box *sandbox.Sandbox, command string) sandbox.Result {
	t.Helper()
	r, err := box.Run(t.Context(), sandbox.Command{Shell: inItsOwn(command), Timeout: patience})
	if err != nil {
		t.Error(err)
	}
	return r
}

// call runs a command as a model does, and returns what it is told.
func call(t *testing.T, box *sandbox.Sandbox, command string) tool.Result {
	t.Helper()
	limits := budget.Long()
	limits.MaxCallTimeout = patience
	tree, err := budget.NewTree(limits, budget.TreeOptions{})
	if err != nil {
		t.Error(err)
		return tool.Result{}
	}
	set, err := tool.Builtin(tool.Options{Sandbox: box, Budget: tree, Finish: func(context.Context) (string, error) { return "", nil }})
	if err != nil {
		t.Error(err)
		return tool.Result{}
	}
	defer set.Close(context.WithoutCancel(t.Context()))
	args, err := json.Marshal(map[string]any{"command": inItsOwn(command), "timeout_seconds": patience.Seconds()})
	if err != nil {
		t.Error(err)
	}
	return set.Run(t.Context(), tool.Call{ID: fmt.Sprintf("call_%d", count.Add(1)), Name: tool.RunCommand, Arguments: args})
}
