package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// What decided, when no rule of the document did. They are written in records.
const (
	ruleProtocol = "protocol"  // nothing but TCP and DNS is carried
	ruleName     = "name"      // what was sent is no name
	ruleAddress  = "address."  // and the class
	ruleAnswer   = "answer"    // a name that resolves to nothing
	ruleServer   = "tls.name"  // the server name is not the one connected to
	rulePath     = "http.path" // a path that could be read as another one
)

// RuleHost is the Rule of a request whose Host is not the one connected to.
const RuleHost = "http.host"

// Decide returns the verdict on r. It is a pure function of p and r. A later
// stage repeats the verdict of AtConnect on what it does not judge itself: what
// was granted for a name and port at Ask stays granted.
func (p *Policy) Decide(r Request) Verdict {
	if p == nil {
		p = &Policy{}
	}
	switch r.Proto {
	case "", TCP, DNS, TLS, HTTP, HTTPS:
	default:
		return Verdict{Rule: ruleProtocol, Reason: "only TCP and DNS are carried"}
	}
	if r.Proto == DNS && r.Stage != AtName {
		r.Stage = AtName
	}
	if r.Name == "" && r.Stage != AtName {
		return p.literal(r)
	}
	name, err := Canonical(r.Name)
	if err != nil {
		return Verdict{Rule: ruleName, Reason: err.Error()}
	}
	r.Name = name
	switch r.Stage {
	case AtConnect:
		return p.connect(name, r.Port)
	case AtName:
		return p.name(name)
	case AtAddress:
		return p.address(r)
	case AtServer:
		return p.server(r, p.connect(name, r.Port))
	case AtHTTP:
		return p.http(r, p.connect(name, r.Port))
	}
	return Verdict{Rule: RuleDefault, Reason: "no such question"}
}

// Addresses judges all that a name resolved to, of which one is dialled: none
// may be refused, so that an answer cannot mix what may be reached with what
// may not.
func (p *Policy) Addresses(name string, addrs []netip.Addr, port uint16, own Ranges) Verdict {
	if len(addrs) == 0 {
		return Verdict{Rule: ruleAnswer, Reason: "the name has no address"}
	}
	var worst Verdict
	for i, addr := range addrs {
		v := p.Address(name, addr, port, own)
		if v.Action == Deny && len(addrs) > 1 {
			v.Reason += "; an answer is refused as a whole"
		}
		if i == 0 || v.Action < worst.Action {
			worst = v
		}
	}
	return worst
}

// found collects rules that speak of a target.
type found struct {
	rules [16]*rule
	more  []*rule
	n     int
}

func (f *found) add(r *rule) {
	if f.n < len(f.rules) {
		f.rules[f.n] = r
	} else {
		f.more = append(f.more, r)
	}
	f.n++
}

func (f *found) at(i int) *rule {
	if i < len(f.rules) {
		return f.rules[i]
	}
	return f.more[i-len(f.rules)]
}

// named calls add with every rule that speaks of a name, on any port.
func (p *Policy) named(name string, f *found) {
	for _, r := range p.exact[name] {
		f.add(r)
	}
	for rest := name; len(p.below) > 0; {
		_, after, ok := strings.Cut(rest, ".")
		if !ok {
			break
		}
		for _, r := range p.below[after] {
			f.add(r)
		}
		rest = after
	}
	for _, r := range p.below[""] {
		f.add(r)
	}
}

// on returns what a rule says of a port: whether it speaks of it, and what is
// spoken there.
func (r *rule) on(port uint16) (Proto, bool) {
	if r.ports == nil {
		return "", true
	}
	for _, p := range r.ports {
		if p.port == port {
			return p.proto, true
		}
	}
	return "", false
}

// choose finds the rule that decides about a port among those that speak of the
// target: in strictest mode the strictest, and of equals the first; else the
// first. The protocol is the strictest that any of them names.
func (p *Policy) choose(f *found, port uint16) (*rule, Proto) {
	var best *rule
	var proto Proto
	for i := range f.n {
		r := f.at(i)
		spoken, ok := r.on(port)
		if !ok {
			continue
		}
		switch {
		case best == nil,
			p.ordered && r.index < best.index,
			!p.ordered && (r.action < best.action || r.action == best.action && r.index < best.index):
			if best = r; p.ordered {
				proto = spoken
			}
		}
		if !p.ordered && r.action != Deny && strictness(spoken) > strictness(proto) {
			proto = spoken
		}
	}
	return best, proto
}

func strictness(p Proto) int {
	return slices.Index([]Proto{TCP, HTTP, TLS, HTTPS}, p)
}

// connect judges a name in canonical form and a port.
func (p *Policy) connect(name string, port uint16) Verdict {
	var f found
	p.named(name, &f)
	return p.judge(&f, port)
}

// judge makes a verdict of the rules that speak of a target.
func (p *Policy) judge(f *found, port uint16) Verdict {
	r, proto := p.choose(f, port)
	if r == nil {
		return p.byDefault(f, port)
	}
	if r.action == Deny {
		return p.lift(Verdict{Rule: r.id, Reason: r.reason}, port)
	}
	return Verdict{Action: r.action, Proto: proto, Rule: r.id, Reason: r.reason}
}

// byDefault is the verdict on what no rule speaks of.
func (p *Policy) byDefault(f *found, port uint16) Verdict {
	v := Verdict{Action: p.fallback, Rule: RuleDefault, Reason: "no rule speaks of it"}
	if p.fallback != Deny {
		v.Proto = usual(port)
		return v
	}
	v.Reason = "no rule allows it"
	if f.n > 0 {
		v.Reason = fmt.Sprintf("no rule allows it on port %d; %s", port, f.at(0).reason)
	}
	return p.lift(v, port)
}

