package opensandboxtest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Vault is the credential vault of a sidecar, as the original judges what it is
// given (components/egress/pkg/credentialvault). It is safe for concurrent use.
type Vault struct {
	// NoSubstitutions refuses them, as older sidecars do.
	NoSubstitutions bool
	// NeedsTLS takes keys over TLS alone, which this server does not have.
	NeedsTLS bool

	mu     sync.Mutex
	filled *vaultContents
}

type vaultContents struct {
	Credentials []vaultCredential `json:"credentials"`
	Bindings    []vaultBinding    `json:"bindings"`
}

type vaultCredential struct {
	Name   string `json:"name"`
	Source struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	} `json:"source"`
}

type vaultBinding struct {
	Name  string     `json:"name"`
	Match vaultMatch `json:"match"`
	Auth  vaultAuth  `json:"auth"`
}

type vaultMatch struct {
	Schemes []string `json:"schemes,omitempty"`
	Ports   []int    `json:"ports,omitempty"`
	Hosts   []string `json:"hosts"`
	Methods []string `json:"methods,omitempty"`
	Paths   []string `json:"paths,omitempty"`
}

type vaultAuth struct {
	Type       string `json:"type"`
	Credential string `json:"credential,omitempty"`
	Name       string `json:"name,omitempty"`
	Headers    []struct {
		Name       string `json:"name"`
		Credential string `json:"credential"`
	} `json:"headers,omitempty"`
	Substitutions []struct {
		Credential  string   `json:"credential"`
		Placeholder string   `json:"placeholder"`
		In          []string `json:"in"`
	} `json:"substitutions,omitempty"`
}

// Sent is what a request is given by the vault: its fields, and what placeholders
// are replaced by. It is what the original's proxy does with Host, method and path.
func (v *Vault) Sent(host, method, path string) (fields, replaced map[string]string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fields, replaced = map[string]string{}, map[string]string{}
	if v.filled == nil {
		return fields, replaced
	}
	for _, b := range v.filled.Bindings {
		if !slices.Contains(b.Match.Hosts, host) || !slices.Contains(b.Match.Methods, method) ||
			!slices.ContainsFunc(b.Match.Paths, func(p string) bool { return matchesPath(p, path) }) {
			continue
		}
		value := func(name string) string {
			for _, c := range v.filled.Credentials {
				if c.Name == name {
					return c.Source.Value
				}
			}
			return ""
		}
		switch b.Auth.Type {
		case "bearer":
			fields["Authorization"] = "Bearer " + value(b.Auth.Credential)
		case "basic":
			fields["Authorization"] = "Basic " + value(b.Auth.Credential)
		case "apiKey":
			fields[b.Auth.Name] = value(b.Auth.Credential)
		case "customHeaders":
			for _, h := range b.Auth.Headers {
				fields[h.Name] = value(h.Credential)
			}
		}
		for _, s := range b.Auth.Substitutions {
			replaced[s.Placeholder] = value(s.Credential) + " in " + strings.Join(s.In, ",")
		}
	}
	return fields, replaced
}

func matchesPath(pattern, path string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return path == pattern
}

