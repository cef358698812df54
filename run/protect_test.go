package run_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/run"
)

// What is protected is not to be changed, deleted or added to, whatever the
// checks say.
func TestProtectedPlaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		protect []string
		command string
		want    []string // breaches: kind and path
	}{
		{"nothing", []string{"tests/"}, "echo x > src/new.py; mkdir tests/empty", nil},
		{"added", []string{"tests/"}, "echo x > tests/conftest.py", []string{"added tests/conftest.py"}},
		{"added, with **", []string{"tests/**"}, "mkdir tests/deep; echo x > tests/deep/conftest.py", []string{"added tests/deep/conftest.py"}},
		{"added, by name", []string{"conftest.py"}, "echo x > src/conftest.py", []string{"added src/conftest.py"}},
		{"added, where nothing was", []string{"./specs/"}, "mkdir -p specs src/specs; echo x > specs/a; echo x > src/specs/a", []string{"added specs/a"}},
		{"added, not excepted", []string{"tests/**", "!tests/out.txt"}, "echo x > tests/out.txt; echo x > tests/other.txt", []string{"added tests/other.txt"}},
		{"added link", []string{"tests/"}, "ln -s ../src/a.py tests/b.py", []string{"added tests/b.py"}},
		{"added link out", []string{"tests/"}, "ln -s /etc/passwd tests/b.py", []string{"added tests/b.py"}},
		{"added secret", []string{"tests/"}, "echo x > tests/.env", []string{"added tests/.env"}},
		{"link for a directory", []string{"specs/"}, "ln -s src specs", []string{"added specs"}},
		{"modified", []string{"tests/"}, "echo x > tests/test_a.py", []string{"modified tests/test_a.py"}},
		{"deleted", []string{"tests/"}, "rm tests/test_a.py", []string{"deleted tests/test_a.py"}},
		{"mode", []string{"tests/"}, "chmod 755 tests/test_a.py", []string{"mode tests/test_a.py"}},
		{"replaced by a link", []string{"tests/"}, "rm -r tests; ln -s src tests",
			[]string{"added tests", "deleted tests/test_a.py", "deleted tests/test_b.py"}},
		{"ignored", []string{"tests/"}, "mkdir tests/__pycache__; echo x > tests/__pycache__/a.pyc; echo x > tests/b.pyc", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.Workspace.Dir = lay(t, map[string]string{".gitignore": "__pycache__/\n*.pyc\n", "src/a.py": "a\n", "tests/test_a.py": "a\n", "tests/test_b.py": "b\n"})
			o.Protect, o.Accept = c.protect, []run.Check{{Shell: "true"}}
			rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
				if r := shell(t, ctx, s, c.command); !r.OK {
					t.Errorf("%+v %v", r, r.Err)
				}
				return done("")
			})
			var got []string
			for _, p := range rep.Protected {
				if !p.Unchanged {
					got = append(got, p.Kind+" "+p.Path)
				}
				if (p.Before == "") != (p.Kind == "added") || (p.After == "") != (p.Kind == "deleted") || p.Unchanged != (p.Kind == "") {
					t.Errorf("%+v", p)
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			reason, accepted := run.Done, run.Yes
			if c.want != nil {
				reason, accepted = run.Refused, run.No
			}
			if rep.Reason != reason || rep.Accepted != accepted {
				t.Errorf("%s, accepted %s: %s %s", rep.Reason, rep.Accepted, rep.Conclusion, rep.Error)
			}
			told := slices.ContainsFunc(rep.Warnings, func(w string) bool { return strings.Contains(w, "tests/__pycache__, tests/b.pyc") })
			if told != (c.name == "ignored") {
				t.Errorf("warnings: %q", rep.Warnings)
			}
			var md bytes.Buffer
			if err := rep.WriteMarkdown(&md); err != nil {
				t.Fatal(err)
			}
			for _, w := range c.want {
				kind, path, _ := strings.Cut(w, " ")
				fate := map[string]string{"added": "ADDED", "deleted": "DELETED", "modified": "MODIFIED", "mode": "MODE CHANGED"}[kind]
				if line := "\n- " + fate + ": `" + path + "`"; !strings.Contains(md.String(), line) || !strings.Contains(rep.Conclusion, "protected") {
					t.Errorf("no %q in the report; %s:\n%s", line, rep.Conclusion, md.String())
				}
			}
		})
	}
}

// Whoever applies the patch of a run that broke a protection is asked about
// each such file, like about a hook.
func TestApplyAsksAboutProtectedFiles(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace.Dir = lay(t, map[string]string{"a": "a\n", "tests/x": "x\n", "tests/y": "y\n", "tests/z": "z\n"})
	o.Protect = []string{"tests/"}
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		shell(t, ctx, s, "echo b > a; echo 2 > tests/x; rm tests/y; echo n > tests/n")
		return done("")
	})
	log, err := os.ReadFile(filepath.Join(rep.Dir, "audit.jsonl"))
	if err != nil || !strings.Contains(string(log), `"breaches":["added tests/n, where files are protected"`) {
		t.Errorf("the audit log says nothing of it: %v", err)
	}
	if _, err := run.Apply(context.Background(), rep.Dir, o.Workspace.Dir, nil); err == nil {
		t.Error("nobody was asked, and it was applied")
	}
	var asked []string
	answer := func(c run.Concern) (bool, error) {
		asked = append(asked, c.Kind+" "+c.Path)
		return true, nil
	}
	if _, err := run.Apply(context.Background(), rep.Dir, o.Workspace.Dir, answer); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"protected tests/n", "protected tests/x", "protected tests/y"}, asked); d != "" {
		t.Error(d)
	}
	if b, err := os.ReadFile(filepath.Join(o.Workspace.Dir, "tests/n")); err != nil || string(b) != "n\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// Work is not accepted when it is not known what became of what is protected.
func TestProtectionNotLookedAt(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace.Dir = lay(t, map[string]string{"tests/x": "x\n"})
	o.Protect, o.Accept = []string{"tests/"}, []run.Check{{Shell: "true"}}
	rep, err := run.Do(context.Background(), o, worker(func(_ context.Context, s *run.Session) (run.Outcome, error) {
		inTheWay := filepath.Join(o.StateDir, "runs", s.RunID(), "patch")
		if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
			t.Error(err)
		}
		return done("")
	}))
	if err == nil || rep.Reason != run.Failed || rep.Accepted != run.Unclear || !rep.Cleanup.OK {
		t.Errorf("%s, accepted %s: %v", rep.Reason, rep.Accepted, err)
	}
}
