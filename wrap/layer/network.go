package layer

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/rein-sh/rein/egress/policy"
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
		return policy.Rule{}, errors.New("an address must not contain a user, a password or a query")
	}
	host, err := policy.Canonical(u.Hostname())
	if err != nil {
		return policy.Rule{}, fmt.Errorf("%w: methods are allowed of names only", err)
	}
	port, err := strconv.Atoi(cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme]))
	if err != nil || port < 1 || port > 65535 {
		return policy.Rule{}, fmt.Errorf("%q is no port", u.Port())
	}
	return policy.Rule{Host: host, Ports: []int{port}, Proto: u.Scheme, Methods: []string{"GET", "HEAD"}}, nil
}
