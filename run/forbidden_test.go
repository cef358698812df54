package run_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
)

// A workspace, or a file in it, that may not be read ends the run with what to do.
func TestWorkspaceThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	for _, name := range []string{".", "a.txt"} {
		o := options(t)
		o.Workspace.Dir = lay(t, map[string]string{"a.txt": "one\n"})
		path := filepath.Join(o.Workspace.Dir, name)
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		rep, err := run.Do(context.Background(), o, worker(func(context.Context, *run.Session) (run.Outcome, error) {
			t.Error("the work began")
			return run.Outcome{}, nil
		}))
		if e := os.Chmod(path, 0o700); e != nil {
			t.Error(e)
		}
		if err == nil || !strings.Contains(sandbox.HintOf(err), ".reinignore") || rep.Reason != run.Misused {
			t.Errorf("%s: %v, hint %q, reason %s", name, err, sandbox.HintOf(err), rep.Reason)
		}
	}
}
