package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
)

const (
	// maxStreams are carried at once over one connection of HTTP/2.
	maxStreams = 250
	// maxAllStreams are carried at once for a sandbox, with some 100 KiB each,
	// and up to 600 where a server takes long frames.
	maxAllStreams = 1024
	protoHTTP2    = "h2" // in ALPN (RFC 9113 3.2)

	// maxFrame is the longest frame of HTTP/2, in bytes.
	maxFrame = 1 << 20

	// maxWaiting of one answer, and maxWaitingAll of those of one server, wait
	// for clients that do not read, in bytes.
	maxWaiting    = 1 << 20
	maxWaitingAll = 4<<20 - 1 // the most that net/http takes

	// ruleEnded is the Rule of connections whose TLS should end in the gateway
	// and cannot.
	ruleEnded = "tls.end"
)

// ended is v, for a host to which a secret is bound: TLS ends in the gateway
// there, whatever a rule says.
func (f *flow) ended(v policy.Verdict) policy.Verdict {
	g := f.gateway
	if v.Action == policy.Deny || f.to.name == "" || !g.opts.Vault.Bound(vault.Target{Host: f.to.name, Port: f.to.port}) {
		return v
	}
	switch v.Proto {
	case policy.TLS:
		v.Proto = policy.HTTPS
	case policy.TCP, policy.HTTP:
		return policy.Verdict{Rule: ruleEnded, Proto: v.Proto, Reason: fmt.Sprintf(
			"a secret is bound to %s, where only https may be spoken, and %s allows %s", f.to, v.Rule, v.Proto)}
	}
	return v
}

// serveHTTPS ends TLS, judges every request within and carries those that may
// pass over TLS of its own.
func serveHTTPS(ctx context.Context, f *flow) error {
	inside, err := f.endTLS(ctx)
	if err != nil {
		return err
	}
	w := newWeb(f)
	defer w.close()
	if inside.ConnectionState().NegotiatedProtocol == protoHTTP2 {
		return serveStreams(ctx, inside, http.HandlerFunc(w.limited))
	}
	return serveConn(ctx, inside, w, func(err error) { f.deny(policy.Verdict{Rule: ruleHTTP, Reason: err.Error()}) })
}

// endTLS judges the client's first message and makes a connection of TLS with
// it, in the name it was for.
func (f *flow) endTLS(ctx context.Context) (*tls.Conn, error) {
	var raw []byte
	var h hello
	err := within(ctx, helloTimeout, func() (err error) {
		raw, h, err = readHello(f.inside)
		return err
	}, f.inside)
	switch {
	case len(raw) == 0 && err != nil:
		return nil, fmt.Errorf("the client said nothing: %w", err)
	case errors.Is(err, errHidden): // from nobody here: the gateway answers to the name in sight, and knows no key for another
	case err != nil:
		return nil, &refusal{policy.Verdict{Proto: policy.HTTPS, Rule: ruleTLS,
			Reason: fmt.Sprintf("%s allows TLS only: %v", f.verdict.Rule, explain(err))}}
	}
	if err := f.judgeServer(h.serverName); err != nil {
		return nil, err
	}
	cert, err := f.gateway.opts.Authority.Certificate(f.to.name)
	if err != nil {
		return nil, err
	}
	c := tls.Server(&replayed{Conn: f.inside, first: bytes.NewReader(raw)}, &tls.Config{
		Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{protoHTTP2, "http/1.1"}})
	shake, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	if err := c.HandshakeContext(shake); err != nil {
		return nil, handshakeFailed(ctx, err)
	}
	return c, nil
}

// handshakeFailed says what a client that breaks off probably means.
func handshakeFailed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		return fmt.Errorf("the client did not accept the gateway's certificate, or its TLS: %w", alert)
	}
	return fmt.Errorf("TLS with the client: %w", err)
}

// replayed is a connection whose beginning was read already, and which its owner
// closes.
type replayed struct {
	net.Conn
	first *bytes.Reader
}

func (r *replayed) Read(p []byte) (int, error) {
	if r.first.Len() > 0 {
		return r.first.Read(p)
	}
	return r.Conn.Read(p)
}

// Close ends reads.
func (r *replayed) Close() error { return r.SetReadDeadline(time.Unix(1, 0)) }

// serveStreams serves the requests of one connection of HTTP/2 until it ends, or
// ctx. Several are served at once.
func serveStreams(ctx context.Context, c *tls.Conn, h http.Handler) error {
	handlers := &entered{Handler: h}
	one := newOneConn(c)
	s := &http.Server{
		Handler: handlers, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHead, ErrorLog: log.New(io.Discard, "", 0),
		Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame,
			MaxReceiveBufferPerStream: maxFrame, MaxReceiveBufferPerConnection: 4 * maxFrame},
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnState:   one.state,
	}
	s.Protocols.SetHTTP2(true)
	one.serve(ctx, s)
	handlers.wait()
	return nil
}

// limited refuses more requests than may be carried at once for the sandbox.
func (w *web) limited(rw http.ResponseWriter, r *http.Request) {
	g := w.f.gateway
	defer g.streams.Add(-1)
	if n := g.streams.Add(1); n > maxAllStreams {
		w.refuse(rw, r, overLimit("streams", "%d requests are being carried over HTTP/2", maxAllStreams))
		return
	}
	w.ServeHTTP(rw, r)
}

// entered is a handler whose calls can be waited for. Each is in a goroutine of
// its own, which may begin after its connection has ended: it does nothing then.
type entered struct {
	http.Handler

	mu     sync.Mutex
	over   bool
	inside sync.WaitGroup
}

func (e *entered) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	if e.over {
		e.mu.Unlock()
		return
	}
	e.inside.Add(1)
	e.mu.Unlock()
	defer e.inside.Done()
	e.Handler.ServeHTTP(rw, r)
}

func (e *entered) wait() {
	e.mu.Lock()
	e.over = true
	e.mu.Unlock()
	e.inside.Wait()
}

// checkStream refuses what a head of HTTP/2 can say and one of HTTP/1.1, as which
// it may be sent on, cannot.
func checkStream(r *http.Request) error {
	if !isToken(r.Method) || len(r.Method) > maxMethod {
		return faulty("the method of a request is malformed")
	}
	if !strings.HasPrefix(r.RequestURI, "/") && r.RequestURI != "*" && r.Method != http.MethodConnect {
		return faulty("the target of a request is no path")
	}
	for _, b := range []byte(r.RequestURI) {
		if b <= ' ' || b >= 0x7f {
			return faulty("the target of a request has a byte %#02x", b)
		}
	}
	for _, host := range r.Header["Host"] { // beside :authority (RFC 9113 8.3.1)
		if !strings.EqualFold(host, r.Host) {
			return faulty("a request has a Host that is not its :authority")
		}
	}
	if len(r.Header["Content-Length"]) > 1 {
		return faulty("a request says its length more than once")
	}
	for name := range r.Header {
		switch strings.ToLower(name) {
		case "content_length", "transfer_encoding":
			return faulty("a field is named %s, which some read as one of another name", name)
		}
	}
	return nil
}
