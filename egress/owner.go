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
// is always looked for.
func (f *flow) seekOwner() {
	g := f.gateway
	g.mu.Lock()
	asking := f.asking
	g.mu.Unlock()
	if g.opts.Owner == nil || !asking && !g.admittedRate.Allow() || !g.use() {
		return
	}
	f.sought = make(chan struct{})
	delay := ownerDelay
	if asking || !g.ownerLasts() {
		delay = 0
	}
	go f.lookForOwner(delay)
}

func (g *Gateway) ownerLasts() bool { return g.opts.OwnerLasts != nil && g.opts.OwnerLasts() }

// awaitOwner returns when the owner is known, or has been waited for: while its
// connection is not made, a program cannot have ended it and itself. It is not
// waited for where that makes no difference.
func (f *flow) awaitOwner() {
	if f.sought == nil || f.gateway.ownerLasts() {
		return
	}
	patience := time.NewTimer(ownerPatience)
	defer patience.Stop()
	select {
	case <-f.sought:
	case <-patience.C:
	case <-f.ctx.Done():
	}
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

// lookForOwner finds who holds the flow, after a time or when it has ended.
func (f *flow) lookForOwner(delay time.Duration) {
	g := f.gateway
	defer g.users.Done()
	ctx, cancel := context.WithTimeout(g.ctx, ownerTimeout)
	defer cancel()
	defer close(f.sought)
	later := time.NewTimer(delay)
	defer later.Stop()
	select {
	case <-later.C:
	case <-f.ctx.Done():
	}
	select {
	case g.owners <- struct{}{}:
		f.owner = g.findOwner(ctx, f.socket)
		<-g.owners
	case <-ctx.Done():
	}
}

func (g *Gateway) findOwner(ctx context.Context, s Socket) string {
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	return g.opts.Owner(ctx, s)
}
