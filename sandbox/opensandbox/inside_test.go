package opensandbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
)

// A command ends with its last event, not with the stream, which the server's
// execd keeps open for a second.
func TestTail(t *testing.T) {
	s := &opensandboxtest.Server{Tail: 30 * time.Second}
	sb := create(t, open(t, serve(t, s), nil), spec())
	start := time.Now()
	for range 3 {
		if r, err := sb.Run(t.Context(), sandbox.Command{Shell: "exit 7"}); err != nil || r.ExitCode == nil || *r.ExitCode != 7 {
			t.Fatalf("%+v, %v", r.Outcome, err)
		}
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("three commands took %v", took)
	}
}

// What became of a command whose stream broke is not known, and nothing is done
// again: the server's execd is asked for no second run.
func TestUnknownOutcome(t *testing.T) {
	started := `{"type":"init","text":"0123","timestamp":1}` + "\n\n"
	for name, fault := range map[string]opensandboxtest.Fault{
		"untyped error": opensandboxtest.Answer(200, "text/event-stream", started+`{"code":"RUNTIME_ERROR","message":"boom"}`+"\n\n"),
		"cut stream":    opensandboxtest.Answer(200, "text/event-stream", started),
		"cut at once":   opensandboxtest.Cut,
		"lost answer":   opensandboxtest.Lose,
		"gateway's 504": opensandboxtest.Gateway(http.StatusGatewayTimeout),
	} {
		t.Run(name, func(t *testing.T) {
			s := &opensandboxtest.Server{}
			sb := create(t, open(t, serve(t, s), nil), spec())
			before := s.Count(opensandboxtest.Command)
			s.Once(opensandboxtest.Command, fault)
			r, err := sb.Run(t.Context(), sandbox.Command{Shell: "echo ran >> /tmp/runs"})
			wantRefusal(t, err, sandbox.KindTimeout, "cannot be asked")
			if r.OK() || r.ExitCode != nil {
				t.Errorf("the result is %+v", r.Outcome)
			}
			if n := s.Count(opensandboxtest.Command) - before; n != 1 {
				t.Errorf("it was asked for %d times", n)
			}
		})
	}
}

// With rein's execd the same is found out by the call's id.
func TestKnownOutcome(t *testing.T) {
	s := &opensandboxtest.Server{}
	h := serve(t, s)
	p := open(t, h, func(o *opensandbox.Options) { o.Execd = program(t) })
	sb := create(t, p, spec())
	if f := sb.Features(); !f.CallIDs || !f.Spill || !f.Capture {
		t.Fatalf("features %+v", f)
	}
	go func() {
		for s.Alive() > 0 { // until the command runs
			if _, err := sb.Stat(t.Context(), "/tmp/started", sandbox.Access{}); err == nil {
				h.CloseClientConnections()
				return
			}
		}
	}()
	r, err := sb.Run(t.Context(), sandbox.Command{CallID: "once", Shell: "touch /tmp/started; echo ran >> /tmp/runs; sleep 0.3; exit 5"})
	if err != nil || r.ExitCode == nil || *r.ExitCode != 5 {
		t.Errorf("%+v, %v", r.Outcome, err)
	}
	if c, err := sb.ReadFile(t.Context(), "/tmp/runs", sandbox.ReadOptions{}); err != nil || string(c.Data) != "ran\n" {
		t.Errorf("runs: %q, %v", c.Data, err)
	}
}

// Where rein's execd cannot be, the sandbox is used without, or refused when
// what it brings is required.
func TestNoOwnExecd(t *testing.T) {
	for name, s := range map[string]*opensandboxtest.Server{
		"noexec":       {NoExec: true},
		"architecture": {Machine: "riscv64"},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, serve(t, s), func(o *opensandbox.Options) { o.Execd = program(t) })
			sb := create(t, p, spec())
			if sb.Features().CallIDs {
				t.Error("it claims call ids")
			}
			if r, err := sb.Run(t.Context(), sandbox.Command{Shell: "exit 4"}); err != nil || *r.ExitCode != 4 {
				t.Errorf("%+v, %v", r, err)
			}
			sp := spec()
			sp.Require = []sandbox.Capability{sandbox.CapCallIDs}
			if _, err := p.Create(t.Context(), sp); sandbox.KindOf(err) != sandbox.KindUnsupported {
				t.Errorf("required: %v", err)
			}
			if s.Alive() != 1 {
				t.Errorf("%d sandboxes", s.Alive())
			}
		})
	}
}

// Another process reaches rein's execd by what the first has kept, and the
// server's without it. The record tells nobody else the token.
func TestAttach(t *testing.T) {
	s := &opensandboxtest.Server{ExecdToken: "of the server", Prefix: "gw"}
	h := serve(t, s)
	dir := t.TempDir()
	first := open(t, h, func(o *opensandbox.Options) { o.Execd, o.StateDir = program(t), dir })
	sb := create(t, first, spec())
	for name, c := range map[string]struct {
		dir  string
		ours bool
	}{"same host": {dir, true}, "another host": {t.TempDir(), false}} {
		p := open(t, h, func(o *opensandbox.Options) { o.StateDir = c.dir })
		other, err := sandbox.Attach(t.Context(), p, sb.ID(), sandbox.Options{Log: discard()})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := other.Features().CallIDs; got != c.ours {
			t.Errorf("%s: call ids %v", name, got)
		}
		if r, err := other.Run(t.Context(), sandbox.Command{Shell: "exit 9"}); err != nil || *r.ExitCode != 9 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		other.Close()
	}
	file := filepath.Join(dir, "opensandbox", sb.ID()+".json")
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the record: %v, %v", st, err)
	}
	if err := sb.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record outlives the sandbox: %v", err)
	}
}

