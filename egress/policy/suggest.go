package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Seen is one target of a record of the network, allowed or not.
type Seen struct {
	Name  string     `json:"name,omitempty"`   // empty when there was none
	Addr  netip.Addr `json:"address,omitzero"` // where it was sent; ignored in a DNS question
	Port  uint16     `json:"port,omitempty"`
	Proto Proto      `json:"proto,omitempty"` // as recorded: TLS, HTTP, TCP, DNS, …
	// Refused is why its address was refused, or one that its name resolved to; a
	// rule for the target alone would not open it.
	Refused string `json:"-"`
}

// Suggestion is what Suggest proposes.
type Suggestion struct {
	Document Document `json:"network"`
	Left     []Left   `json:"left_out,omitempty"` // what no rule is proposed for
	Notes    []string `json:"notes,omitempty"`    // what to look at before using it
}

// Left is a target of a record that no rule is proposed for.
type Left struct {
	Seen
	Reason string `json:"reason"`
}

// maxBeneath is how many names beneath one registrable domain are taken to be
// names: more in one record are likely to be data.
const maxBeneath = 10

// Names of metadata services, which resolve to addresses that are never reached.
var metadataNames = []string{"metadata.google.internal", "metadata.goog", "metadata", "instance-data", "instance-data.ec2.internal",
	"metadata.tencentyun.com", "metadata.platformequinix.com", "metadata.packet.net"}

// Suggest proposes the smallest policy under which what was seen would be
// allowed: exact names and single addresses, and the ports that were used. It
// never proposes a wildcard, a range, a metadata service, an address that is
// not public, or a name that looks like data. The document has no origin.
func Suggest(seen []Seen) Suggestion {
	s := suggester{ports: map[string][]portOf{}, beneath: map[string]map[string]bool{}, refused: map[string]bool{}}
	for _, one := range seen {
		if name, err := Canonical(one.Name); err == nil {
			domain := Registrable(name)
			if s.beneath[domain] == nil {
				s.beneath[domain] = map[string]bool{}
			}
			s.beneath[domain][name] = true
		}
	}
	left := map[Left]bool{}
	for _, one := range seen {
		if l := (Left{one, s.take(one)}); l.Reason != "" && !left[l] {
			left[l] = true
			s.out.Left = append(s.out.Left, l)
		}
	}
	s.names()
	return s.out
}

type suggester struct {
	ports   map[string][]portOf        // by name or address
	asked   []string                   // names in DNS questions
	beneath map[string]map[string]bool // names by registrable domain
	refused map[string]bool            // names that resolved to what was refused
	order   []string
	out     Suggestion
}

// take notes what would be needed for one target, or returns why nothing is.
func (s *suggester) take(one Seen) string {
	switch one.Proto {
	case TLS, HTTPS, HTTP, TCP, DNS, "":
	default:
		return fmt.Sprintf("%s is not carried", one.Proto)
	}
	if one.Name == "" {
		return s.address(one)
	}
	name, err := Canonical(one.Name)
	switch {
	case err != nil:
		return err.Error()
	case slices.Contains(metadataNames, name):
		return "a metadata service, which no rule opens"
	case len(Encoded(name)) > 0:
		return "it looks like data rather than a name"
	case len(s.beneath[Registrable(name)]) > maxBeneath:
		return fmt.Sprintf("%d different names beneath %s: they look like data", len(s.beneath[Registrable(name)]), Registrable(name))
	}
	if one.Refused != "" {
		s.refused[name] = true
		return one.Refused
	}
	if one.Proto == DNS || one.Port == 0 {
		s.asked = append(s.asked, name)
		return ""
	}
	if one.Addr.IsValid() && !standsForName(one.Addr) {
		if class := worstClass(one.Addr); class != Public {
			return fmt.Sprintf("it resolved to %s, which is %s: a second rule would have to name that range", one.Addr, class)
		}
	}
	s.need(name, one)
	return ""
}

