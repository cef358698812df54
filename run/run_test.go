package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/tool"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// worker is a run.Worker made of a function.
type worker func(context.Context, *run.Session) (run.Outcome, error)

func (w worker) Work(ctx context.Context, s *run.Session) (run.Outcome, error) { return w(ctx, s) }

func done(answer string) (run.Outcome, error) {
	return run.Outcome{Reason: run.Done, Answer: answer}, nil
}

// lay writes files into a new directory; a content that begins with "-> " is a
// link.
func lay(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(to, full)
		} else {
			err = os.WriteFile(full, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func memory(t *testing.T) *sandboxtest.Memory {
	t.Helper()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	t.Cleanup(func() {
		if left, err := m.List(context.Background(), nil); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func options(t *testing.T) run.Options {
	t.Helper()
	return run.Options{Task: "do it", Provider: memory(t), StateDir: t.TempDir(), Limits: budget.Quick()}
}

// call makes one tool call and records it, as a worker does.
func call(t *testing.T, ctx context.Context, s *run.Session, name string, args map[string]any) tool.Result {
	t.Helper()
	set, err := s.Tools()
	if err != nil {
		t.Error(err)
		return tool.Result{}
	}
	raw, _ := json.Marshal(args)
	c := tool.Call{ID: s.NewCallID(), ModelID: "m", Name: name, Arguments: raw}
	res := set.Run(ctx, c)
	if err := s.Called(c, 1, res); err != nil {
		t.Error(err)
	}
	return res
}

func shell(t *testing.T, ctx context.Context, s *run.Session, command string) tool.Result {
	t.Helper()
	return call(t, ctx, s, tool.RunCommand, map[string]any{"command": command})
}

func do(t *testing.T, o run.Options, w worker) *run.Report {
	t.Helper()
	rep, err := run.Do(context.Background(), o, w)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func TestWorkComesOutAsAPatch(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"a.txt": "one\ntwo\n", "sub/gone": "x\n", "run.sh": "echo\n", "same": "same\n", ".gitignore": "build/\n", "to": "-> a.txt",
		".env": "TOKEN=1\n", "test.sh": "exit 0\n",
	}
	dir := lay(t, files)
	o := options(t)
	o.Workspace = run.Workspace{Dir: dir}
	o.Accept = []run.Check{{Name: "made", Shell: "cat new/file"}, {Argv: []string{"test", "-e", "a.txt"}}}
	o.Protect = []string{"./test.sh", "tset.sh", "!a.txt"}
	o.Artifacts = []string{"new", "*.log", "missing"}
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		for _, c := range []string{
			"printf 'one\\nTWO\\n' > a.txt", "mkdir new build && echo made > new/file && echo b > build/out && echo l > x.log",
			"rm sub/gone", "chmod 755 run.sh",
		} {
			if r := shell(t, ctx, s, c); !r.OK {
				t.Errorf("%s: %+v", c, r)
			}
		}
		if r := shell(t, ctx, s, "test -e .env"); r.OK {
			t.Error("a secret was copied in")
		}
		return done("made it")
	})
	if rep.ExitCode != 0 || rep.Accepted != run.Yes || rep.Reason != run.Done {
		t.Errorf("%s %s %d: %s %s", rep.Reason, rep.Accepted, rep.ExitCode, rep.Conclusion, rep.Error)
	}
	want := []run.Change{{Path: "a.txt", Kind: "modified"}, {Path: "new/file", Kind: "added"}, {Path: "run.sh", Kind: "mode"},
		{Path: "sub/gone", Kind: "deleted"}, {Path: "x.log", Kind: "added"}}
	if d := cmp.Diff(want, rep.Patch.Files); d != "" {
		t.Error(d)
	}
	if len(rep.Protected) != 1 || !rep.Protected[0].Unchanged || len(rep.Protected[0].Before) != 64 {
		t.Errorf("protected: %+v", rep.Protected)
	}
	if i := slices.Index(rep.Warnings, "no file of the workspace matches tset.sh: only a new one would be a change to what is protected"); i < 0 || strings.Contains(strings.Join(rep.Warnings, " "), "/test.sh") {
		t.Errorf("warnings: %q", rep.Warnings)
	}
	if d := cmp.Diff([]string{".env"}, rep.Inputs.Secrets); d != "" {
		t.Error(d)
	}
	var artifacts []string
	for _, a := range rep.Artifacts {
		artifacts = append(artifacts, a.Source)
		if _, err := os.Stat(a.Path); err != nil {
			t.Error(err)
		}
	}
	if d := cmp.Diff([]string{"/workspace/new/file", "/workspace/x.log"}, artifacts); d != "" {
		t.Error(d)
	}
	if !slices.ContainsFunc(rep.Warnings, func(w string) bool { return strings.Contains(w, "missing") }) {
		t.Errorf("warnings: %q", rep.Warnings)
	}
	applied(t, o, rep, dir)
}

// applied checks that the patch does to the host what was done in the sandbox.
func applied(t *testing.T, o run.Options, rep *run.Report, dir string) {
	t.Helper()
	found, err := run.Find(o.StateDir, "last")
	if err != nil || found != rep.Dir {
		t.Fatalf("found %s, %v", found, err)
	}
	changes, err := run.Apply(context.Background(), found, dir, func(run.Concern) (bool, error) { return true, nil })
	if err != nil || len(changes) != 5 {
		t.Fatalf("%v, %v", changes, err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "a.txt")); string(b) != "one\nTWO\n" {
		t.Errorf("a.txt is %q", b)
	}
	if info, err := os.Stat(filepath.Join(dir, "run.sh")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("run.sh: %v, %v", info, err)
	}
	// A patch that is not the report's is refused.
	f, err := os.OpenFile(filepath.Join(found, "patch"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("\n")
	f.Close()
	if _, err := run.Apply(context.Background(), found, lay(t, nil), nil); err == nil || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("got %v", err)
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	key := secret.New("key", "hunter2hunter2")
	o := options(t)
	o.Masker = secret.NewMasker(key)
	o.Task = "use hunter2hunter2"
	o.Version, o.Model, o.ConfigHash = "v1", "test/model", "cafe"
	o.Target = run.Target{Name: "default", Spec: sandbox.Spec{}}
	var events []run.Event
	o.Events = func(e run.Event) { events = append(events, e) }
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		if err := s.Say(run.Said{Kind: audit.KindModelRequest, Step: 1, Data: map[string]string{"text": "hunter2hunter2"}}); err != nil {
			t.Error(err)
		}
		shell(t, ctx, s, "echo hunter2hunter2")
		shell(t, ctx, s, "exit 7")
		call(t, ctx, s, tool.ReadFile, map[string]any{"path": "/etc/shadow"})
		call(t, ctx, s, "read_fil", map[string]any{"path": "x"})
		if err := s.Spent(run.Tokens{Input: 10, Output: 5, CostUSD: 0.5}); err != nil {
			t.Error(err)
		}
		return done("hunter2hunter2 used")
	})
	want := run.Calls{Total: 4, Succeeded: 1, Failed: 3, Denied: 1, ByTool: map[string]int{"run_command": 2, "read_file": 1, "read_fil": 1}}
	if d := cmp.Diff(want, rep.Calls); d != "" {
		t.Error(d)
	}
	if rep.Tokens.Total != 15 || rep.Accepted != run.Unchecked || !rep.Cleanup.OK || rep.SandboxID == "" || rep.Provenance.Model != "test/model" {
		t.Errorf("%+v", rep)
	}
	again, err := run.ReadReport(rep.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(rep, again); d != "" {
		t.Errorf("the written report differs: %s", d)
	}
	err = filepath.WalkDir(rep.Dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		if strings.Contains(string(b), "hunter2hunter2") {
			t.Errorf("%s holds the secret", p)
		}
		if info, _ := d.Info(); info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", p, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, e := range events {
		if strings.Contains(e.Text, "hunter2hunter2") || e.Call != nil && strings.Contains(e.Call.Summary, "hunter2hunter2") {
			t.Errorf("event %+v holds the secret", e)
		}
	}
	f, err := os.Open(filepath.Join(rep.Dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if v := audit.Verify(f, rep.AuditHead.String()); v.State != audit.Intact {
		t.Errorf("audit: %+v", v)
	}
}

// refusing is a provider that fails to do one thing.
type refusing struct {
	sandbox.Provider
	create, kill error
}

func (p refusing) Create(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	if p.create != nil {
		return sandbox.Info{}, p.create
	}
	return p.Provider.Create(ctx, s)
}

func (p refusing) Kill(ctx context.Context, id string) error {
	if p.kill != nil {
		return p.kill
	}
	return p.Provider.Kill(ctx, id)
}

func TestHowRunsEnd(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, c := range []struct {
		name   string
		change func(*run.Options)
		work   worker
		reason run.Reason
		code   int
		accept string
		fails  bool // Do returns an error
	}{
		{name: "done", work: func(context.Context, *run.Session) (run.Outcome, error) { return done("") }, reason: run.Done, accept: run.Unchecked},
		{name: "check fails", change: func(o *run.Options) { o.Accept = []run.Check{{Shell: "exit 1"}} },
			work: func(context.Context, *run.Session) (run.Outcome, error) { return done("") }, reason: run.Refused, code: 3, accept: run.No},
		{name: "protected file", change: func(o *run.Options) {
			o.Workspace.Dir, o.Protect = lay(t, map[string]string{"x_test": "a"}), []string{"*_test"}
			o.Accept = []run.Check{{Shell: "true"}}
		}, work: func(ctx context.Context, s *run.Session) (run.Outcome, error) {
			shell(t, ctx, s, "echo b > x_test")
			return done("")
		}, reason: run.Refused, code: 3, accept: run.No},
		{name: "protected file deleted", change: func(o *run.Options) {
			o.Workspace.Dir, o.Protect = lay(t, map[string]string{"x_test": "a"}), []string{"*_test"}
		}, work: func(ctx context.Context, s *run.Session) (run.Outcome, error) {
			shell(t, ctx, s, "rm x_test")
			return done("")
		}, reason: run.Refused, code: 3, accept: run.No},
		{name: "error", work: func(context.Context, *run.Session) (run.Outcome, error) { return run.Outcome{}, boom },
			reason: run.Failed, code: 1, accept: run.Unchecked, fails: true},
		{name: "panic", work: func(context.Context, *run.Session) (run.Outcome, error) { panic("boom") },
			reason: run.Failed, code: 1, accept: run.Unchecked, fails: true},
		{name: "brake", change: func(o *run.Options) { o.Accept = []run.Check{{Shell: "true"}} },
			work: func(_ context.Context, s *run.Session) (run.Outcome, error) {
				return run.Outcome{Reason: run.Done}, s.Spent(run.Tokens{Input: 1 << 40})
			}, reason: run.OverBudget, code: 4, accept: run.Yes},
		{name: "needs human", work: func(context.Context, *run.Session) (run.Outcome, error) {
			return run.Outcome{Reason: run.NeedsHuman}, nil
		}, reason: run.NeedsHuman, code: 6, accept: run.Unchecked},
		{name: "no model", work: func(context.Context, *run.Session) (run.Outcome, error) {
			return run.Outcome{Reason: run.NoModel}, boom
		}, reason: run.NoModel, code: 8, accept: run.Unchecked, fails: true},
		{name: "lost", work: func(ctx context.Context, s *run.Session) (run.Outcome, error) {
			return run.Outcome{}, &sandbox.Error{Kind: sandbox.KindLost, Op: "run", Err: boom}
		}, reason: run.Lost, code: 7, accept: run.Unchecked, fails: true},
		{name: "target refused", change: func(o *run.Options) { o.Target.Spec.Resources.Memory = 1 << 20 },
			reason: run.Misused, code: 2, accept: run.Unchecked, fails: true},
		{name: "create fails", change: func(o *run.Options) {
			o.Provider = refusing{Provider: o.Provider, create: &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "create", Err: boom}}
		}, reason: run.Failed, code: 1, accept: run.Unchecked, fails: true},
		{name: "workspace missing", change: func(o *run.Options) { o.Workspace.Dir = "/nonexistent" },
			reason: run.Misused, code: 2, accept: run.Unchecked, fails: true},
		{name: "finished by the tool", change: func(o *run.Options) { o.Accept = []run.Check{{Shell: "true"}} },
			work: func(ctx context.Context, s *run.Session) (run.Outcome, error) {
				if r := call(t, ctx, s, tool.SandboxKill, nil); !r.OK || !strings.Contains(r.Stdout, "accepted: yes") {
					t.Errorf("kill: %+v", r)
				}
				if r := call(t, ctx, s, tool.SandboxKill, nil); !r.OK {
					t.Errorf("kill again: %+v", r)
				}
				return done("finished")
			}, reason: run.Done, accept: run.Yes},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			if c.change != nil {
				c.change(&o)
			}
			rep, err := run.Do(context.Background(), o, c.work)
			if rep == nil {
				t.Fatal(err)
			}
			if (err != nil) != c.fails {
				t.Errorf("error is %v", err)
			}
			if rep.Reason != c.reason || rep.ExitCode != c.code || rep.Accepted != c.accept || !rep.Cleanup.OK {
				t.Errorf("%s %d %s %+v: %s %s", rep.Reason, rep.ExitCode, rep.Accepted, rep.Cleanup, rep.Conclusion, rep.Error)
			}
			if left, _ := o.Provider.List(context.Background(), nil); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if b, err := os.ReadFile(filepath.Join(rep.Dir, "report.md")); err != nil || !strings.Contains(string(b), rep.Conclusion) {
				t.Errorf("report.md: %v", err)
			}
		})
	}
}

func TestFailedCleanupIsReported(t *testing.T) {
	t.Parallel()
	o := options(t)
	inner := o.Provider
	o.Provider = refusing{Provider: inner, kill: &sandbox.Error{Kind: sandbox.KindInternal, Op: "kill", Err: errors.New("stuck")}}
	rep, err := run.Do(context.Background(), o, worker(func(context.Context, *run.Session) (run.Outcome, error) { return done("") }))
	if rep.Cleanup.OK || rep.ExitCode != 1 || !strings.Contains(rep.Cleanup.Remedy, rep.SandboxID) {
		t.Errorf("%+v, %v", rep.Cleanup, err)
	}
	if err := inner.Kill(context.Background(), rep.SandboxID); err != nil {
		t.Error(err)
	}
}

func TestInterruptSavesAndDestroys(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace.Dir = lay(t, map[string]string{"a": "1\n"})
	o.Accept = []run.Check{{Shell: "true"}}
	ctx, cancel := context.WithCancel(context.Background())
	rep, err := run.Do(ctx, o, worker(func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		shell(t, ctx, s, "echo 2 > a")
		cancel()
		r := shell(t, ctx, s, "sleep 60")
		if r.OK {
			t.Error("the command succeeded")
		}
		return run.Outcome{}, ctx.Err()
	}))
	if err != nil || rep.Reason != run.Interrupted || rep.ExitCode != 130 || !rep.Cleanup.OK {
		t.Errorf("%s %d %+v %v", rep.Reason, rep.ExitCode, rep.Cleanup, err)
	}
	if rep.Patch == nil || len(rep.Patch.Files) != 1 || len(rep.Checks) != 0 {
		t.Errorf("patch %+v, checks %v", rep.Patch, rep.Checks)
	}
}

func TestBackgroundWorkEndsBeforeTheChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := options(t)
		o.Accept = []run.Check{{Shell: "true"}}
		started := time.Now()
		rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
			r := call(t, ctx, s, tool.RunCommand, map[string]any{"command": "echo begun; sleep 60", "background": true})
			if r.Background == nil || !r.Background.Running || r.OK || r.Err != nil {
				t.Errorf("%+v", r)
				return done("")
			}
			w := call(t, ctx, s, tool.RunCommand, map[string]any{"wait": r.Background.ID, "timeout_seconds": 1})
			if w.Background == nil || !w.Background.Running || w.Stdout != "begun\n" {
				t.Errorf("wait: %+v", w)
			}
			return done("")
		})
		if rep.Accepted != run.Yes || time.Since(started) > 30*time.Second {
			t.Errorf("%s after %v", rep.Accepted, time.Since(started))
		}
	})
}

