package egress_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/secret"
)

func mustURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// companyProxy is a proxy that keeps what it was asked. Status says how it
// answers; 200 connects.
type companyProxy struct {
	mu    sync.Mutex
	asked []*http.Request
	early string // sent with the answer
}

func (p *companyProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r)
	early := p.early
	p.mu.Unlock()
	if user, password, _ := parseBasic(r.Header.Get("Proxy-Authorization")); user != "me" || password != "open sesame" {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	out, err := net.Dial("tcp", r.Host)
	if err != nil {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	defer out.Close()
	in, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer in.Close()
	io.WriteString(in, "HTTP/1.1 200 Connection established\r\nX-Proxy: yes\r\n\r\n"+early)
	var both sync.WaitGroup
	both.Go(func() {
		io.Copy(out, buf)
		out.(*net.TCPConn).CloseWrite()
	})
	both.Go(func() {
		io.Copy(in, out)
		in.(interface{ CloseWrite() error }).CloseWrite()
	})
	both.Wait()
}

func parseBasic(header string) (user, password string, ok bool) {
	r := http.Request{Header: http.Header{"Authorization": {header}}}
	return r.BasicAuth()
}

// shouter sends back in upper case, until it is told that nothing follows.
func shouter(t testing.TB) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accept(t, l, func(c net.Conn) {
		b, _ := io.ReadAll(c)
		io.WriteString(c, strings.ToUpper(string(b)))
	})
	return netip.MustParseAddrPort(l.Addr().String())
}

// speak sends a word and returns what comes back.
func speak(t testing.TB, c net.Conn) string {
	t.Helper()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestUpstreamProxy(t *testing.T) {
	// Not what the environment says: nothing listens there.
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	to := shouter(t)
	direct := newHost(t, egress.HostOptions{}, netip.MustParseAddrPort("127.0.0.1:1"))
	c, err := direct.Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	if got := speak(t, c); got != "HELLO" {
		t.Errorf("directly: %q", got)
	}
	c.Close()

	p := &companyProxy{}
	plain, secured := httptest.NewServer(p), httptest.NewUnstartedServer(p)
	defer plain.Close()
	secured.EnableHTTP2 = true // which CONNECT is not spoken in
	secured.StartTLS()
	defer secured.Close()
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secured.Certificate().Raw})
	names := serveDNS(t, func(w dns.ResponseWriter, q *dns.Msg) {
		answerWith(w, q, q.Question[0].Name+" 60 IN A 127.0.0.1", q.Question[0].Name+" 60 IN AAAA 2001:db8::1")
	})
	port := func(s *httptest.Server) string { return s.URL[strings.LastIndexByte(s.URL, ':'):] }
	for what, o := range map[string]egress.HostOptions{
		"http":          {Proxy: mustURL(t, plain.URL)},
		"http, a name":  {Proxy: mustURL(t, "http://Proxy.Example"+port(plain))},
		"https":         {Proxy: mustURL(t, secured.URL), ProxyCA: roots},
		"https, a name": {Proxy: mustURL(t, "https://example.com"+port(secured)+"/"), ProxyCA: roots},
	} {
		for _, early := range []string{"", "early "} {
			p.mu.Lock()
			p.early = early
			p.mu.Unlock()
			o.ProxyUser, o.ProxyPassword = "me", secret.New("proxy", "open sesame")
			c, err := newHost(t, o, names.addr).Dial(t.Context(), to)
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			if got := speak(t, c); got != early+"HELLO" {
				t.Errorf("%s: %q", what, got)
			}
			c.Close()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asked) != 8 {
		t.Errorf("%d requests", len(p.asked))
	}
	for _, r := range p.asked { // for what was judged, not for a name
		if r.Method != http.MethodConnect || r.RequestURI != to.String() || r.Host != to.String() || len(r.Header) != 1 {
			t.Errorf("asked for %s %s, host %s, %v", r.Method, r.RequestURI, r.Host, r.Header)
		}
	}
}

func TestUpstreamProxyRefuses(t *testing.T) {
	t.Parallel()
	to := shouter(t)
	proxy := httptest.NewServer(&companyProxy{})
	defer proxy.Close()
	secured := httptest.NewUnstartedServer(&companyProxy{})
	secured.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	secured.StartTLS()
	defer secured.Close()
	other := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: selfSigned(t)})
	closed := mustURL(t, "http://127.0.0.1:1")
	password := secret.New("proxy", "wrong password")
	ours := secret.New("proxy", "open sesame")
	for what, c := range map[string]struct {
		o    egress.HostOptions
		to   netip.AddrPort
		want string
		kind egress.Kind // empty: no *Error
	}{
		"no password":    {egress.HostOptions{Proxy: mustURL(t, proxy.URL)}, to, "407", egress.KindProxy},
		"wrong password": {egress.HostOptions{Proxy: mustURL(t, proxy.URL), ProxyUser: "me", ProxyPassword: password}, to, "407", egress.KindProxy},
		"not allowed":    {egress.HostOptions{Proxy: mustURL(t, proxy.URL), ProxyUser: "me", ProxyPassword: ours}, netip.MustParseAddrPort("127.0.0.1:1"), "403", egress.KindProxy},
		"not there":      {egress.HostOptions{Proxy: closed}, to, "refused", ""},
		"unknown signer": {egress.HostOptions{Proxy: mustURL(t, secured.URL), ProxyCA: other}, to, "certificate", ""},
		"plain for TLS":  {egress.HostOptions{Proxy: mustURL(t, strings.Replace(proxy.URL, "http:", "https:", 1)), ProxyCA: other}, to, "", ""},
	} {
		conn, err := newHost(t, c.o, netip.MustParseAddrPort("127.0.0.1:1")).Dial(t.Context(), c.to)
		if err == nil {
			conn.Close()
		}
		e, ok := errors.AsType[*egress.Error](err)
		if err == nil || !strings.Contains(err.Error(), c.want) || ok != (c.kind != "") || ok && e.Kind != c.kind ||
			strings.Contains(err.Error(), "password") || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// selfSigned is the certificate of nobody in particular.
func selfSigned(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// A proxy that answers rubbish, too much, nothing, or not at all.
func TestUpstreamProxyAnswers(t *testing.T) {
	t.Parallel()
	for what, answer := range map[string]string{
		"rubbish":  "\x00\x01\x02\r\n\r\n",
		"endless":  "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20),
		"nothing":  "",
		"cut":      "HTTP/1.1 200 OK\r\nX: y",
		"hesitant": "HTTP/1.1 100 Continue\r\n\r\n",
		"redirect": "HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, answer)
		})
		h := newHost(t, egress.HostOptions{Proxy: mustURL(t, "http://"+l.Addr().String())}, netip.MustParseAddrPort("127.0.0.1:1"))
		if c, err := h.Dial(t.Context(), netip.MustParseAddrPort("192.0.2.1:443")); err == nil {
			c.Close()
			t.Errorf("%s: connected", what)
		}
		l.Close()
		all.Wait()
	}

	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	h := newHost(t, egress.HostOptions{Proxy: mustURL(t, "http://"+l.Addr().String())}, netip.MustParseAddrPort("127.0.0.1:1"))
	if c, err := h.Dial(ctx, netip.MustParseAddrPort("192.0.2.1:443")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v", c, err)
	}
}
