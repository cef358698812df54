package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/run/control"
	"github.com/rein-sh/rein/sandbox"
)

// gateway is a provider with a network: it keeps the policy in force, and asks
// the owner.
type gateway struct {
	sandbox.Provider
	mu    sync.Mutex
	born  policy.Document
	now   policy.Document
	n     uint64
	ask   func(context.Context, sandbox.Question) policy.Answer
	meter inference.Meter
	fails error
	log   []sandbox.NetworkRecord
}

type noCloser struct{}

func (noCloser) Close() error { return nil }

func (g *gateway) Create(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	g.mu.Lock()
	g.born, g.now, g.n = s.Network, s.Network, 1
	g.mu.Unlock()
	s.Network = policy.Document{}
	return g.Provider.Create(ctx, s)
}

func (g *gateway) Attach(_ context.Context, _ string, o sandbox.Owner) (io.Closer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ask, g.meter = o.Ask, o.Meter
	return noCloser{}, nil
}

func (g *gateway) SetNetwork(_ context.Context, _ string, d policy.Document) (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fails != nil {
		return 0, g.fails
	}
	g.now = d
	g.n++
	return g.n, nil
}

func (g *gateway) NetworkRecords(context.Context, string, uint64) (sandbox.NetworkLog, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return sandbox.NetworkLog{Records: g.log, Last: uint64(len(g.log)), Head: "head"}, nil
}

func (g *gateway) allows(host string, port uint16) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, err := policy.Compile(g.now)
	return err == nil && p.Connect(host, port).Allowed()
}

// kinds counts the records of a kind, and decodes the last.
func kinds(t *testing.T, dir string, kind audit.Kind, into any) (n int) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, run.AuditFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r, err := range audit.Records(f) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind == kind {
			n++
			if err := json.Unmarshal(r.Data, into); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}

// What a run that works may reach is changed from the host, narrowed as well as
// widened, and is in its record and its report with who did it.
func TestNetworkOfALiveRun(t *testing.T) {
	t.Parallel()
	o := options(t)
	g := &gateway{Provider: o.Provider}
	o.Provider = g
	o.Target.Spec.Network = policy.Document{Origin: policy.OriginHost, Rules: []policy.Rule{
		{Host: "pypi.org"}, {Host: "evil.example", Action: policy.ActionDeny}}}
	rep := asking(t, o, func(ctx context.Context, _ *run.Session, c *control.Client) {
		ch, err := c.Allow(ctx, control.Host{Host: "db.example.com", Port: 5432, Proto: "tcp"})
		if err != nil || ch.Generation != 2 || len(ch.Says) != 3 || !g.allows("db.example.com", 5432) {
			t.Errorf("allow: %+v, %v", ch, err)
		}
		if _, err := c.Deny(ctx, control.Host{Host: "pypi.org"}); err != nil || g.allows("pypi.org", 443) {
			t.Errorf("deny: %v", err)
		}
		for _, h := range []control.Host{{Host: "evil.example"}, {Host: "pypi.org", Port: 443}, {Host: "x.example", Port: 22}, {Host: "*.com"}, {Host: "169.254.169.254", Port: 80}, {Host: "a b"}} {
			_, err := c.Allow(ctx, h)
			if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != control.CodeInvalid || e.Hint() == "" {
				t.Errorf("%+v: %v", h, err)
			}
		}
		if _, err := c.Allow(ctx, control.Host{Host: "pypi.org"}); err != nil || !g.allows("pypi.org", 443) {
			t.Errorf("allow again: %v", err)
		}
		g.mu.Lock()
		g.fails = &sandbox.Error{Kind: sandbox.KindUnsupported, Op: "change the network", Err: errors.New("no")}
		g.mu.Unlock()
		_, err = c.Deny(ctx, control.Host{Host: "pypi.org"})
		if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != control.CodeUnsupported || !g.allows("pypi.org", 443) {
			t.Errorf("a provider that cannot: %v", err)
		}
	})
	if len(rep.NetworkChanges) != 3 || rep.NetworkChanges[0].UID != uint32(os.Geteuid()) || rep.NetworkChanges[2].Action != policy.ActionAllow {
		t.Errorf("%+v", rep.NetworkChanges)
	}
	if said := strings.Join(rep.NetworkRules, "\n"); !strings.Contains(said, "allows db.example.com on port 5432 (tcp)") || strings.Contains(said, "denies pypi.org") {
		t.Errorf("the report says %s", said)
	}
	var last run.NetworkChange
	if n := kinds(t, rep.Dir, audit.KindNetworkSet, &last); n != 3 || last.Host != "pypi.org" || last.Generation != 4 {
		t.Errorf("%d on record, the last %+v", n, last)
	}
	md, err := os.ReadFile(filepath.Join(rep.Dir, "report.md"))
	if err != nil || !strings.Contains(string(md), "- changed while it worked: allow db.example.com port 5432 (tcp), by uid ") {
		t.Errorf("%s %v", md, err)
	}
}

