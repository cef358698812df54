package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
)

// askHost answers what the network's policy leaves to a person.
func (r *runner) askHost(ctx context.Context, q sandbox.Question) policy.Answer {
	g, err := r.gateOf()
	if err != nil {
		return policy.Unanswered
	}
	if g == nil {
		return policy.Nobody
	}
	if r.outside != nil { // a question ends with who started the run
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(r.outside, cancel)()
	}
	out, err := g.Check(ctx, approval.Request{Kind: approval.Host, CallID: q.CallID, Host: cmp.Or(q.Name, q.Address), Port: q.Port, Proto: q.Proto,
		Doing: r.underWay(q.CallID), Why: q.Reason})
	if err != nil {
		r.warn("a question about a host could not be recorded, and is answered with no: %v", err)
		return policy.Unanswered
	}
	return hostAnswer(out.Code)
}

// hostAnswer is what a question about a host came to.
func hostAnswer(c approval.Code) policy.Answer {
	switch {
	case c.OK():
		return policy.Granted
	case c == approval.Denied:
		return policy.Denied
	case c == approval.DeniedByRule:
		return policy.DeniedByRule
	case c == approval.TimedOut:
		return policy.TimedOut
	case c == approval.NoChannel:
		return policy.Nobody
	}
	return policy.Unanswered
}

// gateOf returns the run's gate, and makes it the first time. Nil: nobody judges.
func (r *runner) gateOf() (*approval.Gate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asks == nil {
		g, err := r.newGate()
		if g == nil || err != nil {
			return nil, err
		}
		r.asks = g
	}
	return r.asks, nil
}

// call is a call under way.
type call struct{ id, what string }

// began notes that a call is under way, and ended that it is not any more.
func (r *runner) began(e CallEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what := e.Tool
	if e.Summary != "" {
		what += ": " + e.Summary
	}
	r.calling = append(r.calling, call{e.ID, what})
}

func (r *runner) ended(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calling = slices.DeleteFunc(r.calling, func(c call) bool { return c.id == id })
}

// underWay says which calls are, or which one it is when its id is known.
func (r *runner) underWay(id string) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calling {
		if id == "" || c.id == id {
			all = append(all, c.what)
		}
	}
	if id != "" && all == nil {
		all = append(all, "a command that runs on: "+id)
	}
	return all
}

// recordAside is record for other goroutines than the run's own.
func (r *runner) recordAside(kind audit.Kind, callID string, data any) error {
	r.mu.Lock()
	id := r.report.SandboxID
	r.mu.Unlock()
	_, err := r.log.Append(audit.Entry{Kind: kind, RunID: r.o.ID, TraceID: r.o.TraceID, SandboxID: id, CallID: callID, Data: data})
	if err != nil {
		return fmt.Errorf("record %s: %w", kind, err)
	}
	return nil
}

// Network says what the worker may reach on the network, a line a rule, as it was
// at the beginning of the run; empty: nothing. A run that is resumed says the same.
func (s *Session) Network() []string { return says(s.r.o.Target.Spec.Network) }

// says are the rules of a policy, a line each.
func says(d policy.Document) []string {
	p, err := policy.Compile(d)
	if err != nil { // it could not have been made use of
		return nil
	}
	return p.Summary()
}
