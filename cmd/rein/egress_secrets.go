package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
)

// given is a secret that requests to a host are given.
type given struct {
	Secret string `json:"secret"`
	vault.Binding
}

// givenTo are the secrets that requests to the host of an explanation are given. Where
// TLS ends for one, the explanation says https afterwards, whatever the rule says.
func givenTo(e *policy.Explanation, c config.Config, t config.Target) []given {
	var out []given
	for _, s := range c.SecretsOf(t) {
		for _, b := range s.Use {
			if host, err := policy.Canonical(b.Host); err != nil || host != e.Target {
				continue // an address has none
			}
			if len(b.Ports) == 0 {
				b.Ports = []int{443}
			}
			asked := false
			for i := range e.Ports {
				p := &e.Ports[i]
				if !slices.Contains(b.Ports, int(p.Port)) {
					continue
				}
				asked = true
				if p.Verdict.Proto == policy.TLS && t.Provider == config.DefaultProvider {
					p.Verdict.Proto = policy.HTTPS
				}
			}
			if asked {
				out = append(out, given{s.Name, b})
			}
		}
	}
	return out
}

// sayGiven prints a line for each secret.
func sayGiven(w io.Writer, secrets []given) {
	for _, s := range secrets {
		fmt.Fprintf(w, "  secret: %s, to %s\n", s.Secret, cleanLine(s.Says()))
	}
}
