package run_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rein-sh/rein/run"
)

// Whoever goes on working in the workspace while a run does has no part in what
// is put back, nor in the sandbox that is made for the checks.
func TestWorkspaceThatIsEditedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, fresh := range map[string]bool{"restored": false, "fresh": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.Workspace.Dir = lay(t, map[string]string{"tests/check": "as it was", "tests/other": "also", "a": "one\n"})
			o.Protect, o.Fresh = []string{"tests/"}, fresh
			o.Accept = []run.Check{{File: &run.FileCheck{Path: "tests/check", Contains: []string{"as it was"}}},
				{File: &run.FileCheck{Path: "tests/other", Contains: []string{"also"}}}, {File: &run.FileCheck{Path: "a", Contains: []string{"two"}}}}
			rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
				for name, text := range map[string]string{"tests/check": "as it is.", "tests/other": "ALSO", "a": "ONE\n"} {
					if err := os.WriteFile(filepath.Join(o.Workspace.Dir, name), []byte(text), 0o644); err != nil {
						t.Error(err)
					}
				}
				shell(t, ctx, s, "rm tests/check; echo two > a")
				return done("")
			})
			for _, c := range rep.Checks {
				if !c.Passed && (fresh || c.Name != "a") {
					t.Errorf("%+v", c)
				}
			}
			if len(rep.Checks) != 3 || rep.Accepted != run.No {
				t.Errorf("%s: %+v", rep.Accepted, rep.Checks)
			}
			for _, w := range rep.Warnings {
				if strings.Contains(w, "cannot be made what it was") {
					t.Error(w)
				}
			}
			if _, err := os.Stat(filepath.Join(rep.Dir, "inputs")); !os.IsNotExist(err) {
				t.Errorf("the copies are still there: %v", err)
			}
		})
	}
}
