package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/rein-sh/rein/secret"
)

// maxProxyAnswer bounds the head of a proxy's answer.
const maxProxyAnswer = 16 << 10

// upstream is the proxy through which this host reaches others.
type upstream struct {
	host     string // a name in its canonical form, or an address
	port     uint16
	tls      *tls.Config // nil: none
	user     string
	password secret.Value
	resolver *resolver
}

func newUpstream(o HostOptions, r *resolver) (*upstream, error) {
	u := &upstream{host: strings.ToLower(o.Proxy.Hostname()), user: o.ProxyUser, password: o.ProxyPassword, resolver: r}
	switch {
	case u.host == "":
		return nil, errors.New("it names no host")
	case o.Proxy.User != nil:
		return nil, errors.New("a user and a password do not belong into the URL")
	case strings.Contains(u.user, ":"):
		return nil, errors.New("its user has a colon, which ends the user in basic authentication (RFC 7617 2)")
	case o.Proxy.Path != "" && o.Proxy.Path != "/", o.Proxy.RawQuery != "", o.Proxy.Fragment != "":
		return nil, errors.New("it is more than a host and a port")
	}
	switch o.Proxy.Scheme {
	case "http":
		u.port = 80
	case "https":
		u.port = 443
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(o.ProxyCA) {
			return nil, errors.New("an https proxy needs the certificates, in PEM, that its own is signed by")
		}
		u.tls = &tls.Config{ServerName: u.host, RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	default:
		return nil, fmt.Errorf("its scheme is %q", o.Proxy.Scheme)
	}
	if p := o.Proxy.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("port %s is not between 1 and 65535", p)
		}
		u.port = uint16(n)
	}
	return u, nil
}

// dial reaches an address through the proxy.
func (u *upstream) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	c, err := u.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("reach the upstream proxy: %w", err)
	}
	done, err := u.tunnel(ctx, c, to)
	if err != nil {
		_ = c.Close() // err is why
		if ctx.Err() != nil {
			err = ctx.Err() // what was seen is its consequence
		}
		return nil, err
	}
	return done, nil
}

// connect opens a connection to the proxy itself.
func (u *upstream) connect(ctx context.Context) (net.Conn, error) {
	addr, err := netip.ParseAddr(u.host)
	addrs := []netip.Addr{addr}
	if err != nil {
		if addrs, err = u.resolver.lookup(ctx, u.host); err != nil {
			return nil, err
		}
	}
	to := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		to[i] = netip.AddrPortFrom(a, u.port)
	}
	c, _, err := dialFirst(ctx, dialExactly, to)
	if err != nil || u.tls == nil {
		return c, err
	}
	secured := tls.Client(c, u.tls)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = c.Close() // err is why
		return nil, err
	}
	return secured, nil
}

// tunnel asks the proxy for the address. The connection returned carries what
// follows its answer, from the first byte.
func (u *upstream) tunnel(ctx context.Context, c net.Conn, to netip.AddrPort) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // fails only when closed
	head := "CONNECT " + to.String() + " HTTP/1.1\r\nHost: " + to.String() + "\r\n"
	if u.user != "" {
		head += "Proxy-Authorization: Basic " +
			base64.StdEncoding.EncodeToString([]byte(u.user+":"+u.password.Reveal())) + "\r\n"
	}
	if _, err := io.WriteString(c, head+"\r\n"); err != nil {
		return nil, err
	}
	buf := bufio.NewReader(io.LimitReader(c, maxProxyAnswer))
	answer, err := http.ReadResponse(buf, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, fmt.Errorf("the upstream proxy's answer: %w", err)
	}
	if err := proxyRefusal(to, answer.StatusCode); err != nil {
		return nil, err
	}
	if !stop() { // ctx has ended, and the connection with it
		return nil, ctx.Err()
	}
	early, _ := buf.Peek(buf.Buffered()) // what is buffered can be peeked at
	if len(early) == 0 {
		return c, nil
	}
	return &earlyConn{Conn: c, early: early}, nil
}

// proxyRefusal explains an answer that is no tunnel.
func proxyRefusal(to netip.AddrPort, status int) error {
	fail := func(hint string) error {
		return &Error{Kind: KindProxy, Op: "reach", Subject: to.String(),
			Err: fmt.Errorf("the upstream proxy answers %d %s", status, http.StatusText(status)), Hint: hint}
	}
	switch {
	case status >= 200 && status < 300:
		return nil
	case status == http.StatusProxyAuthRequired:
		return fail("it wants a user and a password: egress.upstream_proxy names them")
	case status == http.StatusForbidden:
		return fail("it is asked for addresses, not for names; it must allow that")
	}
	return fail("")
}

// earlyConn is a connection whose first bytes came with the proxy's answer.
type earlyConn struct {
	net.Conn
	early []byte // of one reader
}

func (c *earlyConn) Read(b []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(b, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// CloseWrite ends what is written, where the connection can tell.
func (c *earlyConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SetLinger is that of TCP.
func (c *earlyConn) SetLinger(seconds int) error {
	if l, ok := c.Conn.(interface{ SetLinger(int) error }); ok {
		return l.SetLinger(seconds)
	}
	return errors.ErrUnsupported
}
