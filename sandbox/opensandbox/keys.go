package opensandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// The credential vault's objects, as far as they are used. A sidecar refuses
// members that it does not know, so one that knows no substitutions refuses a
// secret that needs them.
// Source: specs/egress-api.yaml of OpenSandbox.

type binding struct {
	Name  string `json:"name"`
	Match match  `json:"match"`
	Auth  auth   `json:"auth"`

	fields []field // what it sets, until Auth says so
}

// match is without ports: they follow from the scheme, in every version.
type match struct {
	Schemes []string `json:"schemes"`
	Hosts   []string `json:"hosts"`
	Methods []string `json:"methods"`
	Paths   []string `json:"paths"`
}

type auth struct {
	Type          string         `json:"type"`
	Credential    string         `json:"credential,omitempty"`
	Name          string         `json:"name,omitempty"`
	Headers       []customHeader `json:"headers,omitempty"`
	Substitutions []substitution `json:"substitutions,omitempty"`
}

type customHeader struct {
	Name       string `json:"name"`
	Credential string `json:"credential"`
}

type substitution struct {
	Credential  string   `json:"credential"`
	Placeholder string   `json:"placeholder"`
	In          []string `json:"in"`
}

// field is one field of requests and what stands before the value in it.
type field struct {
	name, scheme string
	value        secret.Value
}

// vaultState is what the vault says it holds: never a value.
type vaultState struct {
	Revision    int64 `json:"revision"`
	Credentials []struct {
		Name string `json:"name"`
	} `json:"credentials"`
	Bindings []struct {
		Name  string `json:"name"`
		Match match  `json:"match"`
	} `json:"bindings"`
}

func (m match) equal(o match) bool {
	same := func(a, b []string) bool {
		a, b = slices.Clone(a), slices.Clone(b)
		slices.Sort(a)
		slices.Sort(b)
		return slices.Equal(slices.Compact(a), slices.Compact(b))
	}
	return same(m.Schemes, o.Schemes) && same(m.Hosts, o.Hosts) && same(m.Methods, o.Methods) && same(m.Paths, o.Paths)
}

// meets reports whether a request can match both.
func (m match) meets(o match) bool {
	some := func(a, b []string, same func(x, y string) bool) bool {
		return slices.ContainsFunc(a, func(x string) bool { return slices.ContainsFunc(b, func(y string) bool { return same(x, y) }) })
	}
	equal := func(x, y string) bool { return x == y }
	return some(m.Hosts, o.Hosts, equal) && some(m.Methods, o.Methods, equal) && some(m.Paths, o.Paths, policy.PathsMeet)
}

// has reports whether the state is that of these credentials and bindings, and
// of nothing else.
func (s *safe) has(got vaultState) bool {
	if len(got.Credentials) != len(s.credentials) || len(got.Bindings) != len(s.bindings) {
		return false
	}
	for _, c := range got.Credentials {
		if !slices.ContainsFunc(s.credentials, func(w credential) bool { return w.name == c.Name }) {
			return false
		}
	}
	for _, b := range got.Bindings {
		if !slices.ContainsFunc(s.bindings, func(w binding) bool { return w.Name == b.Name && w.Match.equal(b.Match) }) {
			return false
		}
	}
	return true
}

// body is what the vault is sent. The values are in it and nowhere else.
func (s *safe) body() ([]byte, error) {
	type source struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	}
	type named struct {
		Name   string `json:"name"`
		Source source `json:"source"`
	}
	request := struct {
		Credentials []named   `json:"credentials"`
		Bindings    []binding `json:"bindings"`
	}{[]named{}, s.bindings}
	for _, c := range s.credentials {
		request.Credentials = append(request.Credentials, named{c.name, source{"inline", c.value.Reveal()}})
	}
	return json.Marshal(request)
}

// fill gives the secrets to the sandbox's sidecar, and makes sure that it has
// them. It is done once, before anything that a model wrote runs inside: later,
// what answers on the sidecar's port could be a program of the sandbox.
func (p *Provider) fill(ctx context.Context, id string, s *safe) error {
	ctx, cancel := context.WithTimeout(ctx, egressPatience)
	defer cancel()
	ep, err := p.endpoint(ctx, id, egressPort)
	if err != nil {
		return err
	}
	switch u, err := url.Parse(ep.BaseURL); {
	case err != nil || u.Scheme != "https" && !isLoopback(u.Hostname()):
		return unsaid{"create", "secrets"}.because("reach it over https: set endpoint_scheme, or use_server_proxy with a url of https",
			"the sandbox's sidecar is reached at %s, where keys would be sent as they are", ep.BaseURL)
	case strings.Contains(u.Path+"/", "/proxy/") && !p.opts.AcceptWeakVault:
		// With Docker, the port of a sidecar is that of the execd beside it, also
		// behind the server's own proxy.
		return unsaid{"create", "secrets"}.because("a server on Kubernetes with an ingress gateway leads to the sidecar itself; or accept_weak_vault: true for the target",
			"the sandbox's sidecar is reached through a proxy (%s), which with Docker is the execd inside the sandbox: keys would pass through memory that a program there can read", ep.BaseURL)
	}
	body, err := s.body()
	if err != nil {
		return err
	}
	for {
		err = askVault(ctx, ep, http.MethodPost, body, http.StatusCreated, nil)
		a, answered := errors.AsType[*answer](err)
		// Its proxy may still be starting. A request that was sent is not sent again.
		if !answered || a.Status != http.StatusPreconditionFailed || sleep(ctx, readyPoll) != nil {
			break
		}
	}
	if err != nil {
		return s.refused(id, err)
	}
	var got vaultState
	if err := askVault(ctx, ep, http.MethodGet, nil, http.StatusOK, &got); err != nil {
		return s.refused(id, err)
	}
	if !s.has(got) {
		return &sandbox.Error{Kind: sandbox.KindUnsupported, Op: "create", Subject: id, Err: errors.New("the credential vault of its sidecar does not hold what it was given"),
			Hint: "no sandbox is used whose secrets are not known to be bound as asked"}
	}
	return nil
}

