package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/rein-sh/rein/egress/policy"
)

func mustCompile(t *testing.T, rules ...policy.Rule) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(policy.Document{Rules: rules, Origin: policy.OriginHost})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// slowHost answers when it is told to, whatever becomes of the context.
type slowHost struct {
	lookup, dial chan struct{}
	conn         net.Conn
}

func (h *slowHost) Lookup(context.Context, string) ([]netip.Addr, error) {
	<-h.lookup
	return []netip.Addr{netip.MustParseAddr("93.184.215.14")}, nil
}

func (h *slowHost) Dial(context.Context, netip.AddrPort) (net.Conn, error) {
	<-h.dial
	return h.conn, nil
}

func (h *slowHost) Own(netip.Addr) bool { return false }

// A policy that comes while a connection is being made is not overtaken by it.
func TestNarrowedWhileConnecting(t *testing.T) {
	for _, phase := range []string{"lookup", "dial"} {
		t.Run(phase, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := net.Pipe()
				defer b.Close()
				host := &slowHost{make(chan struct{}), make(chan struct{}), a}
				g, e := simulated(t, Options{Host: host}, anySSH)
				errs := connecting(t, g, ssh)
				if phase == "dial" {
					close(host.lookup)
				}
				synctest.Wait()
				g.SetPolicy(mustCompile(t))
				g.SetPolicy(mustCompile(t, anySSH)) // too late for that one
				if phase == "lookup" {
					close(host.lookup)
				}
				close(host.dial)
				wantRule(t, <-errs, policy.RuleDefault)
				if phase == "dial" {
					if _, err := b.Read(make([]byte, 1)); err == nil {
						t.Error("the host's side is open")
					}
				} else {
					a.Close()
				}
				if list := e.get(); len(list) != 1 || list[0].Verdict != verdictDeny || list[0].Generation != 1 || list[0].BytesOut != 0 {
					t.Errorf("recorded %+v", list)
				}
			})
		})
	}
}

// What a name resolves to is judged by the newest policy, too.
func TestNarrowedByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &slowHost{make(chan struct{}), make(chan struct{}), still{}}
		g, _ := simulated(t, Options{Host: host}, anySSH)
		errs := connecting(t, g, ssh)
		synctest.Wait()
		// The name is still allowed, but not where it leads to.
		g.SetPolicy(mustCompile(t, anySSH, policy.Rule{CIDR: "93.184.215.0/24", Action: policy.ActionDeny}))
		close(host.lookup)
		close(host.dial)
		if _, ok := errors.AsType[*refusal](<-errs); !ok {
			t.Error("the newer policy was overtaken")
		}
	})
}

// A wider policy leaves open connections with the one they were judged on.
func TestWidened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, e := simulated(t, Options{Host: &stillHost{}}, anySSH)
		f := begin(t, g)
		if n := g.SetPolicy(mustCompile(t, anySSH, policy.Rule{Host: "b.example.net"})); n != 2 {
			t.Errorf("generation %d, want 2", n)
		}
		if err := f.ctx.Err(); err != nil {
			t.Errorf("an allowed connection ended: %v", context.Cause(f.ctx))
		}
		f.end(errors.New("over"))
		begin(t, g).end(errors.New("over"))
		if list := e.get(); len(list) != 2 || list[0].Generation != 1 || list[1].Generation != 2 {
			t.Errorf("recorded %+v", list)
		}
	})
}

// Another kind of connection under the same name is not the one that is open.
func TestNarrowedToTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := simulated(t, Options{Host: &stillHost{}}, anySSH)
		f := begin(t, g)
		tls := anySSH
		tls.Proto = "tls"
		g.SetPolicy(mustCompile(t, tls))
		wantRule(t, context.Cause(f.ctx), "rules[0]")
		f.end(nil)
	})
}

// Whatever happens at once, all that was taken is given back and all that was
// tried is on record.
func TestTurmoil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, e := simulated(t, Options{Host: &stillHost{}, Limits: Limits{Connections: 5, PerSecond: 1 << 30},
			Ask:   func(context.Context, Question) policy.Answer { return policy.Granted },
			Owner: func(context.Context, Socket) string { return "a" }}, anySSH)
		policies := []*policy.Policy{mustCompile(t, anySSH), mustCompile(t), mustCompile(t, askSSH)}
		const workers, each = 8, 50
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for range each {
					f, refused := g.newFlow(ssh, 1)
					if refused != nil {
						f.record(refused)
						continue
					}
					f.seekOwner(false)
					err := f.connect()
					if err == nil {
						_, err = f.outside.Write(make([]byte, 10))
					}
					if err == nil {
						err = f.judgeServer("a.example.org")
					}
					if err == nil {
						err = errors.New("over")
					}
					f.end(err)
				}
			})
		}
		for i := range 100 {
			g.SetPolicy(policies[i%len(policies)])
			g.Open(i%4 != 0)
		}
		wg.Wait()
		synctest.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.flows) != 0 || g.meter.open != 0 || len(g.meter.dials) != 0 || len(g.owners) != 0 || len(g.asks.open) != 0 {
			t.Errorf("%d flows, %d connections, %d dials, %d owners, %d questions are left",
				len(g.flows), g.meter.open, len(g.meter.dials), len(g.owners), len(g.asks.open))
		}
		g.log.sync()
		if n := total(e.get()); n != workers*each {
			t.Errorf("%d attempts are on record, want %d", n, workers*each)
		}
	})
}

