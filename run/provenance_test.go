package run_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rein-sh/rein/run"
)

// The report says at which commit the workspace was, also a directory of the
// repository's, and whether that is what was copied in.
func TestCommitOfTheWorkspace(t *testing.T) {
	t.Parallel()
	const id = "0123456789abcdef0123456789abcdef01234567"
	for index, known := range map[string]bool{"": true, "DIRC, and no more": false} {
		top := lay(t, map[string]string{"sub/a": "a\n"})
		if err := os.MkdirAll(filepath.Join(top, ".git"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"HEAD": id + "\n", "index": index} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(top, ".git", name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		o := options(t)
		o.Workspace.Dir = filepath.Join(top, "sub")
		rep := do(t, o, func(context.Context, *run.Session) (run.Outcome, error) { return done("") })
		p := rep.Provenance
		if p.Commit != id || (p.Changed != nil) != known || known && *p.Changed != 0 {
			t.Errorf("%+v", p)
		}
		if told := strings.Contains(strings.Join(rep.Warnings, "\n"), "could not be told"); told == known {
			t.Errorf("warnings: %q", rep.Warnings)
		}
		var md bytes.Buffer
		if err := rep.WriteMarkdown(&md); err != nil || strings.Contains(md.String(), "| tracked files changed since | 0 |") != known {
			t.Errorf("%v: %s", err, md.String())
		}
	}
}
