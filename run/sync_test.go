package run_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// The output directory has what has changed, after each call and at the end, and
// nobody else's file is touched.
func TestOutputDirectory(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace.Dir = lay(t, map[string]string{"same": "s", "a": "one", ".gitignore": "built\n"})
	o.Output = filepath.Join(t.TempDir(), "out", "put")
	if err := os.MkdirAll(o.Output, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(o.Output, "mine"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := func(name string) string {
		data, err := os.ReadFile(filepath.Join(o.Output, name))
		if err != nil {
			return "none"
		}
		return string(data)
	}
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		shell(t, ctx, s, "echo two > a; mkdir d; echo n > d/new; echo b > built; echo x > mine; ln -s /etc/passwd link")
		if out("a") != "two\n" || out("d/new") != "n\n" {
			t.Errorf("after a call: %q, %q", out("a"), out("d/new"))
		}
		shell(t, ctx, s, "rm d/new; echo three > a")
		return done("made")
	})
	for name, want := range map[string]string{"a": "three\n", "d/new": "none", "built": "none", "same": "none", "mine": "mine", "link": "none"} {
		if got := out(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if rep.Output == nil || rep.Output.Files != 1 || len(rep.Output.Skipped) != 1 || rep.Output.Skipped[0].Path != "mine" {
		t.Errorf("%+v", rep.Output)
	}
	if n := strings.Count(recorded(t, rep), `"kind":"`+string(audit.KindOutput)+`"`); n != 2 {
		t.Errorf("%d passes are recorded", n)
	}
	for _, d := range []string{".", "d"} {
		items, _ := os.ReadDir(filepath.Join(o.Output, d))
		for _, it := range items {
			if strings.HasPrefix(it.Name(), ".rein-") {
				t.Errorf("%s is left", it.Name())
			}
		}
	}
}

// A sandbox that is lost leaves what it held after the last call.
func TestOutputOfALostSandbox(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Output = filepath.Join(t.TempDir(), "out")
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		shell(t, ctx, s, "echo kept > a")
		if err := o.Provider.Kill(ctx, s.Sandbox().ID()); err != nil {
			t.Error(err)
		}
		shell(t, ctx, s, "echo lost > b")
		return run.Outcome{Reason: run.Lost}, nil
	})
	data, err := os.ReadFile(filepath.Join(o.Output, "a"))
	if err != nil || string(data) != "kept\n" || rep.Reason != run.Lost || rep.Output == nil || rep.Output.Files != 1 {
		t.Errorf("%q, %v, %s, %+v", data, err, rep.Reason, rep.Output)
	}
}

func TestOutputInTheWorkspace(t *testing.T) {
	dir := lay(t, map[string]string{"a/b": "x"})
	for _, out := range []string{dir, filepath.Join(dir, "a"), filepath.Dir(dir), "relative"} {
		o := options(t)
		o.Workspace.Dir, o.Output = dir, out
		if _, err := run.Do(t.Context(), o, worker(nil)); err == nil {
			t.Errorf("%s is accepted", out)
		}
	}
}

// What a file grows by counts like a new file, and what it has is its own.
func TestOutputRoom(t *testing.T) {
	for _, tt := range []struct {
		name string
		info run.OutputInfo
		has  int64
		mine bool
		want int64
	}{
		{"nothing there", run.OutputInfo{}, 0, false, run.MaxOutputBytes},
		{"a file that grows", run.OutputInfo{Files: 2, Bytes: run.MaxOutputBytes - 10}, 6, true, 16},
		{"a new file beside full ones", run.OutputInfo{Files: 2, Bytes: run.MaxOutputBytes}, 0, false, 0},
		{"too many files", run.OutputInfo{Files: run.MaxOutputFiles}, 0, false, -1},
		{"one of too many files", run.OutputInfo{Files: run.MaxOutputFiles, Bytes: 5}, 5, true, run.MaxOutputBytes},
	} {
		if got := tt.info.Room(tt.has, tt.mine); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A file that is too large for the output directory, or the artifacts, is left out
// and named, and what comes after it is not.
func TestOutputsThatFit(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: host})
	defer mem.Close()
	o := options(t)
	o.Provider = mem
	o.Workspace.Dir = lay(t, map[string]string{"d/large": ""})
	o.Output = filepath.Join(t.TempDir(), "out")
	o.Artifacts = []string{"d"}
	rep, err := run.Do(t.Context(), o, worker(func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		large, _ := filepath.Glob(filepath.Join(host, "*", "workspace", "d", "large"))
		if len(large) != 1 || os.Truncate(large[0], run.MaxOutputBytes+1) != nil {
			t.Fatalf("%q", large)
		}
		shell(t, ctx, s, "echo 1 > d/small && echo 2 > last")
		for _, name := range []string{"d/small", "last"} {
			if _, err := os.Stat(filepath.Join(o.Output, name)); err != nil {
				t.Errorf("after the call: %v", err)
			}
		}
		shell(t, ctx, s, "echo 3 > last")
		return done("")
	}))
	if rep == nil {
		t.Fatal(err)
	}
	if out := rep.Output; out == nil || out.Files != 2 || len(out.Skipped) != 1 || out.Skipped[0].Path != "d/large" {
		t.Errorf("%+v", out)
	}
	if data, err := os.ReadFile(filepath.Join(o.Output, "last")); err != nil || string(data) != "3\n" {
		t.Errorf("%q, %v", data, err)
	}
	if len(rep.Artifacts) != 1 || rep.Artifacts[0].Source != "/workspace/d/small" {
		t.Errorf("%+v", rep.Artifacts)
	}
	if len(rep.Unfetched) != 1 || rep.Unfetched[0].Path != "/workspace/d/large" || !strings.Contains(rep.Error, "without /workspace/d/large") {
		t.Errorf("%+v; %s", rep.Unfetched, rep.Error)
	}
	if n := strings.Count(strings.Join(rep.Warnings, "\n"), "d/large"); n != 3 { // for later, of the patch, and for good
		t.Errorf("%q", rep.Warnings)
	}
}
