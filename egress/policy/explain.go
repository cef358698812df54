package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// Explanation is why a target is allowed or not, as `rein egress test` shows it.
type Explanation struct {
	Target string       `json:"target"`          // in canonical form
	Class  Class        `json:"class,omitempty"` // of an address
	DNS    *Verdict     `json:"dns,omitempty"`   // of a name: whether it has an address inside
	Ports  []PortAnswer `json:"ports"`
	Rules  []Speaking   `json:"rules,omitempty"` // that speak of the target on any port, in their order

	Registrable string   `json:"registrable,omitempty"` // the part of the name that somebody has registered
	Odd         []string `json:"odd,omitempty"`         // what of the name looks like data, or like another name
	Receives    string   `json:"receives,omitempty"`    // how others than the host's owner can be sent data through it
	Known       bool     `json:"known"`                 // whether anything is known about that
	Notes       []string `json:"notes,omitempty"`
}

// PortAnswer is the verdict on one port.
type PortAnswer struct {
	Port    uint16  `json:"port"`
	Verdict Verdict `json:"verdict"`
}

// Speaking is a rule that speaks of a target.
type Speaking struct {
	Rule   string `json:"rule"`
	Says   string `json:"says"`
	Action Action `json:"action"`
}

// Explain says what a policy does with a host: a name, or an address in any
// spelling. Port 0 stands for every port that rules name for it, and 443 and 80.
// An error is a *NameError. What a name resolves to is not looked up. own are the
// addresses of the host; nil: they are not known.
func (p *Policy) Explain(host string, port uint16, own Ranges) (Explanation, error) {
	if p == nil {
		p = &Policy{}
	}
	var e Explanation
	var f found
	name, addr := split(host)
	if name == "" && addr.IsValid() {
		e.Target = addr.String()
		if e.Class, _ = classFor(Unmap(addr)[0], own); e.Class == Own {
			e.Notes = append(e.Notes, "it is an address of this host: a rule for a range that holds it does not open it, one for the address alone does")
		}
		for _, one := range Unmap(addr) {
			p.covering(one, &f)
			if one != addr {
				e.Notes = append(e.Notes, addr.String()+" carries "+one.String()+", and is judged by it")
			}
		}
	} else {
		canonical, err := Canonical(name)
		if err != nil {
			return Explanation{}, err
		}
		name = canonical
		p.named(name, &f)
		dns := p.Name(name)
		e.Target, e.DNS, e.Registrable, e.Odd = name, &dns, Registrable(name), Odd(name)
		e.Receives, e.Known = Receives(name)
		if onlyRead(&f) {
			e.Receives = receivesReading(name)
		}
		e.Notes = append(e.Notes, "what it resolves to is judged when it is connected to: addresses that are not public need a rule that names their range")
	}
	ports := []uint16{port}
	if port == 0 {
		ports = f.ports()
	}
	for _, port := range ports {
		v := p.Connect(name, port)
		if name == "" {
			v = p.Literal(addr, port, own)
		}
		e.Ports = append(e.Ports, PortAnswer{port, v})
	}
	for _, r := range f.sorted() {
		e.Rules = append(e.Rules, Speaking{Rule: r.id, Says: r.reason, Action: r.action})
	}
	for _, note := range p.notes {
		e.Notes = append(e.Notes, note.String())
	}
	return e, nil
}

func (f *found) sorted() []*rule {
	out := make([]*rule, 0, f.n)
	for i := range f.n {
		if r := f.at(i); !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *rule) int { return cmp.Compare(a.index, b.index) })
	return out
}

// ports lists those that any of the rules names, and 443 and 80.
func (f *found) ports() []uint16 {
	out := []uint16{443, 80}
	for i := range f.n {
		for _, p := range f.at(i).ports {
			if !slices.Contains(out, p.port) {
				out = append(out, p.port)
			}
		}
	}
	return out
}

// Summary returns what the policy says, one line a rule, for people and models.
// It is empty when everything is denied.
func (p *Policy) Summary() []string {
	if p == nil {
		return nil
	}
	var out []string
	if p.report {
		out = append(out, "nothing is denied but addresses that are not public: the policy only reports")
	}
	if p.ordered && len(p.rules) > 0 {
		out = append(out, "the first rule that speaks of a target counts")
	}
	for _, r := range p.rules {
		out = append(out, r.reason)
	}
	switch p.fallback {
	case Ask:
		out = append(out, "default: asks about everything else")
	case Allow:
		out = append(out, "default: allows everything else that is public")
	}
	return out
}

// Receives says how somebody else than a host's owner can be sent data through
// it: a registry that takes uploads, a store of anybody's files. known is false
// when nothing is known about the host. Whoever owns a host sees what it is
// sent, always.
func Receives(host string) (how string, known bool) {
	name, err := Canonical(host)
	if err != nil {
		return "", false
	}
	for _, h := range bundleHosts() {
		beneath, wild := strings.CutPrefix(h.Host, "*")
		if h.Host == name || wild && strings.HasSuffix(name, beneath) {
			return h.Receives, true
		}
	}
	return "", false
}

// receivesReading is Receives of a host that bundles let be read from alone.
func receivesReading(name string) string {
	for _, h := range bundleHosts() {
		if h.Host == name {
			return h.Reading
		}
	}
	return ""
}

// onlyRead reports whether bundles alone open a target: it can be read from and
// nothing else.
func onlyRead(f *found) bool {
	read := false
	for i := range f.n {
		if r := f.at(i); r.action != Deny {
			if read = r.reads != nil; !read {
				return false
			}
		}
	}
	return read
}

// standsForName reports whether an address is one that the gateway gives to names.
func standsForName(addr netip.Addr) bool { return names4.Contains(addr) || names6.Contains(addr) }
