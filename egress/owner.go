package egress

import (
	"context"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	// ownerTimeout bounds the search for who holds a connection, and
	// ownerPatience how long a connection that could be answered waits for it.
	ownerTimeout  = time.Second
	ownerPatience = 100 * time.Millisecond
	// ownerDelay is how much later it is looked for where that makes no
	// difference: not beside what makes the connection.
	ownerDelay = 5 * time.Millisecond
	// maxOwners are looked for at once, and of refused connections
	// refusedOwners in a second, so that many refusals do not become as many
	// questions. A refusal does not wait for its turn.
	maxOwners     = 8
	refusedOwners = 20
	// admittedOwners of those that are admitted are looked for in a second.
	admittedOwners = 100
)

// Socket is a TCP socket of the sandbox: its own end, and where the sandbox
// believes the other to be.
type Socket struct{ Local, Remote netip.AddrPort }

// socketOf is the sandbox's end of a connection to the gateway.
func socketOf(id stack.TransportEndpointID) Socket {
	return Socket{Local: netip.AddrPortFrom(address(id.RemoteAddress), id.RemotePort), Remote: destination(id)}
}

// mayFindOwner takes a turn to look for the owner of a refused connection,
// when there is one. The caller calls ownerFound.
func (g *Gateway) mayFindOwner() bool {
	if g.opts.Owner == nil || !g.ownerRate.Allow() {
		return false
	}
	select {
	case g.owners <- struct{}{}:
	default:
		return false
	}
	if !g.use() {
		<-g.owners
		return false
	}
	return true
}

func (g *Gateway) ownerFound() {
	<-g.owners
	g.users.Done()
}

// seekOwner begins to look for who holds the flow. Looking costs more than
// carrying: a burst of connections is not slowed down by it. Who asks a person
// is always looked for. That of a connection made just now can wait where it is
// known later, too; old is one that was made before, as to the proxy.
func (f *flow) seekOwner(old bool) {
	g := f.gateway
	g.mu.Lock()
	asking := f.asking
	g.mu.Unlock()
	if g.opts.Owner == nil || !asking && !g.admittedRate.Allow() || !g.use() {
		return
	}
	f.sought, f.hurry = make(chan struct{}), make(chan struct{}, 1)
	f.later = !old && !asking && g.opts.OwnerLasts != nil && g.opts.OwnerLasts()
	go f.lookForOwner()
}

// holdForOwner returns when the owner is known, or has been waited for: while its
// connection is not made, a program cannot have ended it and itself.
func (f *flow) holdForOwner() {
	if !f.later {
		f.awaitOwner()
	}
}

// awaitOwner is what is known of the owner when it has been waited for.
func (f *flow) awaitOwner() string {
	if f.sought == nil {
		return ""
	}
	select {
	case f.hurry <- struct{}{}:
	default: // it was told
	}
	patience := time.NewTimer(ownerPatience)
	defer patience.Stop()
	select {
	case <-f.sought:
		return f.owner
	case <-patience.C:
	case <-f.ctx.Done():
	}
	return ""
}

// asker is who holds a flow that a question is about: it is looked for once.
func (f *flow) asker(ctx context.Context) string {
	switch {
	case f.sought != nil:
		<-f.sought
		return f.owner
	case f.gateway.opts.Owner != nil: // it was allowed when it began
		return f.gateway.findOwner(ctx, f.socket)
	}
	return ""
}

// lookForOwner finds who holds the flow, while that is made or a moment later.
func (f *flow) lookForOwner() {
	g := f.gateway
	defer g.users.Done()
	ctx, cancel := context.WithTimeout(g.ctx, ownerTimeout)
	defer cancel()
	defer close(f.sought)
	if f.later {
		f.standBy()
	}
	select {
	case g.owners <- struct{}{}:
		f.owner = g.findOwner(ctx, f.socket)
		<-g.owners
	case <-ctx.Done():
	}
}

// standBy returns after ownerDelay, or when the flow has ended or somebody waits.
func (f *flow) standBy() {
	t := time.NewTimer(ownerDelay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-f.hurry:
	case <-f.ctx.Done():
	}
}

func (g *Gateway) findOwner(ctx context.Context, s Socket) string {
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	return g.opts.Owner(ctx, s)
}
