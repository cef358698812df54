package agent_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/run/control"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// steered is a provider whose network can be changed live.
type steered struct {
	sandbox.Provider
	mu sync.Mutex
	n  uint64
}

func (s *steered) SetNetwork(context.Context, string, policy.Document) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	return s.n, nil
}

// steering is an answer during which a person changes what may be reached by the
// run in that state directory: "+" and a name, or "-" and one.
func steering(t *testing.T, state string, a answer, changes ...string) answer {
	return func(r *model.Request) (*model.Reply, error) {
		dirs, err := filepath.Glob(filepath.Join(state, "runs", "*"))
		if err != nil || len(dirs) != 1 {
			t.Errorf("%v, %v", dirs, err)
			return a(r)
		}
		c, err := control.Dial(context.Background(), dirs[0])
		if err != nil {
			t.Error(err)
			return a(r)
		}
		defer c.Close()
		for _, change := range changes {
			do := c.Allow
			if change[0] == '-' {
				do = c.Deny
			}
			if _, err := do(context.Background(), control.Host{Host: change[1:], Port: 443}); err != nil {
				t.Errorf("%s: %v", change, err)
			}
		}
		return a(r)
	}
}

// What a person opens or closes while the model works it is told at its next step,
// outside what the tools returned; what it was sent before stays as it was. It is
// told again in a run that is resumed, and in one that is replayed.
func TestNetworkChangesAreTold(t *testing.T) {
	t.Parallel()
	mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	defer mem.Close()
	ctx, kill := context.WithCancel(context.Background())
	defer kill()
	state := t.TempDir()
	first := &fake{}
	m := &mortal{Provider: mem, Model: first, dir: state, left: t.TempDir(), kill: kill}
	first.answers = []answer{
		steering(t, state, sh("echo 1"), "+a.example.com"),
		steering(t, state, sh("echo 2"), "+b.example.com", "-a.example.com"),
		func(r *model.Request) (*model.Reply, error) {
			m.dieAfter(1) // before this is heard
			return text("not heard")(r)
		},
	}
	work := func(m *mortal) run.Resumer {
		w, err := agent.New(agent.Options{Model: talking{m}, Price: &agent.Price{Input: 1, Output: 2}})
		if err != nil {
			t.Fatal(err)
		}
		return w.(run.Resumer)
	}
	o := run.Options{ID: run.NewID(), Task: "the task", Limits: budget.Standard(), Provider: &steered{Provider: m}, StateDir: state, Control: true}
	_, _ = run.Do(ctx, o, work(m))
	if dead, _ := m.state(); !dead {
		t.Fatal("it did not die")
	}
	again := &fake{}
	m = &mortal{Provider: mem, Model: again, dir: m.left, left: t.TempDir(), kill: func() {}}
	again.answers = []answer{steering(t, m.dir, sh("echo 3"), "-b.example.com"), text("done")}
	o.Provider, o.StateDir = &steered{Provider: m}, m.dir
	rep, err := run.Resume(context.Background(), o, work(m))
	if err != nil || rep.Reason != run.Done {
		t.Fatalf("%v: %+v", err, rep)
	}
	seen := append(first.seen, again.seen...)
	sameStart(t, seen)
	for i, want := range []string{"",
		"a.example.com port 443 may be reached.",
		"b.example.com port 443 may be reached; a.example.com port 443 may not be reached.",
		"b.example.com port 443 may be reached; a.example.com port 443 may not be reached.", // resumed
		"a.example.com port 443 may not be reached; b.example.com port 443 may not be reached.",
	} {
		toldOf(t, i, seen[i], want)
	}
	if got, err := run.Replay(context.Background(), rep.Dir, rep.AuditHead.String(), o, work(m)); err != nil || !got.Same || got.Changed {
		t.Errorf("replayed: %+v, %v", got, err)
	}
}

// toldOf checks what the newest message says of changes, and that it does so once,
// after the marks of results.
func toldOf(t *testing.T, i int, req model.Request, want string) {
	t.Helper()
	const since = " Changed by the host since you began: "
	said := newest(req)
	_, told, _ := strings.Cut(said[strings.LastIndexByte(said, '\n')+1:], since)
	if told != want || strings.Count(said, since) > 1 {
		t.Errorf("request %d is told %q, want %q", i+1, told, want)
	}
}
