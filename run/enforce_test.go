package run_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/run/control"
	"github.com/rein-sh/rein/sandbox"
)

// lossy is a provider whose first answer to a change is lost, though the change was
// made.
type lossy struct {
	*gateway
	once sync.Once
	back error // the answer to what takes it back
}

func (l *lossy) SetNetwork(ctx context.Context, id string, d policy.Document) (uint64, error) {
	err := l.back
	l.once.Do(func() {
		_, err = l.gateway.SetNetwork(ctx, id, d)
		err = errors.Join(err, &sandbox.Error{Kind: sandbox.KindTimeout, Op: "change the network", Subject: id, Err: context.DeadlineExceeded})
	})
	if err != nil {
		return 0, err
	}
	return l.gateway.SetNetwork(ctx, id, d)
}

// A change of which it is not known whether it was made is taken back.
func TestUnknownChangeIsTakenBack(t *testing.T) {
	t.Parallel()
	o := options(t)
	g := &lossy{gateway: &gateway{Provider: o.Provider}}
	o.Provider = g
	rep := asking(t, o, func(ctx context.Context, _ *run.Session, c *control.Client) {
		_, err := c.Allow(ctx, control.Host{Host: "db.example.com"})
		if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != control.CodeFailed {
			t.Errorf("%v", err)
		}
		if g.allows("db.example.com", 443) || ctx.Err() != nil {
			t.Errorf("it is open, or the run ended: %v", context.Cause(ctx))
		}
	})
	if rep.Reason != run.Done || len(rep.NetworkChanges) != 0 {
		t.Errorf("%s, changes %+v", rep.Conclusion, rep.NetworkChanges)
	}
}

// A run that may reach more than its record says, because that cannot be taken
// back, ends.
func TestUnknownChangeEndsTheRun(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Provider = &lossy{gateway: &gateway{Provider: o.Provider},
		back: &sandbox.Error{Kind: sandbox.KindUnsupported, Op: "change the network", Err: errors.New("nothing is closed again")}}
	o.Control = true
	rep, err := run.Do(t.Context(), o, worker(func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		c, err := control.Dial(ctx, s.Dir())
		if err != nil {
			return run.Outcome{}, err
		}
		defer c.Close()
		if _, err := c.Allow(t.Context(), control.Host{Host: "db.example.com"}); err == nil || !strings.Contains(err.Error(), "nothing is closed again") {
			t.Errorf("%v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
			t.Error("the run goes on")
		}
		return run.Outcome{}, ctx.Err()
	}))
	if err == nil && rep == nil || rep.Reason != run.Failed || !strings.Contains(rep.Conclusion, "db.example.com may be reached") || !rep.Cleanup.OK {
		t.Errorf("%+v, %v", rep, err)
	}
	if !strings.Contains(strings.Join(rep.Warnings, "\n"), "could not be taken back") {
		t.Errorf("%q", rep.Warnings)
	}
}

// A change of which nothing was sent has changed nothing: it is not taken back, and
// the run goes on.
func TestUnsentChange(t *testing.T) {
	t.Parallel()
	o := options(t)
	g := &gateway{Provider: o.Provider, fails: fmt.Errorf("%w (%w)",
		&sandbox.Error{Kind: sandbox.KindUnavailable, Op: "change the network", Err: errors.New("the server is away")}, sandbox.ErrUnsent)}
	o.Provider = g
	rep := asking(t, o, func(ctx context.Context, _ *run.Session, c *control.Client) {
		if _, err := c.Allow(ctx, control.Host{Host: "db.example.com"}); err == nil || strings.Count(err.Error(), "away (nothing was sent)") != 1 {
			t.Errorf("%v", err)
		}
	})
	if rep.Reason != run.Done || len(rep.NetworkChanges) != 0 || strings.Contains(strings.Join(rep.Warnings, "\n"), "taken back") {
		t.Errorf("%s, changes %+v, warnings %q", rep.Conclusion, rep.NetworkChanges, rep.Warnings)
	}
}

// each keeps the policy of every sandbox.
type each struct {
	*gateway
	mu      sync.Mutex
	now     map[string]policy.Document
	making  func(sandbox.Spec)
	changed func(id string)
}

func (e *each) Create(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	info, err := e.gateway.Create(ctx, s)
	e.mu.Lock()
	e.now[info.ID] = s.Network
	e.mu.Unlock()
	e.making(s)
	return info, err
}

func (e *each) SetNetwork(ctx context.Context, id string, d policy.Document) (uint64, error) {
	e.mu.Lock()
	e.now[id] = d
	e.mu.Unlock()
	defer e.changed(id)
	return e.gateway.SetNetwork(ctx, id, d)
}

// allowing is in how many sandboxes a host may be reached.
func (e *each) allowing(host string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range e.now {
		if p, err := policy.Compile(d); err == nil && p.Connect(host, 443).Allowed() {
			n++
		}
	}
	return n
}

// What is closed to a run is closed to the sandbox of its checks, also while that
// is made.
func TestChecksHaveTheNetworkOfTheRun(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace.Dir = lay(t, map[string]string{"a": "b"})
	o.Fresh, o.Control = true, true
	o.Accept = []run.Check{{Name: "first", Shell: "true"}}
	o.Target.Spec.Network = policy.Document{Rules: []policy.Rule{{Host: "a.example.com"}, {Host: "b.example.com"}}}
	var dir, own string
	deny := func(host string) {
		c, err := control.Dial(t.Context(), dir)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if _, err := c.Deny(t.Context(), control.Host{Host: host}); err != nil {
			t.Error(err)
		}
	}
	reached := make(chan struct{}, 9)
	e := &each{gateway: &gateway{Provider: o.Provider}, now: map[string]policy.Document{}}
	e.making = func(s sandbox.Spec) {
		if s.Labels[run.LabelRole] != "" {
			deny("a.example.com")
		}
	}
	e.changed = func(id string) {
		if id != own {
			reached <- struct{}{}
		}
	}
	o.Provider = e
	var asked sync.WaitGroup
	o.Events = func(ev run.Event) {
		if ev.Kind != run.EventCheck || ev.Text != "first" {
			return
		}
		if n := e.allowing("a.example.com"); n != 0 {
			t.Errorf("%d sandboxes reach what was denied while one was made", n)
		}
		for _, more := range []string{"", "b.example.com"} {
			if more != "" {
				asked.Go(func() { deny(more) })
			}
			select {
			case <-reached:
			case <-time.After(10 * time.Second):
				t.Error("the checks' sandbox keeps its policy")
			}
		}
	}
	rep := do(t, o, func(_ context.Context, s *run.Session) (run.Outcome, error) {
		dir, own = s.Dir(), s.Sandbox().ID()
		return done("made")
	})
	asked.Wait()
	if n := e.allowing("b.example.com"); n != 0 || rep.Accepted != run.Yes || len(rep.NetworkChanges) != 2 {
		t.Errorf("%d, %s, %+v", n, rep.Accepted, rep.NetworkChanges)
	}
}
