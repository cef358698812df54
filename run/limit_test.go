package run_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/run/control"
	"github.com/rein-sh/rein/tool"
)

// Every limit of a run that works can be changed, alone or one after the other
// so that they go together; a change that does not changes nothing.
func TestEveryLimitOfALiveRun(t *testing.T) {
	t.Parallel()
	slow, err := tool.Program{Name: "slow", Description: "Takes its time.", Argv: []string{"true"}, Timeout: 90 * time.Second}.Tool()
	if err != nil {
		t.Fatal(err)
	}
	o := options(t)
	o.Tools = []tool.Custom{slow}
	changes := []struct {
		limit    budget.Limit
		amount   int64
		old, now string
	}{
		{budget.LimitMaxCallTimeout, int64(5 * minute), "2m", "5m"},
		{budget.LimitCallTimeout, int64(3 * minute), "1m", "3m"},
		{budget.LimitOutputBytes, 2048, "16 KiB", "2 KiB"},
		{budget.LimitOutputLines, 30, "400", "30"},
		{budget.LimitTTL, int64(4 * minute), "8m", "4m"},
		{budget.LimitTTL, int64(time.Hour), "4m", "1h"},
	}
	rep := asking(t, o, func(ctx context.Context, s *run.Session, c *control.Client) {
		before := s.Budget().Limits()
		for _, bad := range []struct {
			limit  budget.Limit
			amount int64
			said   string
		}{
			{budget.LimitCallTimeout, int64(3 * minute), "limit max_call_timeout = 2m: must not be below call_timeout, 3m"},
			{budget.LimitMaxCallTimeout, int64(30 * time.Second), "must not be below call_timeout, 1m"},
			{budget.LimitMaxCallTimeout, int64(80 * time.Second), "the tool slow has 1m30s for a call, more than any may take, 1m20s"},
			{budget.LimitOutputBytes, 1023, "must be from 1 KiB to 1 MiB"},
			{budget.LimitOutputLines, 7, "must be 8 or more"},
			{budget.LimitTTL, int64(minute), "must be more than 1m"},
		} {
			_, err := c.Limit(ctx, bad.limit, bad.amount)
			if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != control.CodeInvalid || e.Hint() == "" || !strings.Contains(e.Message, bad.said) {
				t.Errorf("%s = %d: %v", bad.limit, bad.amount, err)
			}
		}
		if now := s.Budget().Limits(); now != before {
			t.Errorf("%+v, then %+v", before, now)
		}
		for _, ch := range changes {
			if got, err := c.Limit(ctx, ch.limit, ch.amount); err != nil || got.Old != ch.old || got.New != ch.now {
				t.Errorf("%s: %+v, %v", ch.limit, got, err)
			}
		}
		if r := shell(t, ctx, s, "seq 300"); !r.Truncated || strings.Count(r.Stdout, "\n") > 30 {
			t.Errorf("%d lines", strings.Count(r.Stdout, "\n"))
		}
	})
	now := map[string]string{}
	for _, l := range rep.Limits {
		now[l.Name] = l.Value
	}
	for _, ch := range changes[:4] {
		if now[string(ch.limit)] != ch.now {
			t.Errorf("the report has %s = %s, want %s", ch.limit, now[string(ch.limit)], ch.now)
		}
	}
	if now["ttl"] != "1h" || len(rep.LimitChanges) != len(changes) || rep.Reason != run.Done {
		t.Errorf("ttl %s; %s; changes %+v", now["ttl"], rep.Conclusion, rep.LimitChanges)
	}
	if _, err := run.Do(t.Context(), func() run.Options { o.Limits.MaxCallTimeout = 80 * time.Second; return o }(), nil); err == nil || !strings.Contains(err.Error(), "the tool slow has 1m30s") {
		t.Errorf("at the start: %v", err)
	}
}

// A time to live that is changed holds from the next renewal on, and never past
// the run's end and its margin.
func TestTimeToLiveIsChanged(t *testing.T) {
	t.Parallel()
	set := func(ttl time.Duration) func(context.Context, *run.Session, *tool.Set) run.Outcome {
		return func(ctx context.Context, s *run.Session, set *tool.Set) run.Outcome {
			if _, err := s.Budget().SetLimit(budget.LimitTTL, int64(ttl)); err != nil {
				t.Error(err)
			}
			return every(minute, echo)(ctx, s, set)
		}
	}
	for _, c := range []struct {
		wall, ttl time.Duration
		want      []time.Duration
	}{
		// Born for 18 minutes, decided a minute before each end, absolute end 43.
		{40 * minute, 10 * minute, []time.Duration{27 * minute, 36 * minute, 43 * minute}},
		{40 * minute, 20 * minute, []time.Duration{37 * minute, 43 * minute}},
		{40 * minute, 5 * time.Hour, []time.Duration{43 * minute}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := budget.Long()
			l.MaxWallTime = c.wall
			rep, e, err := lives(t, l, budget.Terms{}, nil, set(c.ttl))
			if err != nil || rep.Reason != run.OverBudget || fmt.Sprint(e.given) != fmt.Sprint(c.want) {
				t.Errorf("%v: ends %v, want %v: %s, %v", c.ttl, e.given, c.want, rep.Conclusion, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // without progress there is no renewal
		rep, e, err := lives(t, budget.Long(), budget.Terms{}, nil, func(ctx context.Context, s *run.Session, _ *tool.Set) run.Outcome {
			if _, err := s.Budget().SetLimit(budget.LimitTTL, int64(time.Hour)); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return run.Outcome{}
		})
		if err != nil || rep.Reason != run.NoProgress || len(e.given) != 0 {
			t.Errorf("ends %v: %s, %v", e.given, rep.Conclusion, err)
		}
	})
}