func (s *suggester) address(one Seen) string {
	switch {
	case !one.Addr.IsValid():
		return "several targets that were counted together"
	case one.Proto == DNS:
		return "a question without a name"
	case one.Port == 0:
		return "no port"
	case standsForName(one.Addr):
		return "an address that stood for a name"
	case one.Refused != "":
		return one.Refused
	}
	if class := worstClass(one.Addr); class != Public {
		return fmt.Sprintf("%s is %s: write a rule that names its range, if that is meant", one.Addr, class)
	}
	if judged := Unmap(one.Addr); len(judged) != 1 || judged[0] != one.Addr.Unmap() {
		return fmt.Sprintf("%s carries an IPv4 address", one.Addr)
	}
	s.need(one.Addr.Unmap().String(), one)
	return ""
}

func worstClass(addr netip.Addr) Class {
	for _, one := range Unmap(addr) {
		if class := ClassOf(one); class != Public {
			return class
		}
	}
	return Public
}

func (s *suggester) need(target string, one Seen) {
	proto := one.Proto
	if proto == TCP || proto == "" { // what was refused before it was known what it would be
		proto = usual(one.Port)
	}
	if proto == HTTPS && one.Name == "" { // rules of it name hosts
		proto = TLS
	}
	of := portOf{one.Port, proto}
	if _, ok := s.ports[target]; !ok {
		s.order = append(s.order, target)
	}
	i := slices.IndexFunc(s.ports[target], func(p portOf) bool { return p.port == of.port })
	switch {
	case i < 0:
		s.ports[target] = append(s.ports[target], of)
	case proto == HTTPS: // it was looked into, and has to be again
		s.ports[target][i] = of
	}
}

// names makes the rules, in alphabetical order of their targets.
func (s *suggester) names() {
	for _, name := range s.asked {
		if _, ok := s.ports[name]; !ok && !s.refused[name] {
			s.order = append(s.order, name)
			s.ports[name] = []portOf{{443, TLS}}
			s.out.Notes = append(s.out.Notes, name+" was only asked for by name, so that its port is not known: 443 is assumed")
		}
	}
	slices.Sort(s.order)
	for _, target := range s.order {
		s.rules(target)
		if slices.ContainsFunc(s.ports[target], func(p portOf) bool { return p.proto == TCP && p.port != 22 }) {
			s.out.Notes = append(s.out.Notes, target+" is proposed as tcp, which is not looked at: write tls or http if it speaks that")
		}
		if bundle := bundleOf(target); bundle != "" {
			s.out.Notes = append(s.out.Notes, target+" is of the bundle "+bundle+", which lets it be read from and nothing else: prefer that, unless it is to be sent something")
		}
		if how, known := Receives(target); how != "" {
			s.out.Notes = append(s.out.Notes, target+" can be sent data that others read: "+how)
		} else if !known {
			s.out.Notes = append(s.out.Notes, target+" sees whatever it is sent, and nothing is known about it")
		}
	}
}

// rules adds those of one target: one for the ports whose protocol is the usual,
// and one for each other protocol.
func (s *suggester) rules(target string) {
	byProto := map[Proto][]int{}
	for _, p := range s.ports[target] {
		said := p.proto
		if spoken("", p.port) == p.proto {
			said = ""
		}
		byProto[said] = append(byProto[said], int(p.port))
	}
	for _, proto := range []Proto{"", TLS, HTTPS, HTTP, TCP} {
		ports := byProto[proto]
		if ports == nil {
			continue
		}
		slices.SortFunc(ports, func(a, b int) int { return cmp.Compare(b, a) }) // 443 first
		r := Rule{Ports: ports, Proto: string(proto)}
		if addr, err := netip.ParseAddr(target); err == nil {
			r.CIDR = addr.String()
		} else {
			r.Host = target
		}
		s.out.Document.Rules = append(s.out.Document.Rules, r)
	}
}
