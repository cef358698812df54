package run_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/tool"
)

// ends is a provider that keeps the ends that its sandbox was given, and can be
// made to fail.
type ends struct {
	sandbox.Provider
	mu    sync.Mutex
	given []time.Duration // since the beginning
	tried []time.Duration
	begin time.Time
	fail  func(n int) error // of the n-th attempt, from 1
}

func (e *ends) Renew(ctx context.Context, id string, until time.Time) (time.Time, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tried = append(e.tried, time.Since(e.begin))
	if e.fail != nil {
		if err := e.fail(len(e.tried)); err != nil {
			return time.Time{}, err
		}
	}
	end, err := e.Provider.Renew(ctx, id, until)
	e.given = append(e.given, end.Sub(e.begin))
	return end, err
}

// lives has a worker work on a sandbox that lives on these terms.
func lives(t *testing.T, l budget.Limits, terms budget.Terms, fail func(int) error, work func(context.Context, *run.Session, *tool.Set) run.Outcome) (*run.Report, *ends, error) {
	t.Helper()
	return livesAs(t, run.Options{Limits: l, Lease: terms}, fail, work)
}

func livesAs(t *testing.T, o run.Options, fail func(int) error, work func(context.Context, *run.Session, *tool.Set) run.Outcome) (*run.Report, *ends, error) {
	t.Helper()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	defer m.Close()
	e := &ends{Provider: m, begin: time.Now(), fail: fail}
	o.Task, o.Provider, o.StateDir = "x", e, t.TempDir()
	rep, err := run.Do(t.Context(), o,
		worker(func(ctx context.Context, s *run.Session) (run.Outcome, error) {
			set, err := s.Tools()
			if err != nil {
				return run.Outcome{}, err
			}
			return work(ctx, s, set), nil
		}))
	if rep == nil {
		t.Fatal(err)
	}
	if !rep.Cleanup.OK {
		t.Errorf("%+v", rep.Cleanup)
	}
	return rep, e, err
}

// command runs a command, as the loop does, and returns its result.
func command(ctx context.Context, s *run.Session, set *tool.Set, args string) tool.Result {
	c := tool.Call{ID: s.NewCallID(), Name: tool.RunCommand, Arguments: []byte(args)}
	res := set.Run(ctx, c)
	_ = s.Called(c, 1, res)
	return res
}

// every runs a new command each so often until the work is ended.
func every(d time.Duration, args func(i int) string) func(context.Context, *run.Session, *tool.Set) run.Outcome {
	return func(ctx context.Context, s *run.Session, set *tool.Set) run.Outcome {
		for i := 0; ctx.Err() == nil; i++ {
			command(ctx, s, set, args(i))
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
		}
		return run.Outcome{}
	}
}

func echo(i int) string { return fmt.Sprintf(`{"command":"echo %s"}`, strings.Repeat("x", i+1)) }

const minute = time.Minute

func TestRenewedByProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rep, e, err := lives(t, budget.Long(), budget.Terms{}, nil, every(minute, echo))
		if err != nil || rep.Reason != run.OverBudget || rep.Brake.Limit != string(budget.LimitWallTime) {
			t.Fatalf("%s, %v", rep.Conclusion, err)
		}
		// Born for 18 minutes, renewed by 15 each time, never past 2 h and 3 min.
		want := []time.Duration{33 * minute, 48 * minute, 63 * minute, 78 * minute, 93 * minute, 108 * minute, 123 * minute}
		if fmt.Sprint(e.given) != fmt.Sprint(want) {
			t.Errorf("ends %v, want %v", e.given, want)
		}
		for i, at := range e.tried {
			if due := (17 + 15*time.Duration(i)) * minute; at != due {
				t.Errorf("renewal %d at %v, due at %v", i, at, due)
			}
		}
	})
}

// A sandbox without progress ends as it was made, and so does the work: early
// enough for its outputs, for which no time is added.
func TestExpiresWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rep, e, err := lives(t, budget.Long(), budget.Terms{}, nil, every(minute, func(int) string { return `{"command":"exit 1"}` }))
		if err != nil || rep.Reason != run.NoProgress || rep.ExitCode != 5 || len(e.tried) != 0 {
			t.Fatalf("%s after %v, %v", rep.Conclusion, e.tried, err)
		}
		if at := time.Since(e.begin); at < 17*minute || at > 18*minute {
			t.Errorf("it ended after %v", at)
		}
	})
}

