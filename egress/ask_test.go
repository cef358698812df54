package egress

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/egress/policy"
)

var askSSH = policy.Rule{Host: "*.example.org", Ports: []int{22}, Proto: "tcp", Action: policy.ActionAsk}

// connecting runs connect of new flows and sends how each went.
func connecting(t *testing.T, g *Gateway, to ...endpoint) chan error {
	t.Helper()
	errs := make(chan error, len(to))
	for _, to := range to {
		f, refused := g.newFlow(to, 1)
		if refused != nil {
			t.Fatal(refused)
		}
		go func() {
			err := f.connect()
			if err == nil {
				f.end(errors.New("over"))
			} else {
				f.end(err)
			}
			errs <- err
		}()
	}
	return errs
}

// A connection is held for an answer for 30 seconds; the answer holds for the
// next one however late it comes.
func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, answer := &stillHost{}, make(chan policy.Answer)
		var asked atomic.Int32
		g, e := simulated(t, Options{Host: host, Ask: func(ctx context.Context, q Question) policy.Answer {
			asked.Add(1)
			if q.Name != ssh.name || q.Port != 22 || q.Proto != policy.TCP || q.Rule != "rules[0]" {
				t.Errorf("asked %+v", q)
			}
			select {
			case said := <-answer:
				return said
			case <-ctx.Done():
				return policy.Unanswered
			}
		}}, askSSH)
		start := time.Now()
		errs := connecting(t, g, ssh, ssh, ssh) // one question
		synctest.Wait()
		if n := host.dials.Load(); n != 0 {
			t.Errorf("%d dials before the answer", n)
		}
		for range 3 {
			wantRule(t, <-errs, "rules[0]")
		}
		if d := time.Since(start); d != holdTimeout || asked.Load() != 1 {
			t.Errorf("held for %v, asked %d times", d, asked.Load())
		}
		answer <- policy.Granted // late
		synctest.Wait()
		if err := <-connecting(t, g, ssh); err != nil || asked.Load() != 1 {
			t.Errorf("the next attempt: %v, asked %d times", err, asked.Load())
		}
		list := e.get()
		if last := list[len(list)-1]; len(list) != 4 || list[0].Verdict != verdictDeny || last.Verdict != verdictAllow {
			t.Errorf("recorded %+v", list)
		}
		// What is denied is denied, whatever was granted.
		deny := policy.Rule{Host: askSSH.Host, Action: policy.ActionDeny}
		p, err := policy.Compile(policy.Document{Rules: []policy.Rule{deny}})
		if err != nil {
			t.Fatal(err)
		}
		g.SetPolicy(p)
		if _, refused := g.newFlow(ssh, 1); refused == nil {
			t.Error("a grant overruled a denial")
		}
	})
}

// Who grants a name was not asked about where it leads: a range that asks
// refuses what resolves to it.
func TestAskName(t *testing.T) {
	for cidr, refused := range map[string]bool{"93.184.215.0/24": true, "93.184.216.0/24": false} {
		synctest.Test(t, func(t *testing.T) {
			host := &slowHost{make(chan struct{}), make(chan struct{}), still{}}
			close(host.lookup) // 93.184.215.14
			close(host.dial)
			g, _ := simulated(t, Options{Host: host, Ask: func(context.Context, Question) policy.Answer { return policy.Granted }},
				askSSH, policy.Rule{CIDR: cidr, Ports: []int{22}, Proto: "tcp", Action: policy.ActionAsk})
			if err := <-connecting(t, g, ssh); refused {
				wantRule(t, err, "rules[1]")
			} else if err != nil {
				t.Errorf("%s: %v", cidr, err)
			}
		})
	}
}

// A refusal answers for a minute.
func TestAskRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		g, _ := simulated(t, Options{Host: &stillHost{}, Ask: func(context.Context, Question) policy.Answer {
			asked.Add(1)
			return policy.Denied
		}}, askSSH)
		for range 5 {
			wantRule(t, <-connecting(t, g, ssh), "rules[0]")
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times, want once", n)
		}
		time.Sleep(refusedFor)
		wantRule(t, <-connecting(t, g, ssh), "rules[0]")
		if n := asked.Load(); n != 2 {
			t.Errorf("asked %d times, want twice", n)
		}
	})
}

