package opensandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// Endpoint says how to reach a port of a sandbox. For execd's port it is rein's
// own execd where there is one, else the server's. It is asked of the server
// each time, since it may change when a sandbox is resumed.
func (p *Provider) Endpoint(ctx context.Context, id string, port int) (sandbox.Endpoint, error) {
	if port == execd.Port {
		rec, err := p.record(id)
		if err == nil && rec.Port != 0 {
			return p.ownEndpoint(ctx, id, rec)
		}
	}
	return p.endpoint(ctx, id, port)
}

// endpoint asks the server.
func (p *Provider) endpoint(ctx context.Context, id string, port int) (sandbox.Endpoint, error) {
	path, err := p.path("endpoint", id, "/endpoints/"+strconv.Itoa(port))
	if err != nil {
		return sandbox.Endpoint{}, err
	}
	q := url.Values{}
	if p.opts.UseServerProxy {
		q.Set("use_server_proxy", "true")
	}
	var got endpoint
	if err := p.server.again(ctx, http.MethodGet, path, q, nil, &got); err != nil {
		return sandbox.Endpoint{}, p.fault(ctx, "endpoint", id, err)
	}
	base, host, err := p.address(got.Endpoint)
	if err == nil {
		err = p.admits(host)
	}
	if err != nil {
		return sandbox.Endpoint{}, &sandbox.Error{Kind: sandbox.KindInternal, Op: "endpoint", Subject: id, Err: err,
			Hint: "the server gives an address that cannot be used: see its settings host, eip and docker.host_ip, or set use_server_proxy"}
	}
	return sandbox.Endpoint{BaseURL: base, Header: header(got.Headers), DialContext: p.dial}, nil
}

// A server elsewhere must not have us speak to what listens on this host alone,
// or to the metadata service of its cloud, with a path and headers of its choice.
// Other addresses, private ones with them, are where sandboxes are.

// admits refuses such a host of an endpoint. What it leaves is a name, or an
// address that is fine; dial looks at those that names stand for.
func (p *Provider) admits(host string) error {
	server := p.server.base.Hostname()
	if strings.EqualFold(host, server) {
		return nil // where the API is
	}
	a, err := netip.ParseAddr(host)
	switch {
	case err == nil:
		return p.admitsAddr(a)
	case isLoopback(host) && !isLoopback(server):
		return fmt.Errorf("the endpoint is on %s, and the server is not", host)
	}
	return nil
}

func (p *Provider) admitsAddr(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	switch {
	case a.IsLoopback() && isLoopback(p.server.base.Hostname()):
	case a.IsLoopback(), a.IsLinkLocalUnicast(), a.IsMulticast(), a.IsUnspecified():
		return fmt.Errorf("the endpoint is at %v, where the server is not", a)
	}
	return nil
}

// isLoopback reports whether a host is written as one of the loopback.
func isLoopback(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// dial connects to an endpoint.
func (p *Provider) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if p.opts.DialContext != nil {
		return p.opts.DialContext(ctx, network, address)
	}
	d := net.Dialer{Timeout: dialTimeout}
	if host, _, err := net.SplitHostPort(address); err != nil || !strings.EqualFold(host, p.server.base.Hostname()) {
		d.ControlContext = func(_ context.Context, _, resolved string, _ syscall.RawConn) error {
			a, err := netip.ParseAddrPort(resolved)
			if err != nil {
				return err
			}
			return p.admitsAddr(a.Addr())
		}
	}
	return d.DialContext(ctx, network, address)
}

// address makes a URL of an endpoint, "host[:port][/path]". One with a scheme,
// which only newer servers send, is taken too.
func (p *Provider) address(text string) (base, host string, err error) {
	if !strings.Contains(text, "://") {
		text = p.opts.EndpointScheme + "://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", "", err
	}
	if u.Host == "" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", "", fmt.Errorf("%q is no endpoint", text)
	}
	if host := u.Hostname(); host == "0.0.0.0" || host == "::" {
		return "", "", errors.New("the endpoint is the server's bind address " + host)
	}
	return strings.TrimRight(u.String(), "/"), u.Hostname(), nil
}

// clientOf speaks to an execd.
func clientOf(e sandbox.Endpoint) *execd.Client {
	return execd.NewClient(execd.Options{BaseURL: e.BaseURL, Header: e.Header, DialContext: e.DialContext})
}

// through is a port reached by way of execd's own proxy.
func through(e sandbox.Endpoint, port int) sandbox.Endpoint {
	e.BaseURL += "/proxy/" + strconv.Itoa(port)
	return e
}

// withToken adds the token of an execd.
func withToken(e sandbox.Endpoint, token string) sandbox.Endpoint {
	e.Header = e.Header.Clone()
	if e.Header == nil {
		e.Header = http.Header{}
	}
	e.Header.Set(execd.TokenHeader, token)
	return e
}
