package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// MaxRules bounds the rules of a document, those of its bundles not counted.
const MaxRules = 4096

// maxList bounds the lists of a rule and the bundles of a document.
const maxList = 64

// Policy is a compiled Document, immutable and safe for concurrent use. Its
// zero value denies everything, and so does nil.
type Policy struct {
	fallback Action // what no rule speaks of
	ordered  bool
	report   bool
	limits   Limits

	rules  []*rule // in their order
	exact  map[string][]*rule
	below  map[string][]*rule // by the name beneath which they hold; "" is every name
	ranges []*rule
	notes  []Fault
}

// rule is one compiled rule.
type rule struct {
	index  int    // in the order of the document; those of bundles follow
	id     string // such as rules[2] or bundles.pypi
	text   string // such as *.example.org or 192.0.2.0/24
	reason string // what it says, for people
	action Action
	ports  []portOf // nil: every port, of rules that deny
	prefix netip.Prefix
	class  Class // of prefix, when it lies within a special range; else Public

	methods, paths []string
	reads          *reading // of bundles
}

type portOf struct {
	port  uint16
	proto Proto
}

// says is what a rule says, such as: allows example.org on ports 443 (tls), 80 (http).
func (r *rule) says() string {
	var b strings.Builder
	b.WriteString([...]string{Deny: "denies ", Ask: "asks about ", Allow: "allows "}[r.action])
	b.WriteString(r.text)
	for i, p := range r.ports {
		switch {
		case i > 0:
			b.WriteString(", ")
		case len(r.ports) == 1:
			b.WriteString(" on port ")
		default:
			b.WriteString(" on ports ")
		}
		fmt.Fprintf(&b, "%d", p.port)
		if r.action != Deny {
			fmt.Fprintf(&b, " (%s)", p.proto)
		}
	}
	if len(r.methods) > 0 {
		b.WriteString(", methods " + strings.Join(r.methods, ", "))
	}
	if len(r.paths) > 0 {
		b.WriteString(", paths " + strings.Join(r.paths, ", "))
	}
	if r.reads != nil {
		b.WriteString(r.reads.says())
	}
	return b.String()
}

// Limits returns those of the document.
func (p *Policy) Limits() Limits {
	if p == nil {
		return Limits{}
	}
	return p.limits
}

// Notes are what somebody who reads the document would not expect of it.
func (p *Policy) Notes() []Fault {
	if p == nil {
		return nil
	}
	return slices.Clone(p.notes)
}

// Compile makes a Policy of d. An error is an *Error with every fault.
func Compile(d Document) (*Policy, error) {
	c := compiler{doc: d, policy: &Policy{limits: d.Limits, exact: map[string][]*rule{}, below: map[string][]*rule{}}}
	c.head()
	if len(d.Rules) > MaxRules {
		c.fault("rules", "write wildcards or ranges", "more than %d rules", MaxRules)
	} else {
		for i, r := range d.Rules {
			c.rule(fmt.Sprintf("rules[%d]", i), r)
		}
	}
	for i, name := range d.Bundles[:c.bound("bundles", len(d.Bundles))] {
		if slices.Contains(d.Bundles[:i], name) {
			c.fault(fmt.Sprintf("bundles[%d]", i), "", "%s is given twice", quote(name))
			continue
		}
		c.bundle(fmt.Sprintf("bundles[%d]", i), name)
	}
	c.limits()
	if len(c.faults) > 0 {
		return nil, &Error{Faults: c.faults}
	}
	return c.policy, nil
}

type compiler struct {
	doc    Document
	policy *Policy
	faults []Fault
}

