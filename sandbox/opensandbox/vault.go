package opensandbox

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// What a person should know of secrets that a sidecar keeps.
const (
	noteSecrets = "secrets are given to requests by OpenSandbox's credential vault: whoever runs the server has them, a program inside can send credentials of its own there, and in bodies of answers no secret is masked"
	noteWeak    = "accept_weak_vault: OpenSandbox chooses the secret by the Host field that a program sends, and compares paths as they are sent: a program can have it sent to any host of the network policy, and to other paths. With Docker the secrets have passed through the execd inside, once, before anything else ran"
)

// safe is what a sidecar's credential vault is told, with what else of secrets a
// creation needs. Nil: there are none.
type safe struct {
	env         map[string]string // the placeholders, by variable
	credentials []credential
	bindings    []binding
	masker      *secret.Masker // of the values, for what the server answers
	notes       []string
}

// credential is one value under its name in the vault.
type credential struct {
	name  string
	value secret.Value
}

// methods are those that a binding without methods is for. The vault knows no
// "all", and a shorter list of its own.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// translateSecrets says the secrets of a spec in the words of the credential
// vault, or refuses them, naming the secret and what of it has none. rules are
// its network policy, translated.
func (p *Provider) translateSecrets(op string, spec sandbox.Spec, rules translated) (*safe, error) {
	if len(spec.Secrets) == 0 {
		return nil, nil
	}
	if p.opts.AcceptWeakEgress {
		return nil, unsaid{op, "secrets." + spec.Secrets[0].Name}.because("take accept_weak_egress out of the target",
			"with accept_weak_egress its key could be sent to whatever answers at any address")
	}
	var key vault.Key
	_, _ = rand.Read(key[:]) // never fails; of no use beyond this sandbox
	placeholders, faults := vault.New(key, spec.Secrets)
	if len(faults) > 0 {
		return nil, &sandbox.Error{Kind: sandbox.KindInvalid, Op: op, Subject: "secrets." + faults[0].Path, Err: errors.New(faults[0].Message), Hint: faults[0].Hint}
	}
	s := &safe{env: placeholders.Environment(), masker: secret.NewMasker(), notes: []string{noteSecrets}}
	placeholders.Wipe() // only its placeholders are of use here
	if p.opts.AcceptWeakVault {
		s.notes = append(s.notes, noteWeak)
	}
	for _, one := range spec.Secrets {
		s.masker.Add(one.Value)
		if !p.opts.AcceptWeakVault {
			if err := steered(op, one, spec.Network); err != nil {
				return nil, err
			}
			if err := limited(op, one); err != nil {
				return nil, err
			}
		}
		for i, use := range one.Use {
			r := unsaid{op, fmt.Sprintf("secrets.%s.use[%d]", one.Name, i)}
			host, err := policy.Canonical(use.Host)
			if err != nil {
				return nil, r.because("", "%w", err)
			}
			if use.Host = host; !rules.allows(host) {
				return nil, r.because("allow it under network: rules:", "no rule of the network allows %s", host)
			}
			if err := s.bind(r, one, use, p.opts.AcceptWeakVault); err != nil {
				return nil, err
			}
		}
	}
	return s, s.ambiguous(op)
}

// names are those of the credentials, sorted.
func (s *safe) names() []string {
	var names []string
	for _, c := range s.credentials {
		names = append(names, c.name)
	}
	slices.Sort(names)
	return names
}

