package egress

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/rein-sh/rein/egress/policy"
)

const (
	nicID           = 1
	defaultMaxConns = 128

	// A TCP buffer holds a few segments of the link's MTU. Larger ones move
	// data no faster (BenchmarkUpload, BenchmarkDownload); with MaxConns they
	// bound what the gateway can be made to keep.
	bufferDefault = 512 << 10
	bufferMax     = 1 << 20

	// timeWait is short: the link neither delays nor reorders, so that no
	// segment of an old connection can come late.
	timeWait = time.Second
)

// Gateway is the host's end of one sandbox's link. Its methods may be called
// concurrently.
type Gateway struct {
	opts  Options
	stack *stack.Stack
	link  *link
	log   *recorder
	dns   *listener
	proxy *listener
	door  *listener
	names *names

	models       *models
	meter        *meter
	handlers     map[policy.Proto]handler
	buffers      *buffers
	owners       chan struct{} // one for each Options.Owner under way
	ownerRate    *rate.Limiter // of those for refused connections
	admittedRate *rate.Limiter // and of those for admitted ones
	forwarder    *tcp.Forwarder
	heldMu       sync.Mutex
	lookups      chan struct{} // one for each HTTPS record being looked up
	held         map[stack.TransportEndpointID]held
	known        *known
	streams      atomic.Int64 // requests of HTTP/2 that are being carried
	settling     sync.RWMutex // read-locked by flows from their end until that is on record

	reject4 stack.RejectIPv4WithHandler
	reject6 stack.RejectIPv6WithHandler

	ctx    context.Context // ends with the gateway
	cancel context.CancelFunc

	mu         sync.Mutex
	closed     bool
	conns      int            // into the sandbox, open or being opened
	users      sync.WaitGroup // of the stack; Add only under mu
	owned      bool           // see Open
	sealed     bool           // see Seal
	policy     *policy.Policy
	generation uint64 // of policy
	asks       *asks
	flows      map[*flow]struct{} // admitted, not ended

	once     sync.Once
	closeErr error
}

// New starts a gateway on o.FD, which it closes when it fails. Errors are
// *Error.
func New(o Options) (*Gateway, error) {
	subject := "fd " + strconv.Itoa(o.FD)
	err := o.check()
	var hosts *models
	if err == nil {
		hosts, err = newModels(o.Models, o.Vault)
	}
	if err != nil {
		if o.FD > 0 {
			_ = unix.Close(o.FD) // err is why
		}
		return nil, &Error{Kind: KindInvalid, Op: "open", Subject: subject, Err: err}
	}
	if o.MaxConns == 0 {
		o.MaxConns = defaultMaxConns
	}
	o.Limits = o.Limits.orDefault()
	ctx, cancel := context.WithCancel(context.Background())
	g := newGateway(ctx, cancel, o)
	g.models = hosts
	g.stack = newStack()
	if err := g.start(); err != nil {
		cancel()
		g.stack.Destroy()
		return nil, &Error{Kind: KindHost, Op: "open", Subject: subject, Err: err,
			Hint: "it must be a tap opened with IFF_NO_PI, or a bound AF_PACKET socket"}
	}
	return g, nil
}

// newGateway is a gateway without a stack, which records nothing yet.
func newGateway(ctx context.Context, cancel context.CancelFunc, o Options) *Gateway {
	return &Gateway{opts: o, ctx: ctx, cancel: cancel, models: &models{},
		names: newNames(o.Limits), meter: newMeter(o.Limits.under(o.Policy.Limits()), o.HostMeter), handlers: handlers(), buffers: newBuffers(),
		owners: make(chan struct{}, maxOwners), ownerRate: rate.NewLimiter(refusedOwners, refusedOwners),
		admittedRate: rate.NewLimiter(admittedOwners, admittedOwners),
		lookups:      make(chan struct{}, maxHTTPS),
		held:         map[stack.TransportEndpointID]held{}, known: newKnown(),
		policy: o.Policy, generation: 1, asks: newAsks(), flows: map[*flow]struct{}{}}
}

func (o Options) check() error {
	switch {
	case o.FD <= 0:
		return errors.New("not a descriptor")
	case o.Record == nil:
		return errors.New("nothing records what is refused")
	case o.MaxConns < 0:
		return fmt.Errorf("MaxConns %d is negative", o.MaxConns)
	}
	return o.Limits.check()
}

// start puts the stack on the descriptor and begins to read it.
func (g *Gateway) start() error {
	l, err := newLink(g.opts.FD, g.admit)
	if err != nil {
		return err
	}
	g.link = l
	g.reject4 = g.stack.NetworkProtocolInstance(ipv4.ProtocolNumber).(stack.RejectIPv4WithHandler)
	g.reject6 = g.stack.NetworkProtocolInstance(ipv6.ProtocolNumber).(stack.RejectIPv6WithHandler)
	g.dns = newDNSListener(g)
	g.proxy = newProxyListener(g)
	g.door = newDoorListener(g)
	g.forwarder = tcp.NewForwarder(g.stack, bufferDefault, math.MaxInt, g.serve) // the meter bounds them
	g.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, g.onTCP)
	g.stack.SetTransportProtocolHandler(udp.ProtocolNumber, g.onUDP)
	g.stack.SetTransportProtocolHandler(icmp.ProtocolNumber4, g.onEcho4)
	g.stack.SetTransportProtocolHandler(icmp.ProtocolNumber6, g.onEcho6)
	if err := g.attach(); err != nil {
		return errors.Join(err, l.file.Close())
	}
	g.log = newRecorder(g.opts.Record)
	l.start()
	return nil
}

