package run_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// steps is a worker of commands, one call each, that can go on. after is told of
// each that was executed.
type steps struct {
	t        *testing.T
	commands []string
	after    func(i int, s *run.Session)
}

func (w steps) Work(ctx context.Context, s *run.Session) (run.Outcome, error) {
	return w.Resume(ctx, s, nil)
}

func (w steps) Resume(ctx context.Context, s *run.Session, past *run.Past) (run.Outcome, error) {
	set, err := s.Tools()
	if err != nil {
		return run.Outcome{}, err
	}
	for i, command := range w.commands {
		args, _ := json.Marshal(map[string]string{"command": command})
		c := tool.Call{ID: s.NewCallID(), ModelID: "m", Name: tool.RunCommand, Arguments: args}
		res, begun := past.Result(c)
		if res == nil {
			c.Begun = begun
			now := set.Run(ctx, c)
			res = &now
		}
		if !res.OK {
			w.t.Errorf("%s: %+v", command, res)
		}
		if err := s.Called(c, 1, *res); err != nil {
			return run.Outcome{}, err
		}
		if w.after != nil {
			w.after(i, s)
		}
	}
	return done("")
}

// spared is a provider that keeps a sandbox which a process, dying, believes to
// have ended.
type spared struct {
	sandbox.Provider
	over atomic.Bool
}

func (p *spared) Kill(context.Context, string) error {
	p.over.Store(true)
	return nil
}

func (p *spared) Get(ctx context.Context, id string) (sandbox.Info, error) {
	if p.over.Load() {
		return sandbox.Info{}, &sandbox.Error{Kind: sandbox.KindNotFound, Op: "get", Subject: id, Err: errors.New("it was ended")}
	}
	return p.Provider.Get(ctx, id)
}

