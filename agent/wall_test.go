package agent_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/tool"
)

// A call that is withheld because the time is over is so for the limit, whether
// the work's context had ended by then or only its clock, and a replay does the
// same.
func TestWithheldForTheWallClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
		defer mem.Close()
		type nothing struct{}
		late, err := tool.Func("late", "It takes all the time there is.", func(ctx context.Context, _ nothing) (nothing, error) {
			<-ctx.Done()
			synctest.Wait() // what ends by now has
			return nothing{}, context.Cause(ctx)
		})
		if err != nil {
			t.Fatal(err)
		}
		w, err := agent.New(agent.Options{Model: &fake{answers: []answer{calls("late", "{}", "late", "{}")}}})
		if err != nil {
			t.Fatal(err)
		}
		o := run.Options{Task: "x", Provider: mem, StateDir: t.TempDir(), Limits: budget.Standard(), Tools: []tool.Custom{late}}
		o.Limits.MaxWallTime = 20 * time.Second
		rep, _ := run.Do(context.Background(), o, w)
		if rep == nil || rep.Reason != run.OverBudget {
			t.Fatalf("%+v", rep)
		}
		if d := cmp.Diff("fatal budget", recorded(t, rep)[1]); d != "" {
			t.Error(d)
		}
		got, err := run.Replay(context.Background(), rep.Dir, rep.AuditHead.String(), o, w.(run.Resumer))
		if err != nil || !got.Same {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
