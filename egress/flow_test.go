package egress_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
)

// away is the world outside as a test makes it: names, and who answers at
// which address.
type away struct {
	mu      sync.Mutex
	names   map[string][]netip.Addr
	servers map[netip.AddrPort]string // where each really listens
	dialled []netip.AddrPort
	looked  []string
	hang    chan struct{} // dials to addresses without a server wait for it
}

func newAway() *away {
	return &away{names: map[string][]netip.Addr{}, servers: map[netip.AddrPort]string{}}
}

func (a *away) Lookup(_ context.Context, name string) ([]netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looked = append(a.looked, name)
	if len(a.names[name]) == 0 {
		return nil, errors.New("no such name")
	}
	return a.names[name], nil
}

func (a *away) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	a.mu.Lock()
	a.dialled = append(a.dialled, to)
	server, hang := a.servers[to], a.hang
	a.mu.Unlock()
	if server == "" && hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if server == "" {
		return nil, syscall.ECONNREFUSED
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", server)
}

func (a *away) Own(addr netip.Addr) bool { return addr == netip.MustParseAddr("93.184.215.99") }

// count returns how many names were looked up and addresses dialled.
func (a *away) count() (looked, dialled int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.looked), len(a.dialled)
}

// serve has f answer at an address, under a name.
func (a *away) serve(t testing.TB, name, at string, f func(*net.TCPConn)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accept(t, l, func(c net.Conn) { f(c.(*net.TCPConn)) })
	to := netip.MustParseAddrPort(at)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.servers[to] = l.Addr().String()
	if name != "" {
		a.names[name] = append(a.names[name], to.Addr())
	}
}

func compile(t testing.TB, d policy.Document) *policy.Policy {
	t.Helper()
	d.Origin = policy.OriginHost
	p, err := policy.Compile(d)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func tcpTo(host string, ports ...int) policy.Rule {
	return policy.Rule{Host: host, Ports: ports, Proto: "tcp"}
}

// owned is a sandbox whose gateway has an owner and a way out.
func owned(t testing.TB, o egress.Options) (*netns, *egress.Gateway, *records) {
	t.Helper()
	ns, g, rec := start(t, o)
	g.Open(true)
	return ns, g, rec
}

// resolve asks inside for an address.
func resolve(t testing.TB, ns *netns, name string, qtype uint16) (addr netip.Addr, rcode int) {
	t.Helper()
	ns.do(func() error {
		q := new(dns.Msg)
		q.SetQuestion(name+".", qtype)
		c, err := net.Dial("udp", egress.Gateway4+":53")
		if err != nil {
			return err
		}
		defer c.Close()
		r, _, err := new(dns.Client).ExchangeWithConn(q, &dns.Conn{Conn: c})
		if err != nil {
			return err
		}
		rcode = r.Rcode
		for _, rr := range r.Answer {
			switch rr := rr.(type) {
			case *dns.A:
				addr, _ = netip.AddrFromSlice(rr.A.To4())
			case *dns.AAAA:
				addr, _ = netip.AddrFromSlice(rr.AAAA)
			}
		}
		return nil
	})
	return addr, rcode
}

// reach connects from inside to a name that has an address.
func reach(t testing.TB, ns *netns, name string, port int) (net.Conn, error) {
	t.Helper()
	addr, _ := resolve(t, ns, name, dns.TypeA)
	if !addr.IsValid() {
		t.Fatalf("%s has no address", name)
	}
	return dialInside(ns, netip.AddrPortFrom(addr, uint16(port)).String())
}

func dialInside(ns *netns, to string) (c net.Conn, err error) {
	ns.do(func() error {
		c, err = net.DialTimeout("tcp", to, 20*time.Second)
		return nil
	})
	return c, err
}

func mustReach(t testing.TB, ns *netns, name string, port int) *net.TCPConn {
	t.Helper()
	c, err := reach(t, ns, name, port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

func wantReset(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("%v, want a reset", err)
	}
}

func verdictOf(verdict, name string) func(egress.Attempt) bool {
	return func(a egress.Attempt) bool { return a.Proto != policy.DNS && a.Verdict == verdict && a.Name == name }
}

// Bytes go both ways, each direction ends by itself, and the record has them.
func TestCarries(t *testing.T) {
	t.Parallel()
	out := newAway()
	out.serve(t, "db.example.org", "93.184.215.14:5432", func(c *net.TCPConn) {
		io.WriteString(c, "hello ")
		b, _ := io.ReadAll(c) // to the end of what the sandbox sends
		c.Write(bytes.ToUpper(b))
	})
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, policy.Document{Rules: []policy.Rule{tcpTo("db.example.org", 5432)}})})
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		addr, _ := resolve(t, ns, "db.example.org", qtype)
		to := netip.AddrPortFrom(addr, 5432).String()
		if len(ns.reachable(to)) == 0 && addr.Is6() {
			continue
		}
		c, err := dialInside(ns, to)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, strings.Repeat("x", 100_000))
		c.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(c)
		c.Close()
		if err != nil || string(got) != "hello "+strings.Repeat("X", 100_000) {
			t.Errorf("%s: %d bytes, %v", to, len(got), err)
		}
	}
	a := rec.wait(t, verdictOf("allow", "db.example.org"))
	if a.BytesOut != 100_000 || a.BytesIn != 100_006 || a.Duration <= 0 || a.Generation != 1 || a.LocalPort == 0 ||
		a.Address != netip.MustParseAddr("93.184.215.14") || a.Port != 5432 || a.Rule != "rules[0]" || a.Count != 1 {
		t.Errorf("recorded %+v", a)
	}
}

