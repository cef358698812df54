package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// Provider is how the provider behaves: each list is what its first calls of
// that kind do, and after them it does what it is asked.
type Provider struct {
	Create, Get, Renew, Kill, Endpoint []Act
	// Links out of 100 connections are not good to the end.
	Links int
	// Lose is when the sandbox is lost, and Gone when somebody else ends it;
	// 0: never.
	Lose, Gone time.Duration
}

// Act is what one call of a provider does.
type Act string

// The acts.
const (
	Works Act = ""
	Fails Act = "unavailable" // it may work later
	Hangs Act = "hangs"       // until its context ends
	Slow  Act = "slow"        // 20 s late
	Fatal Act = "host"        // it will not work
	Gone  Act = "not found"   // for what has no sandbox any more
	Never Act = "never"       // and all calls after it
)

func (g dice) provider() Provider {
	var p Provider
	if g.one(3) {
		return p // everything works
	}
	acts := func(n int, of ...Act) (list []Act) {
		for range g.IntN(n + 1) {
			list = append(list, pick(g, of...))
		}
		return list
	}
	if g.one(5) {
		p.Create = acts(1, Fails, Hangs, Slow, Fatal)
	}
	if g.one(5) {
		p.Get = acts(4, Works, Fails, Hangs, Slow)
	}
	if g.one(2) {
		p.Renew = acts(4, Works, Fails, Fails, Hangs, Slow, Fatal)
	}
	if g.one(4) {
		p.Kill = acts(2, Fails, Hangs, Slow, Never)
	}
	if g.one(12) {
		p.Endpoint = acts(1, Fails, Hangs, Fatal)
	}
	if g.one(3) {
		p.Links = pick(g, 5, 20, 60)
	}
	if g.one(5) {
		p.Lose = time.Duration(g.Int64N(int64(pick(g, time.Second, time.Minute, time.Hour))))
	}
	if g.one(10) {
		p.Gone = time.Duration(g.Int64N(int64(pick(g, time.Second, time.Minute, time.Hour))))
	}
	return p
}

// Faulty is the in-memory provider with the faults of a plan.
type Faulty struct {
	*sandboxtest.Memory
	Plan Provider

	// moment, if not nil, is called before and after whatever this process does
	// to a sandbox: the process may be ended there.
	moment func()

	mu     sync.Mutex
	calls  map[string]int
	links  dice
	timers []*time.Timer
	dead   bool // the process whose provider this is was ended
	open   map[net.Conn]bool
	// Ends are the ends that sandboxes were given.
	Ends []End
}

// End is an end that a sandbox was given.
type End struct {
	ID  string
	At  time.Time
	Set time.Time // when
}

// end is when the sandbox is to end, by what it had been told at that time.
func (f *Faulty) end(id string, at time.Time) (end time.Time) {
	for _, e := range f.Ends {
		if e.ID == id && !e.Set.After(at) {
			end = e.At
		}
	}
	return end
}

// NewFaulty wraps m.
func NewFaulty(m *sandboxtest.Memory, p Plan) *Faulty {
	return &Faulty{Memory: m, Plan: p.Provider, calls: map[string]int{}, open: map[net.Conn]bool{}, links: dice{rand.New(rand.NewPCG(p.Seed, 0x117c))}}
}

// Stop ends what the plan still has in store.
func (f *Faulty) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.timers {
		t.Stop()
	}
}

// Cut ends what the process of this provider can do: nothing reaches a sandbox
// any more, and nothing happens to one. It returns the provider of the next
// process. The process learns of it when kept has returned.
func (f *Faulty) Cut(p Plan, kept func()) *Faulty {
	next := NewFaulty(f.Memory, p)
	f.mu.Lock()
	f.dead, next.Ends, next.timers = true, f.Ends, f.timers
	open := f.open
	f.open = nil
	kept()
	f.mu.Unlock()
	for c := range open {
		c.Close()
	}
	return next
}

