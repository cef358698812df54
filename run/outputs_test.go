package run_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/tool"
)

func paths[T any](items []T, of func(T) string) []string {
	var out []string
	for _, it := range items {
		out = append(out, of(it))
	}
	slices.Sort(out)
	return out
}

// What must not leave a sandbox stays in it and is named.
func TestHostileOutputs(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace.Dir = lay(t, map[string]string{"host": "1\n", ".gitignore": "ignored/\n*.o\n", "keep": "k\n"})
	o.Masker = secret.NewMasker(secret.New("key", "hunter2hunter2"))
	o.Artifacts = []string{"out", "/etc/passwd"}
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		shell(t, ctx, s, "ln -s /etc/passwd out; ln -s ../../x up; mkdir -p .git/hooks ignored sub .ssh; "+
			"echo evil > .git/hooks/post-checkout; echo b > ignored/x; echo b > sub/y.o; echo key > .ssh/id; echo hunter2hunter2 > leak; ln -s keep in")
		if err := os.WriteFile(filepath.Join(o.Workspace.Dir, "host"), []byte("edited meanwhile\n"), 0o644); err != nil {
			t.Error(err)
		}
		shell(t, ctx, s, "echo 2 > host")
		return done("")
	})
	if rep.Reason != run.Done {
		t.Errorf("%s: %s", rep.Conclusion, rep.Error)
	}
	if d := cmp.Diff([]string{"in", "leak"}, paths(rep.Patch.Files, func(c run.Change) string { return c.Path })); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{".ssh", "host", "out", "up"}, paths(rep.Patch.Skipped, func(s run.Skipped) string { return s.Path })); d != "" {
		t.Error(d)
	}
	if len(rep.Artifacts) != 0 {
		t.Errorf("artifacts: %+v", rep.Artifacts)
	}
	for _, says := range []string{"known secret", "no artifact out"} {
		if !slices.ContainsFunc(rep.Warnings, func(w string) bool { return strings.Contains(w, says) }) {
			t.Errorf("no warning says %q: %q", says, rep.Warnings)
		}
	}
}

func TestArtifacts(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace.Dir = lay(t, map[string]string{".gitignore": "dist/\n", "a.txt": "a"})
	o.Artifacts = []string{"dist", "/tmp/result.bin", "*.txt"}
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		shell(t, ctx, s, "mkdir -p dist/deep && echo 1 > dist/deep/x && printf 'b\\000n' > /tmp/result.bin && echo c > dist/c.txt")
		return done("")
	})
	want := []string{"/tmp/result.bin", "/workspace/a.txt", "/workspace/dist/c.txt", "/workspace/dist/deep/x"}
	if d := cmp.Diff(want, paths(rep.Artifacts, func(a run.Artifact) string { return a.Source })); d != "" {
		t.Error(d)
	}
	for _, a := range rep.Artifacts {
		if !strings.HasPrefix(a.Path, filepath.Join(rep.Dir, "artifacts")+"/") || len(a.SHA256) != 64 {
			t.Errorf("%+v", a)
		}
	}
	if b, err := os.ReadFile(filepath.Join(rep.Dir, "artifacts/root/tmp/result.bin")); err != nil || string(b) != "b\x00n" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestOutputIsKeptMaskedOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		o := options(t)
		o.KeepOutput = keep
		o.Masker = secret.NewMasker(secret.New("key", "hunter2hunter2"))
		var name string
		rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
			r := shell(t, ctx, s, "echo hunter2hunter2; seq 1 9000")
			if r.Spill == nil {
				t.Fatalf("no spill: %+v", r)
			}
			name = filepath.Base(r.Spill.Path)
			return done("")
		})
		b, err := os.ReadFile(filepath.Join(rep.Dir, "output", name))
		if keep && (err != nil || !bytes.HasPrefix(b, []byte("[secret:key]\n1\n")) || !bytes.HasSuffix(b, []byte("\n9000\n"))) {
			t.Errorf("kept %.40q, %v", b, err)
		}
		if !keep && err == nil {
			t.Error("output was kept")
		}
	}
}