// The sandbox's port finds who holds the connection, once, and not for longer
// than a second.
func TestOwnerTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, e := simulated(t, Options{Host: &stillHost{}, Owner: func(ctx context.Context, _ Socket) string {
			<-ctx.Done()
			return ""
		}}, anySSH)
		start := time.Now()
		f := begin(t, g)
		f.seekOwner(false)
		f.holdForOwner()
		if d := time.Since(start); d != ownerPatience {
			t.Errorf("the connection waited for the owner for %v", d)
		}
		f.end(errors.New("over"))
		if d := time.Since(start); d != ownerTimeout {
			t.Errorf("looked for the owner for %v", d)
		}
		if list := e.get(); len(list) != 1 || list[0].Owner != "" {
			t.Errorf("recorded %+v", list)
		}
	})
}

// Where the owner can be told later, too, no connection waits for it: it is
// looked for when the connection is made, has ended, or somebody has to know.
func TestOwnerLasts(t *testing.T) {
	const takes = ownerPatience / 2
	over := func(f *flow) { f.end(errors.New("over")) }
	for name, tc := range map[string]struct {
		then   func(*flow)
		looked time.Duration
	}{
		"ends at once":   {over, 0},
		"is made":        {func(f *flow) { time.Sleep(time.Minute); over(f) }, ownerDelay},
		"somebody waits": {func(f *flow) { f.deny(policy.Verdict{}); over(f) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				looked := make(chan time.Duration, 1)
				start := time.Now()
				g, e := simulated(t, Options{Host: &stillHost{}, OwnerLasts: func() bool { return true }, Owner: func(context.Context, Socket) string {
					looked <- time.Since(start)
					time.Sleep(takes)
					return "a"
				}}, anySSH)
				f := begin(t, g)
				f.seekOwner(false)
				f.holdForOwner()
				if d := time.Since(start); d != 0 {
					t.Errorf("the connection waited for the owner for %v", d)
				}
				tc.then(f)
				if d := <-looked; d != tc.looked {
					t.Errorf("looked for the owner after %v", d)
				}
				list := e.get()
				if len(list) == 0 || slices.ContainsFunc(list, func(a Attempt) bool { return a.Owner != "a" }) {
					t.Errorf("recorded %+v", list)
				}
			})
		})
	}
}

// What was made before is looked for at once, and waited for.
func TestOwnerOfOldConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := simulated(t, Options{Host: &stillHost{}, OwnerLasts: func() bool { return true }, Owner: func(context.Context, Socket) string {
			time.Sleep(ownerPatience / 2)
			return "a"
		}}, anySSH)
		start := time.Now()
		f := begin(t, g)
		f.seekOwner(true)
		f.holdForOwner()
		if d := time.Since(start); d != ownerPatience/2 {
			t.Errorf("waited for %v", d)
		}
		f.end(errors.New("over"))
	})
}

// Of a question the owner is looked for at once, and once.
func TestOwnerOfQuestion(t *testing.T) {
	for _, lasts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			looked, asked := 0, make(chan Question, 2)
			start := time.Now()
			g, e := simulated(t, Options{Host: &stillHost{}, OwnerLasts: func() bool { return lasts },
				Owner: func(context.Context, Socket) string { looked++; return "a" },
				Ask:   func(_ context.Context, q Question) policy.Answer { asked <- q; return policy.Granted }}, askSSH)
			f, refused := g.newFlow(ssh, 40000)
			if refused != nil {
				t.Fatal(refused)
			}
			f.seekOwner(false)
			if err := f.connect(); err != nil {
				t.Fatal(err)
			}
			f.holdForOwner()
			f.end(errors.New("over"))
			if q := <-asked; q.Owner != "a" || time.Since(start) != 0 {
				t.Errorf("asked after %v: %+v", time.Since(start), q)
			}
			if list := e.get(); looked != 1 || len(list) != 1 || list[0].Owner != "a" {
				t.Errorf("looked %d times, recorded %+v", looked, list)
			}
		})
	}
}

// After a connection nothing of it is known for ever.
func TestKnown(t *testing.T) {
	t.Parallel()
	k := newKnown()
	for port := range uint16(3 * lastKnown) {
		id := idFrom(port)
		k.add(id)
		if !k.has(id) {
			t.Fatalf("an open connection, from port %d, is not known", port)
		}
		k.over(id)
	}
	if len(k.ids) != lastKnown || !k.has(idFrom(3*lastKnown-1)) || k.has(idFrom(0)) {
		t.Errorf("%d are known, want the last %d", len(k.ids), lastKnown)
	}
}

// A port that is used again is known for as long after its last use.
func TestKnownAgain(t *testing.T) {
	t.Parallel()
	k := newKnown()
	again, open := idFrom(1), idFrom(2)
	for _, id := range []stack.TransportEndpointID{again, open} {
		k.add(id)
		k.over(id)
	}
	k.add(open)
	k.add(again)
	k.over(again)
	for port := range uint16(lastKnown - 1) {
		k.over(idFrom(1000 + port))
	}
	if !k.has(again) || !k.has(open) {
		t.Errorf("what ended last is known: %t, what is open: %t", k.has(again), k.has(open))
	}
	k.over(idFrom(0))
	if k.has(again) || !k.has(open) || len(k.ids) != lastKnown+1 {
		t.Errorf("known for ever: %t, open: %t, of %d", k.has(again), k.has(open), len(k.ids))
	}
}

func idFrom(port uint16) stack.TransportEndpointID {
	return stack.TransportEndpointID{LocalPort: 443, RemotePort: port}
}

// Many refusals do not become as many questions about who was refused.
func TestOwnersOfRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := simulated(t, Options{Owner: func(context.Context, Socket) string { return "a" }})
		for round := range 3 {
			n := 0
			for g.mayFindOwner() {
				g.ownerFound()
				n++
			}
			if n != refusedOwners {
				t.Errorf("round %d: %d are looked for at once, want %d", round, n, refusedOwners)
			}
			time.Sleep(time.Second)
		}
	})
}
