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
	if f.model != nil {
		return nil
	}
	if err := f.besideModels(ctx); err != nil {
		return err
	}
	if f.to.name != "" && f.verdict.Proto != policy.TCP {
		return nil // the name it is asked by is seen
	}
	no := func(format string, args ...any) error {
		return &refusal{policy.Verdict{Proto: f.verdict.Proto, Rule: ruleEnded, Reason: fmt.Sprintf(format, args...)}}
	}
	lookup := g.lookupAll()
	for _, host := range g.opts.Vault.Hosts(f.to.port) {
		addrs, err := lookup(ctx, host)
		switch {
		case errors.Is(err, errNoAddress):
			continue
		case err != nil:
			return no("whether %s, to which a secret is bound, is there cannot be told: %s", host, toldOf(unresolved(err)))
		}
		for _, a := range f.targets() {
			if isOneOf(a, addrs) {
				return no("%s, to which a secret is bound, is there: it is reached by its name only", host)
			}
		}
	}
	return nil
}

// besideModels refuses a connection to where a host of models is, or the server
// that its requests go to. By a name the first is not: what is asked there is seen
// to be for another, as it is of hosts with secrets.
func (f *flow) besideModels(ctx context.Context) error {
	lookup, seen := f.gateway.lookupAll(), f.to.name != "" && f.verdict.Proto != policy.TCP
	for _, h := range f.gateway.models.hosts {
		places := []endpoint{h.leads}
		if h.upstream != nil {
			places = append(places, endpoint{name: h.Name})
		}
		for _, at := range places {
			its := h.upstream != nil && at == h.leads
			if seen && !its || its && at.port != f.to.port {
				continue
			}
			addrs, err := []netip.Addr{at.addr}, error(nil)
			if at.name != "" {
				addrs, err = lookup(ctx, at.name)
			}
			told := ""
			switch {
			case errors.Is(err, errNoAddress), err != nil && h.upstream != nil && !its: // no request goes there
				continue
			case err != nil:
				told = fmt.Sprintf("whether %s, a host of models, is there cannot be told: %s", h.Name, toldOf(unresolved(err)))
			case slices.ContainsFunc(f.targets(), func(a netip.Addr) bool { return isOneOf(a, addrs) }):
				told = fmt.Sprintf("%s, a host of models, is there: it is reached by its name only", h.Name)
			default:
				continue
			}
			return &refusal{policy.Verdict{Proto: f.verdict.Proto, Rule: ruleModelBeside, Reason: told}}
		}
	}
	return nil
}

// lookupAll finds all addresses of a name, where the host can tell.
func (g *Gateway) lookupAll() func(context.Context, string) ([]netip.Addr, error) {
	if all, ok := g.opts.Host.(wholeHost); ok {
		return all.LookupAll
	}
	return g.opts.Host.Lookup
}

func isOneOf(a netip.Addr, addrs []netip.Addr) bool {
	return slices.ContainsFunc(addrs, func(b netip.Addr) bool { return same(a, b) })
}

// same reports whether two addresses may lead to one place: an IPv6 address that
// carries an IPv4 address leads to that.
func same(a, b netip.Addr) bool {
	all := policy.Unmap(b)
	return slices.ContainsFunc(policy.Unmap(a), func(one netip.Addr) bool { return slices.Contains(all, one) })
}