// A file that changes while it is copied is not half copied.
func TestInputThatChanges(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace.Dir = lay(t, map[string]string{"a": "1\n", "b": "2\n"})
	o.Events = func(e run.Event) {
		if e.Kind == run.EventInputs {
			os.WriteFile(filepath.Join(o.Workspace.Dir, "b"), []byte("longer than before\n"), 0o644)
		}
	}
	rep, err := run.Do(context.Background(), o, worker(func(context.Context, *run.Session) (run.Outcome, error) {
		t.Error("the worker was called")
		return done("")
	}))
	if err == nil || !strings.Contains(err.Error(), "b changed while it was copied") || rep.ExitCode == 0 || !rep.Cleanup.OK {
		t.Errorf("%s, %v", rep.Conclusion, err)
	}
}

// The target says what read_file may read besides the workspace.
func TestReadPrefixes(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Target.ReadPrefixes = []string{"/tmp/data"}
	do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		shell(t, ctx, s, "mkdir -p /tmp/data && echo d > /tmp/data/f && echo o > /tmp/other")
		if r := call(t, ctx, s, tool.ReadFile, map[string]any{"path": "/tmp/data/f"}); r.Stdout != "d\n" {
			t.Errorf("%+v %v", r, r.Err)
		}
		if r := call(t, ctx, s, tool.ReadFile, map[string]any{"path": "/tmp/other"}); r.Err == nil || r.Err.Code != tool.CodePathDenied {
			t.Errorf("%+v %v", r, r.Err)
		}
		return done("")
	})
}

func TestNoShell(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.NoShell, o.Accept = true, []run.Check{{Shell: "test -e made"}}
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		if r := shell(t, ctx, s, "touch made"); r.Err == nil || r.Err.Code != tool.CodeUnknownTool {
			t.Errorf("%+v %v", r, r.Err)
		}
		call(t, ctx, s, tool.WriteFile, map[string]any{"path": "made", "content": "x"})
		return done("")
	})
	if rep.Accepted != run.Yes {
		t.Errorf("%s", rep.Conclusion)
	}
}

func TestTooLargeWorkspace(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace = run.Workspace{Dir: lay(t, map[string]string{"big/a": strings.Repeat("x", 2000)}), MaxBytes: 1000}
	rep, err := run.Do(context.Background(), o, nil)
	if err == nil || rep.ExitCode != 2 || rep.SandboxID != "" || !strings.Contains(rep.Error, "big") || !strings.Contains(rep.Hint, ".reinignore") {
		t.Errorf("%s, %s, %v", rep.Error, rep.Hint, err)
	}
}

// A worker that does not stop when its time is over is left behind, and its
// sandbox destroyed under it.
func TestWorkerThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t)
		o.Limits.MaxWallTime = time.Minute
		release := make(chan struct{})
		rep, err := run.Do(context.Background(), o, worker(func(context.Context, *run.Session) (run.Outcome, error) {
			<-release
			return done("")
		}))
		close(release)
		if err != nil || rep.Reason != run.OverBudget || !rep.Cleanup.OK || rep.Time.TotalMS > 120_000 {
			t.Errorf("%s after %d ms, %v", rep.Conclusion, rep.Time.TotalMS, err)
		}
	})
}

