package egress

import (
	"context"
	"errors"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/rein-sh/rein/egress/policy"
)

const (
	// drainPoll is how often a closed connection is looked at that holds data
	// the sandbox has not taken.
	drainPoll = 20 * time.Millisecond
)

// held is a connection whose SYN was not answered yet: it is being made, or it
// is refused and its owner is looked for first.
type held struct {
	f       *flow
	refused *refusal
}

// onSYN takes a SYN, or returns false to have it reset. It does not wait: what
// takes time is done by serve.
func (g *Gateway) onSYN(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	g.heldMu.Lock()
	defer g.heldMu.Unlock()
	if _, ok := g.held[id]; ok {
		return true // a SYN once more: its answer is under way
	}
	f, refused := g.newFlow(g.endpoint(id), id.RemotePort)
	f.socket = socketOf(id)
	if refused != nil && !g.mayFindOwner() {
		f.record(refused)
		return false
	}
	if refused == nil {
		f.seekOwner(false)
	}
	g.held[id] = held{f, refused}
	if g.forwarder.HandlePacket(id, pkt) {
		return true
	}
	delete(g.held, id)
	if refused != nil {
		g.ownerFound()
		f.record(refused)
		return false
	}
	f.end(&refusal{policy.Verdict{Rule: ruleLink, Reason: "malformed"}})
	return false
}

// endpoint is what the sandbox sent a packet to.
func (g *Gateway) endpoint(id stack.TransportEndpointID) endpoint {
	to := endpoint{addr: address(id.LocalAddress), port: id.LocalPort}
	if name, ok := g.names.lookup(to.addr); ok {
		return endpoint{name: name, port: to.port}
	}
	return to
}

// onStray sees a segment that opens nothing and belongs to no connection, and
// which is reset. The rest of a connection that was closed here is no attempt,
// nor is what the policy allows; others are recorded.
func (g *Gateway) onStray(id stack.TransportEndpointID) {
	if g.known.has(id) {
		return
	}
	f, refused := g.judge(g.endpoint(id), id.RemotePort)
	if refused != nil {
		f.record(refused)
	}
}

// serve runs one connection from its SYN to its end, in a goroutine of the
// forwarder.
func (g *Gateway) serve(r *tcp.ForwarderRequest) {
	id := r.ID()
	g.heldMu.Lock()
	h := g.held[id]
	g.heldMu.Unlock()
	f := h.f
	answered := func() {
		g.heldMu.Lock()
		defer g.heldMu.Unlock()
		delete(g.held, id)
	}
	if h.refused != nil {
		f.owner = g.findOwner(g.ctx, f.socket)
		f.record(h.refused)
		r.Complete(true)
		answered()
		g.ownerFound()
		return
	}
	err := f.connect()
	if err != nil {
		f.refuse = func() { r.Complete(true); answered() }
		f.end(err)
		return
	}
	f.holdForOwner()
	g.known.add(id)
	err = f.answer(r)
	answered()
	if err == nil {
		err = f.run()
	}
	g.known.over(id)
	f.end(err)
}

// lastKnown is how many connections are known after their end: those of a
// minute, in which a kernel may still send of them, at the default rate.
const lastKnown = 4096

// known are the connections that were answered: open ones and the last that
// ended. Segments of theirs may come after they were reset.
type known struct {
	mu    sync.Mutex
	ids   map[stack.TransportEndpointID]int // its last place in ended; stillOpen while it has not
	ended []stack.TransportEndpointID       // a ring, once it is full
	next  int
}

const stillOpen = -1

func newKnown() *known { return &known{ids: map[stack.TransportEndpointID]int{}} }

func (k *known) add(id stack.TransportEndpointID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ids[id] = stillOpen
}

// over keeps id in place of the one that ended longest ago.
func (k *known) over(id stack.TransportEndpointID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.ended) < lastKnown {
		k.ids[id] = len(k.ended)
		k.ended = append(k.ended, id)
		return
	}
	if old := k.ended[k.next]; k.ids[old] == k.next { // else its port was used again
		delete(k.ids, old)
	}
	k.ids[id] = k.next
	k.ended[k.next] = id
	k.next = (k.next + 1) % lastKnown
}

func (k *known) has(id stack.TransportEndpointID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.ids[id]
	return ok
}

// answer completes the handshake with the sandbox.
func (f *flow) answer(r *tcp.ForwarderRequest) error {
	if f.ctx.Err() != nil {
		r.Complete(true)
		return context.Cause(f.ctx)
	}
	var wq waiter.Queue
	ep, terr := f.gateway.shake(f.ctx, r, &wq)
	if _, ok := terr.(*tcpip.ErrConnectionReset); ok { // perhaps one that was made meanwhile
		return errResetInside
	}
	if terr != nil {
		return errors.New("the sandbox gave up: " + terr.String())
	}
	f.inside = &insideConn{gonet.NewTCPConn(&wq, ep), ep}
	return nil
}

// close ends both sides as they should: what was written is sent first. The
// flow keeps its place among the connections meanwhile.
func (f *flow) close() {
	f.closeOutside()
	c, ok := f.inside.(*insideConn)
	if !ok { // a part of another connection
		return
	}
	_ = c.CloseWrite() // fails when the sandbox has reset it
	end := time.NewTimer(closeTimeout)
	defer end.Stop()
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for !c.drained() {
		select {
		case <-tick.C:
		case <-end.C:
			return // the rest is reset
		case <-f.ctx.Done():
			return
		}
	}
	f.forget(c)
	_ = c.Close() // never fails
}

func (f *flow) closeOutside() {
	if f.outside != nil {
		_ = f.outside.Close() // all that was to be read has been
	}
}

// record writes down how the flow ended.
func (f *flow) record(err error) {
	a := Attempt{Time: f.begin, Proto: policy.TCP, Name: f.to.name, Address: f.to.addr, Port: f.to.port,
		Verdict: verdictAllow, Rule: f.verdict.Rule, Reason: f.verdict.Reason, Generation: f.generation,
		LocalPort: f.from, Owner: f.owner, BytesOut: f.out.Load(), BytesIn: f.in.Load(), Duration: time.Since(f.begin)}
	if f.to.name != "" {
		if a.Address = f.dialled; len(f.addrs) == 1 {
			a.Address = f.addrs[0] // also where it was refused
		}
	}
	if f.verdict.Proto != "" {
		a.Proto = f.verdict.Proto
	}
	if f.verdict.Reported {
		a.Verdict = verdictReport
	}
	var r *refusal
	switch {
	case errors.As(err, &r):
		a.Verdict, a.Rule, a.Reason = verdictDeny, r.verdict.Rule, r.verdict.Reason
	case err != nil:
		a.Reason += "; " + err.Error()
	}
	if taken := f.takenOut(); taken != "" {
		a.Reason += "; " + taken
	}
	f.gateway.log.add(a)
}

// network is the IP version of a connection.
func network(id stack.TransportEndpointID) tcpip.NetworkProtocolNumber {
	if id.LocalAddress.Len() == header.IPv4AddressSize {
		return header.IPv4ProtocolNumber
	}
	return header.IPv6ProtocolNumber
}
