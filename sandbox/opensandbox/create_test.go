package opensandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
)

func spec() sandbox.Spec {
	return sandbox.Spec{TTL: 10 * time.Minute, Image: "example.com/image:1", Labels: map[string]string{"run": "r1"}}
}

// A sandbox is asked for once, whatever becomes of the answer, and what was
// made is found by the label of its creation.
func TestLostReply(t *testing.T) {
	for name, fault := range map[string]opensandboxtest.Fault{
		"connection cut": opensandboxtest.Lose,
		"gateway's 502":  opensandboxtest.Gateway(http.StatusBadGateway),
		"gateway's 503":  opensandboxtest.Gateway(http.StatusServiceUnavailable),
		"gateway's 504":  opensandboxtest.Gateway(http.StatusGatewayTimeout),
		"gateway's 404":  opensandboxtest.Gateway(http.StatusNotFound),
		"gateway's 200":  opensandboxtest.Gateway(http.StatusOK),
	} {
		t.Run(name, func(t *testing.T) {
			s := &opensandboxtest.Server{}
			p := open(t, serve(t, s), nil)
			s.Once(opensandboxtest.Create, fault)
			info, err := p.Create(t.Context(), spec())
			if err != nil {
				t.Fatal(err)
			}
			if got, err := p.Get(t.Context(), info.ID); err != nil || got.State != sandbox.StateRunning || got.Labels["run"] != "r1" || len(got.Labels) != 1 {
				t.Errorf("got %+v, %v", got, err)
			}
			if n := s.Count(opensandboxtest.Create); n != 1 || s.Alive() != 1 {
				t.Errorf("asked %d times, %d sandboxes", n, s.Alive())
			}
		})
	}
}

// What was never made is not made in a second try, since nobody can tell.
func TestLostRequest(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	p.SetLinger(300 * time.Millisecond)
	s.Once(opensandboxtest.Create, opensandboxtest.Cut)
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	_, err := p.Create(ctx, spec())
	wantRefusal(t, err, sandbox.KindTimeout, "ends by itself")
	if n := s.Count(opensandboxtest.Create); n != 1 || s.Alive() != 0 {
		t.Errorf("asked %d times, %d sandboxes", n, s.Alive())
	}
}

// A repeated request, by a gateway for example, leaves one sandbox.
func TestMadeTwice(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	s.Once(opensandboxtest.Create, func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		body := copyBody(t, r)
		r.Body = body()
		next(nowhere{}, r)
		r.Body = body()
		opensandboxtest.Lose(w, r, next)
	})
	if _, err := p.Create(t.Context(), spec()); err != nil {
		t.Fatal(err)
	}
	if s.Alive() != 1 {
		t.Errorf("%d sandboxes", s.Alive())
	}
}

// Where a second sandbox cannot be ended that is said, and the first is not left.
func TestMadeTwiceAndStuck(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	s.Once(opensandboxtest.Create, func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		body := copyBody(t, r)
		r.Body = body()
		next(nowhere{}, r)
		r.Body = body()
		opensandboxtest.Lose(w, r, next)
	})
	s.Once(opensandboxtest.Delete, opensandboxtest.Refuse(403, "X::NO", "not yours", nil))
	_, err := p.Create(t.Context(), spec())
	if sandbox.KindOf(err) != sandbox.KindDenied || !strings.Contains(err.Error(), "a second sandbox was made") || !strings.Contains(err.Error(), "not yours") {
		t.Errorf("error %v", err)
	}
	if s.Alive() != 1 {
		t.Errorf("%d sandboxes, and one could not be ended", s.Alive())
	}
}

