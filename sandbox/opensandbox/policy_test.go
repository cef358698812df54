package opensandbox_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
)

func rules(r ...policy.Rule) policy.Document { return policy.Document{Rules: r} }

// What OpenSandbox has no word for is refused by the name of the rule, before
// anything is made.
func TestPolicyNotTranslated(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	named := policy.Rule{Host: "a.example"}
	for _, c := range []struct {
		where string
		d     policy.Document
	}{
		{"default", policy.Document{Default: "ask"}},
		{"default", policy.Document{Default: "allow", Mode: "ordered", Origin: policy.OriginHost}},
		{"report_only", policy.Document{ReportOnly: true, Origin: policy.OriginHost}},
		{"limits", policy.Document{Limits: policy.Limits{Connections: 1}}},
		{"rules[1]", rules(named, policy.Rule{Host: "b.example", Ports: []int{443}})},
		{"rules[1]", rules(named, policy.Rule{Host: "b.example", Proto: "tls"})},
		{"rules[1]", rules(named, policy.Rule{Host: "b.example", Action: "ask"})},
		{"rules[1]", rules(named, policy.Rule{CIDR: "192.0.2.0/24", Ports: []int{22}, Proto: "tcp"})},
	} {
		sp := spec()
		sp.Network = c.d
		_, err := p.Create(t.Context(), sp)
		wantRefusal(t, err, sandbox.KindUnsupported, "OpenSandbox knows rules")
		if err != nil && !strings.Contains(err.Error(), "network."+c.where) {
			t.Errorf("%+v: %v, want %s named", c.d, err, c.where)
		}
	}
	if n := s.Count(opensandboxtest.Create); n != 0 {
		t.Errorf("%d sandboxes were asked for", n)
	}
}

// The first rule that matches holds there: what denies comes first, unless the
// document is in an order of its own.
func TestPolicyTranslated(t *testing.T) {
	both := []policy.Rule{{Host: "*.Example.org."}, {Host: "bad.example.org", Action: "deny"}, {CIDR: "192.0.2.0/24"}}
	for name, c := range map[string]struct {
		d    policy.Document
		want []any
	}{
		"strictest": {rules(both...), []any{is("deny", "bad.example.org"), is("allow", "*.example.org"), is("allow", "192.0.2.0/24")}},
		"ordered":   {policy.Document{Mode: "ordered", Rules: both}, []any{is("allow", "*.example.org"), is("deny", "bad.example.org"), is("allow", "192.0.2.0/24")}},
		"nothing":   {policy.Document{Default: "deny"}, []any{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &opensandboxtest.Server{}
			p := open(t, serve(t, s), nil)
			var got map[string]any
			s.Once(opensandboxtest.Create, func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
				body := copyBody(t, r)
				var m map[string]any
				if err := json.NewDecoder(body()).Decode(&m); err != nil {
					t.Error(err)
				}
				got = m["networkPolicy"].(map[string]any)
				r.Body = body()
				next(w, r)
			})
			sp := spec()
			sp.Network = c.d
			info, err := p.Create(t.Context(), sp)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(map[string]any{"defaultAction": "deny", "egress": c.want}, got); d != "" {
				t.Errorf("the policy:\n%s", d)
			}
			if (len(info.Notes) == 1 && strings.Contains(info.Notes[0], "every port")) != (len(c.want) > 0) {
				t.Errorf("what a person should know: %q", info.Notes)
			}
		})
	}
}

func is(action, target string) any { return map[string]any{"action": action, "target": target} }

// A bundle would be wider there than it says: everything could be sent to its hosts.
func TestPolicyBundle(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	sp := spec()
	sp.Network = policy.Document{Rules: []policy.Rule{{Host: "a.example"}}, Bundles: []string{"pypi"}}
	_, err := p.Create(t.Context(), sp)
	if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Kind != sandbox.KindUnsupported || e.Subject != "network.bundles[0]" || s.Alive() != 0 {
		t.Errorf("%v, and %d are alive", err, s.Alive())
	}
}

// A policy that is not the one that was asked for is none, and addresses are
// kept by nftables only.
func TestPolicyNotInForce(t *testing.T) {
	for name, c := range map[string]struct {
		server *opensandboxtest.Server
		fault  opensandboxtest.Fault
		hint   string
	}{
		"another rule": {&opensandboxtest.Server{}, opensandboxtest.Answer(200, "application/json",
			`{"enforcementMode":"dns+nft","policy":{"defaultAction":"deny","egress":[{"action":"allow","target":"a.example"},{"action":"allow","target":"*"}]}}`), "in force"},
		"no rule":          {&opensandboxtest.Server{}, opensandboxtest.Answer(200, "application/json", `{"enforcementMode":"dns+nft","policy":{"defaultAction":"deny"}}`), "in force"},
		"allow by default": {&opensandboxtest.Server{DropPolicy: true}, nil, "in force"},
		"names only":       {&opensandboxtest.Server{Enforcement: "dns"}, nil, "dns+nft"},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, serve(t, c.server), func(o *opensandbox.Options) { o.AcceptWeakEgress = true })
			if c.fault != nil {
				c.server.Once(opensandboxtest.Policy, c.fault)
			}
			sp := spec()
			sp.Network = rules(policy.Rule{Host: "a.example"}, policy.Rule{CIDR: "192.0.2.1"})
			_, err := p.Create(t.Context(), sp)
			wantRefusal(t, err, sandbox.KindUnsupported, c.hint)
			if c.server.Alive() != 0 {
				t.Errorf("%d sandboxes are left", c.server.Alive())
			}
		})
	}
}