// ended is a moment, and reports whether the process was ended at it, or before.
func (f *Faulty) ended() bool {
	if f.moment != nil {
		f.moment()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// errEnded is what a process that was ended hears of everything.
var errEnded = errors.New("the process was ended")

// done is the end of a call of op that the provider has done: a process that
// was ended meanwhile does not hear of it.
func (f *Faulty) done(op, id string, err error) error {
	if f.ended() {
		return &sandbox.Error{Kind: sandbox.KindUnavailable, Op: op, Subject: id, Err: errEnded}
	}
	return err
}

// List fails once the process is ended.
func (f *Faulty) List(ctx context.Context, labels map[string]string) ([]sandbox.Info, error) {
	if err := f.act(ctx, "list", "", nil); err != nil {
		return nil, err
	}
	return f.Memory.List(ctx, labels)
}

// KillsFail says that sandboxes cannot be killed.
func (f *Faulty) KillsFail() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.Plan.Kill[:min(f.calls["kill"], len(f.Plan.Kill))] {
		if a == Never {
			return true
		}
	}
	return false
}

// act does what the plan has for the next call of op.
func (f *Faulty) act(ctx context.Context, op, id string, acts []Act) error {
	fail := func(k sandbox.Kind, err error) error {
		return &sandbox.Error{Kind: k, Op: op, Subject: id, Err: err}
	}
	if f.ended() {
		return fail(sandbox.KindUnavailable, errEnded)
	}
	f.mu.Lock()
	n := f.calls[op]
	never := false
	for i := range min(n, len(acts)) {
		never = never || acts[i] == Never
	}
	if f.calls[op]++; n >= len(acts) && !never {
		f.mu.Unlock()
		return nil
	}
	a := Never
	if !never {
		a = acts[n]
	}
	f.mu.Unlock()
	switch a {
	case Fails, Never:
		return fail(sandbox.KindUnavailable, errors.New("not now"))
	case Fatal:
		return fail(sandbox.KindHost, errors.New("the disk is full"))
	case Hangs:
		<-ctx.Done()
		return fail(sandbox.KindTimeout, context.Cause(ctx))
	case Slow:
		select {
		case <-time.After(20 * time.Second):
		case <-ctx.Done():
			return fail(sandbox.KindTimeout, context.Cause(ctx))
		}
	}
	return nil
}

// Create makes a sandbox, which may be lost or ended later.
func (f *Faulty) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	if err := f.act(ctx, "create", "", f.Plan.Create); err != nil {
		return sandbox.Info{}, err
	}
	info, err := f.Memory.Create(ctx, spec)
	if err != nil {
		return info, err
	}
	f.mu.Lock()
	f.Ends = append(f.Ends, End{info.ID, info.ExpiresAt, time.Now()})
	if f.Plan.Lose > 0 {
		f.timers = append(f.timers, time.AfterFunc(f.Plan.Lose, func() { f.Memory.Lose(info.ID, "oom") }))
	}
	if f.Plan.Gone > 0 {
		f.timers = append(f.timers, time.AfterFunc(f.Plan.Gone, func() { _ = f.Memory.Kill(context.Background(), info.ID) }))
	}
	f.mu.Unlock()
	if err := f.done("create", info.ID, nil); err != nil {
		return sandbox.Info{}, err
	}
	return info, nil
}

// Get, Renew, Kill and Endpoint fail as the plan says.
func (f *Faulty) Get(ctx context.Context, id string) (sandbox.Info, error) {
	if err := f.act(ctx, "get", id, f.Plan.Get); err != nil {
		return sandbox.Info{}, err
	}
	return f.Memory.Get(ctx, id)
}

func (f *Faulty) Renew(ctx context.Context, id string, until time.Time) (time.Time, error) {
	if err := f.act(ctx, "renew", id, f.Plan.Renew); err != nil {
		return time.Time{}, err
	}
	end, err := f.Memory.Renew(ctx, id, until)
	if err == nil {
		f.mu.Lock()
		f.Ends = append(f.Ends, End{id, end, time.Now()})
		f.mu.Unlock()
	}
	if err := f.done("renew", id, err); err != nil {
		return time.Time{}, err
	}
	return end, nil
}

func (f *Faulty) Kill(ctx context.Context, id string) error {
	if err := f.act(ctx, "kill", id, f.Plan.Kill); err != nil {
		return err
	}
	return f.done("kill", id, f.Memory.Kill(ctx, id))
}

func (f *Faulty) Endpoint(ctx context.Context, id string, port int) (sandbox.Endpoint, error) {
	if err := f.act(ctx, "endpoint", id, f.Plan.Endpoint); err != nil {
		return sandbox.Endpoint{}, err
	}
	ep, err := f.Memory.Endpoint(ctx, id, port)
	if err != nil {
		return ep, err
	}
	dial := ep.DialContext
	ep.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		f.mu.Lock()
		bad, kind, good := f.links.IntN(100) < f.Plan.Links, f.links.IntN(4), f.links.IntN(3000)
		f.mu.Unlock()
		if bad && kind == 0 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if bad {
			conn = &link{Conn: conn, left: good, stalls: kind == 1, closed: make(chan struct{})}
		}
		conn = &watched{Conn: conn, f: f}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.dead {
			conn.Close()
			return nil, &net.OpError{Op: "dial", Net: network, Err: net.ErrClosed}
		}
		f.open[conn] = true
		return conn, nil
	}
	return ep, nil
}

// watched is a connection of which a process that was ended has nothing more.
type watched struct {
	net.Conn
	f *Faulty
}

func (w *watched) Write(p []byte) (int, error) {
	if w.f.ended() {
		return 0, net.ErrClosed
	}
	return w.Conn.Write(p)
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if w.f.ended() {
		return 0, net.ErrClosed
	}
	return n, err
}

// link is a connection that breaks, or goes silent, after some bytes.
type link struct {
	net.Conn
	stalls bool

	mu     sync.Mutex
	left   int
	once   sync.Once
	closed chan struct{}
}

func (l *link) Read(p []byte) (int, error) {
	l.mu.Lock()
	left := l.left
	l.mu.Unlock()
	if left > 0 {
		n, err := l.Conn.Read(p[:min(len(p), left)])
		l.mu.Lock()
		l.left -= n
		l.mu.Unlock()
		return n, err
	}
	if l.stalls {
		<-l.closed
		return 0, net.ErrClosed
	}
	l.Conn.Close()
	return 0, errors.New("connection reset by peer")
}

func (l *link) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Conn.Close()
}