// Names are those of the credentials it holds, sorted; nil: there is no vault.
func (v *Vault) Names() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.filled == nil {
		return nil
	}
	names := map[string]bool{}
	for _, c := range v.filled.Credentials {
		names[c.Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// Lose forgets everything, as a sidecar does that is started again.
func (v *Vault) Lose() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.filled = nil
}

// Serve serves /credential-vault. enabled says that the sandbox was made with
// credentialProxy, and policy is its network policy. Its errors are plain text.
func (v *Vault) Serve(w http.ResponseWriter, r *http.Request, enabled bool, policy json.RawMessage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	writes := r.Method != http.MethodGet
	switch {
	case writes && !enabled:
		http.Error(w, "credential vault requires transparent mitmproxy", http.StatusPreconditionFailed)
	case writes && v.NeedsTLS:
		http.Error(w, "credential vault writes require TLS or loopback transport", http.StatusUpgradeRequired)
	case r.Method == http.MethodPost:
		v.create(w, r, policy)
	case v.filled == nil:
		http.Error(w, "credential vault not found", http.StatusNotFound)
	case r.Method == http.MethodDelete:
		v.filled = nil
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet:
		answer(w, http.StatusOK, v.state())
	default:
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	}
}

func (v *Vault) state() map[string]any {
	credentials, bindings := []any{}, []any{}
	for _, c := range v.filled.Credentials {
		credentials = append(credentials, map[string]any{"name": c.Name, "sourceType": "inline", "revision": 1})
	}
	for _, b := range v.filled.Bindings {
		bindings = append(bindings, map[string]any{"name": b.Name, "revision": 1, "match": b.Match, "auth": map[string]string{"type": b.Auth.Type}})
	}
	return map[string]any{"revision": 1, "credentials": credentials, "bindings": bindings}
}

func (v *Vault) create(w http.ResponseWriter, r *http.Request, policy json.RawMessage) {
	var got vaultContents
	d := json.NewDecoder(io.LimitReader(r.Body, 1<<20))
	d.DisallowUnknownFields()
	err := d.Decode(&got)
	if err == nil {
		err = v.judge(&got, policy)
	}
	switch {
	case v.filled != nil:
		http.Error(w, "credential vault already exists", http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		v.filled = &got
		answer(w, http.StatusCreated, v.state())
	}
}

// judge refuses what the original refuses, and fills in what it fills in.
func (v *Vault) judge(c *vaultContents, raw json.RawMessage) error {
	var policy struct {
		Egress []struct{ Action, Target string }
	}
	if err := json.Unmarshal(raw, &policy); err != nil {
		return err
	}
	known := map[string]bool{}
	for _, one := range c.Credentials {
		if one.Name == "" || known[one.Name] || one.Source.Type != "inline" || one.Source.Value == "" {
			return fmt.Errorf("credential %q is blank, twice, or without a value", one.Name)
		}
		known[one.Name] = true
	}
	for i := range c.Bindings {
		b := &c.Bindings[i]
		for _, name := range b.Auth.references() {
			if !known[name] {
				return fmt.Errorf("binding %q references unknown credential %q", b.Name, name)
			}
		}
		if v.NoSubstitutions && len(b.Auth.Substitutions) > 0 {
			return fmt.Errorf("json: unknown field %q", "substitutions")
		}
		if len(b.Match.Hosts) == 0 || len(b.Match.Ports) > 0 || !slices.Equal(b.Match.Schemes, []string{"https"}) {
			return fmt.Errorf("binding %q: unsupported match", b.Name)
		}
		for _, host := range b.Match.Hosts {
			if !strings.Contains(host, ".") {
				return fmt.Errorf("credential binding host %q must be an FQDN", host)
			}
			allowed := false
			for _, rule := range policy.Egress {
				beneath, wildcard := strings.CutPrefix(rule.Target, "*")
				if rule.Target == host || wildcard && strings.HasSuffix(host, beneath) {
					allowed = rule.Action == "allow"
					break
				}
			}
			if !allowed {
				return fmt.Errorf("binding %q host %q is not covered by an explicit allow egress rule", b.Name, host)
			}
		}
		for _, other := range c.Bindings[:i] {
			if other.Name == b.Name || other.Match.meets(b.Match) {
				return fmt.Errorf("bindings %q and %q can match the same request", other.Name, b.Name)
			}
		}
	}
	return nil
}

func (a vaultAuth) references() []string {
	var names []string
	switch a.Type {
	case "bearer", "basic", "apiKey":
		names = append(names, a.Credential)
	case "customHeaders":
		for _, h := range a.Headers {
			names = append(names, h.Credential)
		}
	case "passthrough":
	default:
		names = append(names, "type "+a.Type)
	}
	for _, s := range a.Substitutions {
		names = append(names, s.Credential)
	}
	return names
}

func (m vaultMatch) meets(o vaultMatch) bool {
	some := func(a, b []string, same func(x, y string) bool) bool {
		return slices.ContainsFunc(a, func(x string) bool { return slices.ContainsFunc(b, func(y string) bool { return same(x, y) }) })
	}
	equal := func(x, y string) bool { return x == y }
	return some(m.Hosts, o.Hosts, equal) && some(m.Methods, o.Methods, equal) &&
		some(m.Paths, o.Paths, func(x, y string) bool {
			a, aOpen := strings.CutSuffix(x, "*")
			b, bOpen := strings.CutSuffix(y, "*")
			return a == b || aOpen && strings.HasPrefix(b, a) || bOpen && strings.HasPrefix(a, b)
		})
}
