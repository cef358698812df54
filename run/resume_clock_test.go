package run_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/run/control"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// beginner is a worker that is never to go on with what another began.
type beginner func(context.Context, *run.Session) (run.Outcome, error)

func (b beginner) Work(ctx context.Context, s *run.Session) (run.Outcome, error) { return b(ctx, s) }

func (b beginner) Resume(ctx context.Context, s *run.Session, _ *run.Past) (run.Outcome, error) {
	return run.Outcome{Reason: run.Failed, Detail: "nothing had been begun"}, nil
}

// A run that had its sandbox renewed, and whose process died before the work
// began, is begun anew, and its wall clock runs.
func TestResumedClockRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
		defer mem.Close()
		left := filepath.Join(t.TempDir(), "left")
		o := run.Options{ID: run.NewID(), Task: "x", Provider: mem, StateDir: t.TempDir()}
		_, err := run.Do(t.Context(), o, beginner(func(ctx context.Context, s *run.Session) (run.Outcome, error) {
			if _, err := s.Sandbox().Renew(ctx, s.Sandbox().Info().ExpiresAt.Add(-time.Minute)); err != nil {
				t.Error(err)
			}
			if err := os.CopyFS(left, os.DirFS(o.StateDir)); err != nil {
				t.Error(err)
			}
			return done("")
		}))
		if err != nil {
			t.Fatal(err)
		}
		o.StateDir = left
		rep, err := run.Resume(t.Context(), o, beginner(func(_ context.Context, s *run.Session) (run.Outcome, error) {
			before := s.Budget().Usage().Wall
			time.Sleep(5 * time.Minute)
			if took := s.Budget().Usage().Wall - before; took != 5*time.Minute {
				t.Errorf("5 minutes are %s of the wall clock", took)
			}
			return done("")
		}))
		if err != nil || rep.Reason != run.Done {
			t.Errorf("%+v, %v", rep, err)
		}
	})
}

// Limits that were changed before the work began are so in the run that is begun
// anew.
func TestResumedLimits(t *testing.T) {
	t.Parallel()
	left := filepath.Join(t.TempDir(), "left")
	o := options(t)
	o.ID, o.Control = run.NewID(), true
	_, err := run.Do(t.Context(), o, beginner(func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		c, err := control.Dial(ctx, s.Dir())
		if err != nil {
			t.Error(err)
			return done("")
		}
		defer c.Close()
		for _, tokens := range []int64{1_000_000, 2_000_000} {
			if _, err := c.Limit(ctx, budget.LimitTokens, tokens); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Limit(ctx, budget.LimitWallTime, int64(time.Hour)); err != nil {
			t.Error(err)
		}
		if err := os.CopyFS(left, socketless{os.DirFS(o.StateDir)}); err != nil {
			t.Error(err)
		}
		return done("")
	}))
	if err != nil {
		t.Fatal(err)
	}
	o.StateDir = left
	rep, err := run.Resume(t.Context(), o, beginner(func(_ context.Context, s *run.Session) (run.Outcome, error) {
		if l := s.Budget().Limits(); l.MaxTokens != 2_000_000 || l.MaxWallTime != time.Hour {
			t.Errorf("the limits in force are %+v", l)
		}
		return done("")
	}))
	if err != nil || rep.Reason != run.Done || len(rep.LimitChanges) != 3 {
		t.Errorf("%+v, %v", rep, err)
	}
}

// A run that is resumed past its deadline gives its sandbox no more time than the
// margin after that, whatever is left to be done.
func TestResumedLate(t *testing.T) {
	t.Parallel()
	for range 20 { // the end of the work and that of the record come in either order
		synctest.Test(t, func(t *testing.T) {
			mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
			defer mem.Close()
			e := &ends{Provider: mem, begin: time.Now()}
			o := run.Options{Task: "x", Provider: e, StateDir: t.TempDir(), Output: filepath.Join(t.TempDir(), "out"), Limits: budget.Quick(),
				Accept: []run.Check{{Shell: "true", Timeout: 10 * time.Minute}}}
			o.Limits.MaxWallTime = time.Minute
			o = crashed(t, o, []string{"echo hi"}, audit.KindTool, 1)
			o.Provider = e
			time.Sleep(2 * time.Minute)
			rep, err := run.Resume(t.Context(), o, steps{t: t, commands: []string{"echo hi"}})
			if err != nil || !rep.Cleanup.OK {
				t.Errorf("%+v, %v", rep, err)
			}
			for _, end := range e.given {
				if end > o.Limits.MaxWallTime+budget.Margin {
					t.Errorf("the sandbox was to end after %s", end)
				}
			}
		})
	}
}

// socketless is a file system without its sockets, which end with their process.
type socketless struct{ fs.FS }

func (s socketless) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(s.FS, name)
	return slices.DeleteFunc(list, func(e fs.DirEntry) bool { return e.Type()&fs.ModeSocket != 0 }), err
}
