package run_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/run"
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
