package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// A request during which the process died costs what was set aside for it then,
// and not what its text, in which less time was left, would need now.
func TestResumedLostRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
		defer mem.Close()
		var process *mortal
		f := &fake{answers: []answer{
			func(req *model.Request) (*model.Reply, error) {
				time.Sleep(8*time.Minute + 30*time.Second) // one minute is left for work
				return text("")(req)
			},
			func(*model.Request) (*model.Reply, error) { process.die(); return nil, errDead },
			text("done"),
		}}
		o := run.Options{ID: run.NewID(), Task: "x", Limits: budget.Standard()}
		o.Limits.MaxWallTime = 10 * time.Minute
		o.Events = func(e run.Event) {
			if strings.Contains(e.Text, "of max_wall_time used") { // after the reply was recorded
				time.Sleep(5 * time.Second) // and what is left is a byte shorter
			}
		}
		rep := livesTwice(t, mem, nil, o, func(m *mortal, _ bool) { process, m.Model = m, f })
		held := reserved(t, rep)
		if len(held) != 3 || len(rep.Resumed) != 1 || rep.Reason != run.Done {
			t.Fatalf("%v; %s", held, rep.Conclusion)
		}
		if want := 2*(usage.Input+usage.Output) + held[1]; rep.Tokens.Total != want || !rep.Tokens.Estimated {
			t.Errorf("%+v, want %d", rep.Tokens, want)
		}
	})
}

// reserved is what was set aside for each request.
func reserved(t *testing.T, rep *run.Report) (tokens []int64) {
	t.Helper()
	for _, data := range onRecord[struct{ Note run.Held }](t, rep, audit.KindModelRequest) {
		tokens = append(tokens, data.Note.Tokens)
	}
	return tokens
}
