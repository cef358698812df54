package egress_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
)

// records collects attempts.
type records struct {
	mu   sync.Mutex
	list []egress.Attempt
	more chan struct{} // holds one when something was added
}

func (r *records) add(a egress.Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, a)
	select {
	case r.more <- struct{}{}:
	default:
	}
}

func (r *records) all() []egress.Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]egress.Attempt(nil), r.list...)
}

// wait returns the first attempt that satisfies match.
func (r *records) wait(t testing.TB, match func(egress.Attempt) bool) egress.Attempt {
	t.Helper()
	end := time.After(30 * time.Second)
	for {
		for _, a := range r.all() {
			if match(a) {
				return a
			}
		}
		select {
		case <-r.more:
		case <-end:
			t.Fatalf("not recorded; the record is %+v", r.all())
		}
	}
}

// start returns a namespace whose only link ends in a gateway.
func start(t testing.TB, o egress.Options) (*netns, *egress.Gateway, *records) {
	t.Helper()
	ns := newNetns(t)
	o.FD = ns.tap()
	g, rec := open(t, o)
	return ns, g, rec
}

func open(t testing.TB, o egress.Options) (*egress.Gateway, *records) {
	t.Helper()
	rec := &records{more: make(chan struct{}, 1)}
	o.Record = rec.add
	g, err := egress.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g, rec
}

// serve listens inside and hands every connection to f.
func serve(t testing.TB, ns *netns, f func(net.Conn)) (port int) {
	t.Helper()
	var l net.Listener
	ns.do(func() (err error) {
		l, err = net.Listen("tcp4", egress.Sandbox4+":0")
		return err
	})
	accept(t, l, f)
	return l.Addr().(*net.TCPAddr).Port
}

// accept hands every connection to f, until the test ends.
func accept(t testing.TB, l net.Listener, f func(net.Conn)) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				f(c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
}

func echo(c net.Conn) { io.Copy(c, c) }

func dial(t testing.TB, g *egress.Gateway, port int) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := g.DialContext(ctx, port)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDial(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*netns) int{"tap": (*netns).tap, "veth": (*netns).veth} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newNetns(t)
			g, rec := openFD(t, open(ns))
			port := serve(t, ns, echo)
			c := dial(t, g, port)
			defer c.Close()
			const size = 8 << 20
			go func() {
				c.Write(make([]byte, size))
				c.(interface{ CloseWrite() error }).CloseWrite()
			}()
			n, err := io.Copy(io.Discard, c)
			if n != size || err != nil {
				t.Errorf("echoed %d of %d bytes, %v", n, size, err)
			}
			if got := rec.all(); len(got) > 0 {
				t.Errorf("our own connection was recorded: %+v", got)
			}
		})
	}
}

func openFD(t *testing.T, fd int) (*egress.Gateway, *records) { return open(t, egress.Options{FD: fd}) }

func TestDialErrors(t *testing.T) {
	t.Parallel()
	ns, g, _ := start(t, egress.Options{MaxConns: 1})
	want := func(port int, ctx context.Context, kind egress.Kind, cause error) {
		t.Helper()
		c, err := g.DialContext(ctx, port)
		var e *egress.Error
		if !errors.As(err, &e) || e.Kind != kind || cause != nil && !errors.Is(err, cause) {
			t.Errorf("dial %d: %v, %v; want kind %q and cause %v", port, c, err, kind, cause)
		}
	}
	bg := context.Background()
	want(0, bg, egress.KindInvalid, nil)
	want(65536, bg, egress.KindInvalid, nil)
	want(1, bg, egress.KindRefused, syscall.ECONNREFUSED)
	ended, cancel := context.WithCancel(bg)
	cancel()
	want(1, ended, egress.KindTimeout, context.Canceled)

	c := dial(t, g, serve(t, ns, echo))
	want(1, bg, egress.KindLimit, nil)
	c.Close()
	c.Close() // gives its place back once
	want(1, bg, egress.KindRefused, nil)

	if err := g.Close(); err != nil {
		t.Error(err)
	}
	want(1, bg, egress.KindClosed, net.ErrClosed)
}

