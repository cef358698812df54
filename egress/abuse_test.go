package egress_test

import (
	"errors"
	"flag"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
)

// make egress-abuse makes more connections.
var connections = flag.Int("connections", 300, "how many TestManyConnections makes, and TestParallelConnects at once")

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// settles waits until what is counted is no more than it was before.
func settles(t *testing.T, what string, before int, count func() int) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for count() > before {
		if time.Now().After(end) {
			t.Fatalf("%d %s are left, %d were there before", count(), what, before)
		}
		runtime.Gosched()
	}
}

// However many connections come and go, and however they end, nothing of them
// is left.
func TestManyConnections(t *testing.T) { // not parallel: it counts
	out := newAway()
	out.serve(t, "a.example.org", "93.184.215.14:22", func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		c.Write(b)
	})
	out.serve(t, "reset.example.org", "93.184.215.15:22", func(c *net.TCPConn) { c.SetLinger(0) })
	ns, _, rec := owned(t, egress.Options{Host: out, Limits: egress.Limits{PerSecond: 1 << 30},
		Policy: compile(t, policy.Document{Rules: []policy.Rule{tcpTo("*.example.org", 22)}})})
	to, _ := resolve(t, ns, "a.example.org", dns.TypeA)
	resets, _ := resolve(t, ns, "reset.example.org", dns.TypeA)
	one := func(i int) {
		addr := to
		if i%7 == 0 {
			addr = resets
		}
		port := uint16(22)
		if i%11 == 0 {
			port = 23
		}
		c, err := dialInside(ns, netip.AddrPortFrom(addr, port).String())
		if err != nil {
			return
		}
		defer c.Close()
		io.WriteString(c, "hello")
		switch i % 5 {
		case 0: // leaves at once
		case 1:
			c.(*net.TCPConn).SetLinger(0)
		default:
			c.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, c)
		}
	}
	one(1) // whatever is made once
	settles(t, "records", 0, func() int { return 1 - len(rec.all()) })
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	for i := range *connections {
		one(i)
	}
	settles(t, "descriptors", files, func() int { return openFiles(t) })
	settles(t, "goroutines", goroutines, runtime.NumGoroutine)
	settles(t, "records", 0, func() int {
		n := 0
		for _, a := range rec.all() {
			if a.Proto != policy.DNS {
				n += a.Count
			}
		}
		// Of what the policy denies, the last may still be folded.
		return *connections + 1 - *connections/11 - 1 - n
	})
}

