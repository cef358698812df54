package egress

import (
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// listener is a TCP port that the gateway itself serves: SYNs to it come to
// accept. It takes a bounded number of connections at once.
type listener struct {
	g         *Gateway
	max       int
	forwarder *tcp.Forwarder
	// full records a connection that is not taken since so many are open.
	full func(id stack.TransportEndpointID, open int)
	// serve has one that is open, and ends it. ep is nil when it came to none.
	serve func(id stack.TransportEndpointID, c *gonet.TCPConn, ep tcpip.Endpoint)

	mu   sync.Mutex
	open map[stack.TransportEndpointID]struct{} // connections, also half-open ones
}

func newListener(g *Gateway, window, most int) *listener {
	l := &listener{g: g, max: most, open: map[stack.TransportEndpointID]struct{}{}}
	l.forwarder = tcp.NewForwarder(g.stack, window, most, l.run)
	return l
}

// accept takes a SYN, or has it reset and recorded when enough connections are
// open.
func (l *listener) accept(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.open[id]; ok {
		return true // a SYN once more: its answer is under way
	}
	if len(l.open) < l.max && l.forwarder.HandlePacket(id, pkt) {
		l.open[id] = struct{}{}
		return true
	}
	l.full(id, len(l.open))
	return false
}

// run has one connection, in a goroutine of the forwarder.
func (l *listener) run(r *tcp.ForwarderRequest) {
	id := r.ID()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.open, id)
	}()
	if !l.g.use() {
		r.Complete(true)
		return
	}
	defer l.g.users.Done()
	var wq waiter.Queue
	ep, err := l.g.shake(l.g.ctx, r, &wq)
	if err != nil {
		l.serve(id, nil, nil)
		return
	}
	l.serve(id, gonet.NewTCPConn(&wq, ep), ep)
}