// A dial that begins before the interface is up succeeds soon after it is.
func TestDialWhileNothingAnswers(t *testing.T) {
	t.Parallel()
	ns := newNetns(t)
	port := 0
	fd := ns.tap()
	port = serve(t, ns, echo)
	ns.do(func() error { return setUp(false) })
	g, _ := openFD(t, fd)
	dialed := make(chan error, 1)
	go func() {
		c, err := g.DialContext(context.Background(), port)
		if err == nil {
			c.Close()
		}
		dialed <- err
	}()
	ns.do(func() error { return setUp(true) })
	begin := time.Now()
	if err := <-dialed; err != nil {
		t.Fatal(err)
	}
	t.Logf("connected %v after the interface was up", time.Since(begin))
}

func TestCloseEndsConnections(t *testing.T) {
	t.Parallel()
	ns, g, _ := start(t, egress.Options{})
	ended := make(chan error, 1)
	port := serve(t, ns, func(c net.Conn) {
		_, err := io.Copy(io.Discard, c)
		ended <- err
	})
	c := dial(t, g, port)
	defer c.Close()
	read := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		read <- err
	}()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if err := <-read; err == nil {
		t.Error("a read outlived the gateway")
	}
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the sandbox's end saw %v, want a reset", err)
	}
	select {
	case <-g.Done():
	default:
		t.Error("Done is open after Close")
	}
}

// prompt fails when something took long enough to be a timeout rather than an
// answer. Its time is counted in ticks, which do not come while this process has
// no processor: on a busy machine an answer takes long, and few of them.
func prompt(t *testing.T, what string, f func()) {
	t.Helper()
	const tick, most = 10 * time.Millisecond, 90
	over, counted := make(chan struct{}), make(chan int, 1)
	go func() {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-ticker.C:
			case <-over:
				counted <- n
				return
			}
		}
	}()
	func() {
		defer close(over)
		f()
	}()
	if n := <-counted; n > most {
		t.Errorf("%s took %v: it was not refused at once", what, time.Duration(n)*tick)
	}
}

func TestRefusesTCP(t *testing.T) {
	t.Parallel()
	ns, _, rec := start(t, egress.Options{})
	for _, to := range ns.reachable(
		egress.Gateway4+":80", "10.88.0.77:8080", "1.1.1.1:443", "169.254.169.254:80", "240.0.0.1:1", "192.168.1.1:65535",
		"["+egress.Gateway6+"]:80", "[fd72:6569:6e00::77]:80", "[2606:4700::1111]:443", "[fe80::1%eth0]:22",
	) {
		prompt(t, to, func() {
			ns.do(func() error {
				c, err := net.DialTimeout("tcp", to, 5*time.Second)
				if !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("dial %s: %v, %v; want connection refused", to, c, err)
				}
				return nil
			})
		})
		wantAttempt(t, rec, policy.TCP, to)
	}
}

func wantAttempt(t *testing.T, rec *records, proto policy.Proto, to string) {
	t.Helper()
	host, p, err := net.SplitHostPort(to)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(p)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddr(host).WithZone("")
	a := rec.wait(t, func(a egress.Attempt) bool { return a.Proto == proto && a.Address == addr && int(a.Port) == port })
	if a.Count != 1 || a.Verdict != "deny" || a.Rule == "" || a.Reason == "" || time.Since(a.Time) > time.Minute {
		t.Errorf("recorded %+v", a)
	}
}

