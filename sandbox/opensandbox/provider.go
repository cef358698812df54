// Package opensandbox makes sandboxes on an OpenSandbox server
// (https://github.com/alibaba/OpenSandbox): its lifecycle API creates, finds,
// renews and ends them, and what runs inside is reached through its endpoints.
//
// The server, its network policy and the execd in its sandboxes are somebody
// else's, so nothing of them is taken for granted. Every sandbox is made with a
// policy that denies all traffic, and is ended and refused when that policy is
// not seen in force. Where the sandbox lets it, rein's own execd is put beside
// the server's, and call ids, spills and exact output are had as elsewhere;
// otherwise Probe and Features say what is missing, and a call whose reply was
// lost stays unknown.
package opensandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// Options configure the provider. URL and StateDir are required.
type Options struct {
	// URL is the server's address, such as https://sandboxes.example.com:8080,
	// with or without the API's prefix /v1.
	URL string
	// Key is the server's API key; empty for a server without one. It is sent
	// to the lifecycle API alone, never towards a sandbox.
	Key secret.Value
	// UseServerProxy reaches sandboxes through the server instead of the
	// addresses it gives, for where only the server can be reached.
	UseServerProxy bool
	// EndpointScheme is the scheme of sandboxes' endpoints, which the server
	// does not tell: "http" or "https". Empty: that of URL.
	EndpointScheme string
	// AcceptWeakEgress accepts a server whose policy is enforced by its DNS
	// proxy alone. A program that connects to an address, not a name, is then
	// not stopped.
	AcceptWeakEgress bool
	// AcceptWeakVault accepts secrets that OpenSandbox's credential vault cannot
	// keep to their hosts and paths: it goes by the Host field that a program
	// sends, and compares paths as they are sent.
	AcceptWeakVault bool
	// Entrypoint is what the sandbox's image starts; empty: something that waits.
	Entrypoint []string
	// Execd is the path of rein's own static execd for the sandboxes'
	// architecture, which is put into each of them. Empty: none is.
	Execd string
	// StateDir keeps what is needed to reach rein's execd in a sandbox from
	// another process: one file a sandbox, in the directory "opensandbox".
	StateDir string
	// CreateTimeout bounds a creation until the sandbox is usable; it includes
	// the pull of the image. Zero means 5 minutes. Context deadlines come first.
	CreateTimeout time.Duration
	// DialContext, when set, is used instead of the network.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// Provider makes sandboxes on one server. It may be used by several goroutines
// and, with one StateDir, by several processes.
type Provider struct {
	opts    Options
	server  *client
	missing error // why rein's execd cannot be put into sandboxes
	program *program

	changing sync.Map // the ids of sandboxes that are being resumed, or whose network is changed

	// lingerAfter, plantTimeout and startTimeout, but for tests.
	linger, planting, starting time.Duration
}

var (
	_ sandbox.Provider = (*Provider)(nil)
	_ sandbox.Pauser   = (*Provider)(nil)
)

// New checks the options and makes the state directory. It does not connect.
func New(o Options) (*Provider, error) {
	bad := func(subject, format string, args ...any) error {
		return &sandbox.Error{Kind: sandbox.KindInvalid, Op: "configure", Subject: subject, Err: fmt.Errorf(format, args...)}
	}
	u, err := url.Parse(strings.TrimSuffix(strings.TrimSuffix(o.URL, "/"), "/v1"))
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, bad("url", "%q is no http or https address", o.URL)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, bad("url", "an address must not contain a password, a query or a fragment")
	case o.EndpointScheme != "" && o.EndpointScheme != "http" && o.EndpointScheme != "https":
		return nil, bad("endpoint_scheme", "%q is neither http nor https", o.EndpointScheme)
	case !filepath.IsAbs(o.StateDir):
		return nil, bad("state", "%q is not an absolute path", o.StateDir)
	}
	if o.EndpointScheme == "" {
		o.EndpointScheme = u.Scheme
	}
	if o.CreateTimeout == 0 {
		o.CreateTimeout = 5 * time.Minute
	}
	if len(o.Entrypoint) == 0 {
		o.Entrypoint = []string{"tail", "-f", "/dev/null"}
	}
	o.StateDir = filepath.Join(o.StateDir, "opensandbox")
	p := &Provider{opts: o, server: newClient(u, o.Key, o.DialContext),
		linger: lingerAfter, planting: plantTimeout, starting: startTimeout}
	if err := makeStateDir(o.StateDir); err != nil {
		return nil, err
	}
	if o.Execd == "" {
		p.missing = errors.New("no rein-execd was given to put into sandboxes")
	} else if p.program, err = openProgram(o.Execd); err != nil {
		p.missing = err
	}
	return p, nil
}

// Name returns "opensandbox".
func (p *Provider) Name() string { return name }

const name = "opensandbox"

// Close releases the connections to the server. Sandboxes live on.
func (p *Provider) Close() error {
	p.server.http.CloseIdleConnections()
	return nil
}

// header returns headers as they are sent.
func header(m map[string]string) http.Header {
	h := make(http.Header, len(m))
	for k, v := range m {
		h.Set(k, v)
	}
	return h
}
