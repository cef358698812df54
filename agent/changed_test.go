package agent_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/run/control"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/tool"
)

// change sets limits of the run in that state directory, as a person does.
func change(t *testing.T, state string, limits ...any) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(state, "runs", "*"))
	if err != nil || len(dirs) != 1 {
		t.Errorf("%v, %v", dirs, err)
		return
	}
	c, err := control.Dial(context.Background(), dirs[0])
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	for i := 0; i < len(limits); i += 2 {
		if _, err := c.Limit(context.Background(), limits[i].(budget.Limit), int64(limits[i+1].(int))); err != nil {
			t.Errorf("%s: %v", limits[i], err)
		}
	}
}

// changing is an answer during which limits are changed.
func changing(t *testing.T, state *string, a answer, limits ...any) answer {
	return func(r *model.Request) (*model.Reply, error) {
		change(t, *state, limits...)
		return a(r)
	}
}

const second = int(time.Second)

// smaller are limits of a call that are lower than those of the beginning.
func smaller(t *testing.T, state *string, a answer) answer {
	return changing(t, state, a, budget.LimitCallTimeout, 10*second, budget.LimitMaxCallTimeout, 30*second, budget.LimitOutputBytes, 2048, budget.LimitOutputLines, 20)
}

const toldChanged = " Changed since the tools were described: a command is killed after 10 s by default; timeout_seconds may ask for up to 30 s; " +
	"at most 2 KiB of output are shown; at most 20 lines of output are shown."

// sameStart checks that what a vendor may have cached did not change.
func sameStart(t *testing.T, seen []model.Request) {
	t.Helper()
	for i, req := range seen {
		if diff := cmp.Diff(seen[0].Tools, req.Tools); diff != "" || req.System != seen[0].System {
			t.Errorf("request %d has another beginning: %s", i+1, diff)
		}
	}
}

// limited checks results under the smaller limits: of seq, and of a command that
// asks for too long.
func limited(t *testing.T, seq, long tool.Result) {
	t.Helper()
	if n := strings.Count(seq.Stdout, "\n"); !seq.OK || !seq.Truncated || n > 20 || len(seq.Stdout) > 2048 {
		t.Errorf("%d lines, %d bytes: %+v", n, len(seq.Stdout), seq)
	}
	if e := long.Err; e == nil || e.Code != tool.CodeTimeoutTooLong || e.Class != tool.Fixable || !strings.Contains(e.Message, "60 is more than 30") {
		t.Errorf("%+v", long)
	}
}

func inForce(t *testing.T, rep *run.Report) {
	t.Helper()
	now := map[string]string{}
	for _, l := range rep.Limits {
		now[l.Name] = l.Value
	}
	for name, want := range map[string]string{"call_timeout": "10s", "max_call_timeout": "30s", "output_bytes": "2 KiB", "output_lines": "19"} {
		if now[name] != want {
			t.Errorf("the report has %s = %s, want %s", name, now[name], want)
		}
	}
	if n := len(rep.LimitChanges); n != 5 || rep.LimitChanges[4].Old != "20" {
		t.Errorf("%+v", rep.LimitChanges)
	}
}

