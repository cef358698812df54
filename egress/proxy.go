package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/rein-sh/rein/egress/policy"
)

// ProxyPort of the gateway's own addresses is an HTTP proxy, for programs that
// know no other way out. It decides as the gateway does about connections that
// are made directly.
const ProxyPort = 3128

const (
	maxProxyConns = 256 // to the proxy; what they lead to is under Limits
	proxyWindow   = bufferDefault

	ruleProxy = "proxy" // the Rule of what nobody may ask of the proxy
)

func newProxyListener(g *Gateway) *listener {
	l := newListener(g, proxyWindow, maxProxyConns)
	l.full = func(id stack.TransportEndpointID, open int) {
		g.refuseLink(policy.TCP, destination(id), fmt.Sprintf("%d connections to the proxy are open", open))
	}
	l.serve = func(id stack.TransportEndpointID, c *gonet.TCPConn, ep tcpip.Endpoint) {
		g.serveOwn(id, c, ep, func(p *proxyConn) http.Handler { return p })
	}
	return l
}

// isProxy reports whether a connection is to the proxy.
func isProxy(to netip.AddrPort) bool {
	return to.Port() == ProxyPort && (to.Addr() == gateway4 || to.Addr() == gateway6)
}

// serveOwn has one connection to the gateway's own address, whose requests the
// handler takes.
func (g *Gateway) serveOwn(id stack.TransportEndpointID, inside *gonet.TCPConn, ep tcpip.Endpoint, handler func(*proxyConn) http.Handler) {
	if ep == nil {
		return
	}
	c := &insideConn{inside, ep}
	v := &proxyConn{g: g, inside: c, to: destination(id), from: id.RemotePort, socket: socketOf(id)}
	torn := serveConn(g.ctx, c, handler(v), func(err error) { v.deny(endpoint{}, policy.Verdict{Rule: ruleHTTP, Reason: err.Error()}) })
	v.leave()
	if torn != nil {
		c.Abort()
		return
	}
	timeout := tcpip.TCPUserTimeoutOption(closeTimeout)
	_ = ep.SetSockOpt(&timeout) // fails only for a negative value
	_ = c.Close()               // never fails; what was written is sent
}

// proxyConn is a client's connection to the proxy. Its requests come one after
// the other.
type proxyConn struct {
	g      *Gateway
	inside *insideConn
	to     netip.AddrPort // the proxy, as the client knows it
	from   uint16
	socket Socket

	idle atomic.Pointer[web] // the last request's; who takes it out has to end it
}

// keep has w wait for the next request, unless its flow has to end.
func (p *proxyConn) keep(w *web) {
	p.idle.Store(w)
	if w.f.ctx.Err() != nil {
		p.drop(w)
	}
}

// drop ends w if it waits: it gives its place back at once, not when the client
// says something.
func (p *proxyConn) drop(w *web) {
	if p.idle.CompareAndSwap(w, nil) {
		w.end()
	}
}

// leave ends the connection to the last request's host.
func (p *proxyConn) leave() {
	if w := p.idle.Swap(nil); w != nil {
		w.end()
	}
}

// ServeHTTP answers CONNECT, and requests for an absolute http URL.
func (p *proxyConn) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	to, err := p.target(r)
	switch {
	case err == nil && r.Method != http.MethodConnect && isDoor(netip.AddrPortFrom(to.addr, to.port)) && len(p.g.models.hosts) > 0:
		(&doorConn{p}).ServeHTTP(rw, r)
	case err != nil:
		v := policy.Verdict{Rule: ruleProxy, Reason: clip(err.Error())}
		p.deny(to, v)
		writePage(rw, r, http.StatusForbidden, page{Rule: v.Rule, Reason: v.Reason})
	case r.Method == http.MethodConnect:
		p.leave()
		p.connect(rw, r, to)
	default:
		p.forward(rw, r, to, false)
	}
}

// target is where a request leads.
func (p *proxyConn) target(r *http.Request) (endpoint, error) {
	host, port := r.URL.Hostname(), r.URL.Port()
	switch {
	case r.Method == http.MethodConnect:
		var err error
		if host, port, err = net.SplitHostPort(r.RequestURI); err != nil {
			return endpoint{}, errors.New("CONNECT is for a host and a port")
		}
	case r.URL.Host == "":
		return endpoint{}, errors.New("this is a proxy: a request for a server's own path leads nowhere")
	case r.URL.Scheme != "http":
		return endpoint{}, fmt.Errorf("a request for %s is made with CONNECT", (&url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host}).String())
	case port == "":
		port = "80"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return endpoint{}, errors.New("no such port")
	}
	return p.g.written(host, uint16(n))
}

