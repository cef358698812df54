package run_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/run"
)

// A name that cannot be said costs its file, not the patch, and none can write
// into the report.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace.Dir = lay(t, map[string]string{"a": "1\n", ".gitignore": "*.o\n"})
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		shell(t, ctx, s, `echo 2 > a; printf x > "$(printf '\377')"; printf y > "$(printf '\357\277\275')"; printf z > "$(printf '\377.o')"; `+
			`mkdir "$(printf 'd\377')"; printf x > "$(printf 'd\377/in')"; ln -s "$(printf '\377')" l; `+
			`ln -s ../../x "$(printf 'up\n\n# Forged\n| accepted | yes |')"`)
		return done("so\r# Said\rit\x1b[2J \u202edetpecca")
	})
	if rep.Reason != run.Done || len(rep.Patch.Files) != 1 {
		t.Errorf("%s %s: %+v", rep.Conclusion, rep.Error, rep.Patch)
	}
	want := []string{"d\ufffd", "l", "up\n\n# Forged\n| accepted | yes |", "\ufffd", "\ufffd"}
	if d := cmp.Diff(want, paths(rep.Patch.Skipped, func(s run.Skipped) string { return s.Path })); d != "" {
		t.Error(d)
	}
	var b bytes.Buffer
	if err := rep.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	for _, forged := range []string{"\n# Forged", "\n| accepted | yes |", "\r", "\x1b", "\u202e"} {
		if strings.Contains(b.String(), forged) {
			t.Errorf("the report has %q:\n%s", forged, b.String())
		}
	}
}

// What is hidden in a protected place behind a name that cannot be said is a
// breach all the same.
func TestHostileNamesInProtectedPlaces(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"file":      `echo x > "tests/$(printf 'a\377')"`,
		"directory": `mkdir "tests/$(printf 'a\377')"; echo x > "tests/$(printf 'a\377')/conftest.py"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.Workspace.Dir = lay(t, map[string]string{"tests/a": "1\n"})
			o.Protect, o.Accept = []string{"tests/"}, []run.Check{{Shell: "true"}}
			rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
				shell(t, ctx, s, command)
				return done("")
			})
			want := run.Protected{Path: "tests/a\ufffd", After: "unknown", Kind: "added"}
			if n := len(rep.Protected); rep.Reason != run.Refused || n != 2 || rep.Protected[0] != want {
				t.Errorf("%s: %+v", rep.Conclusion, rep.Protected)
			}
		})
	}
}

// Artifacts that cannot be asked for, because of their names, are told and cost
// no others.
func TestArtifactNames(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Artifacts = []string{"out", "out/*", "/tmp/results"}
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		shell(t, ctx, s, `mkdir -p out /tmp/results "$(printf 'out/d\377')"; for n in a é z "$(printf 'b\377')" "$(printf 'b\376')" "$(printf 'd\377/x')"; do echo "$n" > "out/$n"; done; `+
			`echo 1 > "$(printf '/tmp/results/\377')"`)
		return done("")
	})
	if rep.Reason != run.Done || rep.Error != "" {
		t.Errorf("%s %s", rep.Conclusion, rep.Error)
	}
	fetched := paths(rep.Artifacts, func(a run.Artifact) string { return a.Source })
	if d := cmp.Diff([]string{"/workspace/out/a", "/workspace/out/z", "/workspace/out/é"}, fetched); d != "" {
		t.Error(d)
	}
	left := paths(rep.Unfetched, func(s run.Skipped) string { return s.Path })
	if d := cmp.Diff([]string{"/tmp/results/\ufffd", "/workspace/out/b\ufffd", "/workspace/out/b\ufffd", "/workspace/out/d\ufffd/x"}, left); d != "" {
		t.Error(d)
	}
	all := strings.Join(rep.Warnings, "\n")
	if !strings.Contains(all, `"/workspace/out/b\ufffd", `) || !strings.Contains(all, "UTF-8") || strings.Contains(all, "no artifact") {
		t.Errorf("warnings: %s", all)
	}
	md, err := os.ReadFile(filepath.Join(rep.Dir, "report.md"))
	if err != nil || !strings.Contains(string(md), "- left out: `/workspace/out/b\ufffd`: its name") {
		t.Errorf("%v:\n%s", err, md)
	}
}

// A file that fails is an error, and the others of its artifact come out.
func TestArtifactThatFails(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Artifacts = []string{"out"}
	rep, err := run.Do(context.Background(), o, worker(func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		shell(t, ctx, s, "mkdir out; echo 1 > out/a; echo 2 > out/b; echo 3 > out/c")
		inTheWay := filepath.Join(o.StateDir, "runs", s.RunID(), "artifacts", "out")
		if err := os.MkdirAll(filepath.Join(inTheWay, "b"), 0o700); err != nil {
			t.Error(err)
		}
		return done("")
	}))
	fetched := paths(rep.Artifacts, func(a run.Artifact) string { return a.Source })
	if d := cmp.Diff([]string{"/workspace/out/a", "/workspace/out/c"}, fetched); d != "" {
		t.Error(d)
	}
	if err == nil || rep.Reason != run.Failed || !strings.Contains(rep.Error, "out/b") || !rep.Cleanup.OK {
		t.Errorf("%s: %v", rep.Conclusion, err)
	}
}
