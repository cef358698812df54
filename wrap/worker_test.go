package wrap_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/price"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/wrap"
)

// owned is a provider whose sandboxes have the meter of who owns them.
type owned struct {
	sandbox.Provider
	mu    sync.Mutex
	meter inference.Meter
}

func (o *owned) Attach(_ context.Context, _ string, by sandbox.Owner) (io.Closer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.meter = by.Meter
	return io.NopCloser(nil), nil
}

// spend uses the budget up and is refused one more request.
func (o *owned) spend(t *testing.T) {
	o.mu.Lock()
	m := o.meter
	o.mu.Unlock()
	ask := inference.Ask{Host: "api.example.org", Model: "m", Input: 100, Likely: 50, Turn: "t"}
	g, end, err := m.Begin(t.Context(), ask)
	if err != nil || g.Stop != nil {
		t.Errorf("%+v %v", g, err)
		return
	}
	end(inference.Ended{Usage: inference.Usage{Known: true, Input: 100, Output: g.Output}, Status: 200, Sent: true})
	if g, _, err := m.Begin(t.Context(), ask); err != nil || g.Stop == nil {
		t.Errorf("%+v %v", g, err)
	}
}

// hidden is a key that is masked.
const hidden = "sk-hidden-0000000000000000"

// caged runs an agent that is a script of the shell.
func caged(t *testing.T, o wrap.Options, script string, during func(*owned)) *run.Report {
	t.Helper()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	t.Cleanup(func() { m.Close() })
	p := &owned{Provider: m}
	if len(o.Recipe.Command) == 0 {
		o.Recipe.Name, o.Recipe.Command = "agent", []string{"sh"}
		o.Args = []string{"-c", script}
	}
	w, err := wrap.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	limits := budget.Quick()
	limits.MaxTokens = 5000
	var background sync.WaitGroup
	rep, err := run.Do(t.Context(), run.Options{Task: "agent", Masker: secret.NewMasker(secret.New("key", hidden)), Provider: p, StateDir: t.TempDir(), Limits: limits, NoTranscript: true,
		Agent:   &run.AgentInfo{Name: "agent"},
		Metered: &run.Metered{Rate: func(string) (price.Price, bool) { return price.Price{}, true }},
		Events: func(e run.Event) {
			if e.Kind == run.EventCall && during != nil {
				once.Do(func() { background.Go(func() { during(p) }) })
			}
		}}, w)
	background.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// What an agent's end comes to, by its exit code, what it said and what was refused,
// together.
func TestEnds(t *testing.T) {
	t.Parallel()
	const finished = `{"type":"result","subtype":"success","is_error":false,"result":"repaired","num_turns":2,"duration_ms":1,"session_id":"s"}`
	const refused = `{"type":"result","subtype":"success","is_error":true,"result":"API Error: 401 invalid x-api-key","num_turns":1,"duration_ms":1,"session_id":"s"}`
	for name, c := range map[string]struct {
		results, script string
		reason          run.Reason
		flagged, said   string
	}{
		"finished":                    {"claude", "echo '" + finished + "'", run.Done, "", "repaired"},
		"finished, and exit 1":        {"claude", "echo '" + finished + "'; exit 1", run.Done, "exit code 1", "repaired"},
		"exit 0 without a result":     {"claude", "echo hello", run.Failed, "without a finished result", ""},
		"exit 0 after half a result":  {"claude", "printf '%s' '" + finished[:60] + "'", run.Failed, "without a finished result", ""},
		"exit 3":                      {"claude", "echo oops >&2; exit 3", run.Failed, "", ""},
		"it says that it failed":      {"claude", "echo '" + refused + "'; exit 1", run.NoModel, "", ""},
		"it says so, and exit 0":      {"claude", "echo '" + refused + "'", run.NoModel, "exit code is 0", ""},
		"any command":                 {"", "echo done", run.Done, "", "done"},
		"any command fails":           {"", "echo no; exit 1", run.Failed, "", "no"},
		"ended by a signal":           {"", "kill -TERM $$", run.Failed, "", ""},
		"escape sequences, odd bytes": {"claude", `printf '\033[31mred\033[0m\377\n{"type":"novel"}\n'; echo '` + finished + "'", run.Done, "", "repaired"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rep := caged(t, wrap.Options{Recipe: wrap.Recipe{Results: c.results}}, c.script, nil)
			if rep.Reason != c.reason || !strings.Contains(rep.Agent.Flagged, c.flagged) || (c.flagged == "") != (rep.Agent.Flagged == "") || rep.Answer != c.said {
				t.Errorf("%s, %q, %q: %s; %+v", rep.Reason, rep.Agent.Flagged, rep.Answer, rep.Conclusion, rep.Agent)
			}
			if !rep.Cleanup.OK || rep.Calls.Total != 1 {
				t.Errorf("%+v %+v", rep.Cleanup, rep.Calls)
			}
		})
	}
}

