package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// spliceBuffer is what one direction of a connection holds between reading and
// writing; it carries a few segments of the link's MTU at once.
const spliceBuffer = 128 << 10

// buffers are lent to connections, so that memory follows how many are open.
type buffers struct{ pool sync.Pool }

func newBuffers() *buffers {
	return &buffers{sync.Pool{New: func() any { return new([spliceBuffer]byte) }}}
}

func (b *buffers) get() *[spliceBuffer]byte  { return b.pool.Get().(*[spliceBuffer]byte) }
func (b *buffers) put(p *[spliceBuffer]byte) { b.pool.Put(p) }

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte { return b.get()[:] }

// Put implements httputil.BufferPool.
func (b *buffers) Put(p []byte) { b.put((*[spliceBuffer]byte)(p)) }

// splice carries bytes both ways until both sides have ended, without looking
// at them. The end of one direction is passed on while the other goes on.
func splice(_ context.Context, f *flow) error {
	var up, down error
	var wg sync.WaitGroup
	wg.Go(func() {
		if up = f.pump(f.outside, f.inside); up != nil {
			f.abort(up)
		}
	})
	if down = f.pump(f.inside, f.outside); down != nil {
		f.abort(down)
	}
	wg.Wait()
	if cause := context.Cause(f.ctx); cause != nil {
		return cause
	}
	return nil
}

// pump copies one direction to its end, which it passes on.
func (f *flow) pump(dst, src net.Conn) error {
	buf := f.gateway.buffers.get()
	defer f.gateway.buffers.put(buf)
	for {
		n, err := src.Read(buf[:])
		if n > 0 {
			if _, werr := dst.Write(buf[:n]); werr != nil {
				return f.broken(dst, werr)
			}
		}
		if errors.Is(err, io.EOF) {
			return dst.(interface{ CloseWrite() error }).CloseWrite()
		}
		if err != nil {
			return f.broken(src, err)
		}
	}
}

// broken says of a reset whose it was: how a connection that was allowed ended
// is no reason of the verdict, and no fault of the gateway's.
func (f *flow) broken(c net.Conn, err error) error {
	of, ok := errors.AsType[*net.OpError](err)
	inside := ok && of.Err.Error() == (&tcpip.ErrConnectionReset{}).String() // gonet makes text of it
	switch {
	case !inside && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE):
		return err
	case c == f.outside:
		return errors.New("reset by the host's side")
	}
	return errResetInside
}

var errResetInside = errors.New("reset by the sandbox")

// counted is the host's side of a flow: its bytes are counted and limited.
// What a limit stops ends the flow.
type counted struct {
	net.Conn
	f *flow
}

func (c *counted) Write(b []byte) (int, error) {
	m := c.f.gateway.meter
	may, over := m.send(len(b))
	n := 0
	var err error
	if may > 0 {
		n, err = c.Conn.Write(b[:may])
		m.unsend(may - n)
		c.f.out.Add(int64(n))
		c.f.carries()
	}
	if err == nil && over != nil {
		c.f.abort(over)
		err = over
	}
	return n, err
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	may, over := c.f.gateway.meter.receive(n)
	if c.f.in.Add(int64(may)); may > 0 {
		c.f.carries()
	}
	if over != nil {
		c.f.abort(over)
		return may, over
	}
	return n, err
}

// CloseWrite passes the end of what the sandbox sends on.
func (c *counted) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil // it ends when the other direction does
}

// Close ends the connection when the flow goes on without it.
func (c *counted) Close() error {
	c.f.forget(c)
	return c.Conn.Close()
}

// Abort resets the connection.
func (c *counted) Abort() { reset(c.Conn) }

// insideConn is the sandbox's side of a flow.
type insideConn struct {
	*gonet.TCPConn
	ep tcpip.Endpoint
}

// Abort resets the connection.
func (c *insideConn) Abort() {
	c.ep.Abort()
	_ = c.TCPConn.Close() // never fails
}

// drained reports whether the sandbox has taken all that was written and the
// end of it.
func (c *insideConn) drained() bool {
	switch tcp.EndpointState(c.ep.State()) {
	case tcp.StateEstablished, tcp.StateCloseWait, tcp.StateFinWait1, tcp.StateClosing, tcp.StateLastAck:
		return false
	}
	return true
}