// Allowing a host takes back that it was denied, and closes nothing of it.
func TestAllowClosesNothing(t *testing.T) {
	t.Parallel()
	o := options(t)
	g := &gateway{Provider: o.Provider}
	o.Provider = g
	asking(t, o, func(ctx context.Context, _ *run.Session, c *control.Client) {
		change := func(do func(context.Context, control.Host) (control.NetworkChange, error), h control.Host) {
			if _, err := do(ctx, h); err != nil {
				t.Errorf("%+v: %v", h, err)
			}
		}
		const host = "db.example.com"
		change(c.Allow, control.Host{Host: host, Port: 5432, Proto: "tcp"})
		change(c.Allow, control.Host{Host: host, Proto: "http"})
		change(c.Allow, control.Host{Host: host, Proto: "tls"})
		change(c.Allow, control.Host{Host: host})
		for _, port := range []uint16{5432, 443, 80} {
			if !g.allows(host, port) {
				t.Errorf("port %d is closed", port)
			}
		}
		change(c.Deny, control.Host{Host: host, Port: 5432})
		change(c.Allow, control.Host{Host: host, Port: 5432, Proto: "tls"})
		if !g.allows(host, 5432) || !g.allows(host, 443) {
			t.Error("allowed again, and closed")
		}
		_, err := c.Deny(ctx, control.Host{Host: "*"})
		if e, ok := errors.AsType[*control.Error](err); !ok || e.Hint() == "" {
			t.Errorf("every name: %v", err)
		}
		change(c.Deny, control.Host{Host: host})
		if g.allows(host, 5432) || g.allows(host, 443) {
			t.Error("denied, and open")
		}
		change(c.Allow, control.Host{Host: host})
		if g.allows(host, 5432) || !g.allows(host, 443) {
			t.Error("what was denied as a whole is allowed on the usual ports")
		}
	})
}

// Of a policy in which the first rule counts, the newest change is the first.
func TestOrderedNetworkOfALiveRun(t *testing.T) {
	t.Parallel()
	o := options(t)
	g := &gateway{Provider: o.Provider}
	o.Provider = g
	o.Target.Spec.Network = policy.Document{Origin: policy.OriginHost, Mode: policy.ModeOrdered, Default: policy.ActionAllow,
		Rules: []policy.Rule{{Host: "evil.example", Action: policy.ActionDeny}}}
	asking(t, o, func(ctx context.Context, _ *run.Session, c *control.Client) {
		if _, err := c.Allow(ctx, control.Host{Host: "evil.example"}); err != nil || !g.allows("evil.example", 443) {
			t.Error(err)
		}
		if _, err := c.Deny(ctx, control.Host{Host: "evil.example"}); err != nil || g.allows("evil.example", 443) {
			t.Error(err)
		}
		if _, err := c.Deny(ctx, control.Host{Host: "*.example.com"}); err != nil || g.allows("a.example.com", 80) {
			t.Error(err)
		}
	})
}

type hostAsker func(approval.Question) approval.Decision

func (hostAsker) Name() string { return "test" }

func (a hostAsker) Ask(_ context.Context, q approval.Question) (approval.Decision, error) {
	return a(q), nil
}

// What the policy leaves open is asked through the run's gate, with the call that
// is under way; what is answered is on record, and holds for the run.
func TestHostIsAsked(t *testing.T) {
	t.Parallel()
	rules, err := approval.NewPolicy("", approval.Rule{Host: "*.evil.example", Action: approval.Deny})
	if err != nil {
		t.Fatal(err)
	}
	var asked []approval.Question
	o := options(t)
	g := &gateway{Provider: o.Provider}
	o.Provider = g
	o.Target.Spec.Network = policy.Document{Default: policy.ActionAsk}
	o.Approval = &run.Approval{Policy: rules, Channels: []approval.Channel{hostAsker(func(q approval.Question) approval.Decision {
		asked = append(asked, q)
		return approval.Decision{Approve: q.Domain == "example.com"}
	})}}
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		s.Emit(run.Event{Kind: run.EventCall, Step: 1, Call: &run.CallEvent{ID: "call_1", Tool: "run_command", Summary: "curl https://api.example.com"}})
		for _, q := range []struct {
			name string
			want policy.Answer
		}{
			{"api.example.com", policy.Granted}, {"api.example.com", policy.Granted}, {"other.example", policy.Denied}, {"a.evil.example", policy.DeniedByRule},
		} {
			if got := g.ask(ctx, sandbox.Question{Name: q.name, Port: 443, Proto: "tls", Reason: "default: asks"}); got != q.want {
				t.Errorf("%s: %q", q.name, got)
			}
		}
		return done("asked")
	})
	if len(asked) != 2 || asked[0].Text != "example.com: api.example.com port 443 (tls)\nwhile it works on run_command: curl https://api.example.com" {
		t.Errorf("%+v", asked)
	}
	a := rep.Approvals
	if a == nil || a.Asked != 2 || a.Approved != 1 || a.Granted != 1 || a.Denied != 1 || a.ByRule != 1 {
		t.Errorf("%+v", a)
	}
}