// What is not allowed is reset before anybody outside hears of it.
func TestRefusesBeforeAsking(t *testing.T) {
	t.Parallel()
	out := newAway()
	out.serve(t, "mixed.example.org", "93.184.215.14:22", func(*net.TCPConn) {})
	out.names["mixed.example.org"] = append(out.names["mixed.example.org"], netip.MustParseAddr("10.0.0.7"))
	out.names["metadata.example.org"] = []netip.Addr{netip.MustParseAddr("169.254.169.254")}
	out.names["own.example.org"] = []netip.Addr{netip.MustParseAddr("93.184.215.99")}
	out.names["mapped.example.org"] = []netip.Addr{netip.MustParseAddr("::ffff:127.0.0.1")}
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, policy.Document{Rules: []policy.Rule{
		tcpTo("*.example.org", 22), {CIDR: "93.184.215.0/24", Ports: []int{25}, Proto: "tcp"},
	}})})
	// The port is another than the rule's: nothing is looked up.
	if c, err := reach(t, ns, "other.example.org", 23); err == nil {
		c.Close()
		t.Error("connected to another port")
	}
	rec.wait(t, verdictOf("deny", "other.example.org"))
	if looked, dialled := out.count(); looked != 0 || dialled != 0 {
		t.Errorf("%d names were looked up and %d addresses dialled", looked, dialled)
	}
	for _, name := range []string{"mixed", "metadata", "own", "mapped"} {
		name += ".example.org"
		_, err := reach(t, ns, name, 22)
		wantReset(t, err)
		rec.wait(t, verdictOf("deny", name))
	}
	for _, to := range []string{"93.184.215.14:22", "198.18.200.1:22", egress.Gateway4 + ":25"} {
		_, err := dialInside(ns, to)
		wantReset(t, err)
		rec.wait(t, func(a egress.Attempt) bool {
			return a.Verdict == "deny" && a.Address == netip.MustParseAddrPort(to).Addr()
		})
	}
	if _, dialled := out.count(); dialled != 0 {
		t.Errorf("dialled %v", out.dialled)
	}
}

// A literal address needs a rule for it and the port.
func TestLiteral(t *testing.T) {
	t.Parallel()
	out := newAway()
	to := []string{"93.184.215.14:25", "[2606:2800:220:1::1]:25"}
	for _, to := range to {
		out.serve(t, "", to, func(c *net.TCPConn) { io.WriteString(c, "220 ") })
	}
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, policy.Document{Rules: []policy.Rule{
		{CIDR: "93.184.215.14", Ports: []int{25}, Proto: "tcp"}, {CIDR: "2606:2800:220:1::/64", Ports: []int{25}, Proto: "tcp"}}})})
	for _, to := range ns.reachable(to...) {
		c, err := dialInside(ns, to)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); string(got) != "220 " || err != nil {
			t.Errorf("%s: %q, %v", to, got, err)
		}
		c.Close()
		rec.wait(t, func(a egress.Attempt) bool {
			return a.Verdict == "allow" && netip.AddrPortFrom(a.Address, a.Port).String() == to
		})
	}
}

