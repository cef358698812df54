package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/miekg/dns"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
)

// The targets of what passes through, with runc: speed in both directions, and
// what setting a connection up costs beside a plain link. Those of gVisor are
// reported.
const (
	wantGbps   = 1.0
	maxExtra   = time.Millisecond
	benchName  = "server.bench.test"
	setUps     = 400
	clientMode = "network-client"

	vethKernel, vethGVisor = "veth, NAT", "veth, NAT, gVisor"

	// Connections are made one after the other in bursts: who makes one is looked
	// for a hundred times a second, and all that are measured are to be of those.
	setUpBurst = 80
	setUpPause = time.Second
)

// way is a network that a client's connections leave by. run runs this program
// as the client in it, with arguments; at is where the server is from there.
type way struct {
	name string
	at   string
	run  func(ctx context.Context, args ...string) (string, error)
	end  func() error
}

// network measures what leaves a sandbox beside other networks of user space and
// the kernel's own. Client, network and server share the processors.
func network(ctx context.Context, c config) (err error) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		return err
	}
	defer l.Close()
	go func() { // until the listener is closed
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serveBytes(conn)
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	ways, notes, err := c.ways(ctx, port)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nout of a network\tdownload\tupload\tset-up p50\tp99\n")
	setUp := map[string]time.Duration{}
	var slowest float64
	for _, way := range ways {
		f, err := way.measure(ctx, c.bytes)
		err = errors.Join(err, way.end())
		if ours := way.name == reinRunc || way.name == reinGVisor; ours && err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		if err != nil { // a peer may have its own faults
			notes = append(notes, fmt.Sprintf("%s: %v", way.name, err))
			continue
		}
		fmt.Fprintf(w, "%s\t%.2f Gbit/s\t%.2f Gbit/s\t%v\t%v\n", way.name, f.down, f.up, f.p50.Round(time.Microsecond), f.p99.Round(time.Microsecond))
		setUp[way.name] = f.p50
		if way.name == reinRunc {
			slowest = min(f.down, f.up)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Printf("target: %.0f Gbit/s or more with runc: %.2f\n", wantGbps, slowest)
	if plain, ok := setUp[vethKernel]; ok {
		fmt.Printf("target: under %v more than a veth pair to set up, p50, with runc: %v\n", maxExtra, (setUp[reinRunc] - plain).Round(time.Microsecond))
	}
	if plain, ok := setUp[vethGVisor]; ok {
		fmt.Printf("with gVisor, more than its own network on a veth pair: %v\n", (setUp[reinGVisor] - plain).Round(time.Microsecond))
	}
	for _, n := range notes {
		fmt.Println("not measured: " + n)
	}
	return nil
}

// passage is what was measured of a way.
type passage struct {
	down, up float64 // Gbit/s
	p50, p99 time.Duration
}

func (y way) measure(ctx context.Context, bytes int64) (f passage, err error) {
	out, err := y.run(ctx, clientMode, y.at, strconv.FormatInt(bytes/2, 10), strconv.Itoa(setUps))
	if err != nil {
		return f, err
	}
	var down, up, p50, p99 int64
	if _, err := fmt.Sscan(out, &down, &up, &p50, &p99); err != nil {
		return f, fmt.Errorf("the client said %q: %w", out, err)
	}
	rate := func(ns int64) float64 { return float64(bytes/2) * 8 / float64(ns) }
	return passage{rate(down), rate(up), time.Duration(p50), time.Duration(p99)}, nil
}

// serveBytes is the server: 'D' and a length asks for bytes, 'U' and a length is
// followed by them, and anything is answered with a byte at the end.
func serveBytes(c net.Conn) {
	defer c.Close()
	var head [9]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	n := int64(binary.BigEndian.Uint64(head[1:]))
	switch head[0] {
	case 'D':
		_, _ = io.CopyN(c, zeros{}, n) // the client counts
	case 'U':
		_, _ = io.CopyN(io.Discard, c, n)
	}
	_, _ = c.Write([]byte{1})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// client is this program inside a network: it prints the nanoseconds of a
// download, of an upload, and of setting a connection up.
func client(args []string) error {
	if len(args) != 3 {
		return errors.New("the client takes an address, a length and a count")
	}
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	to, err := net.ResolveTCPAddr("tcp4", args[0]) // once: not every connection asks for its name
	if err != nil {
		return err
	}
	args[0] = to.String()
	down, err := transfer(args[0], 'D', n)
	if err != nil {
		return err
	}
	up, err := transfer(args[0], 'U', n)
	if err != nil {
		return err
	}
	var times []time.Duration
	for range count {
		d, err := transfer(args[0], 'S', 0)
		if err != nil {
			return err
		}
		times = append(times, d)
		if len(times)%setUpBurst == 0 {
			time.Sleep(setUpPause)
		}
	}
	slices.Sort(times)
	fmt.Println(down.Nanoseconds(), up.Nanoseconds(), times[count/2].Nanoseconds(), times[count*99/100].Nanoseconds())
	return nil
}

func transfer(at string, kind byte, n int64) (time.Duration, error) {
	start := time.Now()
	c, err := net.Dial("tcp", at)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := c.Write(binary.BigEndian.AppendUint64([]byte{kind}, uint64(n))); err != nil {
		return 0, err
	}
	var got int64
	switch kind {
	case 'S': // until it carries: the first byte back
		_, err := io.ReadFull(c, make([]byte, 1))
		return time.Since(start), err
	case 'U':
		if _, err := io.CopyN(c, zeros{}, n); err != nil {
			return 0, err
		}
	case 'D':
		got = n
	}
	read, err := io.Copy(io.Discard, c)
	if err == nil && read != got+1 {
		err = fmt.Errorf("%d bytes came, not %d", read, got+1)
	}
	return time.Since(start), err
}

// reinWay is a sandbox that may reach the server by its name.
func (c config) reinWay(ctx context.Context, runtime, name string, port int) (y way, err error) {
	resolver, stop, err := resolverTo(netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		return y, err
	}
	b, err := c.clientBox(ctx, runtime, local.Options{Egress: reinEgress(resolver, nil)}, sandbox.Spec{Network: policy.Document{
		Rules:  []policy.Rule{{Host: benchName, Ports: []int{port}, Proto: "tcp"}, {CIDR: "127.0.0.1/32", Ports: []int{port}, Proto: "tcp"}},
		Limits: policy.Limits{PerSecond: 100000, Bytes: 1 << 50, MaxUploadBytes: 1 << 50},
	}})
	if err != nil {
		return y, errors.Join(err, stop())
	}
	end := func() error { return errors.Join(b.end(context.WithoutCancel(ctx)), stop()) }
	return way{name: name, at: net.JoinHostPort(benchName, strconv.Itoa(port)), run: b.client, end: end}, nil
}

// reinEgress is a gateway that asks a resolver, trusts an authority (in PEM), and
// whose limits are none here.
func reinEgress(resolver netip.AddrPort, ca []byte) local.Egress {
	return local.Egress{Resolvers: []netip.AddrPort{resolver}, CA: ca, HostLimits: egress.HostLimits{PerSecond: 100000, Bytes: 1 << 50, MaxUploadBytes: 1 << 50}}
}

// clientBox is a sandbox with this program in it.
func (c config) clientBox(ctx context.Context, runtime string, o local.Options, spec sandbox.Spec) (b box, err error) {
	return c.clientBoxFor(ctx, runtime, o, spec, sandbox.Options{Log: audit.New(io.Discard, audit.Options{})})
}

// clientBoxFor is clientBox on somebody's behalf.
func (c config) clientBoxFor(ctx context.Context, runtime string, o local.Options, spec sandbox.Spec, who sandbox.Options) (b box, err error) {
	p, err := c.provider(runtime, o)
	if err != nil {
		return b, err
	}
	spec.TTL = 15 * time.Minute
	sb, err := sandbox.Create(ctx, p, spec, who)
	if err != nil {
		return b, err
	}
	b = box{sb}
	self, err := os.Open("/proc/self/exe")
	if err == nil {
		defer self.Close()
		_, err = sb.Upload(ctx, "/tmp/bench", self, sandbox.WriteOptions{Mode: 0o755})
	}
	if err != nil {
		return b, errors.Join(err, b.end(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// client runs this program in the sandbox, and returns what it printed.
func (b box) client(ctx context.Context, args ...string) (string, error) {
	r, err := b.sb.Run(ctx, sandbox.Command{Shell: "/tmp/bench " + strings.Join(args, " "), Tool: "bench", Timeout: 5 * time.Minute})
	if err == nil && !r.OK() {
		err = fmt.Errorf("%s %s", r.Stdout.Head, r.Stderr.Head)
	}
	return string(r.Stdout.Head), err
}

// resolverTo says of every name that it is at an address.
func resolverTo(a netip.Addr) (at netip.AddrPort, stop func() error, err error) {
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return at, nil, err
	}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: u, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if len(q.Question) == 1 && q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: a.AsSlice()}}
		}
		_ = w.WriteMsg(m) // who asked may have gone
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ActivateAndServe() }() // until it is shut down
	<-started
	return u.LocalAddr().(*net.UDPAddr).AddrPort(), func() error { err := server.Shutdown(); <-done; return err }, nil
}