// joined is a copy of two sets of variables.
func joined(a, b map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// unsaid makes the error of one thing that the vault has no word for.
type unsaid struct{ op, subject string }

func (r unsaid) because(hint, format string, args ...any) error {
	return &sandbox.Error{Kind: sandbox.KindUnsupported, Op: r.op, Subject: r.subject, Err: fmt.Errorf(format, args...), Hint: hint}
}

// allows reports whether the policy lets out connections to a name.
func (t translated) allows(host string) bool {
	for _, r := range t.Egress {
		if beneath, wildcard := strings.CutPrefix(r.Target, "*"); r.Target == host || wildcard && strings.HasSuffix(host, beneath) {
			return r.Action == policy.ActionAllow
		}
	}
	return false
}

// steered refuses a secret where the network policy allows a host that the
// secret is not for. The sidecar gives a request the secret of the host that its
// Host field names, whichever server the connection leads to (issue 1758 of
// OpenSandbox): so a program inside can send the secret to all that it reaches.
func steered(op string, s vault.Secret, d policy.Document) error {
	own := func(host string) bool {
		return slices.ContainsFunc(s.Use, func(b vault.Binding) bool {
			name, err := policy.Canonical(b.Host)
			return err == nil && name == host
		})
	}
	for i, r := range d.Rules { // bundles are refused
		target, why := targetOf(r)
		if why != "" || r.Action == policy.ActionDeny || r.CIDR == "" && own(target) {
			continue
		}
		return unsaid{op, "secrets." + s.Name}.because(
			"make a target of its own for this secret, whose network allows the hosts of its use: and no other; or accept_weak_vault: true for the target, and programs can have it sent to every host that the network allows",
			"network.rules[%d] also allows %s: OpenSandbox's vault goes by the Host field, which a program sets as it likes, and would send the secret there", i, target)
	}
	return nil
}

// limited refuses a secret for several hosts of which one is for fewer requests: by
// the name of another, such a host can be sent it with all the other's.
func limited(op string, s vault.Secret) error {
	for i, b := range s.Use {
		for _, other := range s.Use[:i] {
			if b.Host != other.Host && !(match{Methods: b.Methods, Paths: b.Paths}).equal(match{Methods: other.Methods, Paths: other.Paths}) {
				return unsaid{op, fmt.Sprintf("secrets.%s.use[%d]", s.Name, i)}.because("give both the same methods and paths, or each host a secret and a target of its own; or accept_weak_vault: true for the target",
					"OpenSandbox's vault goes by the Host field, which a program sets as it likes: what %s is limited to would not hold beside %s", b.Host, other.Host)
			}
		}
	}
	return nil
}

// bind adds one use of a secret, whose host is in its canonical form, or refuses
// it.
func (s *safe) bind(r unsaid, of vault.Secret, use vault.Binding, weak bool) error {
	const local = "a target of provider local has it"
	switch {
	case !strings.Contains(use.Host, "."):
		return r.because("name it with its domain", "OpenSandbox's vault takes no host without a dot: %s", use.Host)
	case len(use.Ports) > 0 && !slices.Equal(use.Ports, []int{443}):
		return r.because(local, "OpenSandbox's vault looks at port 443 alone, not at %v", use.Ports)
	}
	for _, path := range use.Paths {
		if strings.HasSuffix(path, "*") && path != "/*" && !weak {
			return r.because("leave paths out, or write exact ones; or accept_weak_vault: true for the target",
				"OpenSandbox's vault compares paths as they are sent, so that %s../ is anything: %s", strings.TrimSuffix(path, "*"), path)
		}
	}
	m := match{Schemes: []string{"https"}, Hosts: []string{use.Host}, Methods: use.Methods, Paths: use.Paths}
	if len(m.Methods) == 0 {
		m.Methods = methods
	}
	if len(m.Paths) == 0 {
		m.Paths = []string{"/*"}
	}
	b := s.binding(of.Name, m)
	switch use.As {
	case vault.Bearer:
		b.fields = append(b.fields, field{"Authorization", "Bearer ", of.Value})
	case vault.Basic:
		if use.User == "" {
			return r.because("such as user: x-access-token", "OpenSandbox's vault sends one user, and none is named")
		}
		both := secret.New(of.Name, base64.StdEncoding.EncodeToString([]byte(use.User+":"+of.Value.Reveal())))
		s.masker.Add(both)
		b.fields = append(b.fields, field{"Authorization", "Basic ", both})
	case vault.Header:
		if slices.Contains(reserved, strings.ToLower(use.Name)) {
			return r.because("", "OpenSandbox's vault sets no field %s", use.Name)
		}
		b.fields = append(b.fields, field{http.CanonicalHeaderKey(use.Name), "", of.Value})
	case vault.Substitute:
		placeholder := s.env[of.Variable]
		if placeholder == "" {
			return r.because("such as variable: API_KEY", "without a variable nothing inside has its placeholder")
		}
		in := make([]string, len(use.In))
		for i, place := range use.In {
			in[i] = string(place)
		}
		b.Auth.Substitutions = append(b.Auth.Substitutions, substitution{s.credential(of.Name, of.Value), placeholder, in})
	case vault.Query:
		return r.because("as: substitute, in: [query], and a client that sends the placeholder", "OpenSandbox's vault adds no parameter to a query")
	default:
		return r.because(local, "OpenSandbox's vault has nothing like as: %s", use.As)
	}
	return nil
}

// reserved are fields that the vault sets for nobody.
var reserved = []string{"host", "content-length", "content-type", "transfer-encoding", "connection", "upgrade", "te", "trailer",
	"proxy-authorization", "proxy-authenticate", "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"}

// binding is the one for such requests: the vault gives one request one binding,
// so uses for the same requests share it.
func (s *safe) binding(name string, m match) *binding {
	for i := range s.bindings {
		if s.bindings[i].Match.equal(m) {
			return &s.bindings[i]
		}
	}
	s.bindings = append(s.bindings, binding{Name: fmt.Sprintf("%s-%d", name, len(s.bindings)), Match: m})
	return &s.bindings[len(s.bindings)-1]
}

// credential is the name of a value in the vault.
func (s *safe) credential(name string, value secret.Value) string {
	for _, c := range s.credentials {
		if c.value.Reveal() == value.Reveal() {
			return c.name
		}
	}
	s.credentials = append(s.credentials, credential{fmt.Sprintf("%s-%d", name, len(s.credentials)), value})
	return s.credentials[len(s.credentials)-1].name
}

// ambiguous writes down how bindings carry their secrets, and refuses two that
// one request could have: the vault gives it neither.
func (s *safe) ambiguous(op string) error {
	for i := range s.bindings {
		b := &s.bindings[i]
		for _, other := range s.bindings[:i] {
			if b.Match.meets(other.Match) {
				return unsaid{op, "secrets"}.because("give them the same methods and paths, or such as do not overlap",
					"OpenSandbox's vault gives a request to %s one binding, and %s and %s are both for it", b.Match.Hosts[0], other.Name, b.Name)
			}
		}
		s.carry(b)
	}
	return nil
}

// carry says how a binding's fields are set. By the forms of their own the vault
// also knows the bare value, and masks it in the fields of answers.
func (s *safe) carry(b *binding) {
	if len(b.fields) == 1 {
		f := b.fields[0]
		b.Auth.Credential = s.credential(f.value.Name(), f.value)
		switch f.scheme {
		case "Bearer ":
			b.Auth.Type = "bearer"
		case "Basic ":
			b.Auth.Type = "basic"
		default:
			b.Auth.Type, b.Auth.Name = "apiKey", f.name
		}
		return
	}
	b.Auth.Type = "passthrough"
	for _, f := range b.fields {
		value := secret.New(f.value.Name(), f.scheme+f.value.Reveal())
		b.Auth.Type = "customHeaders"
		b.Auth.Headers = append(b.Auth.Headers, customHeader{f.name, s.credential(f.value.Name(), value)})
	}
}
