package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
)

// modelsPort is where hosts of models are reached by name.
const modelsPort = 443

// The rules of what is refused of hosts of models; those of a request's body are
// "models." and the code of a inference.Refusal or inference.Stop.
const (
	ruleModelHost   = "models.host"   // the gateway's door leads to no such host
	ruleModelPort   = "models.port"   // such a host is reached on one port
	ruleModelBeside = "models.beside" // and in no other way
	ruleModelPath   = "models.path"   // a request that is none of its calls
	ruleModelBody   = "models.body"   // a body that cannot be read
	ruleModel       = "models."
)

// models are the hosts of Options.Models.
type models struct {
	hosts   []*modelHost
	policy  *policy.Policy // allows them, and nothing else
	vault   *vault.Vault   // looks through answers; without secrets where the gateway has none
	counter inference.Counter
	kept    atomic.Int64  // bytes of bodies that are held
	reading chan struct{} // has as many as are judged
}

// modelHost is one of them.
type modelHost struct {
	inference.Host
	rule     string   // models[0]
	upstream *url.URL // nil: the host itself
	leads    endpoint // where it is dialled
}

// newModels reads the hosts. Their calls were checked by who made them: what is
// malformed in one matches nothing.
func newModels(hosts []inference.Host, v *vault.Vault) (*models, error) {
	m := &models{vault: v, reading: make(chan struct{}, maxReading)}
	if v == nil {
		m.vault, _ = vault.New(vault.Key{}, nil) // no secrets have no faults
	}
	d := policy.Document{Origin: policy.OriginHost}
	for i, host := range hosts {
		h := &modelHost{Host: host, rule: fmt.Sprintf("models[%d]", i), leads: endpoint{name: host.Name, port: modelsPort}}
		if name, err := policy.Canonical(host.Name); err != nil || name != host.Name || m.named(name) != nil {
			return nil, fmt.Errorf("%s: %q is no name in its canonical form, or that of another", h.rule, host.Name)
		}
		if host.Upstream != "" {
			if err := h.setUpstream(); err != nil {
				return nil, fmt.Errorf("%s: %w", h.rule, err)
			}
		}
		m.hosts = append(m.hosts, h)
		d.Rules = append(d.Rules, policy.Rule{Host: host.Name, Ports: []int{modelsPort}, Proto: string(policy.HTTPS)})
	}
	var err error
	m.policy, err = policy.Compile(d)
	return m, err
}

func (h *modelHost) setUpstream() error {
	u, err := url.Parse(h.Upstream)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("its upstream is no http or https URL of a host and a path") // which may hold a password
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("the port of its upstream is %s", port)
	}
	h.upstream, h.leads = u, endpoint{port: uint16(n)}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		h.leads.addr = addr.Unmap()
	} else {
		h.leads.name = strings.ToLower(u.Hostname())
	}
	return nil
}

// named is the host with a name in its canonical form; nil where there is none.
func (m *models) named(name string) *modelHost {
	for _, h := range m.hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// at is the host that an endpoint is.
func (m *models) at(to endpoint) *modelHost {
	if to.port != modelsPort || to.name == "" {
		return nil
	}
	return m.named(to.name)
}

// verdict is p's on connections to the host: it needs no rule, and one that denies
// or asks holds.
func (h *modelHost) verdict(p *policy.Policy) policy.Verdict {
	v := p.Connect(h.Name, modelsPort)
	if p == nil || v.Rule != policy.RuleDefault && (v.Action != policy.Allow || v.Reported) {
		v.Proto = policy.HTTPS
		return v
	}
	return policy.Verdict{Action: policy.Allow, Proto: policy.HTTPS, Rule: h.rule, Reason: h.rule + " is " + h.Name + ", a host of models"}
}

// apart is v on another endpoint than such a host, which is not to be a way to one.
func (m *models) apart(to endpoint, v policy.Verdict) policy.Verdict {
	if v.Action == policy.Deny {
		return v
	}
	for _, h := range m.hosts {
		switch {
		case to.name != "" && to.name == h.Name:
			return policy.Verdict{Proto: v.Proto, Rule: ruleModelPort, Reason: fmt.Sprintf("%s is a host of models: it is reached on port %d only", h.Name, modelsPort)}
		case to == h.leads:
			return policy.Verdict{Proto: v.Proto, Rule: ruleModelBeside, Reason: "the requests to " + h.Name + " go there, which is reached by that name only"}
		}
	}
	return v
}

// name is p's verdict on whether a name may have an address.
func (m *models) name(p *policy.Policy, name string) (v policy.Verdict, is bool) {
	canonical, err := policy.Canonical(name)
	if h := m.named(canonical); err == nil && h != nil {
		v = h.verdict(p)
		v.Proto = policy.DNS
		return v, true
	}
	return p.Name(name), false
}

// address is p's verdict on what the name of a host resolved to. Where its requests
// go elsewhere, who configured that has judged it.
func (f *flow) address(p *policy.Policy, a netip.Addr) policy.Verdict {
	h := f.model
	switch {
	case h == nil:
		return p.Address(f.to.name, a, f.to.port, f.gateway.own)
	case h.upstream != nil:
		return policy.Verdict{Action: policy.Allow, Proto: policy.HTTPS, Rule: h.rule}
	}
	if v := p.Literal(a, f.to.port, f.gateway.own); strings.HasPrefix(v.Rule, "rules[") {
		return v
	}
	return f.gateway.models.policy.Address(f.to.name, a, f.to.port, f.gateway.own)
}

// serverRules judge the name that a client of TLS sends.
func (f *flow) serverRules(p *policy.Policy) *policy.Policy {
	if f.model != nil {
		return f.gateway.models.policy
	}
	return p
}

// leads is where the flow is dialled.
func (f *flow) leads() endpoint {
	if f.model != nil {
		return f.model.leads
	}
	return f.to
}

// dialer makes the flow's connections. One to the host itself, which its
// configuration has asked for, passes no proxy.
func (f *flow) dialer() dialFunc {
	dial := f.gateway.opts.Host.Dial
	if f.model == nil || f.model.upstream == nil {
		return dial
	}
	return func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		if !to.Addr().Unmap().IsLoopback() {
			return dial(ctx, to)
		}
		ctx, cancel := context.WithTimeout(ctx, hostDialTimeout)
		defer cancel()
		return dialExactly(ctx, to)
	}
}

