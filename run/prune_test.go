package run_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run"
)

func ids(pruned []run.Pruned) []string {
	return paths(pruned, func(p run.Pruned) string { return p.RunID })
}

func prune(t *testing.T, dir string, p run.PrunePolicy) []string {
	t.Helper()
	gone, err := run.Prune(t.Context(), dir, p)
	if err != nil {
		t.Error(err)
	}
	return ids(gone)
}

func listed(t *testing.T, dir string) []string {
	t.Helper()
	runs, err := run.List(dir)
	if err != nil {
		t.Error(err)
	}
	return paths(runs, func(s run.Summary) string { return s.RunID })
}

func idle(context.Context, *run.Session) (run.Outcome, error) { return done("") }

func TestPruneByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t)
		old := do(t, o, idle).RunID
		time.Sleep(48 * time.Hour)
		recent := do(t, o, idle).RunID
		if d := cmp.Diff([]string{old}, prune(t, o.StateDir, run.PrunePolicy{Age: 24 * time.Hour, DryRun: true})); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]string{old, recent}, listed(t, o.StateDir)); d != "" {
			t.Errorf("after a dry run: %s", d)
		}
		prune(t, o.StateDir, run.PrunePolicy{})
		if d := cmp.Diff([]string{old}, prune(t, o.StateDir, run.PrunePolicy{Age: 24 * time.Hour})); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]string{recent}, listed(t, o.StateDir)); d != "" {
			t.Error(d)
		}
	})
}

// The oldest go until the rest takes no more, and what is no run stays.
func TestPruneBySize(t *testing.T) {
	t.Parallel()
	o := options(t)
	var all []string
	for range 3 {
		all = append(all, do(t, o, idle).RunID)
		time.Sleep(2 * time.Millisecond) // ids are sorted by the millisecond
	}
	other := filepath.Join(o.StateDir, "runs", "notes")
	put(t, other, map[string]string{"a": "mine"})
	gone, err := run.Prune(t.Context(), o.StateDir, run.PrunePolicy{Bytes: 1, DryRun: true})
	if err != nil || len(gone) != 3 {
		t.Fatalf("%+v, %v", gone, err)
	}
	total := gone[0].Bytes + gone[1].Bytes + gone[2].Bytes
	if got := prune(t, o.StateDir, run.PrunePolicy{Bytes: total}); len(got) != 0 {
		t.Errorf("there was room for all: %v", got)
	}
	if d := cmp.Diff(all[:1], prune(t, o.StateDir, run.PrunePolicy{Bytes: total - 1})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(all[1:], prune(t, o.StateDir, run.PrunePolicy{Bytes: 1})); d != "" {
		t.Error(d)
	}
	items, err := os.ReadDir(filepath.Join(o.StateDir, "runs"))
	if err != nil || len(items) != 1 || items[0].Name() != "notes" {
		t.Errorf("%v, %v", items, err)
	}
}

// A run that works is never removed; one that could be resumed only when that
// is asked for.
func TestPruneSpares(t *testing.T) {
	t.Parallel()
	o := options(t)
	do(t, o, func(context.Context, *run.Session) (run.Outcome, error) {
		if got := prune(t, o.StateDir, run.PrunePolicy{Bytes: 1, All: true}); len(got) != 0 {
			t.Errorf("%v works, and was removed", got)
		}
		return done("")
	})
	o.Output = filepath.Join(t.TempDir(), "out")
	o = crashed(t, o, []string{"true", "echo x > x"}, audit.KindOutput, 1)
	if got := prune(t, o.StateDir, run.PrunePolicy{Bytes: 1}); len(got) != 1 || got[0] == o.ID {
		t.Errorf("%v", got)
	}
	gone, err := run.Prune(t.Context(), o.StateDir, run.PrunePolicy{Bytes: 1, All: true})
	if err != nil || len(gone) != 1 || gone[0].RunID != o.ID || gone[0].Ended || gone[0].Because != "size" {
		t.Errorf("%+v, %v", gone, err)
	}
	left, err := o.Provider.List(t.Context(), nil)
	if err != nil || len(left) != 1 {
		t.Fatalf("%v, %v", left, err)
	}
	if err := o.Provider.Kill(t.Context(), left[0].ID); err != nil {
		t.Error(err)
	}
}
