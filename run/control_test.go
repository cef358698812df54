package run_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/run/control"
)

// asking runs a worker that waits until ask, which has a client of the run, is done.
func asking(t *testing.T, o run.Options, ask func(context.Context, *run.Session, *control.Client)) *run.Report {
	t.Helper()
	o.Control = true
	return do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		c, err := control.Dial(ctx, s.Dir())
		if err != nil {
			t.Error(err)
			return done("")
		}
		defer c.Close()
		ask(ctx, s, c)
		return done("said")
	})
}

func TestLimitOfALiveRun(t *testing.T) {
	t.Parallel()
	o := options(t)
	rep := asking(t, o, func(ctx context.Context, s *run.Session, c *control.Client) {
		shell(t, ctx, s, "true")
		before, err := c.Status(ctx)
		if err != nil || before.SandboxID == "" || before.Task != "do it" || !strings.Contains(before.Doing, "going on") {
			t.Errorf("status %+v, %v", before, err)
		}
		ch, err := c.Limit(ctx, budget.LimitTokens, 2_000_000)
		if err != nil || ch.Old != "200000" || ch.New != "2000000" {
			t.Errorf("%+v, %v", ch, err)
		}
		if got := s.Budget().Limits().MaxTokens; got != 2_000_000 {
			t.Errorf("the limit in force is %d", got)
		}
		if _, err := c.Limit(ctx, budget.LimitWallTime, int64(10*time.Minute)); err != nil {
			t.Error(err)
		}
		if after, err := c.Status(ctx); err != nil || !after.Deadline.Equal(before.Deadline.Add(5*time.Minute)) {
			t.Errorf("the deadline went from %s to %s, %v", before.Deadline, after.Deadline, err)
		}
		for limit, amount := range map[budget.Limit]int64{budget.LimitOutputBytes: 5, budget.LimitMaxCallTimeout: int64(time.Second), budget.LimitTTL: int64(time.Minute), "max_luck": 7} {
			_, err := c.Limit(ctx, limit, amount)
			if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != control.CodeInvalid || e.Hint() == "" {
				t.Errorf("%s: %v", limit, err)
			}
		}
	})
	if rep.Reason != run.Done || len(rep.LimitChanges) != 2 || rep.LimitChanges[0].UID != uint32(os.Geteuid()) {
		t.Errorf("%s, changes %+v", rep.Reason, rep.LimitChanges)
	}
	for _, l := range rep.Limits {
		if l.Name == string(budget.LimitTokens) && l.Value != "2000000" {
			t.Errorf("the report says %s of %s", l.Value, l.Name)
		}
	}
	if n := strings.Count(recorded(t, rep), `"kind":"`+string(audit.KindLimit)+`"`); n != 2 {
		t.Errorf("%d changes are recorded", n)
	}
	if _, err := os.Stat(filepath.Join(rep.Dir, control.File)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// A limit that is lowered below what is used stops the work at the next check.
func TestLimitLowered(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Control = true
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		if err := s.Budget().Spend(budget.Spent{Tokens: 500}); err != nil {
			t.Error(err)
		}
		c, err := control.Dial(ctx, s.Dir())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Limit(ctx, budget.LimitTokens, 100); err != nil {
			t.Error(err)
		}
		return run.Outcome{}, s.Budget().Check()
	})
	if rep.Reason != run.OverBudget || rep.Brake == nil || rep.Brake.Max != "100" {
		t.Errorf("%s, %+v", rep.Reason, rep.Brake)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Control = true
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		c, err := control.Dial(ctx, s.Dir())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Stop(context.Background(), "lunch"); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return run.Outcome{}, context.Cause(ctx)
	})
	if rep.Reason != run.Interrupted || rep.ExitCode != 130 || !strings.Contains(rep.Conclusion, "lunch") || !rep.Cleanup.OK {
		t.Errorf("%s (%d): %s", rep.Reason, rep.ExitCode, rep.Conclusion)
	}
	if !strings.Contains(recorded(t, rep), `"kind":"`+string(audit.KindControl)+`"`) {
		t.Error("it is not recorded who stopped it")
	}
}

func TestNothingPending(t *testing.T) {
	t.Parallel()
	asking(t, options(t), func(ctx context.Context, s *run.Session, c *control.Client) {
		if list, err := c.Pending(ctx); err != nil || len(list) != 0 {
			t.Errorf("%v, %v", list, err)
		}
		err := c.Approve(ctx, control.Answer{ID: "q1", Hash: "h", Decision: control.Approve})
		if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != control.CodeNotFound {
			t.Errorf("%v", err)
		}
	})
}

// recorded is the text of a run's audit log.
func recorded(t *testing.T, rep *run.Report) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(rep.Dir, run.AuditFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
