package agents_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/internal/modelserver"
	"github.com/rein-sh/rein/model/script"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/secret"
)

// all is make test-agents: every agent, with both runtimes, and what can be
// provoked.
var all = flag.Bool("all", false, "every agent with both runtimes, and the table")

// agent is one of the recipes, and how its model is reached here.
type agent struct {
	name  string
	short bool     // also in every test run
	base  string   // of the model's API, after the server's address
	shape string   // how a key begins
	args  []string // the task, as this agent takes it
	// bounded has its key boundary tried in every test run, too.
	bounded bool
}

// exchanges is how many the scripts have for the task itself. What an agent asks
// besides, such as for a title, comes before.
const exchanges = 5

const task = "repair what sh test.sh finds"

var list = []agent{
	{"codex", true, "/v1", "sk-proj-", []string{"exec", task}, true},
	{"claude", false, "", "sk-ant-api03-", []string{"-p", task}, false},
	{"gemini", true, "", "AIzaSy", []string{"-p", task}, false},
	{"opencode", false, "", "sk-ant-api03-", []string{"run", task}, false},
	{"qwen", false, "/v1", "sk-", []string{"-p", task}, false},
}

// files are the workspace: a test that fails, and what is wrong.
var files = map[string]string{
	"add.sh":  "echo $(($1 - $2))\n",
	"test.sh": "got=$(sh add.sh 2 3)\n[ \"$got\" = 5 ] && echo pass || { echo \"add 2 3: got $got, want 5\" >&2; exit 1; }\n",
}

// place is what all runs of this test share: the agents are installed once.
type place struct{ bin, cache, config string }

