package egress

import "github.com/rein-sh/rein/egress/policy"

// SetPolicy puts p in force and returns its generation, one more than the
// last. Connections that p does not allow are reset before it returns. Nil
// denies everything.
func (g *Gateway) SetPolicy(p *policy.Policy) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.policy = p
	g.generation++
	return g.generation
}

// Open says whether the sandbox has an owner. Without one (the state a gateway
// begins in) nothing leaves and every name is denied, whatever the policy; what
// was open is reset before Open returns. DialContext works all the same.
func (g *Gateway) Open(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.owned = open
}

// Grant lets pass what the policy says ask about: a question that was answered
// after its connection had been given up. It has no power over what the policy
// denies.
func (g *Gateway) Grant(q Question) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.grants[question{q.Name, q.Address, q.Port}] = true
}

// question is what a grant is about.
type question = endpoint

// inForce returns the policy that holds now and its generation. The policy is
// nil, which denies everything, while the sandbox has no owner.
func (g *Gateway) inForce() (*policy.Policy, uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.owned {
		return nil, g.generation
	}
	return g.policy, g.generation
}