// crashed begins a run and copies what it has on record and in its output
// directory once it has done all of commands: the record up to the n-th of a
// kind. It returns the options to go on with.
func crashed(t *testing.T, o run.Options, commands []string, kind audit.Kind, n int) run.Options {
	t.Helper()
	left := o
	left.ID, left.StateDir, left.Output = run.NewID(), filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "out")
	o.ID, o.Provider = left.ID, &spared{Provider: o.Provider}
	_, err := run.Do(t.Context(), o, steps{t: t, commands: commands, after: func(i int, _ *run.Session) {
		if i != len(commands)-1 {
			return
		}
		for from, to := range map[string]string{o.StateDir: left.StateDir, o.Output: left.Output} {
			if err := os.CopyFS(to, os.DirFS(from)); err != nil {
				t.Error(err)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(left.StateDir, "runs", left.ID, run.AuditFile)
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for range n {
		next := bytes.Index(data[at:], []byte(`"kind":"`+string(kind)+`"`))
		if next < 0 {
			t.Fatalf("there are fewer than %d records of %s", n, kind)
		}
		at += next + bytes.IndexByte(data[at+next:], '\n') + 1
	}
	if err := os.Truncate(log, int64(at)); err != nil {
		t.Fatal(err)
	}
	return left
}

// tree is what a directory holds.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		files[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A process that was ended in the middle of a pass leaves a directory that the
// next one brings up to date: what is the run's is known, also where the end of
// the pass is not on record, and what a person has changed there stays.
func TestResumedOutput(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace.Dir = lay(t, map[string]string{"same": "s", "a": "one\n"})
	o.Output = filepath.Join(t.TempDir(), "out")
	commands := []string{
		"echo two > a; echo 2 > gone; echo 2 > theirs; echo 2 > away; echo 2 > kept",
		"echo three > a; mkdir d; echo new > d/b; rm gone",
	}
	o = crashed(t, o, commands, audit.KindOutputIntent, 2)
	// Of the second pass one file was written, and nothing else.
	if err := os.RemoveAll(filepath.Join(o.Output, "d")); err != nil {
		t.Fatal(err)
	}
	staging := ".rein-" + strings.ToLower(o.ID)
	put(t, o.Output, map[string]string{"gone": "2\n", staging + "/x": "half", "theirs": "mine", "mine": "mine"})
	if err := os.Remove(filepath.Join(o.Output, "away")); err != nil {
		t.Fatal(err)
	}
	var first map[string]string
	w := steps{t: t, commands: append(commands, "echo four > a; echo 4 > theirs; echo 4 > mine")}
	w.after = func(i int, s *run.Session) {
		if i == 1 {
			first = tree(t, o.Output)
		}
	}
	rep, err := run.Resume(t.Context(), o, w)
	if err != nil || rep.Reason != run.Done {
		t.Fatalf("%+v, %v", rep, err)
	}
	want := map[string]string{"a": "three\n", "d/b": "new\n", "theirs": "mine", "mine": "mine", "away": "2\n", "kept": "2\n"}
	if d := cmp.Diff(want, first); d != "" {
		t.Errorf("when it went on (-want +got):\n%s", d)
	}
	want["a"] = "four\n"
	if d := cmp.Diff(want, tree(t, o.Output)); d != "" {
		t.Errorf("at the end (-want +got):\n%s", d)
	}
	if rep.Output == nil || rep.Output.Files != 5 || rep.Output.Passes != 4 ||
		!cmp.Equal([]string{"mine", "theirs"}, paths(rep.Output.Skipped, func(s run.Skipped) string { return s.Path })) {
		t.Errorf("%+v", rep.Output)
	}
	for _, says := range []string{"have been changed there, and stay as they are: theirs", "are not there any more: away"} {
		if !slices.ContainsFunc(rep.Warnings, func(w string) bool { return strings.Contains(w, says) }) {
			t.Errorf("no warning says %q: %q", says, rep.Warnings)
		}
	}
	if log := recorded(t, rep); strings.Count(log, `"kind":"output.intent"`) != strings.Count(log, `"kind":"output"`) {
		t.Error("a pass that was begun has no end on record")
	}
}

// Wherever the record of a run ends, its directory is the same in the end.
func TestResumedOutputAnywhere(t *testing.T) {
	t.Parallel()
	for _, at := range []struct {
		kind audit.Kind
		n    int // of that kind
		done int // commands
	}{
		{audit.KindOutputIntent, 1, 2}, {audit.KindOutput, 1, 2}, {audit.KindTool, 2, 2},
		{audit.KindOutputIntent, 2, 3}, {audit.KindOutput, 2, 3}, {audit.KindTool, 3, 3},
	} {
		o := options(t)
		o.Workspace.Dir = lay(t, map[string]string{"same": "s", "a": "one\n"})
		o.Output = filepath.Join(t.TempDir(), "out")
		commands := []string{"true", "echo two > a; echo 2 > gone", "echo three >> a; echo b > b; rm gone"}
		o = crashed(t, o, commands[:at.done], at.kind, at.n)
		rep, err := run.Resume(t.Context(), o, steps{t: t, commands: commands})
		if err != nil || rep.Reason != run.Done || rep.Output == nil || rep.Output.Files != 2 || len(rep.Output.Skipped) > 0 {
			t.Errorf("%s %d: %s, %+v, %v", at.kind, at.n, rep.Conclusion, rep.Output, err)
		}
		if d := cmp.Diff(map[string]string{"a": "two\nthree\n", "b": "b\n"}, tree(t, o.Output)); d != "" {
			t.Errorf("%s %d (-want +got):\n%s", at.kind, at.n, d)
		}
	}
}

// Where the sandbox is gone, the directory has what it had, and the report says
// what that is.
func TestResumedOutputOfALostSandbox(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Output = filepath.Join(t.TempDir(), "out")
	o = crashed(t, o, []string{"echo kept > a"}, audit.KindTool, 1)
	left, err := o.Provider.List(t.Context(), nil)
	if err != nil || len(left) != 1 {
		t.Fatalf("%v, %v", left, err)
	}
	if err := o.Provider.Kill(t.Context(), left[0].ID); err != nil {
		t.Fatal(err)
	}
	rep, err := run.Resume(t.Context(), o, steps{t: t, commands: []string{"echo kept > a"}})
	if err != nil || rep.Reason != run.Lost || rep.Output == nil || rep.Output.Files != 1 || rep.Output.Bytes != 5 {
		t.Errorf("%+v, %v", rep, err)
	}
	if d := cmp.Diff(map[string]string{"a": "kept\n"}, tree(t, o.Output)); d != "" {
		t.Error(d)
	}
}