// judgeModel is p's verdict on one reading of a request to a host of models.
func (f *flow) judgeModel(p *policy.Policy, r request) policy.Verdict {
	h := f.model
	v := h.verdict(p)
	if v.Action == policy.Deny {
		return v
	}
	head := policy.Request{Stage: policy.AtHTTP, Proto: policy.TCP, Secure: true, Name: h.Name, Port: modelsPort, Host: r.host, Method: r.method, Path: r.path}
	if is := f.gateway.models.policy.Decide(head); is.Action != policy.Allow {
		return is
	}
	no := policy.Verdict{Proto: policy.HTTPS, Rule: ruleModelPath}
	call, ok := h.call(r.method, r.path)
	switch {
	case r.upgrade:
		no.Reason = "a host of models takes no WebSocket here: what it says cannot be counted"
		return no
	case !ok:
		no.Reason = fmt.Sprintf("%s %s is none of the calls of %s, a host of models", clip(r.method), clip(r.path), h.Name)
		return no
	case call.API == "" && r.body:
		no.Rule, no.Reason = ruleModelBody, fmt.Sprintf("%s %s has no body, as no model answers it", clip(r.method), clip(r.path))
		return no
	}
	if _, ok := h.path(r.path); !ok {
		no.Reason = fmt.Sprintf("%s is not below %s, which the upstream of %s takes the place of", clip(r.path), h.Base, h.Name)
		return no
	}
	return v
}

// call is the kind of a request, by its method and raw path.
func (h *modelHost) call(method, path string) (inference.Call, bool) {
	for _, c := range h.Calls {
		if slices.Contains(c.Methods, method) && policy.PathMatches(c.Path, path) {
			return c, true
		}
	}
	return inference.Call{}, false
}

// path is a request's raw path as it goes out.
func (h *modelHost) path(path string) (string, bool) {
	if h.upstream == nil {
		return path, true
	}
	base := strings.TrimSuffix(h.Base, "/")
	rest, ok := strings.CutPrefix(path, base)
	if !ok || !strings.HasPrefix(rest, "/") {
		return "", false
	}
	return strings.TrimSuffix(h.upstream.EscapedPath(), "/") + rest, true
}

// lead has a request go to where those to the host go. path is its raw path.
func (h *modelHost) lead(out *http.Request, path string) {
	for _, name := range []string{"Range", "If-Range"} { // a part of an answer is not looked through
		out.Header.Del(name)
	}
	if h.upstream == nil {
		return
	}
	if path, ok := h.path(path); ok {
		out.URL.Opaque = path
	}
	out.URL.Scheme, out.URL.Host, out.Host = h.upstream.Scheme, h.upstream.Host, h.upstream.Host
}

// EndModels ends the connections over which a request to a host of models is being
// carried, since who kept their budget has gone.
func (g *Gateway) EndModels() {
	var list []over
	g.mu.Lock()
	for f := range g.flows {
		if f.model != nil && len(f.requests) > 0 {
			list = append(list, over{f, &refusal{policy.Verdict{Proto: policy.HTTPS, Rule: ruleModel + string(inference.StopClosed), Reason: reasonClosed}}})
		}
	}
	g.mu.Unlock()
	abortAll(list)
}
