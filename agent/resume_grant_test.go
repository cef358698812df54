package agent_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// What a person has allowed for the run is not allowed in the process that takes
// the run up: it is asked about again, by another id.
func TestResumedGrant(t *testing.T) {
	t.Parallel()
	again := 0
	for after := 1; after <= 12; after++ {
		synctest.Test(t, func(t *testing.T) {
			mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
			defer mem.Close()
			var process *mortal
			resumed, ids, hashes := false, map[string]bool{}, map[string]bool{}
			person := asker(func(_ context.Context, q approval.Question) (approval.Decision, error) {
				ids[q.ID], hashes[q.Hash] = true, true
				if resumed {
					return approval.Decision{Reason: "not again"}, nil
				}
				process.dieAfter(after)
				return approval.Decision{Approve: true, ForRun: true}, nil
			})
			p := &plot{failed: map[int]bool{2: true}, answers: []answer{calls(cmd("echo a >> log")), calls(cmd("echo a >> log")), text("done")}}
			rep := livesTwice(t, mem, p, run.Options{ID: run.NewID(), Task: "x", Limits: budget.Long(), Workspace: logbook(t),
				Approval: asking(t, person)},
				func(m *mortal, r bool) { process, resumed = m, r })
			patch := patchOf(rep)
			ran := strings.Count(patch, "+a\n")
			t.Logf("after %d points: ran %d times, asked %d times, %s", after, ran, len(ids), rep.Conclusion)
			if want := map[int]run.Reason{0: run.NeedsHuman, 1: run.NeedsHuman, 2: run.Done}[ran]; rep.Reason != want || len(hashes) != 1 {
				t.Errorf("after %d points: ran %d times, %d different questions, %s: %s", after, ran, len(hashes), rep.Reason, rep.Conclusion)
			}
			if asked := map[int]int{0: 2, 1: 2, 2: 1}[ran]; len(ids) != asked {
				t.Errorf("after %d points: ran %d times, %d questions", after, ran, len(ids))
			}
			if ran == 1 {
				again++
			}
		})
	}
	if again == 0 {
		t.Error("it never died between the two")
	}
}
