package egress

import (
	"context"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// handshakeTimeout is what a sandbox has to acknowledge the answer to its SYN.
	// The stack would repeat that for two minutes, and no option of it says less.
	handshakeTimeout = 15 * time.Second
	// handshakePoll is how often an endpoint that is to be aborted is looked
	// for while the stack makes it.
	handshakePoll = 5 * time.Millisecond
)

// shake answers a SYN, and returns the connection when the sandbox has
// acknowledged it. It ends with ctx.
func (g *Gateway) shake(ctx context.Context, r *tcp.ForwarderRequest, wq *waiter.Queue) (tcpip.Endpoint, tcpip.Error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	made := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.abortHandshake(ctx, r.ID(), made)
	}()
	ep, err := r.CreateEndpoint(wq)
	close(made)
	<-ended
	r.Complete(false)
	return ep, err
}

// abortHandshake ends a handshake under way when ctx ends before it is made.
func (g *Gateway) abortHandshake(ctx context.Context, id stack.TransportEndpointID, made <-chan struct{}) {
	select {
	case <-made:
		return
	case <-ctx.Done():
	}
	tick := time.NewTicker(handshakePoll)
	defer tick.Stop()
	for {
		if ep := g.stack.FindTransportEndpoint(network(id), tcp.ProtocolNumber, id, nicID); ep != nil {
			ep.Abort()
		}
		select {
		case <-made:
			return
		case <-tick.C:
		}
	}
}