// Before whom a person sits, that one may think for as long as the run may take.
func TestAttendedIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rep, e, err := livesAs(t, run.Options{Limits: budget.Long(), Attended: true}, nil, every(minute, func(int) string { return `{"command":"exit 1"}` }))
		if err != nil || rep.Reason != run.OverBudget || rep.Brake.Limit != string(budget.LimitWallTime) || len(e.given) != 7 || e.given[6] != 123*minute {
			t.Errorf("%s after %v: %v, %v", rep.Conclusion, e.tried, e.given, err)
		}
	})
}

// Progress counts from the last renewal.
func TestOldProgressDoesNotRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rep, e, err := lives(t, budget.Long(), budget.Terms{}, nil, every(minute, func(i int) string { return echo(0) }))
		if err != nil || rep.Reason != run.NoProgress || len(e.tried) != 1 || time.Since(e.begin) > 33*minute {
			t.Errorf("%s after %v: %v, %v", rep.Conclusion, time.Since(e.begin), e.tried, err)
		}
	})
}

var errDown = &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "renew", Err: errors.New("no answer")}

func TestFailedRenewals(t *testing.T) {
	t.Run("that work in the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rep, e, err := lives(t, budget.Long(), budget.Terms{}, func(n int) error {
				if n <= 4 {
					return errDown
				}
				return nil
			}, every(minute, echo))
			if err != nil || rep.Reason != run.OverBudget || e.given[0] != 33*minute {
				t.Fatalf("%s, %v", rep.Conclusion, err)
			}
			for i, at := range []time.Duration{0, 1, 3, 7, 15} {
				if e.tried[i] != 17*minute+at*time.Second {
					t.Errorf("attempt %d at %v", i, e.tried[i])
				}
			}
		})
	})
	t.Run("that never do", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rep, e, _ := lives(t, budget.Long(), budget.Terms{}, func(int) error { return errDown }, every(minute, echo))
			if rep.Reason != run.Failed || !strings.Contains(rep.Conclusion, "could not be renewed and ends at") || rep.ExitCode != 1 {
				t.Fatalf("%s: %s", rep.Reason, rep.Conclusion)
			}
			if at := time.Since(e.begin); at < 17*minute || at >= 17*minute+30*time.Second {
				t.Errorf("it ended after %v: the outputs need the rest", at)
			}
		})
	})
	t.Run("for good", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			denied := &sandbox.Error{Kind: sandbox.KindDenied, Op: "renew", Err: errors.New("no")}
			rep, e, _ := lives(t, budget.Long(), budget.Terms{}, func(int) error { return denied }, every(minute, echo))
			if rep.Reason != run.Failed || len(e.tried) > 2 {
				t.Errorf("%s after %v", rep.Conclusion, e.tried)
			}
		})
	})
}

// The deadline of a run that works can be moved, and the sandbox's with it.
func TestDeadlineIsMoved(t *testing.T) {
	move := func(wall time.Duration) func(context.Context, *run.Session, *tool.Set) run.Outcome {
		return func(ctx context.Context, s *run.Session, set *tool.Set) run.Outcome {
			if _, err := s.Budget().SetLimit(budget.LimitWallTime, int64(wall)); err != nil {
				t.Error(err)
			}
			return every(minute, echo)(ctx, s, set)
		}
	}
	t.Run("later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rep, e, err := lives(t, budget.Quick(), budget.Terms{}, nil, move(20*minute))
			// Born for 8 minutes, and renewed by 5.
			if want := []time.Duration{13 * minute, 18 * minute, 23 * minute}; err != nil || fmt.Sprint(e.given) != fmt.Sprint(want) {
				t.Errorf("ends %v, want %v: %s, %v", e.given, want, rep.Conclusion, err)
			}
			if ms := rep.Time.TotalMS; ms < 20*60_000 || ms > 21*60_000 {
				t.Errorf("it took %d ms", ms)
			}
		})
	})
	t.Run("earlier", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rep, e, err := lives(t, budget.Long(), budget.Terms{}, nil, move(10*minute))
			if err != nil || rep.Reason != run.OverBudget || len(e.given) != 1 || e.given[0] != 13*minute || time.Since(e.begin) > 11*minute {
				t.Errorf("ends %v after %v: %s, %v", e.given, time.Since(e.begin), rep.Conclusion, err)
			}
		})
	})
}

