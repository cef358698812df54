package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
)

const (
	idleTimeout     = 5 * time.Minute  // of a client between requests
	upstreamIdle    = 90 * time.Second // of a server between requests
	continueTimeout = time.Second      // for a server to answer Expect: 100-continue
	maxAnswerHead   = 1 << 20
	lingerTimeout   = 500 * time.Millisecond
	lingerBytes     = 1 << 20

	// maxUpstream are the connections to a server that speaks HTTP/1.1, where
	// the client sends many requests at once in HTTP/2.
	maxUpstream = 8

	// firstUnused is how long the connection that was made with the flow
	// waits for its first request. Servers close those of whom they hear
	// nothing, which shows only when it is too late.
	firstUnused = 5 * time.Second

	// ruleHTTP is the Rule of what is not HTTP/1.1 as RFC 9112 says, whatever
	// rule of the policy speaks of its host.
	ruleHTTP = "http.framing"
)

// serveHTTP judges every request of a connection and carries those that may
// pass.
func serveHTTP(ctx context.Context, f *flow) error {
	w := newWeb(f)
	defer w.close()
	return serveConn(ctx, f.inside, w, func(err error) { f.deny(policy.Verdict{Rule: ruleHTTP, Reason: err.Error()}) })
}

// serveConn serves the requests of one connection until it ends, or ctx. It
// sends the end of the connection and leaves closing it to the caller. fault
// is told what is wrong with the client's HTTP, after which h is not asked. With
// an error the caller resets the connection.
func serveConn(ctx context.Context, c net.Conn, h http.Handler, fault func(error)) error {
	in := newFramed(c, fault)
	var torn atomic.Bool
	in.cause = func() error {
		if torn.Load() {
			return errTorn
		}
		return ctx.Err()
	}
	one := newOneConn(in)
	requests := 0
	s := &http.Server{
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			one.handlers.Add(1)
			defer one.handlers.Done()
			requests++ // one after the other
			if err := in.stands(requests); err != nil {
				writePage(rw, r, http.StatusBadRequest, page{Rule: ruleHTTP, Reason: err.Error()})
				return
			}
			whole := r.ProtoAtLeast(1, 1) // then the answer itself says how long it is
			defer func() {
				if !whole { // the handler panicked, for which net/http ends the connection
					torn.Store(true)
				}
			}()
			h.ServeHTTP(rw, r)
			whole = true
		}),
		ReadHeaderTimeout:            idleTimeout, // a head that has begun has less: see framed
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               2 * maxHead,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(ctx, framedKey{}, in)
		},
		ConnState: one.state,
	}
	one.serve(ctx, s)
	one.handlers.Wait() // of one that took the connection over
	if torn.Load() {
		return errTorn
	}
	in.linger()
	return nil
}

// errTorn resets a connection in the middle of an answer that would seem to be
// whole where the connection just ended.
var errTorn = errors.New("an answer was cut short")

// framedKey is where the context of a request has the *framed it came from.
type framedKey struct{}

// oneConn is a listener that accepts one connection and ends with it.
type oneConn struct {
	net.Conn
	accepted bool // of the goroutine that accepts
	once     sync.Once
	closed   chan struct{}
	ended    chan struct{} // the connection has, or was taken over
	handlers sync.WaitGroup
}

func newOneConn(c net.Conn) *oneConn {
	return &oneConn{Conn: c, closed: make(chan struct{}), ended: make(chan struct{})}
}

// state is what the server calls as the connection changes.
func (l *oneConn) state(_ net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked {
		close(l.ended)
		_ = l.Close() // never fails
	}
}