func TestFind(t *testing.T) {
	t.Parallel()
	o := options(t)
	if _, err := run.Find(o.StateDir, "last"); err == nil {
		t.Error("found a run where there is none")
	}
	first := do(t, o, func(context.Context, *run.Session) (run.Outcome, error) { return done("") })
	time.Sleep(2 * time.Millisecond) // ids are sorted by the millisecond
	second := do(t, o, func(context.Context, *run.Session) (run.Outcome, error) { return done("") })
	list, err := run.List(o.StateDir)
	if err != nil || len(list) != 2 || list[0].RunID != second.RunID || list[1].Reason != run.Done {
		t.Errorf("%+v, %v", list, err)
	}
	if dir, err := run.Find(o.StateDir, strings.ToLower(first.RunID)); err != nil || dir != first.Dir {
		t.Errorf("%s, %v", dir, err)
	}
	if _, err := run.Find(o.StateDir, "0"); err == nil {
		t.Error("an ambiguous id was found")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*run.Options){
		"no task":     func(o *run.Options) { o.Task = " " },
		"no provider": func(o *run.Options) { o.Provider = nil },
		"no state":    func(o *run.Options) { o.StateDir = "" },
		"bad id":      func(o *run.Options) { o.ID = "../../x" },
		"no command":  func(o *run.Options) { o.Accept = []run.Check{{Name: "x"}} },
		"artifact":    func(o *run.Options) { o.Artifacts = []string{"../../escape"} },
		"read prefix": func(o *run.Options) { o.Target.ReadPrefixes = []string{"/"} },
		"no UTF-8":    func(o *run.Options) { o.Artifacts = []string{"out/\xff"} },
		"bad limits":  func(o *run.Options) { o.Limits = budget.Limits{MaxSteps: -1} },
	} {
		o := options(t)
		change(&o)
		if rep, err := run.Do(context.Background(), o, nil); err == nil || rep != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a, b := run.NewID(), run.NewID(); a == b {
		t.Error("two ids are equal")
	}
	if got := run.Summarize(tool.Call{Arguments: []byte(`{"path":"x","content":"long secret text"}`)}, nil); strings.Contains(got, "secret text") {
		t.Errorf("a content is in the summary: %s", got)
	}
}

// What a sandbox says is in its workspace is bounded before it is kept: by how
// many files there are, and by how long their paths are.
func TestListedIsBounded(t *testing.T) {
	t.Parallel()
	of := func(n, path, target int) []execd.FileInfo {
		return slices.Repeat([]execd.FileInfo{{Path: strings.Repeat("p", path), Target: strings.Repeat("t", target)}}, n)
	}
	for _, c := range []struct {
		dirs, files, path, target int
		ok                        bool
	}{
		{10, 100_000, 200, 0, true},
		{11, 100_000, 20, 0, false},
		{20, 10_000, 1000, 0, true},
		{20, 10_000, 2000, 0, false},
		{20, 10_000, 100, 2000, false},
	} {
		err := run.Listed(slices.Repeat([][]execd.FileInfo{of(c.files, c.path, c.target)}, c.dirs)...)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A file that is too large for a patch is not left out of it, nor a breach, as
// long as nobody touched it.
func TestFilesTooLargeForAPatch(t *testing.T) {
	t.Parallel()
	o := options(t)
	large := strings.Repeat("0123456789abcde\n", 65<<20/16)
	o.Workspace.Dir = lay(t, map[string]string{"kept/large": large, "a": "a\n"})
	o.Protect = []string{"kept/"}
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		if res := shell(t, ctx, s, "echo b > a"); !res.OK {
			t.Errorf("%+v", res)
		}
		return done("")
	})
	if rep.Reason != run.Done || rep.Patch == nil || len(rep.Protected) != 1 || !rep.Protected[0].Unchanged {
		t.Fatalf("%s %+v", rep.Conclusion, rep.Protected)
	}
	if got := paths(rep.Patch.Files, func(c run.Change) string { return c.Path }); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q", got)
	}
	if len(rep.Patch.Skipped) > 0 {
		t.Errorf("left out: %q", rep.Patch.Skipped)
	}
}

// A worker that says it is done and whose work is still being judged when its
// time has been over for long comes back, and what it says then counts.
func TestWorkerIsDoneLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t)
		o.Limits.MaxWallTime = time.Minute
		o.Accept = []run.Check{{Name: "slow", Shell: "sleep 100", Timeout: 2 * time.Minute}}
		back := false
		rep, err := run.Do(context.Background(), o, worker(func(ctx context.Context, s *run.Session) (run.Outcome, error) {
			time.Sleep(50 * time.Second)
			said, err := s.Finish(ctx)
			back = ctx.Err() != nil && said != ""
			return run.Outcome{Reason: run.Done}, err
		}))
		if err != nil || !back || rep.Reason != run.Done || rep.Accepted != run.Yes || !rep.Cleanup.OK {
			t.Errorf("%s, back %t, %v", rep.Conclusion, back, err)
		}
	})
}