// usual is what is spoken on a port of which no rule says it.
func usual(port uint16) Proto {
	if proto := spoken("", port); proto != "" {
		return proto
	}
	return TCP
}

// lift lets pass what a policy that only reports would deny.
func (p *Policy) lift(v Verdict, port uint16) Verdict {
	if p.report {
		v.Action, v.Reported = Allow, true
		if v.Proto == "" {
			v.Proto = usual(port)
		}
	}
	return v
}

// name judges whether a name may have an address: whether any port of it may
// be reached, or asked for.
func (p *Policy) name(name string) Verdict {
	var f found
	p.named(name, &f)
	best := p.judge(&f, 0) // a port that no rule names
	for i := range f.n {
		for _, port := range f.at(i).ports {
			if v := p.judge(&f, port.port); v.Action > best.Action || v.Action == best.Action && best.Rule == RuleDefault {
				best = v
			}
		}
	}
	best.Proto = DNS
	if best.Action == Deny && best.Rule == RuleDefault {
		best.Reason = "no rule allows it"
	}
	return best
}

// literal judges an address that no name stands for.
func (p *Policy) literal(r Request) Verdict {
	if !r.Addr.IsValid() {
		return Verdict{Rule: RuleDefault, Reason: "neither a name nor an address"}
	}
	var worst Verdict
	for i, addr := range Unmap(r.Addr) {
		if v := p.literalOne(addr, r.Port, r.Own); i == 0 || v.Action < worst.Action {
			worst = v
		}
	}
	switch r.Stage {
	case AtServer:
		return p.server(r, worst)
	case AtHTTP:
		return p.http(r, worst)
	}
	return worst
}

func (p *Policy) literalOne(addr netip.Addr, port uint16, own Ranges) Verdict {
	var f found
	p.covering(addr, &f)
	if refused := p.special(addr, port, own, &f); refused.Rule != "" {
		return refused
	}
	return p.judge(&f, port)
}

// covering finds the rules whose range holds an address.
func (p *Policy) covering(addr netip.Addr, f *found) {
	for _, r := range p.ranges {
		if r.prefix.Contains(addr) {
			f.add(r)
		}
	}
}

// special judges an address by what it is for. The verdict has no Rule when
// nothing is wrong with it: it is public, or a rule in f names its range, on
// this port, and no rule denies it.
func (p *Policy) special(addr netip.Addr, port uint16, own Ranges, f *found) Verdict {
	class, within := classFor(addr, own)
	if class == Public {
		return Verdict{}
	}
	refused := Verdict{Rule: ruleAddress + string(class)}
	switch {
	case class.never():
		refused.Reason = fmt.Sprintf("%s is %s, and no rule opens that", addr, class)
		return refused
	case !within.IsValid():
		refused.Reason = fmt.Sprintf("%s is in a range that is not assigned", addr)
		return refused
	}
	// Of the rules that allow, only those that name the range count: a range
	// that merely holds it was not written with it in mind.
	var naming found
	for i := range f.n {
		if r := f.at(i); r.action == Deny || r.prefix.Bits() >= within.Bits() {
			naming.add(r)
		}
	}
	r, _ := p.choose(&naming, port)
	switch {
	case r == nil:
		refused.Reason = fmt.Sprintf("%s is %s, and no rule names %s on port %d", addr, class.what(), within, port)
		return refused
	case r.action == Deny:
		return Verdict{Rule: r.id, Reason: r.reason}
	}
	*f = naming
	return Verdict{}
}

// address judges what a name resolved to.
func (p *Policy) address(r Request) Verdict {
	if !r.Addr.IsValid() {
		return Verdict{Rule: ruleAnswer, Reason: "no address"}
	}
	var names found
	p.named(r.Name, &names)
	v := p.judge(&names, r.Port)
	if v.Action == Deny {
		return v
	}
	for _, addr := range Unmap(r.Addr) {
		var ranges found
		p.covering(addr, &ranges)
		if refused := p.special(addr, r.Port, r.Own, &ranges); refused.Rule != "" {
			refused.Reason = r.Name + " resolves to an address that may not be reached: " + refused.Reason
			return refused
		}
		by, _ := p.choose(&ranges, r.Port)
		if by == nil || by.action == Allow && !p.ordered {
			continue
		}
		if p.ordered { // the first of all rules that speak of the name or the address
			if first, _ := p.choose(&names, r.Port); first != nil && first.index < by.index {
				continue
			}
		}
		if by.action != Allow { // also where both ask: what is granted for the name is not for the address
			w := Verdict{Action: by.action, Proto: v.Proto, Rule: by.id, Reason: fmt.Sprintf("it resolves to %s; %s", addr, by.reason)}
			if by.action == Deny {
				return p.lift(w, r.Port)
			}
			v = w
		}
	}
	return v
}

// server judges what a TLS client calls its server.
func (p *Policy) server(r Request, v Verdict) Verdict {
	if v.Action == Deny {
		return v
	}
	refuse := func(format string, args ...any) Verdict {
		return p.lift(Verdict{Proto: v.Proto, Rule: ruleServer, Reason: fmt.Sprintf(format, args...)}, r.Port)
	}
	if r.Name == "" {
		if r.ServerName != "" {
			return refuse("the server name %s in a connection to an address", quote(r.ServerName))
		}
		return v
	}
	if r.ServerName == "" {
		return refuse("no server name, in a connection to %s", r.Name)
	}
	if name, err := Canonical(r.ServerName); err != nil || name != r.Name {
		return refuse("the server name is %s, in a connection to %s", quote(r.ServerName), r.Name)
	}
	return v
}
