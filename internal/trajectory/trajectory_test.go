package trajectory_test

import (
	"cmp"
	"context"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/rein-sh/rein/history"
	"github.com/rein-sh/rein/internal/trajectory"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/script"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// load is the trajectory of that name.
func load(t *testing.T, name string) trajectory.Trajectory {
	t.Helper()
	all, err := trajectory.Load(os.DirFS("testdata/quick"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range all {
		if tr.Name == name {
			return tr
		}
	}
	t.Fatalf("no trajectory %q", name)
	panic("unreachable")
}

// TestLoad loads the trajectories of make context.
func TestLoad(t *testing.T) {
	all, err := trajectory.Load(os.DirFS("testdata"))
	if err != nil || len(all) < 10 {
		t.Errorf("%d trajectories: %v", len(all), err)
	}
}

// TestQuick plays one trajectory on the in-memory provider, with each strategy.
// The others need sandboxes: make context.
func TestQuick(t *testing.T) {
	tr := load(t, "c-ini-read")
	play := func(t *testing.T, s history.Strategy) *trajectory.Measure {
		dir := t.TempDir()
		if err := tr.Project(dir, "testdata/projects"); err != nil {
			t.Fatal(err)
		}
		p := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
		defer p.Close()
		m, err := trajectory.Play(context.Background(), trajectory.Env{Provider: p, StateDir: t.TempDir()}, tr.Script, dir, s)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	whole := play(t, trajectory.Whole)
	for _, s := range history.Strategies() {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			m := play(t, s)
			t.Logf("%d%% of the tokens, %d calls, %d to read again, %d texts used, largest share %.1f%%", m.Tokens()*100/whole.Tokens(), m.Calls, m.Reread, m.Used, m.Largest)
			if len(m.Missing) > 0 || m.Used == 0 {
				t.Errorf("%d texts used, missing: %v", m.Used, m.Missing)
			}
			if m.Largest > history.DefaultShare {
				t.Errorf("a result held %.1f%% of a request", m.Largest)
			}
			if percent := m.Tokens() * 100 / whole.Tokens(); percent > 65 || m.Calls != whole.Calls {
				t.Errorf("%d%% of the tokens, %d calls of %d:\n%s", percent, m.Calls, whole.Calls, strings.Join(m.Notes, "\n"))
			}
		})
	}
}

// TestReaderMisses shows that what a call uses and the prompt lacks is noticed,
// where no reference leads to it, and read again where one does.
func TestReaderMisses(t *testing.T) {
	s, err := script.Load([]byte(`steps:
  - {name: one, calls: [{tool: run_command, arguments: {command: ls}, capture: {f: {from: stdout, match: '\S+'}}}]}
  - {name: two, calls: [{tool: run_command, arguments: {command: pwd}}]}
  - {name: three, calls: [{tool: run_command, arguments: {command: "cat ${{ f }}"}}]}
  - {text: done}
`), "s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, reference, call, missing string }{
		{"with a reference", "", `{"reduced":"run_command ls","text":{"read_file":"/run/rein/out/c1"}}`, `{"offset":1,"path":"/run/rein/out/c1"}`, ""},
		{"without", "", `{"reduced":"run_command ls"}`, `{"command":"cat a_rather_long_name.txt"}`, "step 3: a_rather_long_name.txt, first seen in call_1_1"},
		{"a time", "2026-01-02T03:04:05", `{"reduced":"run_command ls"}`, `{"command":"cat 2026-01-02T03:04:05"}`, "step 3: 2026-01-02T03, first seen in call_1_1step 3: 2026-01-02T03:04:05, first seen in call_1_1"},
		{"an address", "a@b.c:80+x=", `{"reduced":"run_command ls"}`, `{"command":"cat a@b.c:80+x="}`, ""}, // of eleven characters
		{"a hash", "kJ8=+q/7zQ==", `{"reduced":"run_command ls"}`, `{"command":"cat kJ8=+q/7zQ=="}`, "step 3: kJ8=+q/7zQ==, first seen in call_1_1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := trajectory.NewReader(s.Model())
			req := &model.Request{System: "s", Tools: []model.ToolDef{{Name: "run_command"}}, MaxOutputTokens: 100,
				Messages: []model.Message{{Role: model.RoleUser, Text: "task"}}}
			var args string
			for _, result := range []string{`{"ok":true,"stdout":"` + cmp.Or(c.text, "a_rather_long_name.txt") + `\n"}`, `{"ok":true,"stdout":"/workspace\n"}`, ""} {
				reply, err := r.Generate(context.Background(), req, nil)
				if err != nil {
					t.Fatal(err)
				}
				call := reply.Message.Calls[0]
				args = call.Arguments
				req.Messages = append(req.Messages, reply.Message,
					model.Message{Role: model.RoleTool, Results: []model.ToolResult{{ID: call.ID, Name: call.Name, Content: result}}})
				if len(req.Messages) == 5 {
					req.Messages[2].Results[0].Content = c.reference
				}
			}
			if m := r.Measure(); args != c.call || strings.Join(m.Missing, "") != c.missing {
				t.Errorf("it calls %s, missing %v", args, m.Missing)
			}
		})
	}
}