// hung is a provider whose renewals take as long as they may.
type hung struct{ sandbox.Provider }

func (hung) Renew(ctx context.Context, _ string, _ time.Time) (time.Time, error) {
	<-ctx.Done()
	return time.Time{}, &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "renew", Err: context.Cause(ctx)}
}

// A run whose deadline is moved into the past has the time to save, and does not
// say that its sandbox would outlive it.
func TestDeadlineIsMovedIntoThePast(t *testing.T) {
	for name, wrap := range map[string]func(sandbox.Provider) sandbox.Provider{
		"renewed": func(p sandbox.Provider) sandbox.Provider { return p },
		"hung":    func(p sandbox.Provider) sandbox.Provider { return hung{p} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
				defer m.Close()
				e := &ends{Provider: wrap(m), begin: time.Now()}
				rep, err := run.Do(t.Context(), run.Options{Task: "x", Provider: e, StateDir: t.TempDir(), Limits: budget.Long()},
					worker(func(ctx context.Context, s *run.Session) (run.Outcome, error) {
						time.Sleep(10 * minute)
						if _, err := s.Budget().SetLimit(budget.LimitWallTime, int64(time.Second)); err != nil {
							t.Error(err)
						}
						<-ctx.Done()
						return run.Outcome{}, nil
					}))
				if err != nil || rep.Reason != run.OverBudget || !rep.Cleanup.OK {
					t.Fatalf("%+v %v", rep, err)
				}
				for _, w := range rep.Warnings {
					if strings.Contains(w, "outlive") {
						t.Error(w)
					}
				}
				for _, end := range e.given {
					if name == "renewed" && end < 10*minute {
						t.Errorf("its sandbox was to end at %s", end)
					}
				}
			})
		})
	}
}

// Near the end no call is begun that would outlive the sandbox.
func TestCallsEndBeforeTheSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, clipped, refused tool.Result
		rep, _, err := lives(t, budget.Long(), budget.Terms{}, nil, func(ctx context.Context, s *run.Session, set *tool.Set) run.Outcome {
			time.Sleep(16*minute + 30*time.Second) // 30 s before it is decided
			asked = command(ctx, s, set, `{"command":"sleep 100","timeout_seconds":110}`)
			clipped = command(ctx, s, set, `{"command":"sleep 100"}`)
			refused = command(ctx, s, set, `{"command":"true"}`)
			<-ctx.Done()
			return run.Outcome{}
		})
		if err != nil || rep.Reason != run.NoProgress {
			t.Fatalf("%s, %v", rep.Conclusion, err)
		}
		if e := asked.Err; e == nil || e.Code != tool.CodeExpiring || e.Class != tool.Fixable || !strings.Contains(e.Message+e.Hint, "30") {
			t.Errorf("asked for more than is left: %+v", asked)
		}
		if !clipped.Timeout || clipped.DurationMS < 29_000 || clipped.DurationMS > 30_000 {
			t.Errorf("by default: %+v", clipped)
		}
		if e := refused.Err; e == nil || e.Code != tool.CodeExpiring {
			t.Errorf("with nothing left: %+v", refused)
		}
	})
	synctest.Test(t, func(t *testing.T) { // progress: it will be renewed
		_, _, err := lives(t, budget.Long(), budget.Terms{}, nil, func(ctx context.Context, s *run.Session, set *tool.Set) run.Outcome {
			command(ctx, s, set, echo(0))
			time.Sleep(16*minute + 30*time.Second)
			if res := command(ctx, s, set, `{"command":"sleep 100","timeout_seconds":110}`); !res.OK {
				t.Errorf("%+v", res)
			}
			return run.Outcome{Reason: run.Done}
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// On terms of its own a sandbox lives a short life, by the same rules.
func TestTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := budget.Quick()
		l.MaxWallTime = 12 * time.Second
		terms := budget.Terms{Estimate: 3 * time.Second, Margin: 2 * time.Second, SaveBefore: time.Second}
		rep, e, err := lives(t, l, terms, nil, every(time.Second, echo))
		if want := "[8s 11s 14s]"; err != nil || fmt.Sprint(e.given) != want || rep.Reason != run.OverBudget {
			t.Errorf("ends %v, want %s: %s, %v", e.given, want, rep.Conclusion, err)
		}
	})
}