// Pausing is a change of state that is waited for; afterwards the addresses of
// the ports are others.
func TestPauseResume(t *testing.T) {
	for name, own := range map[string]bool{"server's execd": false, "own": true} {
		t.Run(name, func(t *testing.T) {
			s := &opensandboxtest.Server{Prefix: "gw"}
			p := open(t, serve(t, s), func(o *opensandbox.Options) {
				if own {
					o.Execd = program(t)
				}
			})
			sb := create(t, p, spec())
			s.Once(opensandboxtest.Pause, opensandboxtest.Lose)
			if err := sb.Pause(t.Context(), sandbox.PauseOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := sb.Pause(t.Context(), sandbox.PauseOptions{}); sandbox.KindOf(err) != sandbox.KindConflict {
				t.Errorf("a second pause: %v", err)
			}
			s.Once(opensandboxtest.Resume, opensandboxtest.Gateway(502))
			if err := sb.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r, err := sb.Run(t.Context(), sandbox.Command{Shell: "exit 6"}); err != nil || *r.ExitCode != 6 {
				t.Errorf("%+v, %v", r, err)
			}
			if err := sb.Resume(t.Context()); sandbox.KindOf(err) != sandbox.KindConflict {
				t.Errorf("a second resumption: %v", err)
			}
			if err := sb.Pause(t.Context(), sandbox.PauseOptions{Hold: time.Minute}); sandbox.KindOf(err) != sandbox.KindUnsupported {
				t.Errorf("a held deadline: %v", err)
			}
		})
	}
}

// A sandbox whose policy is gone after a resumption is ended.
func TestResumeWithoutPolicy(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	sb := create(t, p, spec())
	if err := sb.Pause(t.Context(), sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Once(opensandboxtest.Policy, opensandboxtest.Answer(200, "application/json", `{"enforcementMode":"dns+nft","policy":{"defaultAction":"allow"}}`))
	if err := sb.Resume(t.Context()); sandbox.KindOf(err) != sandbox.KindLost {
		t.Errorf("resume: %v", err)
	}
	if s.Alive() != 0 {
		t.Errorf("%d sandboxes", s.Alive())
	}
}

// One whose policy cannot be asked for is paused again, with all that is in it.
func TestResumeUnverified(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	sb := create(t, p, spec())
	if err := sb.Pause(t.Context(), sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Once(opensandboxtest.Policy, opensandboxtest.Answer(401, "text/plain", "unauthorized"))
	if err := sb.Resume(t.Context()); sandbox.KindOf(err) != sandbox.KindUnavailable {
		t.Errorf("resume: %v", err)
	}
	if info, err := p.Get(t.Context(), sb.ID()); err != nil || info.State != sandbox.StatePaused {
		t.Errorf("%+v, %v", info, err)
	}
	if err := sb.Resume(t.Context()); err != nil {
		t.Error(err)
	}
}

// Through the server, for where only it can be reached.
func TestServerProxy(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), func(o *opensandbox.Options) { o.Execd, o.UseServerProxy = program(t), true })
	sb := create(t, p, spec())
	ep, err := p.Endpoint(t.Context(), sb.ID(), execd.Port)
	if err != nil || !strings.Contains(ep.BaseURL, "/sandboxes/"+sb.ID()+"/proxy/") {
		t.Errorf("endpoint %q, %v", ep.BaseURL, err)
	}
	data := bytes.Repeat([]byte("0123456789"), 1<<16)
	if _, err := sb.WriteFile(t.Context(), "/tmp/f", data, sandbox.WriteOptions{}); err != nil {
		t.Error(err)
	}
	if c, err := sb.ReadFile(t.Context(), "/tmp/f", sandbox.ReadOptions{}); err != nil || !bytes.Equal(c.Data, data) {
		t.Errorf("%d bytes came back, %v", len(c.Data), err)
	}
}

// Addresses that cannot be used are refused; nothing is connected to.
func TestBadEndpoints(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	sb := create(t, p, spec())
	for _, text := range []string{"", "0.0.0.0:80", "[::]:80", "user:pass@h:1", "h:1?x=1", "ftp://h:1", ":80", "h:port", "h h",
		"169.254.169.254/latest", "[fe80::1]:80", "[::ffff:169.254.1.1]:80", "224.0.0.1:80"} {
		s.Once(opensandboxtest.Endpoint, opensandboxtest.Answer(200, "application/json", fmt.Sprintf(`{"endpoint":%q}`, text)))
		if ep, err := p.Endpoint(t.Context(), sb.ID(), 8080); err == nil {
			t.Errorf("%q gave %q", text, ep.BaseURL)
		}
	}
	for text, want := range map[string]string{"h:1": "http://h:1", "h/p/q/": "http://h/p/q", "https://h:1/x": "https://h:1/x", "[::1]:5": "http://[::1]:5"} {
		s.Once(opensandboxtest.Endpoint, opensandboxtest.Answer(200, "application/json", fmt.Sprintf(`{"endpoint":%q,"headers":{"X-To":"a"}}`, text)))
		ep, err := p.Endpoint(t.Context(), sb.ID(), 8080)
		if err != nil || ep.BaseURL != want || ep.Header.Get("X-To") != "a" {
			t.Errorf("%q gave %q %v, %v", text, ep.BaseURL, ep.Header, err)
		}
	}
}