// Limits of a call that are changed hold from the next call on. The model is told
// of them after the newest result; what it was sent before stays as it was.
func TestCallLimitsAreChanged(t *testing.T) {
	t.Parallel()
	var state string
	var o run.Options
	long := calls(tool.RunCommand, `{"command":"true","timeout_seconds":60}`)
	rep, f, err := play(t, setup{run: func(ro *run.Options) { ro.Control, state, o = true, ro.StateDir, *ro }},
		calls(tool.RunCommand, `{"command":"seq 300"}`, tool.RunCommand, `{"command":"echo 1","timeout_seconds":60}`),
		smaller(t, &state, sh("seq 301")), long,
		changing(t, &state, sh("seq 302"), budget.LimitOutputLines, 400, budget.LimitOutputBytes, 16<<10, budget.LimitMaxCallTimeout, 600*second), // and more than it was
		calls(tool.RunCommand, `{"command":"seq 303; exit 1","output":"tail","lines":9000,"timeout_seconds":550}`),
		text("done"))
	if err != nil || rep.Reason != run.Done {
		t.Fatalf("%s, %v", rep.Conclusion, err)
	}
	sameStart(t, f.seen)
	if r := results(t, f.seen[1]); r[0].Truncated || !r[1].OK || strings.Contains(newest(f.seen[1]), "Changed") {
		t.Errorf("before: %s", newest(f.seen[1]))
	}
	if said := newest(f.seen[2]); !strings.HasSuffix(said, toldChanged) {
		t.Errorf("the model is told %q", said[strings.LastIndexByte(said, '\n'):])
	}
	limited(t, results(t, f.seen[2])[0], results(t, f.seen[3])[0])
	if r := results(t, f.seen[4])[0]; r.Truncated {
		t.Errorf("raised again: %+v", r)
	}
	if r := results(t, f.seen[5])[0]; r.Truncated || r.ExitCode == nil || *r.ExitCode != 1 {
		t.Errorf("more than at the beginning: %+v, %v", r, r.Err)
	}
	w, err := agent.New(agent.Options{Model: f, Price: &agent.Price{Input: 1, Output: 2}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := run.Replay(context.Background(), rep.Dir, rep.AuditHead.String(), o, w.(run.Resumer))
	if err != nil || !got.Same || got.Changed {
		t.Errorf("replayed: %+v, %v", got, err)
	}
}

// attaching is a provider that tells when it is first asked for a sandbox.
type attaching struct {
	sandbox.Provider
	once sync.Once
	hook func()
}

func (a *attaching) Get(ctx context.Context, id string) (sandbox.Info, error) {
	a.once.Do(a.hook)
	return a.Provider.Get(ctx, id)
}

// A run that is resumed has the limits that were set while another process worked
// on it, and the tools that it had described.
func TestCallLimitsAreResumed(t *testing.T) {
	t.Parallel()
	mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	defer mem.Close()
	state := t.TempDir()
	ctx, kill := context.WithCancel(context.Background())
	defer kill()
	first := &fake{}
	m := &mortal{Provider: mem, Model: first, dir: state, left: t.TempDir(), rng: rand.New(rand.NewPCG(1, 2)), kill: kill}
	first.answers = []answer{sh("seq 300"), smaller(t, &state, sh("seq 301")), func(r *model.Request) (*model.Reply, error) {
		m.dieAfter(1) // before this is heard
		return text("not heard")(r)
	}}
	work := func(m *mortal) run.Resumer {
		w, err := agent.New(agent.Options{Model: talking{m}, Price: &agent.Price{Input: 1, Output: 2}})
		if err != nil {
			t.Fatal(err)
		}
		return w.(run.Resumer)
	}
	o := run.Options{ID: run.NewID(), Task: "the task", Limits: budget.Standard(), Provider: m, StateDir: state, Control: true}
	_, _ = run.Do(ctx, o, work(m))
	if dead, _ := m.state(); !dead {
		t.Fatal("it did not die")
	}
	changed := make(chan struct{})
	again := &fake{answers: []answer{func(r *model.Request) (*model.Reply, error) {
		<-changed
		return calls(tool.RunCommand, `{"command":"seq 302"}`, tool.RunCommand, `{"command":"true","timeout_seconds":60}`)(r)
	}, text("done")}}
	m = &mortal{Provider: mem, Model: again, dir: m.left, left: t.TempDir(), kill: func() {}}
	at := &attaching{Provider: m}
	at.hook = func() { // before the record is followed
		go func() {
			defer close(changed)
			change(t, m.dir, budget.LimitOutputLines, 19)
		}()
		select {
		case <-changed:
			t.Error("the limit was changed before those on record")
		case <-time.After(100 * time.Millisecond): // it waits
		}
	}
	o.Provider, o.StateDir = at, m.dir
	rep, err := run.Resume(context.Background(), o, work(m))
	if err != nil || rep.Reason != run.Done || rep.Answer != "done" {
		out, _ := json.Marshal(rep)
		t.Fatalf("%v: %s", err, out)
	}
	sameStart(t, append(first.seen, again.seen...))
	if r := results(t, again.seen[0])[0]; !r.Truncated {
		t.Errorf("what is on record: %+v", r)
	}
	now := results(t, again.seen[1])
	limited(t, now[0], now[1])
	inForce(t, rep)
	if got, err := run.Replay(context.Background(), rep.Dir, rep.AuditHead.String(), o, work(m)); err != nil || !got.Same {
		t.Errorf("replayed: %+v, %v", got, err)
	}
}