// What became of a question is the reason in the record of what waited for it.
func TestAskOnRecord(t *testing.T) {
	for answer, want := range map[policy.Answer]string{
		policy.Granted: "granted when asked", policy.Denied: "asked, and denied", policy.TimedOut: "asked, and not answered in time",
		policy.Nobody: "nobody can be asked", policy.Unanswered: "asked, and not answered",
		policy.DeniedByRule: "denied by a rule of the approval, without asking",
	} {
		synctest.Test(t, func(t *testing.T) {
			g, e := simulated(t, Options{Host: &stillHost{}, Ask: func(context.Context, Question) policy.Answer { return answer }}, askSSH)
			f, _ := g.newFlow(ssh, 1)
			f.end(f.connect())
			verdict := verdictDeny
			if answer == policy.Granted {
				verdict = verdictAllow
			}
			if list := e.get(); len(list) != 1 || list[0].Verdict != verdict || list[0].Rule != "rules[0]" || list[0].Reason != want {
				t.Errorf("%q is recorded as %+v", answer, list)
			}
		})
	}
}

// A question that is given up is one that was not answered in time.
func TestAskGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, e := simulated(t, Options{Host: &stillHost{}, Ask: func(ctx context.Context, _ Question) policy.Answer {
			<-ctx.Done()
			return policy.Unanswered
		}}, askSSH)
		wantRule(t, <-connecting(t, g, ssh), "rules[0]")
		time.Sleep(askTimeout - holdTimeout)
		wantRule(t, <-connecting(t, g, ssh), "rules[0]")
		if list := e.get(); len(list) != 2 || list[0].Reason != "asked, and not answered within 30s" || list[1].Reason != policy.TimedOut.Reason() {
			t.Errorf("recorded %+v", list)
		}
	})
}

func TestLimitQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := simulated(t, Options{Host: &stillHost{}, Ask: func(ctx context.Context, _ Question) policy.Answer {
			<-ctx.Done()
			return policy.Unanswered
		}}, askSSH)
		var to []endpoint
		for _, name := range []string{"a.example.org", "b.example.org", "c.example.org"} {
			to = append(to, endpoint{name: name, port: 22})
		}
		held := connecting(t, g, to...)
		synctest.Wait()
		wantRule(t, <-connecting(t, g, endpoint{name: "d.example.org", port: 22}), "limit:questions")
		for range 3 {
			wantRule(t, <-held, "rules[0]")
		}
	})
}

// While a connection is held, another policy may allow or deny it.
func TestAskOvertaken(t *testing.T) {
	for name, c := range map[string]struct {
		rule    policy.Rule
		refused string
	}{
		"allow": {anySSH, ""},
		"deny":  {policy.Rule{Host: anySSH.Host, Action: policy.ActionDeny}, "rules[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, e := simulated(t, Options{Host: &stillHost{}, Ask: func(ctx context.Context, _ Question) policy.Answer {
					<-ctx.Done()
					return policy.Unanswered
				}}, askSSH)
				errs := connecting(t, g, ssh)
				synctest.Wait()
				p, err := policy.Compile(policy.Document{Rules: []policy.Rule{c.rule}})
				if err != nil {
					t.Fatal(err)
				}
				g.SetPolicy(p)
				err = <-errs
				if c.refused != "" {
					wantRule(t, err, c.refused)
				} else if err != nil {
					t.Error(err)
				}
				list := e.get()
				if len(list) != 1 || (list[0].Verdict == verdictAllow) != (c.refused == "") {
					t.Errorf("recorded %+v", list)
				}
			})
		})
	}
}

// Without anybody to ask, ask is deny.
func TestAskNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &stillHost{}
		g, _ := simulated(t, Options{Host: host}, askSSH)
		wantRule(t, <-connecting(t, g, ssh), "rules[0]")
		if host.dials.Load() != 0 {
			t.Error("dialled")
		}
	})
}
