package egress

import (
	"bufio"
	"context"
	"net"
	"net/http"

	"github.com/rein-sh/rein/egress/vault"
)

// answer passes on what a server answered, without the fields that net/http
// adds to the answers of its own handlers.
type answer struct {
	http.ResponseWriter
	f      *flow
	tunnel bool // was asked for: what follows the request is no HTTP
	grant  *vault.Grant
	opened *opened
}

// FlushError sends what is there. Of an answer without a body that is its end: in
// HTTP/2 it has to be the head's own, where gRPC looks for how a call failed.
func (a *answer) FlushError() error {
	if a.opened.empty {
		return nil
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

func (a *answer) WriteHeader(code int) {
	if code == http.StatusContinue {
		return // net/http says so when the body is read: now that the server has
	}
	h := a.Header()
	if code < 200 {
		a.grant.Mask(h) // modify sees the last answer alone
	} else {
		for _, name := range []string{"Content-Type", "Date"} {
			if _, ok := h[name]; !ok {
				h[name] = nil
			}
		}
		if a.tunnel {
			h.Set("Connection", "close")
		}
	}
	a.ResponseWriter.WriteHeader(code)
}

// Hijack returns a connection that begins with what the client sent after its
// request, which httputil.ReverseProxy would leave behind.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	u := &upgraded{c.(*framed), rw.Reader, a.f}
	if u.proxied() && !a.f.watch(u.Conn) {
		return nil, nil, context.Cause(a.f.ctx)
	}
	if a.grant != nil {
		return newSocket(u, a.grant), rw, nil
	}
	return u, rw, nil
}

// upgraded is a client's connection that speaks HTTP no longer.
type upgraded struct {
	*framed // whose CloseWrite is what a server's end of its direction becomes
	buf     *bufio.Reader
	f       *flow
}

// proxied reports whether the connection is one to the proxy, which a flow that
// is aborted has reset for as long as it carries nothing else.
func (u *upgraded) proxied() bool { return u.f.inside == nil }

// Close ends what was upgraded.
func (u *upgraded) Close() error {
	if u.proxied() {
		u.f.forget(u.Conn)
	}
	return u.framed.Close()
}

func (u *upgraded) Read(p []byte) (int, error) { return u.buf.Read(p) }

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