func newStack() *stack.Stack {
	s := stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{
			// A packet to a loopback address is refused like any other.
			ipv4.NewProtocolWithOptions(ipv4.Options{AllowExternalLoopbackTraffic: true}),
			ipv6.NewProtocolWithOptions(ipv6.Options{AllowExternalLoopbackTraffic: true}),
		},
		TransportProtocols: []stack.TransportProtocolFactory{
			tcp.NewProtocolCUBIC, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6,
		},
	})
	// Every refusal is answered; the sender pays as much as we do.
	s.SetICMPLimit(rate.Inf)
	s.SetICMPBurst(math.MaxInt32)
	return s
}

func (g *Gateway) attach() error {
	s := g.stack
	sack, nagle, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPDelayEnabled(false), tcpip.TCPModerateReceiveBufferOption(true)
	wait, linger := tcpip.TCPTimeWaitTimeoutOption(timeWait), tcpip.TCPLingerTimeoutOption(closeTimeout)
	for _, o := range []tcpip.SettableTransportProtocolOption{
		&sack, &nagle, &moderate, &wait, &linger,
		&tcpip.TCPSendBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: bufferDefault, Max: bufferMax},
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: bufferDefault, Max: bufferMax},
	} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return fmt.Errorf("TCP option %T: %s", o, err)
		}
	}
	if err := s.CreateNIC(nicID, g.link); err != nil {
		return fmt.Errorf("interface: %s", err)
	}
	for _, a := range []struct {
		proto tcpip.NetworkProtocolNumber
		addr  string
		bits  int
	}{{ipv4.ProtocolNumber, Gateway4, Bits4}, {ipv6.ProtocolNumber, Gateway6, Bits6}} {
		p := tcpip.ProtocolAddress{Protocol: a.proto, AddressWithPrefix: tcpip.AddressWithPrefix{
			Address: tcpip.AddrFromSlice(netip.MustParseAddr(a.addr).AsSlice()), PrefixLen: a.bits}}
		if err := s.AddProtocolAddress(nicID, p, stack.AddressProperties{}); err != nil {
			return fmt.Errorf("address %s: %s", a.addr, err)
		}
	}
	// The gateway receives what is sent to any address, and answers as it.
	if err := s.SetPromiscuousMode(nicID, true); err != nil {
		return fmt.Errorf("promiscuous mode: %s", err)
	}
	if err := s.SetSpoofing(nicID, true); err != nil {
		return fmt.Errorf("spoofing: %s", err)
	}
	s.SetRouteTable([]tcpip.Route{
		{Destination: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4([4]byte{})}.Subnet(), NIC: nicID},
		{Destination: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom16([16]byte{})}.Subnet(), NIC: nicID},
	})
	return nil
}

// use counts a goroutine that works with the stack, unless the gateway is
// closed. The caller calls g.users.Done.
func (g *Gateway) use() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.users.Add(1)
	return true
}

// Done is closed when the link has ended: because of Close, or because its
// device is gone. In the second case nothing reaches the sandbox any more; the
// gateway must still be closed.
func (g *Gateway) Done() <-chan struct{} { return g.link.done }

// Flush returns when Options.Record has been given every attempt made so far,
// also those that would otherwise be folded until their minute ends. It may be
// called concurrently, but not from Record.
func (g *Gateway) Flush() {
	g.settling.Lock() // what has ended is on record then
	defer g.settling.Unlock()
	g.log.sync()
}

// Close resets every connection, waits for every goroutine, emits what was
// folded and closes the descriptor. It may be called more than once; each call
// returns when all of that is done. The error is nil unless the descriptor
// could not be closed.
func (g *Gateway) Close() error {
	g.once.Do(func() {
		g.mu.Lock()
		g.closed = true
		g.mu.Unlock()
		g.cancel()
		g.stack.Close() // resets what is open, and ends handshakes
		g.users.Wait()
		g.stack.Close() // and what was opened meanwhile
		g.closeErr = g.link.stop()
		g.stack.Wait()
		g.log.close()
	})
	return g.closeErr
}

// refuse records an attempt at what is not carried, under the policy's verdict
// where it has one.
func (g *Gateway) refuse(proto policy.Proto, name string, to netip.AddrPort) {
	p, generation := g.inForce()
	v := p.Decide(policy.Request{SandboxID: g.opts.SandboxID,
		Name: name, Addr: to.Addr(), Port: to.Port(), Proto: proto, Own: g.own})
	if v.Action != policy.Deny {
		v.Rule, v.Reason = ruleLink, "not carried"
	}
	g.log.add(Attempt{Proto: proto, Name: name, Address: to.Addr(), Port: to.Port(),
		Verdict: verdictDeny, Rule: v.Rule, Reason: v.Reason, Generation: generation})
}

// refuseLink records what is refused whatever the policy says.
func (g *Gateway) refuseLink(proto policy.Proto, to netip.AddrPort, reason string) {
	g.log.add(Attempt{Proto: proto, Address: to.Addr(), Port: to.Port(),
		Verdict: verdictDeny, Rule: ruleLink, Reason: reason})
}

const (
	verdictDeny   = "deny"
	verdictAllow  = "allow"
	verdictReport = "report" // allowed, because the policy only reports

	ruleLink     = "link"          // the Rule of refusals that no policy can lift
	ruleSealed   = "limit:records" // see Seal
	reasonSealed = "no more records can be kept, so nothing is done that would need one"
)
