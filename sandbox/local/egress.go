package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// Egress is a host's way to the network.
type Egress struct {
	// Resolvers are asked instead of those of /etc/resolv.conf, in this order.
	Resolvers []netip.AddrPort
	// Proxy carries every connection out, see egress.HostOptions.
	Proxy         *url.URL
	ProxyUser     string
	ProxyPassword secret.Value
	// CA are the certificates, in PEM, of a company whose proxy opens TLS: every
	// sandbox trusts them besides its own. An https Proxy must be signed by one.
	CA []byte
	// Limits are those of a sandbox whose policy sets no others.
	Limits egress.Limits
	// HostLimits are those of all sandboxes of a StateDir together.
	HostLimits egress.HostLimits
}

// egressConfig is Egress on its way to the keeper.
type egressConfig struct {
	Resolvers     []netip.AddrPort `json:"resolvers,omitempty"`
	Proxy         string           `json:"proxy,omitempty"`
	ProxyUser     string           `json:"proxy_user,omitempty"`
	ProxyPassword string           `json:"proxy_password,omitempty"`
	CA            string           `json:"ca,omitempty"`
	Limits        egress.Limits    `json:"limits,omitzero"`

	HostLimits egress.HostLimits `json:"host_limits,omitzero"`
	HostFile   string            `json:"host_file"` // where they are counted
}

// hostFile is the file in StateDir in which all keepers count.
const hostFile = "network.shared"

func (e Egress) config(stateDir string) egressConfig {
	c := egressConfig{Resolvers: e.Resolvers, ProxyUser: e.ProxyUser, ProxyPassword: e.ProxyPassword.Reveal(), CA: string(e.CA), Limits: e.Limits,
		HostLimits: e.HostLimits, HostFile: filepath.Join(stateDir, hostFile)}
	if e.Proxy != nil {
		c.Proxy = e.Proxy.String()
	}
	return c
}

// hostLimits says what all sandboxes of this host take of the network together.
func hostLimits(l egress.HostLimits) []sandbox.Limit {
	d := egress.DefaultHostLimits()
	var out []sandbox.Limit
	for _, one := range []struct {
		resource string
		value    int64
	}{
		{"host_connections", int64(cmp.Or(l.Connections, d.Connections))},
		{"host_per_second", int64(cmp.Or(l.PerSecond, d.PerSecond))},
		{"host_bytes", cmp.Or(l.Bytes, d.Bytes)},
		{"host_max_upload_bytes", cmp.Or(l.MaxUploadBytes, d.MaxUploadBytes)},
	} {
		out = append(out, sandbox.Limit{Resource: one.resource, Value: strconv.FormatInt(one.value, 10), EnforcedBy: "gateway"})
	}
	return out
}

func (e Egress) check() error {
	if err := e.HostLimits.Check(); err != nil {
		return err
	}
	if len(e.CA) == 0 {
		return nil
	}
	_, err := certificates(e.CA)
	return err
}

// wayOut is all that the gateway needs of the host but its link, made while the
// keeper still may open files: the host's resolvers, names and addresses.
func (k *keeper) wayOut() (egress.Options, error) {
	doc := k.cfg.Spec.Network
	doc.Origin = k.cfg.Origin
	compiled, err := policy.Compile(doc)
	if err != nil {
		return egress.Options{}, sandbox.InvalidNetwork("create", err)
	}
	c := k.cfg.Egress
	o := egress.HostOptions{Resolvers: c.Resolvers, ProxyUser: c.ProxyUser, ProxyPassword: secret.New("egress.upstream_proxy", c.ProxyPassword), ProxyCA: []byte(c.CA)}
	if c.Proxy != "" {
		if o.Proxy, err = url.Parse(c.Proxy); err != nil {
			return egress.Options{}, fmt.Errorf("the proxy: %w", err)
		}
	}
	host, err := egress.NewHost(o)
	if err != nil {
		return egress.Options{}, &sandbox.Error{Kind: sandbox.KindHost, Op: "prepare the way to the network", Err: err}
	}
	if k.shared, err = egress.OpenHostMeter(c.HostFile, c.HostLimits); err != nil {
		e := &sandbox.Error{Kind: sandbox.KindHost, Op: "prepare the way to the network", Err: err}
		if opened, ok := errors.AsType[*egress.Error](err); ok {
			e.Hint = opened.Hint
		}
		return egress.Options{}, e
	}
	roots, err := k.roots()
	if err != nil {
		return egress.Options{}, err
	}
	k.ports = newPortOwner(k.cfg.Token)
	k.owners.open = func(open bool) { k.gateway.Open(open) }
	k.owners.cut = func() { k.gateway.EndModels() }
	k.network.full = func() {
		if g := k.ports.gateway.Load(); g != nil { // else startGateway finds it full
			g.Seal()
		}
	}
	return egress.Options{SandboxID: k.cfg.Info.ID, Policy: compiled, Host: host, Authority: k.authority, Roots: roots, Vault: k.vault, Models: k.cfg.Spec.Models, Meter: &k.owners, Ask: k.ask, Owner: k.ports.find, OwnerLasts: k.ports.lasts.Load,
		Limits: c.Limits, HostMeter: k.shared, Record: k.network.record}, nil
}

// ask puts the gateway's question to an owner.
func (k *keeper) ask(ctx context.Context, q egress.Question) policy.Answer {
	out := sandbox.Question{Name: q.Name, Port: int(q.Port), Proto: string(q.Proto), Rule: q.Rule, Reason: q.Reason,
		CallID: q.Owner}
	if q.Address.IsValid() {
		out.Address = q.Address.String()
	}
	return k.owners.ask(ctx, out)
}

// startGateway takes the sandbox's link, which it owns from now on, into
// service. It is closed until somebody owns the sandbox.
func (k *keeper) startGateway(o egress.Options) error {
	g, err := egress.New(o)
	if err != nil {
		return fmt.Errorf("start the gateway: %w", err)
	}
	k.gateway = g
	k.ports.use(g)
	if k.network.isFull() {
		g.Seal()
	}
	return nil
}

// setNetwork serves POST /network.
func (s *controlServer) setNetwork(w http.ResponseWriter, r *http.Request) {
	var req networkRequest
	d := json.NewDecoder(io.LimitReader(r.Body, 4<<20))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		refuse(w, http.StatusBadRequest, sandbox.KindInvalid, fmt.Errorf("the policy: %w", err))
		return
	}
	generation, err := s.keeper.setNetwork(req.document())
	if err != nil {
		answer(w, err)
		return
	}
	reply(w, networkReply{generation})
}

// setNetwork puts another policy in force, also while the sandbox is paused.
func (k *keeper) setNetwork(d policy.Document) (uint64, error) {
	const op = "change the network"
	compiled, err := policy.Compile(d)
	if err != nil {
		return 0, sandbox.InvalidNetwork(op, err)
	}
	if err := k.present(op); err != nil {
		return 0, err
	}
	if compiled.EndsTLS() && k.authority == nil {
		return 0, &sandbox.Error{Kind: sandbox.KindUnsupported, Op: op, Subject: "network", Hint: "make the sandbox with a rule of https, a bundle, or with secrets",
			Err: errors.New("the sandbox was made without a rule of https and without a bundle, and does not trust its gateway's certificates")}
	}
	return k.gateway.SetPolicy(compiled), nil
}