// serve returns when the connection has ended, or was taken over.
func (l *oneConn) serve(ctx context.Context, s *http.Server) {
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // never fails: the connection's does not
	defer stop()
	_ = s.Serve(l) // says that one was closed
	if l.accepted {
		<-l.ended
	}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if !l.accepted {
		l.accepted = true
		return l.Conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *oneConn) Addr() net.Addr { return l.LocalAddr() }

// web carries requests to the host of one flow, over connections to what was
// judged for it. It knows nothing of how the requests came.
type web struct {
	f         *flow
	scheme    string // http or https
	transport *http.Transport
	upgrades  *http.Transport // of https: for what HTTP/2 cannot carry
	proxy     *httputil.ReverseProxy
	aborted   func() bool // stops what waits for the flow's end; of the gateway's proxy

	mu    sync.Mutex
	first net.Conn // made with the flow and not used yet
}

func newWeb(f *flow) *web {
	w := &web{f: f, first: f.outside, scheme: "http"}
	w.transport = w.newTransport()
	if f.verdict.Proto == policy.HTTPS {
		w.scheme = "https"
		w.transport.MaxConnsPerHost, w.transport.MaxIdleConnsPerHost = maxUpstream, maxUpstream
		w.upgrades = w.newTransport()
		w.transport.Protocols.SetHTTP2(true)
		w.transport.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: maxWaiting, MaxReceiveBufferPerConnection: maxWaitingAll}
	}
	w.proxy = &httputil.ReverseProxy{
		Rewrite:        w.rewrite,
		Transport:      w,
		FlushInterval:  -1, // at once
		BufferPool:     w.f.gateway.buffers,
		ModifyResponse: w.modify,
		ErrorHandler:   w.fail,
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	return w
}

func (w *web) newTransport() *http.Transport {
	t := &http.Transport{
		DialContext:            w.dial,
		TLSClientConfig:        &tls.Config{RootCAs: w.f.gateway.opts.Roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    helloTimeout,
		DisableCompression:     true, // nothing is asked for that the client did not
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        upstreamIdle,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: maxAnswerHead,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// close ends the connections that no request uses.
func (w *web) close() {
	w.transport.CloseIdleConnections()
	if w.upgrades != nil {
		w.upgrades.CloseIdleConnections()
	}
}

// ServeHTTP judges one request and carries it, or answers with the refusal.
func (w *web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	key, reads, refused := w.judge(r)
	defer w.f.answered(key)
	if refused != nil {
		w.refuse(rw, r, refused)
		return
	}
	grant, err := w.vault().Judge(w.target(), r, requestPath(r))
	if err != nil {
		w.fail(rw, r, err)
		return
	}
	if reads {
		r = r.WithContext(context.WithValue(r.Context(), readsKey{}, true))
	}
	if grant != nil {
		grant.Found = func(why *vault.Refusal) { w.f.deny(policy.Verdict{Rule: why.Rule, Reason: why.Reason}) }
		r = r.WithContext(context.WithValue(r.Context(), grantKey{}, grant))
	}
	if w.f.model != nil {
		w.serveModel(rw, r, grant)
		return
	}
	w.carry(rw, r, grant)
}

// carry sends a request that may pass, and passes on what it is answered.
func (w *web) carry(rw http.ResponseWriter, r *http.Request, grant *vault.Grant) {
	var opened opened
	defer opened.close()
	r = r.WithContext(context.WithValue(r.Context(), openedKey{}, &opened))
	w.proxy.ServeHTTP(&answer{rw, w.f, isWebSocket(r.Header), grant, &opened}, r)
}

// vault looks through what passes: that of a host of models is always decoded.
func (w *web) vault() *vault.Vault {
	if w.f.model != nil {
		return w.f.gateway.models.vault
	}
	return w.f.gateway.opts.Vault
}

// target is what secrets are bound to. To what is not within TLS none is.
func (w *web) target() vault.Target {
	if w.scheme != "https" {
		return vault.Target{}
	}
	return vault.Target{Host: w.f.to.name, Port: w.f.to.port}
}

// openedKey is where the context of a request has what its answer holds, of which
// httputil.ReverseProxy does not give everything back: not what it cannot pass on.
type openedKey struct{}

type opened struct {
	body  io.Closer
	empty bool // it has no body, and nothing after it
}

func (o *opened) close() {
	if o.body != nil {
		_ = o.body.Close() // nobody reads it any more
	}
}

// modify makes of what a server answered what is passed on. A request whose body was
// found to be none is not answered by the server, which may do so as soon as it sees
// that no more comes.
func (w *web) modify(resp *http.Response) error {
	if in, ok := resp.Request.Context().Value(framedKey{}).(*framed); ok && in.inBody() != nil {
		return in.inBody()
	}
	if resp.StatusCode < 100 || resp.StatusCode > 999 { // net/http panics of others
		return fmt.Errorf("the server answers %d, which is no status", resp.StatusCode)
	}
	if len(resp.Trailer) > 0 { // HTTP/1.1 has them after chunks alone
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
	}
	err := grantOf(resp.Request).Answer(resp)
	if m := meteredOf(resp.Request); m != nil && err == nil {
		err = m.answered(resp)
	}
	if o, ok := resp.Request.Context().Value(openedKey{}).(*opened); ok {
		o.body, o.empty = resp.Body, resp.ContentLength == 0 && len(resp.Trailer) == 0
	}
	return err
}

// grantKey is where the context of a request has what the vault gives it.
type grantKey struct{}

func grantOf(r *http.Request) *vault.Grant {
	grant, _ := r.Context().Value(grantKey{}).(*vault.Grant)
	return grant
}

// RoundTrip sends a request that was judged, with what it is given.
func (w *web) RoundTrip(out *http.Request) (*http.Response, error) {
	var taken []string
	if reads(out) {
		taken = reduce(out)
	}
	if w.f.model != nil && !w.vault().Bound(w.target()) {
		taken = vault.Take(out)
	}
	path := cmp.Or(out.URL.Opaque, out.URL.EscapedPath())
	if err := grantOf(out).Apply(out, path); err != nil {
		return nil, err
	}
	if w.f.model != nil {
		w.f.model.lead(out, cmp.Or(out.URL.Opaque, path))
	}
	if m := meteredOf(out); m != nil {
		out = m.watch(out)
	}
	w.f.took(slices.DeleteFunc(taken, func(name string) bool { return out.Header[name] != nil })) // a secret is there in its place
	if w.upgrades != nil && isWebSocket(out.Header) {
		return w.upgrades.RoundTrip(out)
	}
	return w.transport.RoundTrip(out)
}

// rewrite makes of a request that came the one that goes out: the same, but
// for what is about a single hop.
func (w *web) rewrite(p *httputil.ProxyRequest) {
	in, out := p.In, p.Out
	out.URL = &url.URL{Scheme: w.scheme, Host: w.f.to.String(), Path: in.URL.Path, RawPath: in.URL.RawPath,
		RawQuery: in.URL.RawQuery, ForceQuery: in.URL.ForceQuery}
	if path, ok := rawPath(in); ok {
		out.URL.Opaque = path
	}
	out.Host = in.Host
	out.Trailer = in.Trailer // filled in when the body ends
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := in.Header[name]; ok {
			out.Header[name] = values // the client's own
		}
	}
	if !isWebSocket(in.Header) {
		out.Header.Del("Connection")
		out.Header.Del("Upgrade")
	}
}

// dial connects to the flow's host: to what was judged, whatever it is asked.
func (w *web) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	w.mu.Lock()
	first := w.first
	w.first = nil
	w.mu.Unlock()
	if first != nil {
		if time.Since(w.f.begin) < firstUnused {
			return first, nil
		}
		_ = first.Close() // nothing was sent
	}
	return w.f.dial(ctx)
}

// refuse answers a request that may not pass, and records it.
func (w *web) refuse(rw http.ResponseWriter, r *http.Request, why *refusal) {
	w.f.deny(why.verdict)
	w.say(rw, r, why)
}

func (w *web) say(rw http.ResponseWriter, r *http.Request, why *refusal) {
	status := http.StatusForbidden
	if why.verdict.Rule == policy.RuleHost && r.ProtoMajor == 2 {
		status = http.StatusMisdirectedRequest // RFC 9110 15.5.20
	}
	writePage(rw, r, status, page{Host: w.f.to.host(), Port: w.f.to.port, Rule: why.verdict.Rule, Reason: why.verdict.Reason})
}

// fail answers a request that could not be carried.
func (w *web) fail(rw http.ResponseWriter, r *http.Request, err error) {
	p := page{Host: w.f.to.host(), Port: w.f.to.port, Reason: grantOf(r).Text(toldOf(err))} // it may hold what the server said
	var refused *refusal
	if v, ok := errors.AsType[*vault.Refusal](err); ok {
		why := &refusal{policy.Verdict{Proto: policy.HTTPS, Rule: v.Rule, Reason: v.Reason}}
		if v.Told { // and recorded
			w.say(rw, r, why)
			return
		}
		err = why
	}
	in, _ := r.Context().Value(framedKey{}).(*framed)
	switch {
	case in != nil && in.inBody() != nil: // it was recorded when it was found
		p.Rule, p.Reason = ruleHTTP, in.inBody().Error()
		writePage(rw, r, http.StatusBadRequest, p)
	case errors.As(context.Cause(w.f.ctx), &refused): // the flow's own record has it
		w.say(rw, r, refused)
	case errors.As(err, &refused):
		w.refuse(rw, r, refused)
	case r.Context().Err() != nil: // the client has gone
		panic(http.ErrAbortHandler)
	default:
		if m := meteredOf(r); m != nil {
			m.failed = cmp.Or(m.failed, p.Reason)
		}
		writePage(rw, r, http.StatusBadGateway, p)
	}
}

// deny records that something on the flow was refused, which goes on.
func (f *flow) deny(v policy.Verdict) {
	g := f.gateway
	g.mu.Lock()
	addr := f.to.addr
	if f.to.name != "" {
		addr = f.dialled
	}
	proto := policy.HTTP
	if f.verdict.Proto == policy.HTTPS {
		proto = policy.HTTPS
	}
	g.mu.Unlock()
	a := Attempt{Time: time.Now(), Proto: proto, Name: f.to.name, Address: addr, Port: f.to.port,
		Verdict: verdictDeny, Rule: v.Rule, Reason: v.Reason, Generation: f.generation, LocalPort: f.from,
		Owner: f.awaitOwner()}
	g.log.add(a)
}

// linger takes for a while what the client still sends, so that it can read
// what it was answered before it is reset.
func (f *framed) linger() {
	if f.CloseWrite() == nil && f.Conn.SetReadDeadline(time.Now().Add(lingerTimeout)) == nil {
		_, _ = io.CopyN(io.Discard, f.Conn, lingerBytes) // whatever comes
	}
}

// Close ends what is sent, and reads. The connection is its owner's to close.
func (f *framed) Close() error {
	return errors.Join(f.CloseWrite(), f.SetReadDeadline(time.Unix(1, 0)))
}