// connecting begins a connection from inside and does not wait for it.
func connecting(ns *netns, to netip.AddrPort) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	if err != nil && !errors.Is(err, unix.EINPROGRESS) && !errors.Is(err, unix.ECONNREFUSED) {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Thousands of connections at once to hosts that never answer leave both the
// other hosts and the way into the sandbox as they were.
func TestParallelConnects(t *testing.T) {
	t.Parallel()
	out := newAway()
	out.hang = make(chan struct{})
	defer close(out.hang)
	out.serve(t, "alive.example.org", "93.184.215.14:22", func(c *net.TCPConn) { io.WriteString(c, "x") })
	out.names["dead.example.org"] = []netip.Addr{netip.MustParseAddr("93.184.215.15")}
	ns, g, rec := owned(t, egress.Options{Host: out, Limits: egress.Limits{PerSecond: 1 << 30, Connections: 300, Dials: 32},
		Policy: compile(t, policy.Document{Rules: []policy.Rule{tcpTo("*.example.org", 22)}})})
	port := serve(t, ns, func(c net.Conn) { io.Copy(c, c) })
	dead, _ := resolve(t, ns, "dead.example.org", dns.TypeA)
	alive, _ := resolve(t, ns, "alive.example.org", dns.TypeA)
	flood := func(n int) (fds []int) {
		ns.do(func() error {
			for range n {
				fd, err := connecting(ns, netip.AddrPortFrom(dead, 22))
				if errors.Is(err, unix.EMFILE) {
					return nil // as many as there can be
				}
				if err != nil {
					return err
				}
				fds = append(fds, fd)
			}
			return nil
		})
		return fds
	}
	closeAll := func(fds []int) {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
	ten := flood(10)
	defer closeAll(ten)
	prompt(t, "another host beside ten dead ones", func() {
		c, err := dialInside(ns, netip.AddrPortFrom(alive, 22).String())
		if err != nil {
			t.Error(err)
			return
		}
		io.Copy(io.Discard, c)
		c.Close()
	})
	thousands := flood(max(2000, *connections))
	defer closeAll(thousands)
	rec.wait(t, func(a egress.Attempt) bool { return a.Rule == "limit:connections" })
	begin := time.Now()
	c := dial(t, g, port)
	io.WriteString(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	c.Close()
	if d := time.Since(begin); d > 15*time.Second { // a few milliseconds where nothing else runs
		t.Errorf("the way into the sandbox took %v", d)
	}
	begin = time.Now()
	g.Open(false)
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > 15*time.Second {
		t.Errorf("closing took %v", d)
	}
}

// Connections that are never acknowledged are bounded, and closing the gateway
// does not wait for them.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	out := newAway()
	out.serve(t, "", far4+":22", func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	w, rec := newWireWith(t, egress.Options{Host: out, Limits: egress.Limits{Connections: 20},
		Policy: compile(t, policy.Document{Rules: []policy.Rule{{CIDR: far4, Ports: []int{22}, Proto: "tcp"}}})})
	w.g.Open(true)
	const syns = 100
	for i := range uint16(syns) {
		w.send(ip4(s4, far4, header.TCPProtocolNumber, synFrom(6000+i, 22)))
	}
	answers := map[header.TCPFlags]map[uint16]bool{}
	for len(answers[header.TCPFlagSyn|header.TCPFlagAck]) < 20 || len(answers[header.TCPFlagRst|header.TCPFlagAck]) < syns-20 {
		h := header.TCP(header.IPv4(w.recv()[14:]).Payload())
		if answers[h.Flags()] == nil {
			answers[h.Flags()] = map[uint16]bool{}
		}
		answers[h.Flags()][h.DestinationPort()] = true
	}
	if n := len(answers[header.TCPFlagSyn|header.TCPFlagAck]); n != 20 {
		t.Errorf("%d were answered, want 20", n)
	}
	rec.wait(t, func(a egress.Attempt) bool { return a.Rule == "limit:connections" })
	begin := time.Now()
	if err := w.g.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > 15*time.Second {
		t.Errorf("closing took %v", d)
	}
}

// Connections that are never acknowledged end by themselves, and make room for
// others.
func TestHalfOpenEnds(t *testing.T) {
	if *connections < 1000 {
		t.Skip("takes the 15 s that a handshake has: make egress-abuse")
	}
	t.Parallel()
	const most = 20
	out := newAway()
	out.serve(t, "", far4+":22", func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	w, rec := newWireWith(t, egress.Options{Host: out, Limits: egress.Limits{Connections: most},
		Policy: compile(t, policy.Document{Rules: []policy.Rule{{CIDR: far4, Ports: []int{22}, Proto: "tcp"}}})})
	w.g.Open(true)
	for i := range uint16(most) {
		w.send(ip4(s4, far4, header.TCPProtocolNumber, synFrom(6000+i, 22)))
	}
	settles(t, "half-open connections", 0, func() int {
		n := most
		for _, a := range rec.all() {
			if strings.Contains(a.Reason, "the sandbox gave up") {
				n -= a.Count
			}
		}
		return n
	})
	const next = 7000
	w.send(ip4(s4, far4, header.TCPProtocolNumber, synFrom(next, 22)))
	for {
		h := header.TCP(header.IPv4(w.recv()[14:]).Payload())
		if h.DestinationPort() != next {
			continue
		}
		if h.Flags() != header.TCPFlagSyn|header.TCPFlagAck {
			t.Errorf("the next one is answered with %v", h.Flags())
		}
		return
	}
}

// What nobody reads is not taken from the sandbox, and what the sandbox does
// not read is not taken from the host's side.
func TestBackpressure(t *testing.T) {
	t.Parallel()
	const most = 32 << 20 // kernel buffers included
	out := newAway()
	end := make(chan struct{})
	defer close(end)
	sent := make(chan int, 1)
	out.serve(t, "sink.example.org", "93.184.215.14:22", func(*net.TCPConn) { <-end })
	out.serve(t, "source.example.org", "93.184.215.15:22", func(c *net.TCPConn) { sent <- fill(c) })
	ns, _, _ := owned(t, egress.Options{Host: out,
		Policy: compile(t, policy.Document{Rules: []policy.Rule{tcpTo("*.example.org", 22)}})})
	if n := fill(mustReach(t, ns, "sink.example.org", 22)); n > most {
		t.Errorf("%d bytes were taken for nobody", n)
	}
	c := mustReach(t, ns, "source.example.org", 22)
	if n := <-sent; n > most {
		t.Errorf("%d bytes were taken for a sandbox that does not read", n)
	}
	c.Close()
}

// fill writes until nothing more is taken.
func fill(c net.Conn) (n int) {
	buf := make([]byte, 256<<10)
	for {
		c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		m, err := c.Write(buf)
		n += m
		if err != nil {
			return n
		}
	}
}

// A reset of the host's side reaches the sandbox as one.
func TestPassesReset(t *testing.T) {
	t.Parallel()
	out := newAway()
	out.serve(t, "a.example.org", "93.184.215.14:22", func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 1))
		c.SetLinger(0)
	})
	ns, _, rec := owned(t, egress.Options{Host: out,
		Policy: compile(t, policy.Document{Rules: []policy.Rule{tcpTo("a.example.org", 22)}})})
	c := mustReach(t, ns, "a.example.org", 22)
	io.WriteString(c, "x")
	_, err := c.Read(make([]byte, 1))
	wantReset(t, err)
	rec.wait(t, verdictOf("allow", "a.example.org"))
}

// When no more records can be kept nothing is let through, and the last record
// says how much was not recorded.
func TestSeal(t *testing.T) {
	t.Parallel()
	out := newAway()
	out.serve(t, "a.example.org", "93.184.215.14:22", func(c *net.TCPConn) { io.Copy(c, c) })
	ns, g, rec := owned(t, egress.Options{Host: out,
		Policy: compile(t, policy.Document{Rules: []policy.Rule{tcpTo("a.example.org", 22)}})})
	c := mustReach(t, ns, "a.example.org", 22)
	addr, _ := resolve(t, ns, "a.example.org", dns.TypeA)
	g.Seal()
	_, err := c.Read(make([]byte, 1))
	wantReset(t, err)
	const more = 5
	for i := range more {
		_, err := dialInside(ns, addr.String()+":"+strconv.Itoa(22+i%2))
		wantReset(t, err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	list := rec.all()
	last := list[len(list)-1]
	if last.Rule != "limit:records" || last.Verdict != "deny" || last.Count != more+1 {
		t.Errorf("recorded %+v", list)
	}
}
