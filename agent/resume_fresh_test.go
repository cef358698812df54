package agent_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// again calls once before the second sandbox is made.
type again struct {
	sandbox.Provider
	made   int
	before func()
}

func (s *again) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	if s.made++; s.made == 2 {
		s.before()
	}
	return s.Provider.Create(ctx, spec)
}

// A process that dies while work is checked in a sandbox of its own leaves two:
// the one that was worked in is gone on with, and none is left.
func TestResumedFresh(t *testing.T) {
	t.Parallel()
	resumed := 0
	for after := 0; after < 40; after += 3 {
		synctest.Test(t, func(t *testing.T) {
			mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
			defer mem.Close()
			defer time.Sleep(2 * sandbox.KillTimeout) // what the dead process still tries ends
			var process *mortal
			outside := &again{Provider: mem, before: func() { process.dieAfter(1 + after) }}
			p := &plot{answers: []answer{calls(cmd("echo y >> log")), text("done")}}
			rep := livesTwice(t, outside, p, run.Options{ID: run.NewID(), Task: "x", Limits: budget.Long(), Workspace: logbook(t),
				Fresh: true, Retry: 1, Accept: []run.Check{{Name: "y", Shell: "grep y log"}}}, func(m *mortal, _ bool) { process = m })
			if rep.Reason != run.Done || rep.Accepted != run.Yes || !rep.Cleanup.OK {
				t.Errorf("after %d points: %s, accepted %s: %s, cleanup %+v, %q", after, rep.Reason, rep.Accepted, rep.Error, rep.Cleanup, rep.Warnings)
			}
			if left, err := mem.List(context.Background(), nil); err != nil || len(left) != 0 {
				t.Errorf("after %d points: %d sandboxes are left, %v", after, len(left), err)
			}
			resumed += len(rep.Resumed)
		})
	}
	if resumed == 0 {
		t.Error("it never died while the work was checked")
	}
}
