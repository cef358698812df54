package agent_test

import (
	"context"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/tool"
)

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
			var process *mortal
			again, asked := false, 0
			person := asker(func(context.Context, approval.Question) (approval.Decision, error) {
				if asked++; again {
					return approval.Decision{Reason: "not again"}, nil
				}
				process.dieAfter(after)
				return approval.Decision{Approve: true, Command: "echo person >> log"}, nil
			})
			p := &plot{failed: map[int]bool{2: true}, answers: []answer{calls(cmd("echo model >> log")), text("done")}}
			rep := livesTwice(t, mem, p, run.Options{ID: run.NewID(), Task: "x", Limits: budget.Long(), Workspace: logbook(t),
				Approval: asking(t, person)},
				func(m *mortal, resumed bool) { process, again = m, resumed })
			patch := patchOf(rep)
			ran := strings.Count(patch, "+person\n")
			t.Logf("after %d points: ran %d times, asked %d times, %s", after, ran, asked, rep.Conclusion)
			switch {
			case strings.Contains(patch, "+model") || ran > 1:
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
				process.dieAfter(2)
			}
			return calls(cmd("echo new >> log"))(req)
		},
		text("done"),
	}}
	rep := livesTwice(t, mem, p, run.Options{ID: run.NewID(), Task: "x", Limits: budget.Long(), Workspace: logbook(t)},
		func(m *mortal, _ bool) { process, m.rng = m, rand.New(rand.NewPCG(seed, 1)) })
	patch := patchOf(rep)
	if rep.Reason != run.Done || rep.Calls.Total != 3 || !strings.Contains(patch, "+new\n") {
		t.Errorf("%s, %d calls:\n%s", rep.Conclusion, rep.Calls.Total, patch)
	}
}
