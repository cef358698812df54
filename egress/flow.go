package egress

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/egress/policy"
)

const (
	// turnTimeout is how long a connection waits for its turn to be made, and
	// connectTimeout bounds its resolving and dialling then.
	turnTimeout    = 10 * time.Second
	connectTimeout = 15 * time.Second
)

// endpoint is what a connection of the sandbox is for: a name, or a literal
// address, and a port.
type endpoint struct {
	name string     // in its canonical form; empty for a literal address
	addr netip.Addr // the literal; invalid for a name
	port uint16
}

func (e endpoint) String() string {
	if e.name == "" {
		return netip.AddrPortFrom(e.addr, e.port).String()
	}
	return fmt.Sprintf("%s:%d", e.name, e.port)
}

// host is the name, or the address in text: what the policy calls a target.
func (e endpoint) host() string {
	if e.name == "" {
		return e.addr.String()
	}
	return e.name
}

// flow is one connection of the sandbox, from its first packet (or its request
// to the proxy) to its end.
//
// A flow is judged on one generation of the policy, however long it lives.
// When a newer one does not allow it, its context ends with the refusal as the
// cause and both of its connections are reset.
type flow struct {
	gateway *Gateway
	to      endpoint
	from    uint16 // the sandbox's port
	socket  Socket // whose that is; unset when nobody needs to know
	begin   time.Time
	ctx     context.Context
	cancel  context.CancelCauseFunc

	inside  net.Conn   // the sandbox's side; nil until its SYN is answered
	outside net.Conn   // the host's side, counted and limited; nil until connect
	model   *modelHost // what it leads to; nil for anything else
	door    bool       // it came by the gateway's door for models, in plain HTTP
	shared  bool       // the host's meter has it

	out, in atomic.Int64  // bytes from the sandbox to the host's side, and back
	owner   string        // what Options.Owner said, once sought is closed
	sought  chan struct{} // nil when nobody looks for it
	later   bool          // no connection is held for it
	hurry   chan struct{} // holds one when somebody waits for it
	refuse  func()        // resets a SYN that was not answered; nil for others
	woken   chan struct{} // holds one when the policy has changed

	judged // under gateway.mu, as long as others can see the flow

	carried atomic.Int64 // when bytes last went either way, in nanoseconds after begin

	mu    sync.Mutex
	conns map[net.Conn]struct{} // what abort resets; nil once it did
	taken []string              // credentials that were taken out of requests: see took
	idle  *time.Timer           // see startIdle
}

// judged is what a flow was allowed, and by what.
type judged struct {
	policy     *policy.Policy
	generation uint64
	verdict    policy.Verdict       // on the name and port, or the literal; Proto says whose handler serves
	addrs      []netip.Addr         // what the name resolved to
	dialled    netip.Addr           // the one that is connected
	server     *string              // what a TLS client named
	requests   map[uint64][]request // what is being carried of HTTP, each in all its readings
	last       uint64               // key of requests
	asking     bool                 // nothing was allowed yet
}

// handler serves a flow whose two sides are connected, until one of them ends
// or ctx does. It returns a *refusal when it found that the connection may not
// be, and closes neither side: its caller does. What else it returns is
// recorded as the reason why the connection ended.
type handler func(ctx context.Context, f *flow) error

// handlers by the kinds of connections that policies tell apart.
func handlers() map[policy.Proto]handler {
	return map[policy.Proto]handler{policy.TCP: splice, policy.TLS: serveTLS, policy.HTTP: serveHTTP, policy.HTTPS: serveHTTPS}
}

// refusal is the error of a connection that the policy or a limit forbids.
type refusal struct{ verdict policy.Verdict }

func (r *refusal) Error() string { return r.verdict.Rule + ": " + r.verdict.Reason }

// newFlow begins a connection: it is admitted by the sandbox's limits and by
// the policy in force, as far as that can be told from where it goes. It does
// not wait.
// When there is a refusal the flow is good for record only; else the caller
// calls end.
func (g *Gateway) newFlow(to endpoint, from uint16) (*flow, *refusal) {
	return g.newFlowBy(to, from, false)
}

// newFlowBy is newFlow that says whether the flow came by the door for models.
func (g *Gateway) newFlowBy(to endpoint, from uint16, door bool) (*flow, *refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f, refused := g.judgeLocked(to, from, door)
	if refused != nil {
		return f, refused
	}
	if g.closed {
		return f, &refusal{policy.Verdict{Rule: ruleLink, Reason: "the gateway is closing"}}
	}
	if r := g.meter.admit(); r != nil {
		return f, r
	}
	f.ctx, f.cancel = context.WithCancelCause(g.ctx)
	f.asking = f.verdict.Action == policy.Ask
	g.flows[f] = struct{}{}
	g.users.Add(1)
	return f, nil
}

// judge returns a flow and whether it may be, as far as the policy in force
// says. It is good for record only.
func (g *Gateway) judge(to endpoint, from uint16) (*flow, *refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.judgeLocked(to, from, false)
}