// Without a server, or without an address, the connection is refused, and the
// record says that the policy was not why.
func TestUnreachableHost(t *testing.T) {
	t.Parallel()
	out := newAway()
	out.names["down.example.org"] = []netip.Addr{netip.MustParseAddr("93.184.215.15")}
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, policy.Document{Rules: []policy.Rule{tcpTo("*.example.org", 22)}})})
	for _, name := range []string{"down.example.org", "nowhere.example.org"} {
		_, err := reach(t, ns, name, 22)
		wantReset(t, err)
		if a := rec.wait(t, verdictOf("allow", name)); !strings.Contains(a.Reason, "; ") {
			t.Errorf("%s: recorded %+v", name, a)
		}
	}
}

// A narrower policy, or none, resets what it does not allow and leaves the
// rest alone; a wider one needs nothing but itself.
func TestGenerations(t *testing.T) {
	t.Parallel()
	out := newAway()
	echo := func(c *net.TCPConn) { io.Copy(c, c) }
	out.serve(t, "a.example.org", "93.184.215.14:22", echo)
	out.serve(t, "b.example.org", "93.184.215.15:22", echo)
	one := compile(t, policy.Document{Rules: []policy.Rule{tcpTo("a.example.org", 22)}})
	both := compile(t, policy.Document{Rules: []policy.Rule{tcpTo("a.example.org", 22), tcpTo("b.example.org", 22)}})
	ns, g, rec := owned(t, egress.Options{Host: out, Policy: both})
	a, b := mustReach(t, ns, "a.example.org", 22), mustReach(t, ns, "b.example.org", 22)
	talk := func(c net.Conn) error {
		if _, err := io.WriteString(c, "x"); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	if err := errors.Join(talk(a), talk(b)); err != nil {
		t.Fatal(err)
	}
	if n := g.SetPolicy(one); n != 2 {
		t.Errorf("generation %d, want 2", n)
	}
	wantReset(t, talk(b))
	if err := talk(a); err != nil {
		t.Errorf("what is still allowed: %v", err)
	}
	denied := verdictOf("deny", "b.example.org") // also of a segment that was on its way
	closed := rec.wait(t, func(a egress.Attempt) bool { return denied(a) && a.BytesOut > 0 })
	if closed.Generation != 1 {
		t.Errorf("recorded %+v", closed)
	}
	if _, rcode := resolve(t, ns, "b.example.org", dns.TypeA); rcode != dns.RcodeNameError {
		t.Errorf("the name has rcode %d", rcode)
	}
	g.SetPolicy(both)
	b = mustReach(t, ns, "b.example.org", 22)
	if err := talk(b); err != nil {
		t.Errorf("allowed again: %v", err)
	}

	port := serve(t, ns, func(c net.Conn) { io.Copy(c, c) })
	in := dial(t, g, port)
	defer in.Close()
	g.Open(false)
	wantReset(t, talk(a))
	wantReset(t, talk(b))
	if _, rcode := resolve(t, ns, "a.example.org", dns.TypeA); rcode != dns.RcodeNameError {
		t.Errorf("without an owner the name has rcode %d", rcode)
	}
	if err := talk(in); err != nil {
		t.Errorf("what the host opened into the sandbox: %v", err)
	}
	again := dial(t, g, port)
	defer again.Close()
	if err := talk(again); err != nil {
		t.Errorf("what the host opens into the sandbox: %v", err)
	}
	g.Open(true)
	if err := talk(mustReach(t, ns, "a.example.org", 22)); err != nil {
		t.Errorf("with an owner again: %v", err)
	}
}

// While a person is asked, the name has an address and the sandbox waits to be
// connected; what was granted is not asked about again.
func TestAsks(t *testing.T) {
	t.Parallel()
	out := newAway()
	out.serve(t, "a.example.org", "93.184.215.14:22", func(c *net.TCPConn) { io.WriteString(c, "x") })
	questions := make(chan egress.Question, 9)
	ns, _, rec := owned(t, egress.Options{Host: out,
		Policy: compile(t, policy.Document{Rules: []policy.Rule{{Host: "*.example.org", Ports: []int{22}, Proto: "tcp", Action: "ask"}}}),
		Ask: func(_ context.Context, q egress.Question) policy.Answer {
			if looked, dialled := out.count(); q.Name == "a.example.org" && looked+dialled != 0 {
				t.Errorf("%d names were looked up and %d addresses dialled before the answer", looked, dialled)
			}
			questions <- q
			if q.Name == "a.example.org" {
				return policy.Granted
			}
			return policy.Denied
		}})
	for range 2 {
		c := mustReach(t, ns, "a.example.org", 22)
		if got, err := io.ReadAll(c); string(got) != "x" {
			t.Errorf("%q, %v", got, err)
		}
		c.Close()
	}
	_, err := reach(t, ns, "b.example.org", 22)
	wantReset(t, err)
	if a := rec.wait(t, verdictOf("deny", "b.example.org")); a.Reason != "asked, and denied" || a.Rule != "rules[0]" {
		t.Errorf("recorded %+v", a)
	}
	if a := rec.wait(t, verdictOf("allow", "a.example.org")); a.Reason != "granted when asked" {
		t.Errorf("recorded %+v", a)
	}
	if q := <-questions; q.Name != "a.example.org" || q.Port != 22 || q.Socket.Local.Port() == 0 || len(questions) != 1 {
		t.Errorf("asked %+v and %d others, want one other", q, len(questions))
	}
}

// Who holds the sandbox's port is on record, also of what was refused.
func TestOwner(t *testing.T) {
	t.Parallel()
	out := newAway()
	out.serve(t, "a.example.org", "93.184.215.14:22", func(*net.TCPConn) {})
	ns, _, rec := owned(t, egress.Options{Host: out,
		Policy: compile(t, policy.Document{Rules: []policy.Rule{tcpTo("a.example.org", 22)}}),
		Owner:  func(_ context.Context, s egress.Socket) string { return fmt.Sprintf("call-%d", s.Local.Port()) }})
	mustReach(t, ns, "a.example.org", 22).Close()
	reach(t, ns, "a.example.org", 23)
	for _, verdict := range []string{"allow", "deny"} {
		a := rec.wait(t, verdictOf(verdict, "a.example.org"))
		if a.LocalPort == 0 || a.Owner != fmt.Sprintf("call-%d", a.LocalPort) {
			t.Errorf("recorded %+v", a)
		}
	}
}

// Only reporting lets pass what would be denied, but never to addresses that
// are nobody's business.
func TestReportOnly(t *testing.T) {
	t.Parallel()
	out := newAway()
	out.serve(t, "a.example.org", "93.184.215.14:443", func(c *net.TCPConn) { io.WriteString(c, "x") })
	out.names["inner.example.org"] = []netip.Addr{netip.MustParseAddr("10.0.0.7")}
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, policy.Document{ReportOnly: true,
		Rules: []policy.Rule{{Host: "b.example.org", Ports: []int{22}, Proto: "tcp"}}})})
	for _, name := range []string{"inner.example.org"} {
		_, err := reach(t, ns, name, 22)
		wantReset(t, err)
		if a := rec.wait(t, verdictOf("deny", name)); a.Address != netip.MustParseAddr("10.0.0.7") {
			t.Errorf("what it resolved to is not on record: %+v", a)
		}
	}
	_, err := dialInside(ns, "169.254.169.254:80")
	wantReset(t, err)
	if _, dialled := out.count(); dialled != 0 {
		t.Errorf("dialled %v", out.dialled)
	}
	out.serve(t, "c.example.org", "93.184.215.16:22", func(c *net.TCPConn) { io.WriteString(c, "x") })
	c := mustReach(t, ns, "c.example.org", 22)
	if got, err := io.ReadAll(c); string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	c.Close()
	rec.wait(t, verdictOf("report", "c.example.org"))
}
