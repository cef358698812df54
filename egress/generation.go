package egress

import (
	"net/netip"

	"github.com/rein-sh/rein/egress/policy"
)

// SetPolicy puts p in force and returns its generation, one more than the
// last. Connections that p does not allow are reset before it returns. Its
// limits hold in place of Options.Limits from now on, for what has been counted
// so far, too. Nil denies everything.
func (g *Gateway) SetPolicy(p *policy.Policy) uint64 {
	g.mu.Lock()
	g.policy = p
	g.meter.set(g.opts.Limits.under(p.Limits()))
	g.generation++
	n, over := g.generation, g.rejudge()
	g.mu.Unlock()
	abortAll(over)
	return n
}

// Open says whether the sandbox has an owner. Without one (the state a gateway
// begins in) nothing leaves and every name is denied, whatever the policy; what
// was open is reset before Open returns. DialContext works all the same.
func (g *Gateway) Open(open bool) {
	g.mu.Lock()
	g.owned = open
	over := g.rejudge()
	g.mu.Unlock()
	abortAll(over)
}

// Seal closes the network for the gateway's life, because no more records can
// be kept: what was open is reset, all is refused under the rule
// "limit:records", and further refusals are counted in one Attempt that is
// recorded when the gateway closes. It may be called from Options.Record.
func (g *Gateway) Seal() {
	g.log.seal()
	g.mu.Lock()
	g.sealed = true
	over := g.rejudge()
	g.mu.Unlock()
	abortAll(over)
}

// inForce returns the policy that holds now and its generation.
func (g *Gateway) inForce() (*policy.Policy, uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.policyLocked(), g.generation
}

// policyLocked returns the policy that holds now: nil, which denies
// everything, while nobody owns the sandbox. The caller holds g.mu.
func (g *Gateway) policyLocked() *policy.Policy {
	if !g.owned || g.sealed {
		return nil
	}
	return g.policy
}

// unowned explains the verdict of a policy that is not in force. The caller
// holds g.mu.
func (g *Gateway) unowned(v policy.Verdict) policy.Verdict {
	switch {
	case g.sealed:
		return policy.Verdict{Rule: ruleSealed, Reason: reasonSealed}
	case !g.owned && g.policy != nil:
		return policy.Verdict{Rule: ruleLink, Reason: "nobody owns the sandbox at the moment"}
	}
	return v
}

// over is a flow that is allowed no more.
type over struct {
	f   *flow
	why *refusal
}

// rejudge returns the flows that what is in force does not allow, and wakes
// those that wait for an answer. The caller holds g.mu.
func (g *Gateway) rejudge() (list []over) {
	p := g.policyLocked()
	for f := range g.flows {
		v := f.allowedBy(p)
		if f.asking && v.Action != policy.Deny {
			f.wake()
			continue
		}
		if v.Action != policy.Allow {
			list = append(list, over{f, &refusal{g.unowned(v)}})
		}
	}
	return list
}

func abortAll(list []over) {
	for _, o := range list {
		o.f.abort(o.why)
	}
}

// own tells the host's addresses.
func (g *Gateway) own(a netip.Addr) bool { return g.opts.Host != nil && g.opts.Host.Own(a) }