func newPlace(t *testing.T) *place {
	t.Helper()
	bin, err := filepath.Abs("../../bin/rein")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("%v: make build", err)
	}
	p := &place{bin: bin, cache: t.TempDir(), config: filepath.Join(t.TempDir(), "config.yaml")}
	if err := os.WriteFile(p.config, []byte(mirror(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// mirror is a configuration that lets installations reach the registry where that
// has addresses of its own here, which a policy refuses unless it names them.
func mirror(t *testing.T) string {
	t.Helper()
	addrs, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", "registry.npmjs.org")
	if err != nil {
		t.Fatalf("the registry of npm: %v", err)
	}
	compiled, err := policy.Compile(policy.Document{Bundles: []string{"npm"}})
	if err != nil {
		t.Fatal(err)
	}
	var special []string
	for _, a := range addrs {
		if a = a.Unmap(); !compiled.Address("registry.npmjs.org", a, 443, nil).Allowed() {
			special = append(special, fmt.Sprintf("%q", netip.PrefixFrom(a, a.BitLen()).String()+":443/tls"))
		}
	}
	if len(special) == 0 {
		return "{}\n"
	}
	return "agents: {allow: [" + strings.Join(special, ", ") + "]}\n"
}

// ran is one run, and what the model server saw of it.
type ran struct {
	report run.Report
	seen   modelserver.Seen
	stderr string
	took   time.Duration
	state  string
	key    string
}

// wrap runs an agent with a model that plays a script.
func (p *place) wrap(t *testing.T, a agent, runtime, play string, o modelserver.Options, flags ...string) ran {
	t.Helper()
	text, err := os.ReadFile(play)
	if err != nil {
		t.Fatal(err)
	}
	sc, err := script.Load(text, filepath.Base(play))
	if err != nil {
		t.Fatal(err)
	}
	r := ran{state: t.TempDir(), key: a.shape + rand.Text() + rand.Text()[:13]}
	if o.Key.IsZero() {
		o.Key = secret.New("key", r.key)
	}
	server := modelserver.New(sc, o)
	web := httptest.NewServer(server)
	defer web.Close()
	defer server.Close()
	work := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	args := slices.Concat([]string{"wrap", a.name, "--config", p.config, "--runtime", runtime, "--workspace", work, "--json", "--price", "1,2",
		"--key-env", "MODEL_KEY", "--base-url", web.URL + a.base}, flags, []string{"--"}, a.args)
	cmd := exec.CommandContext(ctx, p.bin, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "XDG_STATE_HOME=" + r.state, "XDG_CACHE_HOME=" + p.cache, "MODEL_KEY=" + r.key}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begun := time.Now()
	err = cmd.Run()
	r.took, r.stderr, r.seen = time.Since(begun), stderr.String(), server.Seen()
	if e := json.Unmarshal(stdout.Bytes(), &r.report); e != nil {
		t.Fatalf("%v, %v: %s%s", err, e, stdout.String(), stderr.String())
	}
	r.keyless(t)
	return r
}

// keyless makes sure that the key is in nothing that rein has written, and that the
// sandbox is gone.
func (r ran) keyless(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(r.state, func(name string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(name)
		if bytes.Contains(data, []byte(r.key)) {
			t.Errorf("the key is in %s", name)
		}
		return err
	})
	if err != nil || strings.Contains(r.stderr, r.key) || !r.report.Cleanup.OK {
		t.Errorf("%v; %+v; %s", err, r.report.Cleanup, r.stderr)
	}
}

// served is what the server said it served, in tokens.
func (r ran) served() (input, output int64) {
	for _, u := range r.seen.Served {
		input, output = input+u.Input, output+u.Output
	}
	return input, output
}

func (r ran) String() string {
	return fmt.Sprintf("%s; %+v\n%+v\n%s", r.report.Conclusion, r.report.Agent, r.report.Models, r.stderr)
}

func scriptOf(name string) string {
	return filepath.Join("..", "..", "wrap", "testdata", "scripts", name+".yaml")
}

// TestAgents: each completes a task, counted to the token, and ends by itself when
// its budget is used up; and no way around its gateway passes.
func TestAgents(t *testing.T) {
	p := newPlace(t)
	runtimes := []string{"runc"}
	if *all {
		runtimes = []string{"gvisor", "runc"}
	}
	for _, a := range list {
		if !a.short && !*all {
			continue
		}
		for _, runtime := range runtimes {
			t.Run(a.name+"/"+runtime, func(t *testing.T) {
				first := p.task(t, a, runtime)
				p.budget(t, a, runtime, first)
				if a.bounded || *all {
					p.boundary(t, a, runtime)
				}
				if *all {
					p.failures(t, a, runtime)
				}
			})
		}
	}
}

// task returns what the first exchange used.
func (p *place) task(t *testing.T, a agent, runtime string) int64 {
	r := p.wrap(t, a, runtime, scriptOf(a.name), modelserver.Options{}, "--accept", "sh test.sh")
	input, output := r.served()
	rep := r.report
	if len(r.seen.Served) < exchanges || rep.Reason != run.Done || rep.Accepted != run.Yes || rep.Patch == nil || len(rep.Patch.Files) != 1 || rep.Patch.Files[0].Path != "add.sh" {
		t.Fatalf("%s", r)
	}
	if rep.Tokens.Input != input || rep.Tokens.Output != output || input == 0 || rep.Tokens.Estimated || rep.Steps != len(r.seen.Served) {
		t.Errorf("the report has %+v in %d steps, and the server served %d in, %d out", rep.Tokens, rep.Steps, input, output)
	}
	if !rep.Agent.Finished || rep.Agent.Version == "" || rep.Agent.Layer == "" || rep.Agent.Flagged != "" {
		t.Errorf("%+v", rep.Agent)
	}
	first := int64(0)
	for _, u := range r.seen.Served[:1+len(r.seen.Served)-exchanges] {
		first += u.Input + u.Output
	}
	t.Logf("%-9s %-7s %-22s %5.1f s, %d requests, %d in, %d out; %s", a.name, runtime, "task: "+string(rep.Reason), r.took.Seconds(), rep.Steps, input, output, rep.Agent.Version)
	return first
}

func (p *place) budget(t *testing.T, a agent, runtime string, first int64) {
	most := 3 * first
	r := p.wrap(t, a, runtime, scriptOf(a.name), modelserver.Options{}, "--max-tokens", fmt.Sprint(most))
	rep := r.report
	if rep.Reason != run.OverBudget || rep.ExitCode != 4 || rep.Steps < 2 || rep.Tokens.Total > most || rep.Agent.ExitCode == nil || rep.Agent.Signal != "" {
		t.Errorf("with %d tokens: %d used in %d steps: %s", most, rep.Tokens.Total, rep.Steps, r)
	}
	t.Logf("%-9s %-7s %-22s %5.1f s, %d requests, %d of %d tokens; exit code %d", a.name, runtime, "three first exchanges", r.took.Seconds(), rep.Steps, rep.Tokens.Total, most, value(rep.Agent.ExitCode))
}

func value(code *int) int {
	if code == nil {
		return -1
	}
	return *code
}