func (g *Gateway) judgeLocked(to endpoint, from uint16, door bool) (*flow, *refusal) {
	f := &flow{gateway: g, to: to, from: from, model: g.models.at(to), door: door, begin: time.Now(), woken: make(chan struct{}, 1), conns: map[net.Conn]struct{}{}}
	f.policy, f.generation = g.policyLocked(), g.generation
	f.verdict = f.connectVerdict(f.policy)
	if f.policy == nil {
		f.verdict = g.unowned(f.verdict)
	}
	switch r := g.forbidden(to); {
	case r != nil:
		return f, r
	case f.verdict.Action == policy.Deny:
		return f, &refusal{f.verdict}
	case f.verdict.Proto == policy.HTTPS && g.opts.Authority == nil && !door:
		return f, &refusal{policy.Verdict{Proto: policy.HTTPS, Rule: ruleEnded, Reason: "no TLS ends in this sandbox's gateway: it was made without a rule of https, a bundle or secrets"}}
	case g.handlers[f.verdict.Proto] == nil:
		return f, &refusal{policy.Verdict{Rule: ruleLink,
			Reason: fmt.Sprintf("connections of kind %q are not carried", f.verdict.Proto)}}
	}
	return f, nil
}

// forbidden refuses what no policy can allow: the link itself, and addresses
// that stand for no name.
func (g *Gateway) forbidden(to endpoint) *refusal {
	a := to.addr.Unmap()
	switch {
	case to.name != "":
		return nil
	case link4.Contains(a), link6.Contains(a):
		return &refusal{policy.Verdict{Rule: ruleLink, Reason: "the gateway and the sandbox's own network offer nothing there"}}
	case isSynthetic(a):
		return &refusal{policy.Verdict{Rule: policy.RuleDefault, Reason: "no name has that address"}}
	}
	return nil
}

var (
	link4 = netip.PrefixFrom(netip.MustParseAddr(Gateway4), Bits4).Masked()
	link6 = netip.PrefixFrom(netip.MustParseAddr(Gateway6), Bits6).Masked()
)

// connectVerdict is p's verdict on where the flow goes, before it is resolved.
// The caller holds gateway.mu.
func (f *flow) connectVerdict(p *policy.Policy) policy.Verdict {
	var v policy.Verdict
	switch {
	case f.model != nil:
		return f.granted(f.model.verdict(p))
	case f.to.name != "":
		v = p.Connect(f.to.name, f.to.port)
	default:
		v = p.Literal(f.to.addr, f.to.port, f.gateway.own)
	}
	return f.granted(f.gateway.models.apart(f.to, f.ended(v)))
}

// granted is v after what was answered to questions. The caller holds
// gateway.mu.
func (f *flow) granted(v policy.Verdict) policy.Verdict {
	if v.Action == policy.Ask && f.gateway.asks.granted[f.to] {
		v.Action, v.Reason = policy.Allow, policy.Granted.Reason()
	}
	return v
}

// allowedBy is p's verdict on all that is known of the flow. The caller holds
// gateway.mu.
func (f *flow) allowedBy(p *policy.Policy) policy.Verdict {
	v := f.connectVerdict(p)
	if v.Action == policy.Allow && v.Proto != f.verdict.Proto {
		return policy.Verdict{Rule: v.Rule, Reason: fmt.Sprintf("it was opened as %s and may only be %s", f.verdict.Proto, v.Proto)}
	}
	for _, a := range f.addrs {
		if v.Action == policy.Allow {
			to := f.address(p, a)
			if to.Rule == v.Rule { // a rule for the address was not asked about
				to = f.granted(to)
			}
			v = worse(v, to)
		}
	}
	if f.server != nil && v.Action == policy.Allow {
		v = worse(v, f.granted(f.serverRules(p).Server(f.to.host(), f.to.port, *f.server)))
	}
	for _, asked := range f.requests {
		for _, r := range asked {
			if v.Action == policy.Allow {
				v = worse(v, f.granted(f.judgeHead(p, r)))
			}
		}
	}
	return v
}

// worse returns second when it does not allow.
func worse(first, second policy.Verdict) policy.Verdict {
	if second.Action != policy.Allow || second.Reported && !first.Reported {
		second.Proto = first.Proto
		return second
	}
	return first
}

// learn adds to what the flow is judged by. The error is a *refusal by the
// flow's generation, or by the one in force when that is newer.
func (f *flow) learn(add func(*judged)) error {
	g := f.gateway
	g.mu.Lock()
	defer g.mu.Unlock()
	add(&f.judged)
	v := f.allowedBy(f.policy)
	if v.Action == policy.Allow && f.generation != g.generation {
		v = worse(v, f.allowedBy(g.policyLocked()))
	}
	if v.Action != policy.Allow {
		return &refusal{v}
	}
	f.verdict = v
	return nil
}

// judgeServer judges the name a TLS client sent; empty when it sent none. The
// error is a *refusal.
func (f *flow) judgeServer(name string) error {
	return f.learn(func(j *judged) { j.server = &name })
}

