package egress

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/egress/policy"
)

// endpoint is what a connection of the sandbox is for: a name, or a literal
// address, and a port.
type endpoint struct {
	name string     // in its canonical form; empty for a literal address
	addr netip.Addr // the literal, or the name's synthetic address
	port uint16
}

// flow is one connection of the sandbox, from its first packet (or its request
// to the proxy) to its end. Its fields up to ctx do not change.
//
// A flow is judged on one generation of the policy, however long it lives.
// When a newer one does not allow it, its context ends with the refusal as the
// cause and both of its connections are reset.
type flow struct {
	gateway *Gateway
	to      endpoint
	from    uint16 // the sandbox's port
	begin   time.Time
	ctx     context.Context
	cancel  context.CancelCauseFunc

	policy     *policy.Policy
	generation uint64

	proto   policy.Proto   // whose handler serves it
	verdict policy.Verdict // on the name and port, or the literal
	addrs   []netip.Addr   // what the name resolved to, every one judged

	inside  net.Conn // the sandbox's side, once its SYN is answered
	outside net.Conn // the host's side, counted and limited

	out, in atomic.Int64 // bytes from the sandbox to the host's side, and back

	mu    sync.Mutex
	sni   string // what was judged in addition
	owner string // who in the sandbox holds the connection, when it was found
}

// handler serves a flow whose two sides are connected, until one of them ends
// or ctx does. It returns a *refusal when it found that the connection may not
// be, and closes neither side: its caller does. What it returns otherwise is
// recorded as the reason why the connection ended.
type handler func(ctx context.Context, f *flow) error

// refusal is the error of a connection that the policy or a limit forbids.
type refusal struct{ verdict policy.Verdict }

func (r *refusal) Error() string { return r.verdict.Rule + ": " + r.verdict.Reason }