// Nothing the worker started changes anything any more when the checks run: not
// a command in the background, nor what one that has ended left behind, nor what
// a command in the foreground did.
func TestNothingRunsDuringTheChecks(t *testing.T) {
	t.Parallel()
	o := options(t)
	const same = "old=$(wc -c < %[1]s); sleep 0.3; test $old -gt 0 -a $old -eq $(wc -c < %[1]s)"
	for _, name := range []string{"running", "left", "foreground"} {
		o.Accept = append(o.Accept, run.Check{Name: name, Shell: fmt.Sprintf(same, name)})
	}
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		loop := func(name string) string { return "while true; do echo x >> " + name + "; sleep 0.02; done" }
		background := func(command string) string {
			r := call(t, ctx, s, tool.RunCommand, map[string]any{"command": command, "background": true})
			if r.Background == nil {
				t.Fatalf("%+v %v", r, r.Err)
			}
			return r.Background.ID
		}
		background(loop("running"))
		id := background("(" + loop("left") + ") & until test -s left; do sleep 0.02; done")
		r := call(t, ctx, s, tool.RunCommand, map[string]any{"wait": id, "timeout_seconds": 20})
		if !r.OK || r.Background.Running {
			t.Errorf("%+v %v", r, r.Err)
		}
		if r := shell(t, ctx, s, fmt.Sprintf("! ("+same+")", "left")); !r.OK {
			t.Error("nothing was left behind, so that nothing is tested")
		}
		r = shell(t, ctx, s, "("+loop("foreground")+") & until test -s foreground; do sleep 0.02; done; until test -s running; do sleep 0.02; done")
		if !r.OK {
			t.Errorf("%+v %v", r, r.Err)
		}
		return done("")
	})
	if rep.Accepted != run.Yes || len(rep.Warnings) > 0 {
		t.Errorf("%s: %+v %q", rep.Accepted, rep.Checks, rep.Warnings)
	}
}
