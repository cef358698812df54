package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rein-sh/rein/egress/policy"
)

// wholeHost is implemented by a Host that can tell all addresses of a name from
// some of them, as System does.
type wholeHost interface {
	LookupAll(ctx context.Context, name string) ([]netip.Addr, error)
}

// beside refuses a connection whose bytes would pass as they are, to where a
// host is to which a secret is bound: by an address, or as another name for which
// a rule allows anything. What such a host is asked has to be seen. Where it
// cannot be told, the answer is no; a host that has no address is nowhere.
func (f *flow) beside(ctx context.Context) error {
	g := f.gateway
	if f.to.name != "" && f.verdict.Proto != policy.TCP {
		return nil // the name it is asked by is seen
	}
	no := func(format string, args ...any) error {
		return &refusal{policy.Verdict{Proto: f.verdict.Proto, Rule: ruleEnded, Reason: fmt.Sprintf(format, args...)}}
	}
	lookup := g.opts.Host.Lookup
	if all, ok := g.opts.Host.(wholeHost); ok {
		lookup = all.LookupAll
	}
	for _, host := range g.opts.Vault.Hosts(f.to.port) {
		addrs, err := lookup(ctx, host)
		switch {
		case errors.Is(err, errNoAddress):
			continue
		case err != nil:
			return no("whether %s, to which a secret is bound, is there cannot be told: %s", host, toldOf(unresolved(err)))
		}
		for _, a := range f.targets() {
			if slices.ContainsFunc(addrs, func(b netip.Addr) bool { return same(a, b) }) {
				return no("%s, to which a secret is bound, is there: it is reached by its name only", host)
			}
		}
	}
	return nil
}

// same reports whether two addresses may lead to one place: an IPv6 address that
// carries an IPv4 address leads to that.
func same(a, b netip.Addr) bool {
	all := policy.Unmap(b)
	return slices.ContainsFunc(policy.Unmap(a), func(one netip.Addr) bool { return slices.Contains(all, one) })
}
