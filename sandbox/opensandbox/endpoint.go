package opensandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

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
	base, err := p.address(got.Endpoint)
	if err != nil {
		return sandbox.Endpoint{}, &sandbox.Error{Kind: sandbox.KindInternal, Op: "endpoint", Subject: id, Err: err,
			Hint: "the server gives an address that cannot be used: see its settings host, eip and docker.host_ip, or set use_server_proxy"}
	}
	return sandbox.Endpoint{BaseURL: base, Header: header(got.Headers), DialContext: p.opts.DialContext}, nil
}

// address makes a URL of an endpoint, "host[:port][/path]". One with a scheme,
// which only newer servers send, is taken too.
func (p *Provider) address(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = p.opts.EndpointScheme + "://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", err
	}
	if u.Host == "" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%q is no endpoint", text)
	}
	if host := u.Hostname(); host == "0.0.0.0" || host == "::" {
		return "", errors.New("the endpoint is the server's bind address " + host)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// client speaks to an execd.
func dial(e sandbox.Endpoint) *execd.Client {
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
