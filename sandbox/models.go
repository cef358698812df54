package sandbox

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/policy"
)

// apis are the protocols that can be metered.
var apis = []inference.API{inference.Chat, inference.Responses, inference.Messages, inference.Gemini}

// checkModels reports the first fault of the hosts of models.
func (s Spec) checkModels() error {
	seen := map[string]bool{}
	for i, h := range s.Models {
		subject := fmt.Sprintf("models[%d]", i)
		bad := func(key, hint, format string, args ...any) error {
			return &Error{Kind: KindInvalid, Op: "create", Subject: subject + key, Err: fmt.Errorf(format, args...), Hint: hint}
		}
		name, err := policy.Canonical(h.Name)
		switch {
		case err != nil:
			return bad(".name", "such as api.openai.com", "%w", err)
		case name != h.Name:
			return bad(".name", "write "+name, "%q is not in its canonical form", h.Name)
		case strings.Contains(name, "*"):
			return bad(".name", "write each host", "%q is more than one host", h.Name)
		case seen[name]:
			return bad(".name", "put its calls together", "%s is there twice", name)
		}
		seen[name] = true
		if err := checkUpstream(h); err != nil {
			return bad(".upstream", "such as http://127.0.0.1:8089/v1", "%w", err)
		}
		if h.Base != "" && (!policy.IsPathPattern(h.Base) || strings.HasSuffix(h.Base, "*")) {
			return bad(".base", "such as /v1", "%q is no path in its plain form", h.Base)
		}
		if len(h.Calls) == 0 {
			return bad(".calls", "such as POST /v1/responses", "nothing may be asked of %s", name)
		}
		for j, c := range h.Calls {
			if err := checkCall(c); err != nil {
				return bad(fmt.Sprintf(".calls[%d]", j), "", "%w", err)
			}
		}
	}
	return s.checkBindings(seen)
}

// checkBindings refuses secrets that requests to hosts of models cannot be given.
func (s Spec) checkBindings(models map[string]bool) error {
	for _, secret := range s.Secrets {
		for i, b := range secret.Use {
			name, err := policy.Canonical(b.Host)
			if err == nil && models[name] && slices.ContainsFunc(b.Ports, func(port int) bool { return port != 443 }) {
				return &Error{Kind: KindInvalid, Op: "create", Subject: fmt.Sprintf("secrets.%s.use[%d].ports", secret.Name, i),
					Err: fmt.Errorf("%s is a host of models, which is reached on port 443 only", name), Hint: "leave the ports out"}
			}
		}
	}
	return nil
}

// checkUpstream never repeats the URL: it may hold a password.
func checkUpstream(h inference.Host) error {
	if h.Upstream == "" {
		return nil
	}
	u, err := url.Parse(h.Upstream)
	switch {
	case err != nil || u.Hostname() == "":
		return fmt.Errorf("it is no URL of a host")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("its scheme is neither http nor https")
	case u.User != nil:
		return fmt.Errorf("a user and a password do not belong into the URL")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return fmt.Errorf("it is more than a host and a path")
	}
	if path := u.EscapedPath(); path != "" && (!policy.IsPathPattern(path) || strings.HasSuffix(path, "*")) {
		return fmt.Errorf("its path is not in its plain form")
	}
	return nil
}

func checkCall(c inference.Call) error {
	if len(c.Methods) == 0 {
		return fmt.Errorf("it has no method")
	}
	for _, m := range c.Methods {
		switch {
		case m == "" || strings.ContainsFunc(m, func(r rune) bool { return r < 'A' || r > 'Z' }), m == http.MethodConnect:
			return fmt.Errorf("%q is no method here", m)
		case c.API != "" && m != http.MethodPost:
			return fmt.Errorf("a model is asked with POST, not with %s", m)
		}
	}
	switch {
	case !policy.IsPathPattern(c.Path):
		return fmt.Errorf("%q is no path in its plain form", c.Path)
	case c.API != "" && !slices.Contains(apis, c.API):
		return fmt.Errorf("%q is no API that can be metered", c.API)
	case c.Free && c.API == "":
		return fmt.Errorf("what no model answers is free anyway")
	}
	return nil
}