// written is what a host in text and a port are: the same as they would be in
// a connection made directly.
func (g *Gateway) written(host string, port uint16) (endpoint, error) {
	if addr, err := policy.ParseAddr(host); err == nil {
		if name, ok := g.names.lookup(addr); ok {
			return endpoint{name: name, port: port}, nil
		}
		return endpoint{addr: addr, port: port}, nil
	}
	name, err := policy.Canonical(host)
	return endpoint{name: name, port: port}, err
}

// open makes the connection to where a request leads. When it may not be, or
// cannot, the request has been answered and the result is nil.
func (p *proxyConn) open(rw http.ResponseWriter, r *http.Request, to endpoint, door bool) *flow {
	f, refused := p.g.newFlowBy(to, p.from, door)
	f.socket = p.socket
	if refused != nil {
		f.owner = p.owner()
		f.record(refused)
		p.answer(rw, r, to, refused)
		return nil
	}
	f.seekOwner(true)
	err := error(nil)
	if v := f.policy.Plain(f.verdict, to.port); r.Method != http.MethodConnect && !door && v.Action == policy.Deny {
		err = &refusal{v}
	}
	if err == nil && to.name != "" && !door { // as if it had been asked for
		_, _, err = p.g.names.bind(to.name, f.verdict.Rule)
	}
	if err == nil {
		err = f.connect()
	}
	if err != nil {
		f.end(err)
		p.answer(rw, r, to, err)
		return nil
	}
	f.holdForOwner()
	return f
}

// answer says why a request leads nowhere.
func (p *proxyConn) answer(rw http.ResponseWriter, r *http.Request, to endpoint, err error) {
	status, say := http.StatusBadGateway, page{Host: to.host(), Port: to.port, Reason: toldOf(err)}
	var refused *refusal
	if errors.As(err, &refused) {
		status, say.Rule, say.Reason = http.StatusForbidden, refused.verdict.Rule, refused.verdict.Reason
	}
	writePage(rw, r, status, say)
}

// forward carries one request, over the connection of the one before when it
// leads to the same place.
func (p *proxyConn) forward(rw http.ResponseWriter, r *http.Request, to endpoint, door bool) {
	w := p.idle.Swap(nil)
	if w != nil && (w.f.to != to || w.f.door != door || w.f.ctx.Err() != nil) {
		w.end()
		w = nil
	}
	if w == nil {
		f := p.open(rw, r, to, door)
		if f == nil {
			return
		}
		w = newWeb(f)
		w.aborted = context.AfterFunc(f.ctx, func() { p.drop(w) })
	}
	defer p.keep(w)
	w.ServeHTTP(rw, r)
}

// end ends the web's flow, too.
func (w *web) end() {
	w.aborted()
	w.close()
	w.f.end(nil)
}

// connect makes the rest of the connection one to a host, which is served as if
// it had been made directly.
func (p *proxyConn) connect(rw http.ResponseWriter, r *http.Request, to endpoint) {
	f := p.open(rw, r, to, false)
	if f == nil {
		return
	}
	c, rest, err := http.NewResponseController(rw).Hijack()
	if err == nil {
		_, err = c.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n"))
	}
	if err != nil {
		f.end(err)
		return
	}
	t := &tunnel{Conn: c, in: rest.Reader, under: p.inside}
	f.inside = t
	if err = f.run(); err == nil && context.Cause(f.ctx) == nil {
		f.forget(t) // it is closed as the client's connection is
	}
	f.end(err)
}

// deny records what was refused before it led anywhere.
func (p *proxyConn) deny(to endpoint, v policy.Verdict) {
	a := Attempt{Time: time.Now(), Proto: policy.HTTP, Name: to.name, Address: to.addr, Port: to.port,
		Verdict: verdictDeny, Rule: v.Rule, Reason: v.Reason, LocalPort: p.from, Owner: p.owner()}
	if to == (endpoint{}) {
		a.Address, a.Port = p.to.Addr(), p.to.Port()
	}
	_, a.Generation = p.g.inForce()
	p.g.log.add(a)
}

// owner is who in the sandbox holds the client's connection.
func (p *proxyConn) owner() string {
	if !p.g.mayFindOwner() {
		return ""
	}
	defer p.g.ownerFound()
	return p.g.findOwner(p.g.ctx, p.socket)
}

// tunnel is a client's connection to the proxy after CONNECT.
type tunnel struct {
	net.Conn
	in    *bufio.Reader
	under *insideConn
}

func (t *tunnel) Read(p []byte) (int, error) { return t.in.Read(p) }

// CloseWrite passes the end of what the host sends on.
func (t *tunnel) CloseWrite() error { return t.under.CloseWrite() }

// Abort resets the client's connection.
func (t *tunnel) Abort() { t.under.Abort() }
