package agent_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/tool"
)

// die ends the process now, with all that is on record.
func (m *mortal) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st, err := os.Stat(m.log(m.dir)); err == nil {
		m.size = st.Size()
	}
	m.dead = true
	m.leave()
	m.kill()
}

// lives twice: a process works until it dies, and another goes on. tell is told
// of each before it works.
func livesTwice(t *testing.T, outside sandbox.Provider, p *plot, o run.Options, tell func(m *mortal, resumed bool)) *run.Report {
	t.Helper()
	state := t.TempDir()
	for _, resumed := range []bool{false, true} {
		ctx, kill := context.WithCancel(context.Background())
		defer kill()
		m := &mortal{Provider: outside, Model: p, dir: state, left: filepath.Join(t.TempDir(), "left"), rng: rand.New(rand.NewPCG(1, 1)), kill: kill}
		tell(m, resumed)
		w, err := agent.New(agent.Options{Model: talking{m}})
		if err != nil {
			t.Fatal(err)
		}
		o.Provider, o.StateDir = m, state
		if !resumed {
			rep, err := run.Do(ctx, o, w)
			if dead, _ := m.state(); !dead {
				t.Logf("it did not die: %v", err)
				return rep
			}
			state = m.left
			continue
		}
		rep, err := run.Resume(ctx, o, w.(run.Resumer))
		if rep == nil {
			t.Fatal(err)
		}
		return rep
	}
	return nil
}

// A function of the host's that was under way when the process died is not
// called again; the model is told that nobody knows what it did.
func TestResumedFunction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
		defer mem.Close()
		var process *mortal
		paid := 0
		pay, err := tool.Func("pay", "Pays.", func(context.Context, struct{}) (string, error) {
			if paid++; paid == 1 {
				process.die()
			}
			return "paid", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		told := ""
		p := &plot{failed: map[int]bool{2: true}, answers: []answer{calls("pay", "{}"), func(req *model.Request) (*model.Reply, error) {
			for _, m := range req.Messages {
				for _, r := range m.Results {
					told += r.Content
				}
			}
			return text("done")(req)
		}}}
		rep := livesTwice(t, mem, p, run.Options{ID: run.NewID(), Task: "x", Limits: budget.Long(), Tools: []tool.Custom{pay}},
			func(m *mortal, _ bool) { process = m })
		if paid != 1 || !strings.Contains(told, tool.CodeOutcomeUnknown) || rep.Reason != run.Done {
			t.Errorf("called %d times; %s; the model was told %s", paid, rep.Conclusion, told)
		}
	})
}

// A command that a person had allowed, and changed, when the process died is
// not asked about again if it was begun; if it was not, it is.
func TestResumedApproval(t *testing.T) {
	t.Parallel()
	adopted := 0
	for after := 1; after <= 8; after++ {
		synctest.Test(t, func(t *testing.T) {
			mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
			defer mem.Close()
			policy, err := approval.NewPolicy(approval.Ask)
			if err != nil {
				t.Fatal(err)
			}
			var process *mortal
			again, asked := false, 0
			person := asker(func(context.Context, approval.Question) (approval.Decision, error) {
				if asked++; again {
					return approval.Decision{Reason: "not again"}, nil
				}
				process.mu.Lock()
				process.at = process.points + after
				process.mu.Unlock()
				return approval.Decision{Approve: true, Command: "echo person >> log"}, nil
			})
			ws := t.TempDir()
			if err := os.WriteFile(filepath.Join(ws, "log"), []byte("x\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			p := &plot{failed: map[int]bool{2: true}, answers: []answer{calls(cmd("echo model >> log")), text("done")}}
			rep := livesTwice(t, mem, p, run.Options{ID: run.NewID(), Task: "x", Limits: budget.Long(), Workspace: run.Workspace{Dir: ws},
				Approval: &run.Approval{Policy: policy, Channels: []approval.Channel{person}}},
				func(m *mortal, resumed bool) { process, again = m, resumed })
			patch, _ := os.ReadFile(filepath.Join(rep.Dir, "patch"))
			ran := strings.Count(string(patch), "+person\n")
			t.Logf("after %d points: ran %d times, asked %d times, %s", after, ran, asked, rep.Conclusion)
			switch {
			case strings.Contains(string(patch), "+model") || ran > 1:
				t.Errorf("after %d points:\n%s", after, patch)
			case ran == 1 && (rep.Reason != run.Done || asked != 1), ran == 0 && (rep.Reason != run.NeedsHuman || asked != 2):
				t.Errorf("after %d points: ran %d times, asked %d times, %s: %s", after, ran, asked, rep.Reason, rep.Conclusion)
			}
			if ran == 1 && len(rep.Resumed) == 1 && rep.Calls.Total == 1 {
				adopted++
			}
		})
	}
	if adopted == 0 {
		t.Error("it never died while the command was under way")
	}
}

// asker is a channel made of a function.
type asker func(context.Context, approval.Question) (approval.Decision, error)

func (asker) Name() string { return "terminal" }

func (a asker) Ask(ctx context.Context, q approval.Question) (approval.Decision, error) {
	return a(ctx, q)
}

// Looking at a command in the background is no call of its own that had begun:
// the next call of a resumed run is a new one.
func TestResumedAfterWaiting(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) { // the record ends anywhere between the reply and its call
		synctest.Test(t, func(t *testing.T) { resumedAfterWaiting(t, seed) })
	}
}

func resumedAfterWaiting(t *testing.T, seed uint64) {
	mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	defer mem.Close()
	ws := t.TempDir()
	if err := os.WriteFile(filepath.Join(ws, "log"), []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var process *mortal
	died := false
	p := &plot{failed: map[int]bool{2: true}, answers: []answer{
		calls(tool.RunCommand, `{"command":"echo begun; sleep 5","background":true}`),
		func(req *model.Request) (*model.Reply, error) {
			id := regexp.MustCompile(`"background":\{"id":"([^"]+)"`).FindStringSubmatch(req.Messages[len(req.Messages)-1].Results[0].Content)
			if id == nil {
				t.Fatalf("%+v", req.Messages)
			}
			return calls(tool.RunCommand, `{"wait":"`+id[1]+`","timeout_seconds":1}`)(req)
		},
		func(req *model.Request) (*model.Reply, error) {
			if !died {
				died = true
				process.mu.Lock()
				process.at = process.points + 2
				process.mu.Unlock()
			}
			return calls(cmd("echo new >> log"))(req)
		},
		text("done"),
	}}
	rep := livesTwice(t, mem, p, run.Options{ID: run.NewID(), Task: "x", Limits: budget.Long(), Workspace: run.Workspace{Dir: ws}},
		func(m *mortal, _ bool) { process, m.rng = m, rand.New(rand.NewPCG(seed, 1)) })
	patch, _ := os.ReadFile(filepath.Join(rep.Dir, "patch"))
	if rep.Reason != run.Done || rep.Calls.Total != 3 || !strings.Contains(string(patch), "+new\n") {
		t.Errorf("%s, %d calls:\n%s", rep.Conclusion, rep.Calls.Total, patch)
	}
}