// misled has the answer to the next creation name another's sandbox; whether one
// is made is for then to say.
func misled(s *opensandboxtest.Server, victim string, then func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc)) {
	s.Once(opensandboxtest.Create, func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		then(nowhere{}, r, next)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"id":%q,"status":{"state":"Running"},"createdAt":"2026-01-02T03:04:05Z","metadata":{"rein.sh/made-by":"rein"}}`, victim)
	})
}

// An answer that names somebody else's sandbox has it neither used nor ended,
// whatever goes wrong afterwards.
func TestSomebodyElses(t *testing.T) {
	made := func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) { next(w, r) }
	none := func(http.ResponseWriter, *http.Request, http.HandlerFunc) {}
	setup := func(t *testing.T) (*opensandboxtest.Server, *opensandbox.Provider, *sandbox.Sandbox) {
		s := &opensandboxtest.Server{}
		h := serve(t, s)
		p := open(t, h, nil)
		p.SetLinger(300 * time.Millisecond)
		return s, p, create(t, open(t, h, nil), spec())
	}
	wantAlone := func(t *testing.T, s *opensandboxtest.Server, p *opensandbox.Provider, victim *sandbox.Sandbox) {
		t.Helper()
		if _, err := p.Get(t.Context(), victim.ID()); err != nil || s.Alive() != 1 {
			t.Errorf("the other's: %v; %d sandboxes", err, s.Alive())
		}
	}
	wantOurs := func(t *testing.T, s *opensandboxtest.Server, p *opensandbox.Provider, victim *sandbox.Sandbox) {
		t.Helper()
		info, err := p.Create(t.Context(), spec())
		if err != nil || info.ID == victim.ID() {
			t.Fatalf("%+v, %v", info, err)
		}
		if err := p.Kill(t.Context(), info.ID); err != nil {
			t.Error(err)
		}
		wantAlone(t, s, p, victim)
	}
	t.Run("ours is found", func(t *testing.T) {
		s, p, victim := setup(t)
		misled(s, victim.ID(), made)
		wantOurs(t, s, p, victim)
	})
	t.Run("it does not come to be used", func(t *testing.T) {
		s, p, victim := setup(t)
		misled(s, victim.ID(), made)
		s.Once(opensandboxtest.Policy, opensandboxtest.Answer(404, "text/plain", "no"))
		_, err := p.Create(t.Context(), spec())
		wantRefusal(t, err, sandbox.KindUnsupported, "in force")
		wantAlone(t, s, p, victim)
	})
	t.Run("none was made", func(t *testing.T) {
		s, p, victim := setup(t)
		misled(s, victim.ID(), none)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Create(ctx, spec())
		wantRefusal(t, err, sandbox.KindTimeout, "ends by itself")
		if err == nil || !strings.Contains(err.Error(), "not of this creation") {
			t.Errorf("error %v", err)
		}
		wantAlone(t, s, p, victim)
	})
	t.Run("it cannot be asked about", func(t *testing.T) {
		s, p, victim := setup(t)
		misled(s, victim.ID(), made)
		s.Once(opensandboxtest.Get, opensandboxtest.Refuse(403, "X::NO", "not yours", nil))
		wantOurs(t, s, p, victim)
	})
	t.Run("nobody waits any more", func(t *testing.T) {
		s, p, victim := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		misled(s, victim.ID(), func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			cancel()
			next(w, r)
		})
		if _, err := p.Create(ctx, spec()); sandbox.KindOf(err) != sandbox.KindTimeout {
			t.Errorf("error %v", err)
		}
		wantAlone(t, s, p, victim)
	})
}

// At an address that is not the server's nothing is looked for for long.
func TestWrongAddress(t *testing.T) {
	h := httptest.NewServer(http.NotFoundHandler())
	defer h.Close()
	p := open(t, h, nil)
	_, err := p.Create(t.Context(), spec())
	wantRefusal(t, err, sandbox.KindUnavailable, "is the address right")
	_, err = p.List(t.Context(), nil)
	wantRefusal(t, err, sandbox.KindUnavailable, "is the address right")
}

// Whatever is asked for, and however often, a policy that denies all is in the
// request.
func TestPolicyInEveryRequest(t *testing.T) {
	s := &opensandboxtest.Server{}
	var bodies []map[string]any
	read := func(then opensandboxtest.Fault) opensandboxtest.Fault {
		return func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			body := copyBody(t, r)
			var m map[string]any
			if err := json.NewDecoder(body()).Decode(&m); err != nil {
				t.Error(err)
			}
			bodies = append(bodies, m)
			r.Body = body()
			then(w, r, next)
		}
	}
	pass := func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) { next(w, r) }
	h := serve(t, s)
	want := 0
	for _, weak := range []bool{false, true} {
		p := open(t, h, func(o *opensandbox.Options) { o.AcceptWeakEgress = weak })
		for _, sp := range []sandbox.Spec{spec(), {TTL: 5 * time.Second, Image: "i"},
			{TTL: time.Hour, Image: "i", Env: map[string]string{"A": "b"}, Resources: sandbox.Resources{CPU: 1, Memory: 1 << 28}, NoEntrypoint: true}} {
			s.Once(opensandboxtest.Create, read(opensandboxtest.Refuse(503, "X::BUSY", "busy", nil)))
			s.Once(opensandboxtest.Create, read(pass))
			if _, err := p.Create(t.Context(), sp); err != nil {
				t.Fatal(err)
			}
			want += 2
		}
	}
	if len(bodies) != want || s.Count(opensandboxtest.Create) != want {
		t.Errorf("%d bodies were read of %d requests, want %d", len(bodies), s.Count(opensandboxtest.Create), want)
	}
	deny := map[string]any{"defaultAction": "deny", "egress": []any{}}
	for _, b := range bodies {
		if d := cmp.Diff(deny, b["networkPolicy"]); d != "" {
			t.Errorf("the policy of %v:\n%s", b, d)
		}
	}
}

// What the server says made nothing is asked for again when it says when, or
// that it was only busy.
func TestAskedToWait(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	s.Once(opensandboxtest.Create, opensandboxtest.Refuse(429, "KUBERNETES::POOL_CAPACITY_EXHAUSTED", "full", http.Header{"Retry-After": {"1"}}))
	s.Once(opensandboxtest.Create, opensandboxtest.Refuse(503, "DOCKER::INITIALIZATION_ERROR", "starting", nil))
	start := time.Now()
	if _, err := p.Create(t.Context(), spec()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < time.Second {
		t.Errorf("it took %v, and a second was asked for", took)
	}
	// A date is read too; one beyond the deadline is not waited for.
	for _, after := range []string{time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), "3600"} {
		s.Once(opensandboxtest.Create, opensandboxtest.Refuse(429, "X::BUSY", "full", http.Header{"Retry-After": {after}}))
		start = time.Now()
		_, err := p.Create(t.Context(), spec())
		wantRefusal(t, err, sandbox.KindUnavailable, "asks to wait")
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("it took %v to give up", took)
		}
	}
	if s.Alive() != 1 {
		t.Errorf("%d sandboxes", s.Alive())
	}
}

// Every refusal has its kind, and what helps.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		fault opensandboxtest.Fault
		kind  sandbox.Kind
		text  string
		hint  string
	}{
		"bad image":    {opensandboxtest.Refuse(500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", "no such image", nil), sandbox.KindHost, "no such image", "image's name"},
		"not ready":    {opensandboxtest.Refuse(504, "KUBERNETES::POD_READY_TIMEOUT", "60s", nil), sandbox.KindUnavailable, "60s", "room"},
		"quota":        {opensandboxtest.Refuse(403, "KUBERNETES::QUOTA_EXCEEDED", "used up", nil), sandbox.KindDenied, "used up", "quota"},
		"conflict":     {opensandboxtest.Refuse(409, "SNAPSHOT::NOT_READY", "later", nil), sandbox.KindConflict, "later", ""},
		"unknown code": {opensandboxtest.Refuse(418, "NEW::CODE", "teapot", nil), sandbox.KindHost, "teapot", ""},
		"422": {opensandboxtest.Answer(422, "application/json", `{"detail":[{"loc":["body","timeout"],"msg":"too short","type":"x"}]}`),
			sandbox.KindInvalid, "body.timeout: too short", ""},
		"detail in words":    {opensandboxtest.Answer(400, "application/json", `{"detail":"no"}`), sandbox.KindInvalid, "no", ""},
		"an empty body":      {opensandboxtest.Answer(400, "text/plain", ""), sandbox.KindInvalid, "400", ""},
		"a redirect":         {opensandboxtest.Refuse(307, "", "", http.Header{"Location": {"http://192.0.2.1/"}}), sandbox.KindHost, "307", "redirects"},
		"501":                {opensandboxtest.Refuse(501, "X::NOT", "not built", nil), sandbox.KindUnsupported, "not built", ""},
		"control characters": {opensandboxtest.Refuse(400, "X::Y", "a\n\tb", nil), sandbox.KindInvalid, "a b", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &opensandboxtest.Server{}
			p := open(t, serve(t, s), nil)
			s.Once(opensandboxtest.Create, c.fault)
			_, err := p.Create(t.Context(), spec())
			wantRefusal(t, err, c.kind, c.hint)
			if err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %q does not say %q", err, c.text)
			}
			if n := s.Count(opensandboxtest.Create); n != 1 || s.Alive() != 0 {
				t.Errorf("asked %d times, %d sandboxes", n, s.Alive())
			}
		})
	}
}

// What the API has no word for is refused before anything is asked.
func TestNotInTheAPI(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	for name, change := range map[string]func(*sandbox.Spec){
		"host image": func(s *sandbox.Spec) { s.Image = "host" },
		"no image":   func(s *sandbox.Spec) { s.Image = "" },
		"pids":       func(s *sandbox.Spec) { s.Resources.PIDs = 100 },
		"disk":       func(s *sandbox.Spec) { s.Resources.Disk = 1 << 30 },
		"mounts":     func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Source: "/a", Target: "/b"}} },
		"call ids":   func(s *sandbox.Spec) { s.Require = []sandbox.Capability{sandbox.CapCallIDs} },
	} {
		sp := spec()
		change(&sp)
		if _, err := p.Create(t.Context(), sp); sandbox.KindOf(err) != sandbox.KindUnsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
	sp := spec()
	sp.Labels = map[string]string{"opensandbox.io/id": "x"}
	if _, err := p.Create(t.Context(), sp); sandbox.KindOf(err) != sandbox.KindInvalid {
		t.Errorf("a reserved label: %v", err)
	}
	if n := s.Count(opensandboxtest.Create); n != 0 {
		t.Errorf("asked %d times", n)
	}
}

// No sandbox is used whose network policy is not seen in force.
func TestEgress(t *testing.T) {
	for name, c := range map[string]struct {
		server *opensandboxtest.Server
		accept bool
		fault  opensandboxtest.Fault
		hint   string // of the refusal; empty: it is made
		as     string
	}{
		"in force":              {&opensandboxtest.Server{}, false, nil, "", "dns+nft"},
		"refused":               {&opensandboxtest.Server{NoPolicy: true}, false, nil, `network_mode = "bridge"`, ""},
		"refused, accepting":    {&opensandboxtest.Server{NoPolicy: true}, true, nil, `network_mode = "bridge"`, ""},
		"names only":            {&opensandboxtest.Server{Enforcement: "dns"}, false, nil, "accept_weak_egress", ""},
		"names only accepted":   {&opensandboxtest.Server{Enforcement: "dns"}, true, nil, "", "dns"},
		"dropped silently":      {&opensandboxtest.Server{DropPolicy: true}, true, nil, "in force", ""},
		"of a new kind":         {&opensandboxtest.Server{Enforcement: "magic"}, true, nil, "", ""},
		"no sidecar":            {&opensandboxtest.Server{}, true, opensandboxtest.Answer(404, "text/plain", "no"), "in force", ""},
		"no sidecar but a page": {&opensandboxtest.Server{}, true, opensandboxtest.Answer(200, "text/html", "<html>"), "in force", ""},
		"an allow rule": {&opensandboxtest.Server{}, true, opensandboxtest.Answer(200, "application/json",
			`{"enforcementMode":"dns+nft","policy":{"defaultAction":"deny","egress":[{"action":"allow","target":"*"}]}}`), "in force", ""},
		"slow to answer": {&opensandboxtest.Server{}, false, opensandboxtest.Refuse(503, "", "", nil), "", "dns+nft"},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.server
			p := open(t, serve(t, s), func(o *opensandbox.Options) { o.AcceptWeakEgress = c.accept })
			if c.fault != nil {
				s.Once(opensandboxtest.Policy, c.fault)
			}
			info, err := p.Create(t.Context(), spec())
			if c.as != "" {
				if err != nil || info.Network != c.as {
					t.Errorf("enforced by %q, error %v", info.Network, err)
				}
				return
			}
			wantRefusal(t, err, sandbox.KindUnsupported, c.hint)
			if s.Alive() != 0 {
				t.Errorf("%d sandboxes are left", s.Alive())
			}
		})
	}
}

// The token of the sidecar, with which its policy can be changed, follows no
// redirect.
func TestEgressRedirect(t *testing.T) {
	asked := make(chan struct{}, 1)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		w.Write([]byte(`{"enforcementMode":"dns+nft","policy":{"defaultAction":"deny"}}`))
	}))
	defer other.Close()
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	s.Once(opensandboxtest.Policy, opensandboxtest.Refuse(307, "", "", http.Header{"Location": {other.URL + "/policy"}}))
	_, err := p.Create(t.Context(), spec())
	wantRefusal(t, err, sandbox.KindUnsupported, "in force")
	if len(asked) != 0 || s.Alive() != 0 {
		t.Errorf("the other was asked %d times; %d sandboxes", len(asked), s.Alive())
	}
}

// Kubernetes makes and ends sandboxes in its own time, and pools call a running
// one something else.
func TestStates(t *testing.T) {
	s := &opensandboxtest.Server{Slow: 2, State: "Allocated"}
	p := open(t, serve(t, s), nil)
	sb := create(t, p, spec())
	if got := sb.Info().State; got != sandbox.StateRunning {
		t.Errorf("state %s", got)
	}
	if err := sb.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := p.Get(t.Context(), sb.ID()); sandbox.KindOf(err) != sandbox.KindNotFound {
		t.Errorf("after the kill: %v", err)
	}
}

// A creation that nobody waits for any more leaves nothing.
func TestCancelled(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	for range 3 {
		s.Once(opensandboxtest.Create, opensandboxtest.Delay(200*time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := p.Create(ctx, spec())
		cancel()
		if sandbox.KindOf(err) != sandbox.KindTimeout {
			t.Errorf("error %v", err)
		}
	}
	if s.Count(opensandboxtest.Create) != 3 || s.Alive() != 0 {
		t.Errorf("%d sandboxes are left of %d", s.Alive(), s.Count(opensandboxtest.Create))
	}
}

// The server takes no life shorter than a minute, so it is set afterwards; and
// it has a longest.
func TestTimeToLive(t *testing.T) {
	s := &opensandboxtest.Server{MaxTimeout: time.Hour}
	p := open(t, serve(t, s), nil)
	sp := spec()
	sp.TTL = 30 * time.Second
	sb := create(t, p, sp)
	if ttl := sb.Info().ExpiresAt.Sub(sb.Info().CreatedAt).Round(time.Second); ttl != sp.TTL {
		t.Errorf("it lives %v", ttl)
	}
	sp.TTL = 2 * time.Hour
	_, err := p.Create(t.Context(), sp)
	wantRefusal(t, err, sandbox.KindInvalid, "--ttl")
	s.Once(opensandboxtest.Renew, opensandboxtest.Refuse(400, "X::INVALID_EXPIRATION", "must be later", nil))
	sp.TTL = 30 * time.Second
	if _, err := p.Create(t.Context(), sp); err == nil {
		t.Error("a sandbox lives longer than it may")
	}
	if s.Alive() != 1 {
		t.Errorf("%d sandboxes", s.Alive())
	}
}

// Times are right although the server's clock is not this host's.
func TestClocks(t *testing.T) {
	for _, skew := range []time.Duration{-10 * time.Minute, -30 * time.Second, 0, time.Second, 45 * time.Second, time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			s := &opensandboxtest.Server{Skew: skew}
			p := open(t, serve(t, s), nil)
			sb := create(t, p, spec())
			near(t, "created", sb.Info().CreatedAt, time.Now())
			near(t, "end", sb.Info().ExpiresAt, time.Now().Add(spec().TTL))
			until := time.Now().Add(3 * time.Minute)
			end, err := sb.Renew(t.Context(), until)
			if err != nil {
				t.Fatal(err)
			}
			near(t, "renewed end", end, until)
			info, err := sb.Refresh(t.Context())
			if err != nil || !info.ExpiresAt.Equal(end) {
				t.Errorf("the end is %v, was said to be %v (%v)", info.ExpiresAt, end, err)
			}
		})
	}
}

func near(t *testing.T, what string, got, want time.Time) {
	t.Helper()
	if d := got.Sub(want).Abs(); d > 3*time.Second {
		t.Errorf("%s is off by %v", what, d)
	}
}