// What keeps a question from being answered is told apart.
func TestHostIsNotAnswered(t *testing.T) {
	t.Parallel()
	rules, err := approval.NewPolicy("")
	if err != nil {
		t.Fatal(err)
	}
	away := asker(func(ctx context.Context, _ approval.Question) (approval.Decision, error) {
		<-ctx.Done()
		return approval.Decision{}, ctx.Err()
	})
	for name, c := range map[string]struct {
		approval *run.Approval
		want     policy.Answer
	}{
		"no approval": {nil, policy.Nobody},
		"no channel":  {&run.Approval{Policy: rules}, policy.Nobody},
		"away":        {&run.Approval{Policy: rules, Channels: []approval.Channel{away}, Timeout: time.Millisecond}, policy.TimedOut},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			g := &gateway{Provider: o.Provider}
			o.Provider, o.Target.Spec.Network, o.Approval = g, policy.Document{Default: policy.ActionAsk}, c.approval
			do(t, o, func(ctx context.Context, _ *run.Session) (run.Outcome, error) {
				if a := g.ask(ctx, sandbox.Question{Name: "api.example.com", Port: 443}); a != c.want {
					t.Errorf("answered %q", a)
				}
				return done("asked")
			})
		})
	}
}

// The report has each host once, those that were reached with the bytes.
func TestHostsOfAReport(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Provider = &gateway{Provider: o.Provider, log: []sandbox.NetworkRecord{
		{Seq: 1, Count: 1, Proto: "dns", Name: "evil.example", Verdict: "deny", Reason: "no rule allows it", Rule: "default"},
		{Seq: 2, Count: 1, Proto: "tls", Name: "pypi.org", Port: 443, Verdict: "allow", Rule: "rules[0]", BytesOut: 100, BytesIn: 2000},
		{Seq: 3, Count: 4, Proto: "dns", Name: "evil.example", Verdict: "deny", Reason: "no rule allows it", Rule: "default", Address: "192.0.2.1"},
		{Seq: 4, Count: 2, Proto: "tls", Name: "pypi.org", Port: 443, Verdict: "allow", Rule: "rules[0]", BytesOut: 11, BytesIn: 22},
		{Seq: 5, Count: 1, Proto: "http", Name: "api.example", Port: 80, Verdict: "allow", Rule: "rules[0]", Reason: "allows api.example"},
		{Seq: 6, Count: 1, Proto: "http", Name: "api.example", Port: 80, Verdict: "deny", Rule: "rules[0]", Reason: "no rule allows POST /"},
		{Seq: 7, Count: 1, Proto: "tls", Name: "a.example", Port: 443, Verdict: "deny", Rule: "tls.name", Reason: "the server name is \"|<b>|\""},
	}}
	o.Target.Spec.Network = policy.Document{Rules: []policy.Rule{{Host: "pypi.org"}}}
	rep := do(t, o, func(context.Context, *run.Session) (run.Outcome, error) { return done("done") })
	want := []run.HostReached{
		{Host: "pypi.org", Port: 443, Proto: "tls", Verdict: "allow", Rule: "rules[0]", Count: 3, BytesOut: 111, BytesIn: 2022},
		{Host: "evil.example", Proto: "dns", Verdict: "deny", Rule: "default", Reason: "no rule allows it", Count: 5},
	}
	if len(rep.Hosts) != 5 || rep.Hosts[0] != want[0] || rep.Hosts[1] != want[1] || rep.HostsLeft != 0 {
		t.Errorf("%+v", rep.Hosts)
	}
	md, err := os.ReadFile(filepath.Join(rep.Dir, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"- rules\\[0] allows pypi.org on ports 443 (tls), 80 (http)\n", "| tls pypi.org:443 | rules\\[0] | 3 | 111 B | 2022 B |\n", "| dns evil.example | deny | no rule allows it | 5 |\n", "| http api.example:80 | allow | allows api.example | 1 |\n", `\|\<b>\|`} {
		if !strings.Contains(string(md), line) {
			t.Errorf("there is no %q in\n%s", line, md)
		}
	}
}
