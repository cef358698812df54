package egress

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rein-sh/rein/egress/policy"
)

// beside refuses a connection whose bytes would pass as they are, to where a
// host is to which a secret is bound: by an address, or as another name for which
// a rule allows anything. What such a host is asked has to be seen. Where it
// cannot be told, the answer is no; a host that has no address is nowhere.
func (f *flow) beside(ctx context.Context) error {
	g := f.gateway
	if f.to.name != "" && f.verdict.Proto != policy.TCP {
		return nil // it can only be asked for by its own name
	}
	no := func(format string, args ...any) error {
		return &refusal{policy.Verdict{Proto: f.verdict.Proto, Rule: ruleEnded, Reason: fmt.Sprintf(format, args...)}}
	}
	for _, host := range g.opts.Vault.Hosts(f.to.port) {
		addrs, err := g.opts.Host.Lookup(ctx, host)
		switch {
		case errors.Is(err, errNoAddress):
			continue
		case err != nil:
			return no("whether %s, to which a secret is bound, is there cannot be told: %v", host, err)
		}
		for _, a := range f.targets() {
			if slices.Contains(addrs, a.Unmap()) || slices.Contains(addrs, a) {
				return no("%s, to which a secret is bound, is there: it is reached by its name only", host)
			}
		}
	}
	return nil
}