func TestRefusesUDP(t *testing.T) {
	t.Parallel()
	ns, _, rec := start(t, egress.Options{})
	for _, to := range ns.reachable(
		egress.Gateway4+":123", "10.88.0.77:9", "8.8.8.8:443", "["+egress.Gateway6+"]:123", "[2001:4860:4860::8888]:443",
	) {
		for _, size := range []int{1, 65507} { // the longest does not fit a frame
			prompt(t, to, func() {
				ns.do(func() error {
					c, err := net.Dial("udp", to)
					if err != nil {
						return err
					}
					defer c.Close()
					if _, err := c.Write(make([]byte, size)); err != nil {
						return err
					}
					c.SetDeadline(time.Now().Add(5 * time.Second))
					if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
						t.Errorf("%d bytes to %s: %v, want connection refused", size, to, err)
					}
					return nil
				})
			})
		}
		wantAttempt(t, rec, policy.UDP, to)
	}
}

func TestRefusesDNS(t *testing.T) {
	t.Parallel()
	ns, _, rec := start(t, egress.Options{})
	for _, network := range []string{"udp", "tcp"} {
		for i, server := range ns.reachable(egress.Gateway4+":53", "8.8.8.8:53", "[2001:4860:4860::8888]:53") {
			for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypeANY, dns.TypeHTTPS, 65280} {
				name := network + strconv.Itoa(i) + ".Example.COM."
				prompt(t, name, func() {
					ns.do(func() error {
						q := new(dns.Msg).SetQuestion(name, qtype)
						q.SetEdns0(1232, true)
						c, err := net.Dial(network, server)
						if err != nil {
							return err
						}
						defer c.Close()
						r, _, err := (&dns.Client{Net: network}).ExchangeWithConn(q, &dns.Conn{Conn: c})
						if err != nil {
							return err
						}
						if r.Rcode != dns.RcodeNameError || len(r.Answer) != 0 || len(r.Question) != 1 || r.Question[0] != q.Question[0] {
							t.Errorf("%s asked for %s: %v", server, name, r)
						}
						return nil
					})
				})
			}
			a := rec.wait(t, func(a egress.Attempt) bool { return a.Name == network+strconv.Itoa(i)+".example.com" })
			if a.Proto != policy.DNS || a.Address != netip.MustParseAddrPort(server).Addr() || a.Port != 53 || a.Verdict != "deny" {
				t.Errorf("recorded %+v", a)
			}
		}
	}
}

// The resolver of Go, as one a program would use.
func TestRefusesLookups(t *testing.T) {
	t.Parallel()
	ns, _, rec := start(t, egress.Options{})
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (c net.Conn, err error) {
		ns.do(func() error {
			c, err = net.Dial(network, egress.Gateway4+":53")
			return nil
		})
		return c, err
	}}
	prompt(t, "lookup", func() {
		got, err := r.LookupHost(context.Background(), "secret.example.org")
		if e, ok := errors.AsType[*net.DNSError](err); !ok || !e.IsNotFound {
			t.Errorf("resolved to %v, %v", got, err)
		}
	})
	rec.wait(t, func(a egress.Attempt) bool { return a.Proto == policy.DNS && a.Name == "secret.example.org" })
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	fd := func() int {
		fd, err := syscall.Open(os.DevNull, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	regular := func() int {
		fd, err := syscall.Open(filepath.Join(t.TempDir(), "f"), syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	record := func(egress.Attempt) {}
	for name, c := range map[string]struct {
		o    egress.Options
		kind egress.Kind
	}{
		"zero":         {egress.Options{}, egress.KindInvalid},
		"no record":    {egress.Options{FD: fd()}, egress.KindInvalid},
		"negative":     {egress.Options{FD: fd(), Record: record, MaxConns: -1}, egress.KindInvalid},
		"not open":     {egress.Options{FD: 1 << 20, Record: record}, egress.KindHost},
		"regular file": {egress.Options{FD: regular(), Record: record}, egress.KindHost},
	} {
		var e *egress.Error
		if _, err := egress.New(c.o); !errors.As(err, &e) || e.Kind != c.kind {
			t.Errorf("%s: %v, want kind %q", name, err, c.kind)
		}
	}
}
