package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// dialTimeout bounds a dial whose context has no end.
	dialTimeout = 30 * time.Second

	// A SYN sent before the interface inside is up is lost, and TCP would
	// repeat it after a second. A new one is sent sooner, at doubling times.
	firstPatience = 10 * time.Millisecond
	lastPatience  = time.Second

	// closeTimeout is how long a closed connection may hold data the sandbox
	// does not take.
	closeTimeout = 10 * time.Second
)

// DialContext connects to a TCP port of the sandbox, at Sandbox4 from Gateway4.
// It tries until ctx ends, at most 30 seconds, as long as nothing answers; a
// refusal is returned at once. The connection has Nagle's algorithm off and
// offers CloseRead and CloseWrite. Errors are *Error.
func (g *Gateway) DialContext(ctx context.Context, port int) (net.Conn, error) {
	subject := fmt.Sprintf("%s:%d", Sandbox4, port)
	fail := func(kind Kind, err error, hint string) (net.Conn, error) {
		return nil, &Error{Kind: kind, Op: "dial", Subject: subject, Err: err, Hint: hint}
	}
	if port < 1 || port > 65535 {
		return fail(KindInvalid, errors.New("no such port"), "")
	}
	release, err := g.reserve()
	if errors.Is(err, net.ErrClosed) {
		return fail(KindClosed, err, "")
	}
	if err != nil {
		return fail(KindLimit, err, "close connections that are not used, or raise MaxConns")
	}
	defer g.users.Done()

	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	c, err := g.dial(ctx, uint16(port))
	if err == nil {
		return &conn{TCPConn: c.TCPConn, ep: c.ep, release: release}, nil
	}
	release()
	switch {
	case g.ctx.Err() != nil:
		return fail(KindClosed, net.ErrClosed, "")
	case errors.Is(err, syscall.ECONNREFUSED):
		return fail(KindRefused, err, "nothing listens on that port yet")
	default:
		return fail(KindTimeout, err, "")
	}
}

// reserve counts one more connection and one more user of the stack. The
// returned function gives the connection back.
func (g *Gateway) reserve() (release func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, net.ErrClosed
	}
	if g.conns >= g.opts.MaxConns {
		return nil, fmt.Errorf("%d connections are open", g.conns)
	}
	g.conns++
	g.users.Add(1)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.conns--
	}, nil
}

type rawConn struct {
	*gonet.TCPConn
	ep tcpip.Endpoint
}

// dial tries until something accepts or refuses, or ctx ends.
func (g *Gateway) dial(ctx context.Context, port uint16) (rawConn, error) {
	var last error
	for patience := firstPatience; ctx.Err() == nil; patience = min(2*patience, lastPatience) {
		attempt, cancel := context.WithTimeout(ctx, patience)
		c, err := g.connect(attempt, port)
		if err == nil || errors.Is(err, syscall.ECONNREFUSED) {
			cancel()
			return c, err
		}
		if attempt.Err() == nil {
			last = err
			<-attempt.Done() // the next attempt is not made before this one's time is up
		}
		cancel()
	}
	return rawConn{}, errors.Join(ctx.Err(), last)
}

// connect makes one attempt. gonet has the same, but turns every error into
// text.
func (g *Gateway) connect(ctx context.Context, port uint16) (rawConn, error) {
	var wq waiter.Queue
	ep, terr := g.stack.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, &wq)
	if terr != nil {
		return rawConn{}, errors.New(terr.String())
	}
	entry, ready := waiter.NewChannelEntry(waiter.WritableEvents)
	wq.EventRegister(&entry)
	defer wq.EventUnregister(&entry)

	to := tcpip.FullAddress{NIC: nicID, Port: port,
		Addr: tcpip.AddrFromSlice(netip.MustParseAddr(Sandbox4).AsSlice())}
	terr = ep.Connect(to)
	if _, started := terr.(*tcpip.ErrConnectStarted); started {
		select {
		case <-ctx.Done():
			ep.Abort()
			return rawConn{}, ctx.Err()
		case <-ready:
		}
		terr = ep.LastError()
	}
	switch terr.(type) {
	case nil:
		ep.SocketOptions().SetDelayOption(false)
		return rawConn{gonet.NewTCPConn(&wq, ep), ep}, nil
	case *tcpip.ErrConnectionRefused:
		ep.Abort()
		return rawConn{}, syscall.ECONNREFUSED
	default:
		ep.Abort()
		return rawConn{}, errors.New(terr.String())
	}
}

// conn gives its place back when it is closed.
type conn struct {
	*gonet.TCPConn
	ep      tcpip.Endpoint
	once    sync.Once
	release func()
}

// Close sends what was written and then the end of the stream, without waiting
// for either.
func (c *conn) Close() error {
	var err error
	c.once.Do(func() {
		timeout := tcpip.TCPUserTimeoutOption(closeTimeout)
		_ = c.ep.SetSockOpt(&timeout) // fails only for a negative value
		err = c.TCPConn.Close()
		c.release()
	})
	return err
}
