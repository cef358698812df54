package egress

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/rein-sh/rein/egress/policy"
)

// ModelPort of the gateway's own addresses is the door to Options.Models, in plain
// HTTP: http://10.88.0.1:3129/HOST/PATH is https://HOST/PATH, for programs that
// take a base URL and trust no certificates but the usual.
const ModelPort = 3129

func newDoorListener(g *Gateway) *listener {
	l := newListener(g, proxyWindow, maxProxyConns)
	l.full = func(id stack.TransportEndpointID, open int) {
		g.refuseLink(policy.TCP, destination(id), fmt.Sprintf("%d connections to the door for models are open", open))
	}
	l.serve = func(id stack.TransportEndpointID, c *gonet.TCPConn, ep tcpip.Endpoint) {
		g.serveOwn(id, c, ep, func(p *proxyConn) http.Handler { return &doorConn{p} })
	}
	return l
}

// isDoor reports whether a connection is to the door.
func isDoor(to netip.AddrPort) bool {
	return to.Port() == ModelPort && (to.Addr() == gateway4 || to.Addr() == gateway6)
}

// doorConn is a client's connection to the door. Its requests come one after the
// other.
type doorConn struct{ *proxyConn }

// ServeHTTP carries requests to hosts of models, and answers others with the
// refusal.
func (d *doorConn) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	h, inner, err := d.g.models.through(r)
	if err != nil {
		v := policy.Verdict{Rule: ruleModelHost, Reason: clip(err.Error())}
		d.deny(endpoint{}, v)
		writePage(rw, r, http.StatusForbidden, page{Rule: v.Rule, Reason: v.Reason})
		return
	}
	d.forward(rw, inner, endpoint{name: h.Name, port: modelsPort}, true)
}

// through is what a request to the door is for: the host that the first segment of
// its path names, and the request as one to that.
func (m *models) through(r *http.Request) (*modelHost, *http.Request, error) {
	if r.Method == http.MethodConnect {
		return nil, nil, errors.New("the door for models is no proxy")
	}
	target := r.RequestURI
	if !strings.HasPrefix(target, "/") { // a whole URL, as a proxy is sent
		target = r.URL.RequestURI()
	}
	name, rest, ok := strings.Cut(strings.TrimPrefix(target, "/"), "/")
	h := m.named(name)
	if !ok || h == nil {
		return nil, nil, fmt.Errorf("the first segment of the path names no host of models: %s", name)
	}
	rest = "/" + rest
	u, err := url.ParseRequestURI(rest)
	if err != nil || u.Host != "" { // as of a path that begins with two slashes
		return nil, nil, errors.New("what follows the host's name is no path in its plain form")
	}
	inner := r.WithContext(r.Context())
	inner.URL, inner.RequestURI, inner.Host = u, rest, h.Name
	return h, inner, nil
}
