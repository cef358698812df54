package egress

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rein-sh/rein/egress/policy"
)

const (
	// holdTimeout is how long a connection is held for an answer.
	holdTimeout = 30 * time.Second
	// askTimeout is how long a question stays open: an answer that comes after
	// its connection was reset holds for the next one.
	askTimeout = 10 * time.Minute
	// refusedFor is how long a refusal answers the same question again.
	refusedFor = time.Minute
)

// asks are the questions of a gateway and their answers, under gateway.mu.
type asks struct {
	granted map[endpoint]bool
	refused map[endpoint]answered
	open    map[endpoint]*asked
}

func newAsks() *asks {
	return &asks{granted: map[endpoint]bool{}, refused: map[endpoint]answered{}, open: map[endpoint]*asked{}}
}

// answered is an answer that grants nothing.
type answered struct {
	answer policy.Answer
	when   time.Time
}

// asked is one question, however many connections wait for its answer.
type asked struct{ done chan struct{} }

// ask waits until the flow may go on. The error is a *refusal.
func (f *flow) ask() error {
	if f.verdict.Action == policy.Allow {
		return nil
	}
	g := f.gateway
	hold := time.NewTimer(holdTimeout)
	defer hold.Stop()
	for {
		answered, r := f.question()
		if r != nil {
			return r
		}
		if answered == nil {
			return nil
		}
		select {
		case <-answered:
		case <-f.woken:
			f.adopt()
		case <-hold.C:
			return f.ungranted(fmt.Sprintf("asked, and not answered within %v", holdTimeout))
		case <-f.ctx.Done():
			return context.Cause(f.ctx)
		}
		g.mu.Lock()
		f.verdict = f.connectVerdict(f.policy)
		g.mu.Unlock()
	}
}

// question returns what to wait for, nil when the flow is allowed, and begins
// to ask when nobody does.
func (f *flow) question() (<-chan struct{}, *refusal) {
	g := f.gateway
	g.mu.Lock()
	defer g.mu.Unlock()
	f.asking = f.verdict.Action == policy.Ask
	switch f.verdict.Action {
	case policy.Allow:
		return nil, nil
	case policy.Deny:
		return nil, &refusal{f.verdict}
	}
	if q := g.asks.open[f.to]; q != nil {
		return q.done, nil
	}
	switch no, ok := g.asks.refused[f.to]; {
	case ok && time.Since(no.when) < refusedFor:
		return nil, f.ungranted(no.answer.Reason())
	case g.opts.Ask == nil:
		return nil, f.ungranted(policy.Nobody.Reason())
	case len(g.asks.open) >= g.meter.limits.Questions:
		return nil, overLimit("questions", "%d questions wait for an answer", len(g.asks.open))
	case g.closed:
		return nil, f.ungranted("the gateway is closing")
	}
	q := &asked{done: make(chan struct{})}
	g.asks.open[f.to] = q
	g.users.Add(1)
	go g.put(q, f, Question{SandboxID: g.opts.SandboxID, Name: f.to.name, Address: f.to.addr, Port: f.to.port,
		Proto: f.verdict.Proto, Rule: f.verdict.Rule, Reason: f.verdict.Reason, Socket: f.socket})
	return q.done, nil
}

// ungranted refuses what would have had to be granted.
func (f *flow) ungranted(why string) *refusal {
	return &refusal{policy.Verdict{Rule: f.verdict.Rule, Reason: why}}
}

// put asks one question, which f was the first to have, and keeps the answer.
func (g *Gateway) put(q *asked, f *flow, question Question) {
	defer g.users.Done()
	ctx, cancel := context.WithTimeout(g.ctx, askTimeout)
	defer cancel()
	question.Owner = f.asker(ctx)
	answer := g.opts.Ask(ctx, question)
	if answer == policy.Unanswered && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		answer = policy.TimedOut
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	to := f.to
	delete(g.asks.open, to)
	switch {
	case answer == policy.Granted:
		g.asks.granted[to] = true
		delete(g.asks.refused, to)
	case len(g.asks.refused) >= maxRefused:
		clear(g.asks.refused) // the worst that can happen is a question again
		fallthrough
	default:
		g.asks.refused[to] = answered{answer, time.Now()}
	}
	close(q.done)
}

// maxRefused bounds the refusals that are remembered.
const maxRefused = 1024

// adopt judges a flow that was allowed nothing yet on the policy in force.
func (f *flow) adopt() {
	g := f.gateway
	g.mu.Lock()
	defer g.mu.Unlock()
	f.policy, f.generation = g.policyLocked(), g.generation
}

func (f *flow) wake() {
	select {
	case f.woken <- struct{}{}:
	default: // it knows
	}
}
