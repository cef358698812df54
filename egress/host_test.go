package egress_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/rein-sh/rein/egress"
)

// nameServer is a real one, over UDP and TCP at one port.
type nameServer struct {
	addr  netip.AddrPort
	asked atomic.Int64
	tcp   atomic.Int64
}

// bothPorts listens on a port that is free for TCP and for UDP.
func bothPorts(t testing.TB) (net.Listener, net.PacketConn) {
	t.Helper()
	var taken error
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p, err := net.ListenPacket("udp", l.Addr().String())
		if err == nil {
			return l, p
		}
		l.Close()
		taken = err
	}
	t.Fatal(taken)
	return nil, nil
}

func serveDNS(t testing.TB, answer func(w dns.ResponseWriter, q *dns.Msg)) *nameServer {
	t.Helper()
	s := &nameServer{}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		s.asked.Add(1)
		if w.LocalAddr().Network() == "tcp" {
			s.tcp.Add(1)
		}
		answer(w, q)
	})
	l, p := bothPorts(t)
	s.addr = netip.MustParseAddrPort(l.Addr().String())
	servers := []*dns.Server{{Listener: l, Handler: handler}, {PacketConn: p, Handler: handler}}
	var up, all sync.WaitGroup
	for _, server := range servers {
		up.Add(1)
		server.NotifyStartedFunc = up.Done
		all.Go(func() {
			if err := server.ActivateAndServe(); err != nil {
				t.Error(err)
			}
		})
	}
	up.Wait()
	t.Cleanup(func() {
		for _, server := range servers {
			server.Shutdown()
		}
		all.Wait()
	})
	return s
}

// answerWith answers a question with what a zone file would say.
func answerWith(w dns.ResponseWriter, q *dns.Msg, lines ...string) {
	m := new(dns.Msg).SetReply(q)
	for _, line := range lines {
		if rr, err := dns.NewRR(line); err == nil && rr.Header().Rrtype == q.Question[0].Qtype {
			m.Answer = append(m.Answer, rr)
		}
	}
	w.WriteMsg(m)
}

