package layer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/secret"
)

// npmRegistry is where npm asks unless it is told otherwise.
// https://docs.npmjs.com/cli/v11/using-npm/config#registry
const npmRegistry = "https://registry.npmjs.org/"

// bundle is what reaches it.
const bundle = "npm"

// network is what an installation may reach: the registry, to read, and what the
// host's configuration allows besides.
func (l *Layers) network() (policy.Document, error) {
	d := policy.Document{Origin: policy.OriginHost, Rules: slices.Clone(l.o.Allow)}
	if l.o.Registry == "" {
		d.Bundles = []string{bundle}
	} else {
		r, err := ruleOf(l.o.Registry)
		if err != nil {
			return d, &Error{Kind: KindInvalid, Op: "open", Subject: "the registry " + l.o.Registry, Err: err, Advice: "such as https://npm.example.com/"}
		}
		d.Rules = append(d.Rules, r)
	}
	_, err := policy.Compile(d)
	if e, ok := errors.AsType[*policy.Error](err); ok {
		return d, &Error{Kind: KindInvalid, Op: "open", Subject: "what an installation may reach", Err: errors.New(e.Faults[0].Message), Advice: e.Faults[0].Hint}
	}
	return d, err
}

// Credential is how requests to a registry say whose they are; the zero one is none.
type Credential struct {
	// Read has the value. It is called for an installation alone, once: a layer that is
	// there is used without.
	Read func(context.Context) (secret.Value, error)
	User string // whose password the value is; empty: it is a token
}

// CheckCredential is why a registry is not given a credential, and what to do.
func CheckCredential(registry string, value bool, user string) (hint string, err error) {
	u, _ := url.Parse(registry) // which CheckRegistry judges
	switch {
	case !value && user != "":
		return "name the place of the password under key:", errors.New("there is a user, and no password")
	case !value:
		return "", nil
	case registry == "":
		return "name the registry that wants it", errors.New("npm's own registry is given no key")
	case u != nil && u.Scheme != "https":
		return "use https", errors.New("a key is not sent without TLS")
	case strings.Contains(user, ":"):
		return "", fmt.Errorf("%q is no user of a registry: it has a colon", user)
	}
	return "", nil
}

// tokenVariable has the credential's placeholder in the sandbox of an installation.
const tokenVariable = "REIN_REGISTRY_TOKEN"

// secrets are what the sandbox of an installation has placeholders of, read now, and
// masked from now on in what m masks.
func (l *Layers) secrets(ctx context.Context, m *secret.Masker) ([]vault.Secret, error) {
	if l.o.Credential.Read == nil {
		return nil, nil
	}
	value, err := l.o.Credential.Read(ctx)
	if err != nil {
		return nil, err
	}
	m.Add(value)
	r, err := ruleOf(l.o.Registry)
	if err != nil {
		return nil, err
	}
	use := vault.Binding{Host: r.Host, Ports: r.Ports, Methods: r.Methods, Paths: []string{beneath(l.o.Registry) + "*"}, As: vault.Bearer}
	if l.o.Credential.User != "" {
		use.As, use.User = vault.Basic, l.o.Credential.User
	}
	return []vault.Secret{{Name: "registry", Value: value, Variable: tokenVariable, Use: []vault.Binding{use}}}, nil
}

// beneath is the path of a registry's address, with a slash at its end: npm sends
// its key for what is beneath that, and nothing else is given the credential.
func beneath(registry string) string {
	u, err := url.Parse(registry)
	if err != nil {
		return "/" // Open has refused it
	}
	return strings.TrimSuffix(u.EscapedPath(), "/") + "/"
}

// signIn is what npm is told of the credential, as a line of its settings: the key is
// for what is beneath the registry's address.
// https://docs.npmjs.com/cli/v11/configuring-npm/npmrc#auth-related-configuration
func (l *Layers) signIn() (key, user string) {
	if l.o.Credential.Read == nil {
		return "", ""
	}
	_, at, _ := strings.Cut(l.o.Registry, ":")
	return strings.TrimSuffix(at, "/") + "/", l.o.Credential.User
}

// CheckRegistry is why a URL is none of a registry.
func CheckRegistry(text string) error {
	_, err := ruleOf(text)
	return err
}

// ruleOf lets a registry be read.
func ruleOf(text string) (policy.Rule, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return policy.Rule{}, errors.New("it is no http or https address")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return policy.Rule{}, errors.New("an address must not contain a user, a password or a query: agents: key: and user: name them")
	}
	host, err := policy.Canonical(u.Hostname())
	if err != nil {
		return policy.Rule{}, fmt.Errorf("%w: methods are allowed of names only, so a registry has one", err)
	}
	port, err := strconv.Atoi(cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme]))
	if err != nil || port < 1 || port > 65535 {
		return policy.Rule{}, fmt.Errorf("%q is no port", u.Port())
	}
	return policy.Rule{Host: host, Ports: []int{port}, Proto: u.Scheme, Methods: []string{"GET", "HEAD"}}, nil
}