func (c *compiler) fault(path, hint, format string, args ...any) {
	c.faults = append(c.faults, Fault{Path: path, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// bound refuses a list that is too long, and returns how much of it to look at.
func (c *compiler) bound(path string, n int) int {
	if n > maxList {
		c.fault(path, "use several rules", "more than %d", maxList)
	}
	return min(n, maxList)
}

// head judges what is said of all targets.
func (c *compiler) head() {
	known := c.doc.Origin == OriginHost || c.doc.Origin == OriginAPI
	switch c.doc.Mode {
	case "", ModeStrictest:
	case ModeOrdered:
		c.policy.ordered = true
	default:
		c.fault("mode", "known: strictest, ordered", "%s is not known", quote(c.doc.Mode))
	}
	switch c.doc.Default {
	case "", ActionDeny:
	case ActionAsk:
		c.policy.fallback = Ask
	case ActionAllow:
		c.policy.fallback = Allow
		switch {
		case !c.policy.ordered:
			c.fault("default", "deny or ask", "what no rule speaks of is not allowed")
		case !known:
			c.fault("default", "deny or ask", "only the host's configuration and callers of an API may allow what no rule speaks of")
		}
	default:
		c.fault("default", "known: deny, ask", "%s is not known", quote(c.doc.Default))
	}
	if c.policy.report = c.doc.ReportOnly; c.policy.report && !known {
		c.fault("report_only", "leave it out", "only the host's configuration and callers of an API may let pass what would be denied")
	}
}

func (c *compiler) limits() {
	l := c.doc.Limits
	for _, one := range []struct {
		key   string
		value int64
	}{{"connections", int64(l.Connections)}, {"per_second", int64(l.PerSecond)}, {"bytes", l.Bytes}, {"max_upload_bytes", l.MaxUploadBytes},
		{"idle_seconds", int64(l.IdleSeconds)}} {
		if one.value < 0 {
			c.fault("limits."+one.key, "a number above zero, or leave it out", "%d is no limit", one.value)
		}
	}
}

// rule adds one rule, or faults.
func (c *compiler) rule(path string, r Rule) {
	before := len(c.faults)
	out := &rule{index: len(c.policy.rules), id: path, class: Public, methods: slices.Clone(r.Methods), paths: slices.Clone(r.Paths)}
	switch r.Action {
	case "", ActionAllow:
		out.action = Allow
	case ActionAsk:
		out.action = Ask
	case ActionDeny:
		out.action = Deny
	default:
		c.fault(path+".action", "known: allow, ask, deny", "%s is not known", quote(r.Action))
	}
	c.ports(path, r, out)
	c.visible(path, r, out)
	switch {
	case r.Host != "" && r.CIDR != "":
		c.fault(path, "two rules, or one of both", "host and cidr are both set")
	case r.Host != "":
		c.host(path+".host", r.Host, out)
	case r.CIDR != "":
		c.cidr(path+".cidr", r.CIDR, out)
	default:
		c.fault(path, "write host: or cidr:", "it speaks of nothing")
	}
	if len(c.faults) == before {
		c.add(out, r.Host)
	}
}

// add puts a rule where Decide finds it. host is as Document has it.
func (c *compiler) add(r *rule, host string) {
	p := c.policy
	r.reason = r.id + " " + r.says()
	p.rules = append(p.rules, r)
	switch {
	case host == "":
		p.ranges = append(p.ranges, r)
	case r.text == "*":
		p.below[""] = append(p.below[""], r)
	case strings.HasPrefix(r.text, "*."):
		p.below[r.text[2:]] = append(p.below[r.text[2:]], r)
	default:
		p.exact[r.text] = append(p.exact[r.text], r)
	}
}

func (c *compiler) ports(path string, r Rule, out *rule) {
	proto := Proto(r.Proto)
	switch proto {
	case "", TLS, HTTP, HTTPS, TCP:
	default:
		c.fault(path+".proto", protoHint(r.Proto), "%s is not known", quote(r.Proto))
		return
	}
	if proto == HTTPS && r.CIDR != "" {
		c.fault(path+".proto", "name the host, or write proto: tls", "TLS ends in the gateway for names alone")
		return
	}
	filters := len(r.Methods)+len(r.Paths) > 0
	if out.action == Deny && proto != "" && !filters {
		c.fault(path+".proto", "leave it out; ports: says which", "a rule that denies holds for every protocol")
		return
	}
	ports := r.Ports
	if len(ports) == 0 && out.action != Deny {
		switch proto {
		case TLS, HTTPS:
			ports = []int{443}
		case HTTP:
			ports = []int{80}
		case TCP:
			c.fault(path+".ports", "such as ports: [22]", "proto tcp has no port of its own")
		default:
			ports = []int{443, 80}
		}
	}
	ports = ports[:c.bound(path+".ports", len(ports))]
	for i, port := range ports {
		at := fmt.Sprintf("%s.ports[%d]", path, i)
		switch {
		case port < 1 || port > 65535:
			c.fault(at, "1 to 65535", "%d is no port", port)
			continue
		case slices.Contains(ports[:i], port):
			c.fault(at, "", "%d is given twice", port)
			continue
		}
		of := portOf{uint16(port), spoken(proto, uint16(port))}
		if of.proto == "" {
			if out.action != Deny {
				c.fault(at, "write proto: tls, https or http, whose names are checked, or proto: tcp", "what is spoken on port %d must be said", port)
				continue
			}
			of.proto = TCP
		}
		out.ports = append(out.ports, of)
	}
}

// protoHint is what to write instead of a protocol that is not known.
func protoHint(said string) string {
	const known = "known: tls, https, http, tcp"
	switch strings.ToLower(said) {
	case "udp", "quic", "icmp":
		return known + "; nothing else leaves"
	}
	return known
}

// spoken is what is spoken on a port: what is said, or the usual; empty when
// neither says.
func spoken(said Proto, port uint16) Proto {
	switch {
	case said != "":
		return said
	case port == 443:
		return TLS
	case port == 80:
		return HTTP
	}
	return ""
}

func (c *compiler) host(path, host string, out *rule) {
	if host == "*" {
		out.text = host
		if out.action != Deny {
			c.fault(path, "name hosts; default: ask asks about each", "* is every name")
		}
		return
	}
	rest, wild := strings.CutPrefix(host, "*.")
	if strings.Contains(rest, "*") {
		c.fault(path, "such as *.example.org", "a wildcard is the whole first label")
		return
	}
	name, err := Canonical(rest)
	if err != nil {
		e := err.(*NameError)
		c.fault(path, e.Hint, "%s", e)
		return
	}
	if out.text = name; !wild {
		return
	}
	out.text = "*." + name
	if out.action == Deny {
		return
	}
	if manyOwners(name) {
		c.fault(path, "name hosts, or a wildcard over a name that has one owner", "anybody can have a name beneath %s", name)
	}
}

func (c *compiler) cidr(path, text string, out *rule) {
	prefix, hint, err := parseRange(text)
	if err != nil {
		c.fault(path, hint, "%s", err)
		return
	}
	out.prefix, out.text = prefix, prefix.String()
	if prefix.IsSingleIP() {
		out.text = prefix.Addr().String()
	}
	class, within := classOf(prefix.Addr())
	if within.IsValid() && within.Bits() <= prefix.Bits() {
		out.class = class
	}
	if out.action == Deny {
		return
	}
	switch {
	case names4.Overlaps(prefix) || names6.Overlaps(prefix):
		c.fault(path, "write ranges that leave it out", "%s overlaps the addresses that stand for names, %s and %s", prefix, names4, names6)
	case out.class.never():
		c.fault(path, "leave the rule out", "%s is %s, and no rule opens that", prefix, out.class)
	}
}

// parseRange reads an address or a range in its plain spelling.
func parseRange(text string) (p netip.Prefix, hint string, err error) {
	const form = "such as 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32"
	if !strings.Contains(text, "/") {
		addr, err := ParseAddr(text)
		if err != nil {
			return p, form, err
		}
		if plain, e := netip.ParseAddr(strings.Trim(text, "[]")); e != nil || plain.Zone() != "" {
			return p, "write " + addr.String() + " if that is meant", fmt.Errorf("%s is an odd spelling of %s", quote(text), addr)
		}
		p = netip.PrefixFrom(addr, addr.BitLen())
	} else if p, err = netip.ParsePrefix(text); err != nil {
		return p, form, fmt.Errorf("%s is no range", quote(text))
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return p, "write the IPv4 range", fmt.Errorf("%s holds all of IPv4", quote(text))
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p.Masked() != p {
		return p, "write " + p.Masked().String(), fmt.Errorf("%s has bits beyond its length", quote(text))
	}
	for _, carries := range []netip.Prefix{nat64, nat64To, sixTo4, teredo} {
		if carries.Contains(p.Addr()) && carries.Bits() <= p.Bits() {
			return p, "write the IPv4 range", fmt.Errorf("addresses in %s are judged by the IPv4 address they carry", carries)
		}
	}
	if p.Addr().Is6() && embeds(p.Addr()) {
		return p, "write the IPv4 range", fmt.Errorf("%s carries IPv4 addresses", quote(text))
	}
	return p, "", nil
}

// visible judges methods and paths, which only the head of a request shows.
func (c *compiler) visible(path string, r Rule, out *rule) {
	if len(r.Methods)+len(r.Paths) == 0 {
		return
	}
	key := path + ".methods"
	if len(r.Methods) == 0 {
		key = path + ".paths"
	}
	if out.action != Allow {
		c.fault(key, "allow what may be done, and leave the rest to default: deny", "only a rule that allows can name methods or paths")
	}
	if slices.ContainsFunc(out.ports, func(p portOf) bool { return p.proto != HTTP && p.proto != HTTPS }) {
		c.fault(key, "leave them out, or write proto: http or https", "they cannot be seen in %s, which passes through as it is", "tls and tcp")
	}
	if r.CIDR != "" {
		c.fault(key, "name the host", "a rule about addresses cannot name methods or paths")
	}
	for i, m := range r.Methods[:c.bound(path+".methods", len(r.Methods))] {
		if m == "" || strings.ContainsFunc(m, func(r rune) bool { return r < 'A' || r > 'Z' }) {
			c.fault(fmt.Sprintf("%s.methods[%d]", path, i), "such as GET", "%s is no method", quote(m))
		}
	}
	for i, p := range r.Paths[:c.bound(path+".paths", len(r.Paths))] {
		if !IsPathPattern(p) {
			c.fault(fmt.Sprintf("%s.paths[%d]", path, i), "such as /simple/* or /index.html", "%s is no path in its plain form", quote(p))
		}
	}
}
