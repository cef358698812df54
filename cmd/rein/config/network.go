package config

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/rein-sh/rein/egress/policy"
)

// Egress is this host's way to the network, for the sandboxes of the provider
// local whose target has a network.
type Egress struct {
	UpstreamProxy UpstreamProxy `json:"upstream_proxy,omitzero" jsonschema:"the proxy that carries every connection out"`
	UpstreamCA    string        `json:"upstream_ca,omitempty" jsonschema:"absolute path of certificates in PEM that sandboxes trust besides their own, and that an https proxy's is signed by"`
	Resolvers     []string      `json:"resolvers,omitempty" jsonschema:"name servers that are asked instead of the host's: ADDRESS or ADDRESS:PORT"`
	Limits        EgressLimits  `json:"limits,omitzero" jsonschema:"what one sandbox may take of the network where its target sets no other"`
	HostLimits    HostLimits    `json:"host_limits,omitzero" jsonschema:"what all sandboxes of this host together may take of the network"`
}

// UpstreamProxy is a proxy that speaks HTTP CONNECT.
type UpstreamProxy struct {
	URL      string `json:"url,omitempty" jsonschema:"http or https address of the proxy, without user and password"`
	User     string `json:"user,omitempty" jsonschema:"who the proxy is told to let through"`
	Password Key    `json:"password,omitzero" jsonschema:"where the host finds the password; one of env, file, command"`
}

// EgressLimits bound one sandbox's use of the network. A zero is the gateway's
// own: docs/limits.md.
type EgressLimits struct {
	Connections    int  `json:"connections,omitempty" jsonschema:"connections open at once"`
	PerSecond      int  `json:"per_second,omitempty" jsonschema:"new connections per second"`
	Bytes          Size `json:"bytes,omitempty" jsonschema:"bytes, both ways, in the sandbox's life"`
	MaxUploadBytes Size `json:"max_upload_bytes,omitempty" jsonschema:"bytes sent, in the sandbox's life"`
	Dials          int  `json:"dials,omitempty" jsonschema:"connections of the host that are being made at once"`
	Questions      int  `json:"questions,omitempty" jsonschema:"questions that wait for a person"`
	Names          int  `json:"names,omitempty" jsonschema:"names that get an address, in the sandbox's life"`
	NamesPerMinute int  `json:"names_per_minute,omitempty" jsonschema:"distinct names beneath wildcards"`
	IdleSeconds    int  `json:"idle_seconds,omitempty" jsonschema:"seconds that a connection may carry nothing"`
}

// HostLimits bound what all sandboxes of a state directory take of the network
// together. A zero is the gateway's own: docs/limits.md.
type HostLimits struct {
	Connections    int  `json:"connections,omitempty" jsonschema:"connections open at once"`
	PerSecond      int  `json:"per_second,omitempty" jsonschema:"new connections per second"`
	Bytes          Size `json:"bytes,omitempty" jsonschema:"bytes, both ways, within a day"`
	MaxUploadBytes Size `json:"max_upload_bytes,omitempty" jsonschema:"bytes sent, within a day"`
}

// IsZero reports whether there is no proxy.
func (p UpstreamProxy) IsZero() bool {
	return p.URL == "" && p.User == "" && p.Password.IsZero()
}

// NetworkOf is the policy of a target: what only the host has written.
func (t Target) NetworkOf() policy.Document {
	d := t.Network
	if d.Origin = ""; !reflect.ValueOf(d).IsZero() { // nothing is written of nobody
		d.Origin = policy.OriginHost
	}
	return d
}

// network judges a target's policy.
func (v *validator) network(at string, t Target) {
	_, err := policy.Compile(t.NetworkOf())
	if e, ok := errors.AsType[*policy.Error](err); ok {
		for _, f := range e.Faults {
			if strings.HasPrefix(f.Path, "limits.") {
				continue // below, with those that are zero
			}
			v.fault(at+"."+f.Path, f.Hint, "%s", f.Message)
		}
	}
	v.aboveZero(at+".limits", t.Network.Limits)
}

// egress judges the host's way to the network.
func (v *validator) egress(e Egress) {
	for i, text := range e.Resolvers {
		if _, err := ParseResolver(text); err != nil {
			v.fault(fmt.Sprintf("egress.resolvers[%d]", i), "such as 192.0.2.53, or [2001:db8::53]:53", "%s", err)
		}
	}
	v.absolute("egress.upstream_ca", e.UpstreamCA)
	v.aboveZero("egress.limits", e.Limits)
	v.aboveZero("egress.host_limits", e.HostLimits)
	if !v.set("egress.upstream_proxy") {
		return
	}
	const at = "egress.upstream_proxy"
	u, err := url.Parse(e.UpstreamProxy.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		v.fault(at+".url", "such as url: http://proxy.example.com:3128", "no http or https address")
	case u.User != nil:
		v.fault(at+".url", "put them under user: and password:", "an address must not contain a user or a password")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		v.fault(at+".url", "such as url: http://proxy.example.com:3128", "it is more than a host and a port")
	case u.Scheme == "https" && e.UpstreamCA == "":
		v.fault(at+".url", "write egress: upstream_ca: PATH", "the certificate of an https proxy must be signed by one of upstream_ca")
	}
	v.key(at+".password", e.UpstreamProxy.Password, v.set(at+".password"))
	if v.set(at+".password") && e.UpstreamProxy.User == "" {
		v.fault(at+".password", "write user:", "a password without a user")
	}
}

// aboveZero refuses a limit of the network that is set to nothing.
func (v *validator) aboveZero(at string, limits any) {
	s := reflect.ValueOf(limits)
	for i, name := range fieldsOf(s.Type()).names {
		if p := join(at, name); v.set(p) && s.Field(i).Int() <= 0 {
			v.fault(p, "write a number above zero, or leave it out", "%d is no limit", s.Field(i).Int())
		}
	}
}

// ParseResolver reads a name server: an address, with a port or without.
func ParseResolver(text string) (netip.AddrPort, error) {
	if to, err := netip.ParseAddrPort(text); err == nil && to.Port() != 0 {
		return to, nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is neither an address nor one with a port", text)
	}
	return netip.AddrPortFrom(addr, 53), nil
}

// Asks reports whether a policy leaves something to a person.
func Asks(d policy.Document) bool {
	return d.Default == policy.ActionAsk || slices.ContainsFunc(d.Rules, func(r policy.Rule) bool { return r.Action == policy.ActionAsk })
}

// hosts refuses rules of hosts where no target's network asks about any: they
// answer such questions, and would keep nobody from anything.
func (v *validator) hosts(c Config) {
	i := slices.IndexFunc(c.Approval.Rules, func(r ApprovalRule) bool { return r.Host != "" })
	if i < 0 || slices.ContainsFunc(slices.Collect(maps.Values(c.Targets)), func(t Target) bool { return Asks(t.Network) }) {
		return
	}
	v.fault(fmt.Sprintf("approval.rules[%d].host", i), "write network: default: ask in a target, or a rule with action: ask; what may be reached without asking is under network: rules:",
		"no target's network asks about a host, so a rule of a host would not be kept")
}
