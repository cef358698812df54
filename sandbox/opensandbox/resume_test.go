package opensandbox_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
)

// paused makes a sandbox and pauses it. Its record is in dir.
func paused(t *testing.T, s *opensandboxtest.Server, change func(*opensandbox.Options)) (p, elsewhere *opensandbox.Provider, id, record string) {
	t.Helper()
	h := serve(t, s)
	dir := t.TempDir()
	p = open(t, h, func(o *opensandbox.Options) {
		o.StateDir = dir
		if change != nil {
			change(o)
		}
	})
	sb := create(t, p, spec())
	if err := sb.Pause(t.Context(), sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	return p, open(t, h, nil), sb.ID(), filepath.Join(dir, "opensandbox", sb.ID()+".json")
}

func wantState(t *testing.T, p *opensandbox.Provider, id string, want sandbox.State) {
	t.Helper()
	if info, err := p.Get(t.Context(), id); err != nil || info.State != want {
		t.Errorf("the sandbox is %s (%v), want %s", info.State, err, want)
	}
}

// The policy is asked for wherever the sandbox was made.
func TestResumeElsewhere(t *testing.T) {
	s := &opensandboxtest.Server{}
	p, elsewhere, id, _ := paused(t, s, nil)
	before := s.Count(opensandboxtest.Policy)
	if err := elsewhere.Resume(t.Context(), id); err != nil || s.Count(opensandboxtest.Policy) != before+1 {
		t.Errorf("%v; the policy was asked for %d times", err, s.Count(opensandboxtest.Policy)-before)
	}
	if err := p.Pause(t.Context(), id, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Once(opensandboxtest.Policy, opensandboxtest.Answer(200, "application/json", `{"enforcementMode":"dns+nft","policy":{"defaultAction":"allow"}}`))
	if err := elsewhere.Resume(t.Context(), id); sandbox.KindOf(err) != sandbox.KindLost {
		t.Errorf("resume: %v", err)
	}
	if s.Alive() != 0 {
		t.Errorf("%d sandboxes", s.Alive())
	}
}

// A sandbox of which something cannot be found out after its policy is paused
// again, and can be resumed later.
func TestResumeUnfinished(t *testing.T) {
	nobody := opensandboxtest.Answer(200, "application/json", `{"endpoint":"127.0.0.1:1"}`)
	pass := func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) { next(w, r) }
	t.Run("execd does not answer", func(t *testing.T) {
		s := &opensandboxtest.Server{}
		p, _, id, _ := paused(t, s, nil)
		before := s.Count(opensandboxtest.Policy)
		s.Once(opensandboxtest.Endpoint, pass) // the sidecar's
		for range 100 {
			s.Once(opensandboxtest.Endpoint, nobody)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.Resume(ctx, id)
		wantRefusal(t, err, sandbox.KindTimeout, "use_server_proxy")
		if err == nil || strings.Contains(err.Error(), "create") || s.Count(opensandboxtest.Policy) != before+1 {
			t.Errorf("%v; the policy was asked for %d times", err, s.Count(opensandboxtest.Policy)-before)
		}
		wantState(t, p, id, sandbox.StatePaused)
		s.Clear()
		if err := p.Resume(t.Context(), id); err != nil {
			t.Error(err)
		}
	})
	t.Run("the record is damaged", func(t *testing.T) {
		s := &opensandboxtest.Server{}
		p, _, id, record := paused(t, s, nil)
		if err := os.WriteFile(record, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		before := s.Count(opensandboxtest.Policy)
		wantRefusal(t, p.Resume(t.Context(), id), sandbox.KindHost, "remove that file")
		if s.Count(opensandboxtest.Policy) != before+1 {
			t.Error("the policy was not asked for")
		}
		wantState(t, p, id, sandbox.StatePaused)
		if err := os.Remove(record); err != nil {
			t.Fatal(err)
		}
		if err := p.Resume(t.Context(), id); err != nil {
			t.Error(err)
		}
	})
	t.Run("rein's execd does not come back", func(t *testing.T) {
		s := &opensandboxtest.Server{}
		p, _, id, _ := paused(t, s, func(o *opensandbox.Options) { o.Execd = program(t) })
		p.SetPlanting(500*time.Millisecond, 100*time.Millisecond)
		s.Deafen()
		wantRefusal(t, p.Resume(t.Context(), id), sandbox.KindHost, "")
		wantState(t, p, id, sandbox.StatePaused)
	})
	t.Run("nobody waits for it", func(t *testing.T) {
		s := &opensandboxtest.Server{}
		p, _, id, _ := paused(t, s, nil)
		ctx, cancel := context.WithCancel(t.Context())
		s.Once(opensandboxtest.Resume, func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			cancel()
			<-r.Context().Done()
			next(w, r)
		})
		if err := p.Resume(ctx, id); sandbox.KindOf(err) != sandbox.KindTimeout {
			t.Errorf("%v of kind %s", err, sandbox.KindOf(err))
		}
		wantState(t, p, id, sandbox.StatePaused)
	})
}

// A question to the sidecar that is lost is asked again, and meanwhile nobody
// else resumes the sandbox, who might pause it again.
func TestResumeOneAtATime(t *testing.T) {
	s := &opensandboxtest.Server{}
	p, _, id, _ := paused(t, s, nil)
	before := s.Count(opensandboxtest.Policy)
	var second error
	s.Once(opensandboxtest.Policy, func(_ http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
		second = p.Resume(t.Context(), id)
		<-r.Context().Done()
	})
	if err := p.Resume(t.Context(), id); err != nil || s.Count(opensandboxtest.Policy) != before+2 {
		t.Errorf("%v; the policy was asked for %d times", err, s.Count(opensandboxtest.Policy)-before)
	}
	wantRefusal(t, second, sandbox.KindConflict, "")
	wantState(t, p, id, sandbox.StateRunning)
}

// What enforces the policy now is known afterwards.
func TestResumeNotesEnforcement(t *testing.T) {
	for name, own := range map[string]bool{"server's execd": false, "own": true} {
		t.Run(name, func(t *testing.T) {
			s := &opensandboxtest.Server{}
			p, _, id, _ := paused(t, s, func(o *opensandbox.Options) {
				o.AcceptWeakEgress = true
				if own {
					o.Execd = program(t)
				}
			})
			s.Once(opensandboxtest.Policy, opensandboxtest.Answer(200, "application/json", `{"enforcementMode":"dns","policy":{"defaultAction":"deny"}}`))
			if err := p.Resume(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			if info, err := p.Get(t.Context(), id); err != nil || info.Network != "dns" {
				t.Errorf("enforced by %q, %v", info.Network, err)
			}
		})
	}
}
