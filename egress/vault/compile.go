package vault

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf16"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/secret"
)

// Vault holds the secrets of one sandbox. Its methods may be called
// concurrently.
type Vault struct {
	key     Key
	secrets []*held
	hosts   map[Target][]*bound

	placeholders *secret.Masker            // finds placeholders, in the forms secret.Masker knows
	strange      map[Target]*secret.Masker // finds those of secrets that are not bound to a target
	values       *secret.Masker            // finds values

	mu sync.RWMutex // of held.value

	kept atomic.Int64 // bytes of bodies that are to be signed
	wide atomic.Int64 // answers that are being unpacked by large decoders
}

// held is one secret and its placeholder.
type held struct {
	name, variable string
	shape          *shape
	placeholder    string
	value          string // under Vault.mu; empty once wiped
}

// bound is one binding.
type bound struct {
	Binding
	of *held
}

// New makes a vault of secrets, with placeholders of its own. Nil faults: it is
// ready.
func New(key Key, secrets []Secret) (*Vault, []Fault) {
	v := &Vault{key: key, hosts: map[Target][]*bound{}, placeholders: secret.NewMasker(), values: secret.NewMasker()}
	var faults []Fault
	for _, s := range secrets {
		h, err := v.hold(s)
		if err != nil {
			faults = append(faults, Fault{Path: s.Name, Message: err.Error()})
			continue
		}
		for i, b := range s.Use {
			path := fmt.Sprintf("%s.use[%d]", s.Name, i)
			faults = append(faults, v.bind(path, h, b)...)
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	v.strange = map[Target]*secret.Masker{}
	for to, bindings := range v.hosts {
		v.strange[to] = secret.NewMasker()
		for _, h := range v.secrets {
			if !slices.ContainsFunc(bindings, func(b *bound) bool { return b.of == h }) {
				v.strange[to].Add(secret.New(h.name, h.placeholder))
			}
		}
	}
	return v, nil
}

// hold makes the placeholder of a secret.
func (v *Vault) hold(s Secret) (*held, error) {
	value := s.Value.Reveal()
	shape, err := shapeOf(value)
	if err != nil {
		return nil, err
	}
	if why := unsendable(value); why != "" {
		return nil, fmt.Errorf("it %s", why)
	}
	h := &held{name: s.Name, variable: s.Variable, shape: shape, placeholder: shape.placeholder(v.key, value), value: value}
	v.secrets = append(v.secrets, h)
	v.known(s.Name, value)
	v.placeholders.Add(secret.New(s.Name, h.placeholder))
	return h, nil
}

// known has a value masked from now on, also in UTF-16, which servers may be
// asked for, and as pages spell it.
func (v *Vault) known(name, value string) bool {
	var little, big []byte
	for _, unit := range utf16.Encode([]rune(value)) {
		little, big = binary.LittleEndian.AppendUint16(little, unit), binary.BigEndian.AppendUint16(big, unit)
	}
	v.values.Add(secret.New(name, string(little)))
	v.values.Add(secret.New(name, string(big)))
	for _, text := range spelled(value) {
		v.values.Add(secret.New(name, text))
	}
	return v.values.Add(secret.New(name, value))
}

// Check returns what is wrong with bindings, which needs no values.
func Check(secrets []Secret) []Fault {
	v := &Vault{hosts: map[Target][]*bound{}}
	var faults []Fault
	for _, s := range secrets {
		if len(s.Use) == 0 {
			faults = append(faults, Fault{Path: s.Name + ".use", Message: "nothing says what it is for", Hint: "such as use: [{host: api.example.org, as: bearer}]"})
		}
		h := &held{name: s.Name}
		for i, b := range s.Use {
			faults = append(faults, v.bind(fmt.Sprintf("%s.use[%d]", s.Name, i), h, b)...)
		}
	}
	return faults
}

// bind adds a binding, or says what is wrong with it.
func (v *Vault) bind(path string, h *held, b Binding) []Fault {
	c := &checker{path: path}
	c.check(&b)
	if len(c.faults) > 0 {
		return c.faults
	}
	for _, port := range b.Ports {
		to := Target{b.Host, uint16(port)}
		one := &bound{b, h}
		for _, other := range v.hosts[to] {
			if what := one.overlaps(other); what != "" {
				c.fault("", "give them methods or paths that do not overlap, or leave one out",
					"%s of requests to %s is also set by %s", what, to, other.of.name)
			}
		}
		v.hosts[to] = append(v.hosts[to], one)
	}
	return c.faults
}

type checker struct {
	path   string
	faults []Fault
}

func (c *checker) fault(key, hint, format string, args ...any) {
	path := c.path
	if key != "" {
		path += "." + key
	}
	c.faults = append(c.faults, Fault{path, fmt.Sprintf(format, args...), hint})
}

// check brings a binding into its canonical form.
func (c *checker) check(b *Binding) {
	name, err := policy.Canonical(b.Host)
	switch {
	case b.Host == "":
		c.fault("host", "such as api.example.org", "it names no host")
	case strings.Contains(b.Host, "*"):
		c.fault("host", "write each host", "a secret is bound to exact hosts")
	case err != nil:
		hint := ""
		if n, ok := errors.AsType[*policy.NameError](err); ok {
			if hint = n.Hint; n.Address {
				hint = "a secret is for a name, as the server's certificate proves it"
			}
		}
		c.fault("host", hint, "%s", err)
	}
	b.Host = name
	if len(b.Ports) == 0 {
		b.Ports = []int{443}
	}
	for i, port := range b.Ports {
		if port < 1 || port > 65535 || slices.Contains(b.Ports[:i], port) {
			c.fault(fmt.Sprintf("ports[%d]", i), "1 to 65535, each once", "%d is no port here", port)
		}
	}
	for i, m := range b.Methods {
		if m == "" || strings.ContainsFunc(m, func(r rune) bool { return r < 'A' || r > 'Z' }) {
			c.fault(fmt.Sprintf("methods[%d]", i), "such as GET", "%q is no method", m)
		}
	}
	for i, p := range b.Paths {
		if !policy.IsPathPattern(p) {
			c.fault(fmt.Sprintf("paths[%d]", i), "such as /v1/*", "%q is no path in its plain form", p)
		}
	}
	c.form(b)
}

// form checks what each form needs and what it does not have.
func (c *checker) form(b *Binding) {
	needs := func(key, value string, wanted bool, hint string) {
		switch {
		case wanted && value == "":
			c.fault(key, hint, "%s needs it", b.As)
		case !wanted && value != "":
			c.fault(key, "leave it out", "%s has none", b.As)
		}
	}
	switch b.As {
	case Bearer, Header, Basic, Query, Substitute, AWS4:
	case "":
		c.fault("as", "bearer, header, basic, query, substitute or aws4", "it does not say how requests carry the secret")
		return
	default:
		c.fault("as", "known: bearer, header, basic, query, substitute, aws4", "%q is not known", b.As)
		return
	}
	needs("name", b.Name, b.As == Header || b.As == Query, map[Form]string{Header: "such as name: X-Api-Key", Query: "such as name: key"}[b.As])
	needs("access_key", b.AccessKey, b.As == AWS4, "the id of the access key")
	if b.As != Basic {
		needs("user", b.User, false, "")
	}
	if b.As == Header {
		b.Name = http.CanonicalHeaderKey(b.Name)
		if b.Name != "" && !mayHold(b.Name) {
			c.fault("name", "such as X-Api-Key", "%q is no field for a secret", b.Name)
		}
	}
	if strings.ContainsAny(b.User, ":\r\n") {
		c.fault("user", "", "a user has no colon")
	}
	if (len(b.In) > 0) != (b.As == Substitute) {
		c.fault("in", "such as in: [body]", "substitute needs it, and nothing else has it")
	}
	for i, p := range b.In {
		if !slices.Contains([]Place{InHeader, InQuery, InPath, InBody}, p) || slices.Contains(b.In[:i], p) {
			c.fault(fmt.Sprintf("in[%d]", i), "header, query, path, body; each once", "%q is no place here", p)
		}
	}
}

// overlaps says what of a request both bindings would set; "" when nothing.
func (b *bound) overlaps(o *bound) string {
	if b.slot() == "" || b.slot() != o.slot() || !meet(b.Methods, o.Methods, func(x, y string) bool { return x == y }) ||
		!meet(b.Paths, o.Paths, policy.PathsMeet) {
		return ""
	}
	return b.slot()
}

// meet reports whether two lists, of which an empty one is everything, have
// something in common.
func meet(a, b []string, same func(x, y string) bool) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	return slices.ContainsFunc(a, func(x string) bool {
		return slices.ContainsFunc(b, func(y string) bool { return same(x, y) })
	})
}

// slot is the part of a request that the binding sets; of substitutions none.
func (b *bound) slot() string {
	switch b.As {
	case Bearer, Basic, AWS4:
		return "Authorization"
	case Header:
		return b.Name
	case Query:
		return "?" + b.Name
	}
	return ""
}

// Bound reports whether a secret is bound to a target: requests there are always
// looked at.
func (v *Vault) Bound(to Target) bool { return v != nil && len(v.hosts[to]) > 0 }

// Hosts are the hosts to which a secret is bound at a port, in order.
func (v *Vault) Hosts(port uint16) (list []string) {
	if v != nil {
		for to := range v.hosts {
			if to.Port == port {
				list = append(list, to.Host)
			}
		}
	}
	slices.Sort(list)
	return list
}

// Environment is what the sandbox is given: the placeholder of each secret that
// has a variable.
func (v *Vault) Environment() map[string]string {
	env := map[string]string{}
	if v != nil {
		for _, h := range v.secrets {
			if h.variable != "" {
				env[h.variable] = h.placeholder
			}
		}
	}
	return env
}

// Wipe has no request be given a secret any more.
func (v *Vault) Wipe() {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, h := range v.secrets {
		h.value = ""
	}
}

// value is a secret's value now.
func (v *Vault) value(h *held) (string, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if h.value == "" {
		return "", refuse(RuleForm, "the secret %s is no longer there", h.name)
	}
	return h.value, nil
}