// An agent that fails without its reason has the end of its stderr for one; one that
// tells of a quota has used up the vendor's, where rein has refused nothing.
func TestReasons(t *testing.T) {
	t.Parallel()
	const quota = `{"type":"result","subtype":"success","is_error":true,"result":"API Error: 400 Your credit balance is too low","num_turns":1,"duration_ms":1,"session_id":"s"}`
	for name, c := range map[string]struct {
		results, script string
		reason          run.Reason
		says            string
	}{
		"a command":            {"", "echo why >&2; exit 3", run.Failed, "Failed: agent ended with exit code 3: why."},
		"no reason":            {"", "exit 3", run.Failed, "Failed: agent ended with exit code 3."},
		"two lines, coloured":  {"", `printf 'before\n\033[31mred\033[0m\n\n  and\ttext\r\n' >&2; exit 1`, run.Failed, "Failed: agent ended with exit code 1: red; and text."},
		"a long line":          {"", "echo before >&2; printf '%01000d' 0 >&2; exit 1", run.Failed, "Failed: agent ended with exit code 1: " + strings.Repeat("0", 200) + "…."},
		"a key":                {"", "printf 'no %s, no %s\\033[1m%s\n' " + hidden + " " + hidden[:12] + " " + hidden[12:] + " >&2; exit 1", run.Failed, "Failed: agent ended with exit code 1: no [secret:key], no [secret:key]."},
		"an agent":             {"codex", "echo 'Reading prompt from stdin...' >&2; echo 'Which task?' >&2; exit 1", run.Failed, "Failed: agent ended with exit code 1: Reading prompt from stdin...; Which task?."},
		"an agent that exits":  {"codex", "echo 'Which task?' >&2", run.Failed, "Failed: agent ended with exit code 0 without a finished result: Which task?."},
		"a code, and no words": {"gemini", "echo 'Which key?' >&2; exit 41", run.NoModel, "The model is not available: bad_key: Which key? (agent ended with exit code 41)."},
		"nothing at all":       {"gemini", "exit 41", run.NoModel, "The model is not available: bad_key: it said no more (agent ended with exit code 41)."},
		"the vendor's quota":   {"claude", "echo '" + quota + "'; exit 1", run.NeedsHuman, "A person has to decide: quota: API Error: 400 Your credit balance is too low (agent ended with exit code 1)."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rep := caged(t, wrap.Options{Recipe: wrap.Recipe{Results: c.results}}, c.script, nil)
			if rep.Reason != c.reason || rep.Conclusion != c.says {
				t.Errorf("%s: %s", rep.Reason, rep.Conclusion)
			}
			if quota := c.reason == run.NeedsHuman; quota != (rep.Agent.Failure == "quota") || quota && (rep.ExitCode != 6 || !strings.Contains(rep.Hint, "--key-env")) {
				t.Errorf("%d %q %+v", rep.ExitCode, rep.Hint, rep.Agent)
			}
		})
	}
}

// An agent that was refused a request for the budget has ended for that, whatever
// it says.
func TestSpent(t *testing.T) {
	t.Parallel()
	rep := caged(t, wrap.Options{}, "until [ -e spent ]; do sleep 0.02; done; echo done", func(p *owned) {
		p.spend(t)
		all, err := p.List(t.Context(), nil)
		if err != nil || len(all) != 1 {
			t.Errorf("%v %v", all, err)
			return
		}
		box, err := sandbox.Attach(t.Context(), p.Provider, all[0].ID, sandbox.Options{Log: audit.New(io.Discard, audit.Options{})})
		if err != nil {
			t.Error(err)
			return
		}
		defer box.Close()
		if _, err := box.WriteFile(t.Context(), "spent", nil, sandbox.WriteOptions{}); err != nil {
			t.Error(err)
		}
	})
	if rep.Reason != run.OverBudget || rep.ExitCode != 4 || rep.Brake == nil || rep.Brake.Limit != string(budget.LimitTokens) || rep.Answer != "done" || rep.Tokens.Total > 5000 {
		t.Errorf("%s %+v %+v", rep.Reason, rep.Brake, rep.Tokens)
	}
}

// The agent finds its files, its environment and the words of its vendor.
func TestPrepared(t *testing.T) {
	t.Parallel()
	v := wrap.Vendor{Name: "v", Host: "api.example.org", Base: "/v1", Route: wrap.Door, Env: map[string]string{"URL": "{{.BaseURL}}"}, Args: []string{"vendor"}}
	r := wrap.Recipe{Name: "agent", Command: []string{"sh"}, Env: map[string]string{"MODEL": "{{.Model}}"},
		Files:    []wrap.File{{Path: ".agent/settings", Content: "model={{.Model}}\n"}},
		Headless: wrap.Mode{Args: []string{"-c", `cat "$HOME/.agent/settings"; echo "$MODEL $URL $1 $2"`, "name"}}}
	rep := caged(t, wrap.Options{Recipe: r, Vendor: &v, Model: "m-1", Args: []string{"mine"}}, "", nil)
	if want := "model=m-1\nm-1 http://10.88.0.1:3129/api.example.org/v1 vendor mine"; rep.Reason != run.Done || rep.Answer != want {
		t.Errorf("%s %q, want %q", rep.Conclusion, rep.Answer, want)
	}
	rep = caged(t, wrap.Options{Recipe: wrap.Recipe{Name: "none", Command: []string{"no-such-agent"}}}, "", nil)
	if rep.Reason != run.Misused || !strings.Contains(rep.Conclusion, "no-such-agent is not in the sandbox") {
		t.Errorf("%s", rep.Conclusion)
	}
}

// With a terminal the agent's end is its exit code, or the user's.
func TestTerminal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code   int
		err    error
		reason run.Reason
	}{
		"done": {0, nil, run.Done}, "failed": {2, nil, run.Failed}, "ended": {0, wrap.ErrEnded, run.Interrupted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rep := caged(t, wrap.Options{Recipe: wrap.Recipe{Name: "agent", Command: []string{"sh"}, Interactive: &wrap.Mode{Args: []string{"-i"}}},
				Terminal: func(_ context.Context, _ *sandbox.Sandbox, o sandbox.TerminalOptions) (int, error) {
					if o.Command != "exec 'sh' '-i'" {
						t.Errorf("%q", o.Command)
					}
					return c.code, c.err
				}}, "", nil)
			if rep.Reason != c.reason {
				t.Errorf("%s %s", rep.Reason, rep.Conclusion)
			}
		})
	}
}