// newHost is a host without files of its own, that asks these servers.
func newHost(t testing.TB, o egress.HostOptions, servers ...netip.AddrPort) *egress.System {
	t.Helper()
	o.Resolvers = servers
	for _, f := range []*string{&o.ResolvConf, &o.Hosts} {
		if *f == "" {
			*f = filepath.Join(t.TempDir(), "none")
		}
	}
	h, err := egress.NewHost(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func file(t testing.TB, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func wantLookup(t *testing.T, h egress.Host, name, want string) {
	t.Helper()
	got, err := h.Lookup(t.Context(), name)
	if err != nil || strings.Trim(fmt.Sprint(got), "[]") != want {
		t.Errorf("%s: %v, %v; want %s", name, got, err, want)
	}
}

func TestHostLookup(t *testing.T) {
	t.Parallel()
	s := serveDNS(t, func(w dns.ResponseWriter, q *dns.Msg) {
		switch q.Question[0].Name {
		case "a.example.":
			answerWith(w, q, "a.example. 60 IN A 192.0.2.1", "a.example. 60 IN AAAA 2001:db8::1")
		case "empty.example.":
			answerWith(w, q)
		case "fails.example.":
			w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeServerFailure))
		default:
			w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeNameError))
		}
	})
	h := newHost(t, egress.HostOptions{Hosts: file(t, "10.9.8.7 db.corp.example db # ours\n2001:db8::7 db.corp.example\n")}, s.addr)
	wantLookup(t, h, "a.example", "192.0.2.1 2001:db8::1")
	wantLookup(t, h, "a.example", "192.0.2.1 2001:db8::1")
	if n := s.asked.Load(); n != 2 {
		t.Errorf("%d questions", n)
	}
	for name, kind := range map[string]egress.Kind{"empty.example": egress.KindUnresolved, "none.example": egress.KindUnresolved, "fails.example": egress.KindHost} {
		got, err := h.Lookup(t.Context(), name)
		if e, ok := errors.AsType[*egress.Error](err); !ok || e.Kind != kind || e.Subject != name || got != nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	before := s.asked.Load()
	wantLookup(t, h, "db.corp.example", "10.9.8.7 2001:db8::7")
	wantLookup(t, h, "db", "10.9.8.7")
	wantLookup(t, h, "localhost", "127.0.0.1 ::1")
	if s.asked.Load() != before {
		t.Error("what the hosts file says was asked for")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.Lookup(gone, "later.example")
	if e, ok := errors.AsType[*egress.Error](err); !ok || e.Kind != egress.KindTimeout || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// What does not fit is asked for over TCP, and who does not know EDNS is asked
// without.
func TestHostLookupFallsBack(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 30 {
		many = append(many, fmt.Sprintf("big.example. 60 IN AAAA 2001:db8::%x:%s", i, strings.Repeat("1:", 3)[:5]))
	}
	s := serveDNS(t, func(w dns.ResponseWriter, q *dns.Msg) {
		switch name := q.Question[0].Name; {
		case name == "old.example." && q.IsEdns0() != nil:
			w.WriteMsg(new(dns.Msg).SetRcodeFormatError(q))
		case name == "big.example." && w.LocalAddr().Network() == "udp":
			m := new(dns.Msg).SetReply(q)
			m.Truncated = true
			w.WriteMsg(m)
		case name == "big.example.":
			answerWith(w, q, many...)
		default:
			answerWith(w, q, name+" 60 IN A 192.0.2.5")
		}
	})
	h := newHost(t, egress.HostOptions{}, s.addr)
	wantLookup(t, h, "old.example", "192.0.2.5")
	if s.tcp.Load() != 0 {
		t.Error("asked over TCP without need")
	}
	got, err := h.Lookup(t.Context(), "big.example")
	if err != nil || len(got) != 30 || s.tcp.Load() != 2 {
		t.Errorf("%d addresses, %v, after %d questions over TCP", len(got), err, s.tcp.Load())
	}
}

// A server that does not answer is passed over.
func TestHostResolversInTurn(t *testing.T) {
	t.Parallel()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	s := serveDNS(t, func(w dns.ResponseWriter, q *dns.Msg) { answerWith(w, q, "a.example. 60 IN A 192.0.2.1") })
	at := func(c net.PacketConn) netip.AddrPort { return netip.MustParseAddrPort(c.LocalAddr().String()) }
	h := newHost(t, egress.HostOptions{ResolvConf: file(t, "options timeout:1")}, at(closed), at(silent), s.addr)
	wantLookup(t, h, "a.example", "192.0.2.1")
}

// An answer to another question is not believed.
func TestHostIgnoresForgedAnswers(t *testing.T) {
	t.Parallel()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer c.Close()
	all.Go(func() {
		b := make([]byte, 4096)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			forge(t, c, from, b[:n])
		}
	})
	h := newHost(t, egress.HostOptions{}, netip.MustParseAddrPort(c.LocalAddr().String()))
	wantLookup(t, h, "a.example", "192.0.2.1 2001:db8::1")
}

// forge answers a question wrongly in every way, and then rightly.
func forge(t *testing.T, c net.PacketConn, to net.Addr, query []byte) {
	var q dns.Msg
	if err := q.Unpack(query); err != nil {
		t.Error(err)
		return
	}
	send := func(edit func(*dns.Msg)) {
		m := new(dns.Msg).SetReply(&q)
		bad, _ := dns.NewRR("a.example. 60 IN A 192.0.2.66")
		m.Answer = []dns.RR{bad}
		edit(m)
		b, err := m.Pack()
		if err != nil {
			t.Error(err)
		}
		c.WriteTo(b, to)
	}
	send(func(m *dns.Msg) { m.Id++ })
	send(func(m *dns.Msg) { m.Question[0].Name = "b.example." })
	send(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeTXT })
	send(func(m *dns.Msg) { m.Question = nil })
	send(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) })
	send(func(m *dns.Msg) { m.Response = false })
	send(func(m *dns.Msg) { m.Opcode = dns.OpcodeStatus })
	c.WriteTo([]byte("rubbish"), to)
	c.WriteTo(binary.BigEndian.AppendUint16(nil, q.Id), to)
	send(func(m *dns.Msg) {
		good, _ := dns.NewRR("a.example. 60 IN A 192.0.2.1")
		if q.Question[0].Qtype == dns.TypeAAAA {
			good, _ = dns.NewRR("a.example. 60 IN AAAA 2001:db8::1")
		}
		m.Answer = []dns.RR{good}
	})
}