// connect takes a flow from its verdict to the host's side: it is counted with
// those of the host, asks where the policy does, resolves, judges every address
// and dials one of them. The error is a *refusal, or why the host's side cannot
// be reached.
func (f *flow) connect() error {
	if r := f.gateway.meter.host.admit(); r != nil { // it may wait for others
		return r
	}
	f.shared = true
	if err := f.ask(); err != nil {
		return err
	}
	if f.model == nil { // else when there is a request that may pass
		c, err := f.dial(f.ctx)
		if err != nil {
			return err
		}
		f.outside = c
	}
	f.startIdle()
	return nil
}

// dial connects to the flow's host. It resolves it the first time, so that
// what was judged is what is dialled, however often.
func (f *flow) dial(ctx context.Context) (net.Conn, error) {
	g := f.gateway
	if g.opts.Host == nil {
		return nil, &refusal{policy.Verdict{Rule: ruleLink, Reason: "this sandbox has no way out"}}
	}
	if err := g.meter.turn(ctx); err != nil {
		return nil, cmp.Or(context.Cause(f.ctx), err)
	}
	defer g.meter.done()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := f.resolve(ctx); err != nil {
		return nil, err
	}
	if err := f.beside(ctx); err != nil {
		return nil, err
	}
	c, addr, err := f.dialAny(ctx)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	f.dialled = addr
	g.mu.Unlock()
	out := &counted{Conn: c, f: f}
	if !f.watch(out) {
		return nil, context.Cause(f.ctx)
	}
	return out, nil
}

// resolve finds the addresses of the flow's name, once, and has all of them
// judged.
func (f *flow) resolve(ctx context.Context) error {
	to := f.leads()
	if f.addrs != nil || to.name == "" {
		return nil
	}
	addrs, err := f.gateway.opts.Host.Lookup(ctx, to.name)
	if err == nil && len(addrs) == 0 {
		err = errNoAddress
	}
	if err != nil {
		return unresolved(err)
	}
	return f.learn(func(j *judged) { j.addrs = addrs })
}

// targets are the addresses that may be dialled, once they are known.
func (f *flow) targets() []netip.Addr {
	if to := f.leads(); to.name == "" {
		return []netip.Addr{to.addr}
	}
	return f.addrs
}

// dialAny connects to the first address that answers.
func (f *flow) dialAny(ctx context.Context) (net.Conn, netip.Addr, error) {
	addrs := f.targets()
	to := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		to[i] = netip.AddrPortFrom(a, f.leads().port)
	}
	c, dialled, err := dialFirst(ctx, f.dialer(), to)
	if cause := context.Cause(f.ctx); cause != nil && err != nil {
		err = cause
	} else if err != nil {
		err = &unreached{"no connection to it could be made", err}
	}
	return c, dialled.Addr(), err
}

// run hands a flow whose two sides are connected to its handler, and returns
// when that has.
func (f *flow) run() error {
	if !f.watch(f.inside) {
		return context.Cause(f.ctx)
	}
	return f.gateway.handlers[f.verdict.Proto](f.ctx, f)
}

// watch has c reset when the flow is to end at once. It returns false, and has
// reset it, when that is so already.
func (f *flow) watch(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil {
		reset(c)
		return false
	}
	f.conns[c] = struct{}{}
	return true
}

// forget undoes watch.
func (f *flow) forget(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
}

// abort ends the flow at once, for the reason err, unless it has one.
func (f *flow) abort(err error) {
	f.cancel(err)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.idle != nil {
		f.idle.Stop()
	}
	for c := range f.conns {
		reset(c)
	}
	f.conns = nil
}

// reset closes c so that the peer learns that it did not end as it should.
func reset(c net.Conn) {
	switch c := c.(type) {
	case interface{ Abort() }:
		c.Abort()
		return
	case interface{ SetLinger(int) error }:
		_ = c.SetLinger(0) // fails only when c is closed
	}
	_ = c.Close() // nobody reads what it held
}

// end closes what is open, gives back what was taken and records how it went.
// err is why it ended, nil when both sides were done.
func (f *flow) end(err error) {
	g := f.gateway
	if cause := context.Cause(f.ctx); cause != nil {
		err = cause // what the handler saw was the consequence
	}
	if err == nil {
		f.close()
	}
	f.settle(err)
	if f.shared { // last: it may wait for others
		g.meter.host.release()
	}
	g.users.Done()
}

// settle ends and records the flow. Whoever has seen its end finds it on
// record: Flush waits meanwhile.
func (f *flow) settle(err error) {
	g := f.gateway
	g.settling.RLock()
	defer g.settling.RUnlock()
	f.abort(err)
	if f.refuse != nil {
		f.refuse()
	}
	g.mu.Lock()
	delete(g.flows, f)
	g.mu.Unlock()
	g.meter.release()
	if f.sought != nil {
		<-f.sought
	}
	f.record(err)
}