// refused says why a vault took no secrets. What it says may hold them.
func (s *safe) refused(id string, err error) error {
	e := &sandbox.Error{Kind: sandbox.KindUnsupported, Op: "create", Subject: "secrets"}
	a, answered := errors.AsType[*answer](err)
	switch {
	case !answered:
		e.Kind, e.Subject = sandbox.KindUnavailable, id
		e.Hint = "is its sidecar reachable from here?"
	case a.Status == http.StatusNotFound || a.Status == http.StatusMethodNotAllowed:
		e.Hint = "the server's sidecar has no credential vault: under [egress] set an image of opensandbox/egress:v1.1.1 or later"
	case a.Status == http.StatusPreconditionFailed:
		e.Hint = `the server gave the sandbox no credential proxy: it needs mode = "dns+nft" under [egress], and a version of the server that knows credentialProxy`
	case a.Status == http.StatusUpgradeRequired:
		e.Hint = "the sidecar takes keys over TLS only: see OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_REQUIRE_TLS and its trusted proxies, and egress:v1.1.1 or later"
	case a.Status == http.StatusBadRequest:
		e.Hint = "as: substitute needs a sidecar that knows substitutions: a later opensandbox/egress; else see what the sidecar says"
	}
	e.Err = errors.New(s.masker.String(fmt.Sprintf("the credential vault of its sidecar: %v", err)))
	return e
}

// filled makes sure that the vault still holds what it was given. Its sidecar
// keeps it in memory alone, which Kubernetes ends with a pause.
func (p *Provider) filled(ctx context.Context, id string, rec record) error {
	if len(rec.Secrets) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, egressPatience)
	defer cancel()
	var got vaultState
	ep, err := p.endpoint(ctx, id, egressPort)
	if err == nil {
		err = askVault(ctx, ep, http.MethodGet, nil, http.StatusOK, &got)
	}
	names := make([]string, len(got.Credentials))
	for i, c := range got.Credentials {
		names[i] = c.Name
	}
	slices.Sort(names)
	if err == nil && !slices.Equal(names, rec.Secrets) {
		err = errors.New("they are not there")
	}
	if err != nil {
		return &sandbox.Error{Kind: sandbox.KindHost, Op: "resume", Subject: id, Err: fmt.Errorf("its secrets in the sidecar's credential vault: %w", err),
			Hint: "they do not come back after a pause on this server: make a new sandbox"}
	}
	return nil
}

// emptyTimeout bounds the wait for a vault to be emptied.
const emptyTimeout = 3 * time.Second

// empty takes the secrets out of the vault of a sandbox that is about to end.
// That it fails is nothing: the vault is the memory of a sidecar that ends with
// its sandbox, and the sandbox is ended next.
func (p *Provider) empty(ctx context.Context, id string) {
	rec, err := p.record(id)
	if err != nil || len(rec.Secrets) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, emptyTimeout)
	defer cancel()
	if ep, err := p.endpoint(ctx, id, egressPort); err == nil {
		_ = askVault(ctx, ep, http.MethodDelete, nil, http.StatusNoContent, nil)
	}
}

// askVault makes one request of the vault, and reads its answer into out unless
// that is nil.
func askVault(ctx context.Context, ep sandbox.Endpoint, method string, body []byte, want int, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, ep.BaseURL+"/credential-vault", bytes.NewReader(body))
	if err != nil {
		return err
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	b, err := askSidecar(ep, req, want)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(b, out); err != nil {
		return &answer{Status: want, Message: "what answers there is no credential vault"}
	}
	return nil
}

// askSidecar sends a request to a sidecar and returns the body of its answer. The
// header of the endpoint lets its bearer change the policy: it goes nowhere else.
func askSidecar(ep sandbox.Endpoint, req *http.Request, want int) ([]byte, error) {
	for k, v := range ep.Header {
		req.Header[k] = v
	}
	t := &http.Transport{DialContext: ep.DialContext, DisableKeepAlives: true}
	defer t.CloseIdleConnections()
	c := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if resp.StatusCode != want {
		return nil, &answer{Status: resp.StatusCode, Message: "the sidecar says: " + shorten(string(b))} // plain text
	}
	return b, err
}

var _ sandbox.SecretRotator = (*Provider)(nil)

// RotateSecret refuses: see fill.
func (p *Provider) RotateSecret(_ context.Context, id, name string, _ secret.Value) error {
	return &sandbox.Error{Kind: sandbox.KindUnsupported, Op: "rotate a secret", Subject: id, Hint: "make a new sandbox, which is given the new value",
		Err: fmt.Errorf("the secret %s is given to a sandbox of OpenSandbox once, before anything runs there: later, what answers on the sidecar's port could be a program of the sandbox", name)}
}