func TestNewHostRefuses(t *testing.T) {
	t.Parallel()
	for what, o := range map[string]egress.HostOptions{
		"unreadable":     {ResolvConf: t.TempDir()},
		"no port":        {Resolvers: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:0")}},
		"no address":     {Resolvers: make([]netip.AddrPort, 1)},
		"proxy scheme":   {Proxy: mustURL(t, "socks5://proxy.example:1080")},
		"proxy path":     {Proxy: mustURL(t, "http://proxy.example:3128/x")},
		"proxy user":     {Proxy: mustURL(t, "http://user:hidden@proxy.example:3128")},
		"proxy colon":    {Proxy: mustURL(t, "http://proxy.example:3128"), ProxyUser: "us:er"},
		"proxy nowhere":  {Proxy: mustURL(t, "http://:3128")},
		"proxy port":     {Proxy: mustURL(t, "http://proxy.example:0")},
		"proxy no roots": {Proxy: mustURL(t, "https://proxy.example")},
	} {
		h, err := egress.NewHost(o)
		if e, ok := errors.AsType[*egress.Error](err); !ok || h != nil || e.Err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestHostDial(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := netip.MustParseAddrPort(l.Addr().String())
	h := newHost(t, egress.HostOptions{}, netip.MustParseAddrPort("127.0.0.1:1"))
	for _, to := range []netip.AddrPort{to, netip.AddrPortFrom(netip.AddrFrom16(to.Addr().As16()), to.Port())} {
		c, err := h.Dial(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		if c.RemoteAddr().String() != l.Addr().String() {
			t.Errorf("connected to %s instead of %s", c.RemoteAddr(), to)
		}
		c.Close()
	}
	for _, to := range []netip.AddrPort{{}, netip.AddrPortFrom(to.Addr(), 0)} {
		if c, err := h.Dial(t.Context(), to); err == nil {
			c.Close()
			t.Errorf("connected to %s", to)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if c, err := h.Dial(ctx, to); !errors.Is(err, context.DeadlineExceeded) && !os.IsTimeout(err) {
		t.Errorf("%v, %v", c, err)
	}
}

// The host's own addresses are those of its interfaces, also of new ones.
func TestHostOwn(t *testing.T) {
	t.Parallel()
	h := newHost(t, egress.HostOptions{}, netip.MustParseAddrPort("127.0.0.1:1"))
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	if len(addrs) == 0 {
		t.Fatal("no addresses")
	}
	for _, a := range addrs {
		addr, _ := netip.AddrFromSlice(a.(*net.IPNet).IP)
		for _, form := range []netip.Addr{addr, addr.Unmap(), netip.AddrFrom16(addr.As16())} {
			if !h.Own(form) {
				t.Errorf("%s is not its own", form)
			}
		}
	}
	for _, a := range []string{"192.0.2.1", "2001:db8::1", "10.88.0.1"} {
		if h.Own(netip.MustParseAddr(a)) {
			t.Errorf("%s is its own", a)
		}
	}
	if h.Own(netip.Addr{}) {
		t.Error("no address is its own")
	}
}