// A live policy is made wider, and narrower not, since open connections would go
// on; it is in force after a pause.
func TestPolicyOfALiveSandbox(t *testing.T) {
	s := &opensandboxtest.Server{}
	h := serve(t, s)
	p := open(t, h, nil)
	sp := spec()
	sp.Network = rules(policy.Rule{Host: "a.example"}, policy.Rule{Host: "x.a.example", Action: "deny"})
	info, err := p.Create(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	wider := rules(policy.Rule{Host: "b.example"}, policy.Rule{Host: "a.example"})
	generation, err := p.SetNetwork(t.Context(), info.ID, wider)
	if err != nil || generation != 2 {
		t.Errorf("a wider policy: generation %d, %v", generation, err)
	}
	denied := rules(append(wider.Rules, policy.Rule{Host: "x.b.example", Action: "deny"})...)
	ordered := denied
	ordered.Mode = policy.ModeOrdered
	asked := s.Count(opensandboxtest.Policy)
	for name, c := range map[string]struct {
		document policy.Document
		says     string
	}{
		"one name less":  {rules(policy.Rule{Host: "a.example"}), "no rule would allow b.example any more"},
		"one denial":     {denied, "a rule would deny x.b.example"},
		"in order":       {ordered, "a rule would deny x.b.example"},
		"nothing":        {policy.Document{}, "no rule would allow b.example any more"},
		"not translated": {rules(append(wider.Rules, policy.Rule{Host: "c.example", Proto: "tls"})...), "network.rules[2]"},
	} {
		if _, err := p.SetNetwork(t.Context(), info.ID, c.document); sandbox.KindOf(err) != sandbox.KindUnsupported || sandbox.HintOf(err) == "" ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := s.Count(opensandboxtest.Policy); n != asked {
		t.Errorf("a refusal has asked the sidecar %d times", n-asked)
	}
	if _, err := p.SetNetwork(t.Context(), info.ID, rules(policy.Rule{Host: "*.com"})); sandbox.KindOf(err) != sandbox.KindInvalid {
		t.Errorf("invalid: %v", err)
	}
	if _, err := open(t, h, nil).SetNetwork(t.Context(), info.ID, wider); sandbox.KindOf(err) != sandbox.KindUnsupported {
		t.Errorf("on another host: %v", err)
	}
	if err := p.Pause(t.Context(), info.ID, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.SetNetwork(t.Context(), info.ID, wider); sandbox.KindOf(err) != sandbox.KindConflict {
		t.Errorf("while it is paused: %v", err)
	}
	if err := p.Resume(t.Context(), info.ID); err != nil {
		t.Errorf("with its policy in force: %v", err)
	}
	// One of which another host knows nothing is paused again, not ended.
	if err := p.Pause(t.Context(), info.ID, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := open(t, h, nil).Resume(t.Context(), info.ID); err == nil || sandbox.HintOf(err) == "" && !strings.Contains(err.Error(), "paused again") {
		t.Errorf("resumed where its policy is not known: %v", err)
	}
	if err := p.Resume(t.Context(), info.ID); err != nil {
		t.Errorf("at home again: %v", err)
	}
}

// What became of a change whose answer is lost is found out.
func TestPolicyChangeLost(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	info, err := p.Create(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	lost := func(done bool) opensandboxtest.Fault {
		return func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			if done {
				next(nowhere{}, r)
			}
			opensandboxtest.Refuse(502, "", "", nil)(w, r, next)
		}
	}
	a, b := rules(policy.Rule{Host: "a.example"}), rules(policy.Rule{Host: "a.example"}, policy.Rule{Host: "b.example"})
	s.Once(opensandboxtest.Policy, lost(true))
	if generation, err := p.SetNetwork(t.Context(), info.ID, a); err != nil || generation != 2 {
		t.Errorf("done, and its answer lost: generation %d, %v", generation, err)
	}
	s.Once(opensandboxtest.Policy, lost(false))
	if _, err := p.SetNetwork(t.Context(), info.ID, b); err == nil || errors.Is(err, sandbox.ErrUnsent) {
		t.Errorf("a change of which it is not known whether it was made: %v", err)
	}
	if generation, err := p.SetNetwork(t.Context(), info.ID, b); err != nil || generation != 3 {
		t.Errorf("once more: generation %d, %v", generation, err)
	}
	s.Once(opensandboxtest.Policy, opensandboxtest.Answer(400, "text/plain", "no"))
	if _, err := p.SetNetwork(t.Context(), info.ID, rules(append(b.Rules, policy.Rule{Host: "c.example"})...)); err == nil {
		t.Error("a change that was refused is said to be made")
	}
}

// Of a change that fails before the sidecar was asked for it, that is said, and it
// can be made later.
func TestPolicyChangeUnsent(t *testing.T) {
	s := &opensandboxtest.Server{}
	h := serve(t, s)
	p := open(t, h, nil)
	info, err := p.Create(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	d, asked := rules(policy.Rule{Host: "a.example"}), s.Count(opensandboxtest.Policy)
	for _, route := range []string{opensandboxtest.Get, opensandboxtest.Endpoint} {
		s.Once(route, opensandboxtest.Refuse(500, "", "away", nil))
		if _, err := p.SetNetwork(t.Context(), info.ID, d); !errors.Is(err, sandbox.ErrUnsent) || sandbox.KindOf(err) != sandbox.KindHost ||
			!strings.Contains(err.Error(), "away (nothing was sent)") {
			t.Errorf("%s: %v", route, err)
		}
	}
	if n := s.Count(opensandboxtest.Policy); n != asked {
		t.Errorf("the sidecar was asked %d times", n-asked)
	}
	if generation, err := p.SetNetwork(t.Context(), info.ID, d); err != nil || generation != 2 {
		t.Errorf("generation %d, %v", generation, err)
	}
}
