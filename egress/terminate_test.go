package egress_test

import (
	"bytes"
	"compress/gzip"
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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/secret"
)

// apiKey is a secret of the host.
const apiKey = "ghp_abcdEFGHijklMNOPqrstUVWXyz0123456789"

// ended is a sandbox for which TLS ends in the gateway, and a client in it that
// trusts what sandboxes trust. Its vault binds apiKey to api.example.com.
type ended struct {
	*away
	ns          *netns
	gateway     *egress.Gateway
	rec         *records
	client      *http.Client
	trust       *tls.Config    // of clients inside
	roots       *x509.CertPool // whom servers are certified by
	placeholder string
}

func endsTo(t testing.TB, doc policy.Document, bound bool, h http.HandlerFunc) *ended {
	t.Helper()
	e := &ended{away: newAway()}
	roots := e.secure(t, "api.example.com", "93.184.215.14:443", h, nil)
	e.behind("other.example.com", "93.184.215.15:443", e.servers[netip.MustParseAddrPort("93.184.215.14:443")])
	e.roots = roots
	authority, err := egress.NewAuthority("rein test")
	if err != nil {
		t.Fatal(err)
	}
	o := egress.Options{Host: e.away, Policy: compile(t, doc), Authority: authority, Roots: roots,
		Limits: egress.Limits{Bytes: 1 << 50, MaxUploadBytes: 1 << 50}}
	if bound {
		v, faults := vault.New(vault.Key{1}, []vault.Secret{{Name: "key", Value: secret.New("key", apiKey), Variable: "KEY",
			Use: []vault.Binding{{Host: "api.example.com", As: vault.Bearer}}}})
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		o.Vault, e.placeholder = v, v.Environment()["KEY"]
	}
	e.ns, e.gateway, e.rec = owned(t, o)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority.PEM())
	e.trust = &tls.Config{RootCAs: pool}
	e.client = inside(t, e.ns, e.trust)
	return e
}

// httpsTo allows hosts with TLS that ends in the gateway.
func httpsTo(hosts ...string) policy.Document {
	var d policy.Document
	for _, host := range hosts {
		d.Rules = append(d.Rules, policy.Rule{Host: host, Proto: "https"})
	}
	return d
}

func (e *ended) get(t testing.TB, url string, field ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(field); i += 2 {
		r.Header.Set(field[i], field[i+1])
	}
	res, err := e.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return res, body(t, res, nil)
}

// webSocket is one from the sandbox to api.example.com.
func (e *ended) webSocket(ctx context.Context, t testing.TB) *websocket.Conn {
	t.Helper()
	client := inside(t, e.ns, &tls.Config{RootCAs: e.trust.RootCAs})
	client.Timeout = 0
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	c, _, err := websocket.Dial(ctx, "wss://api.example.com/", &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	return c
}

// Each side speaks the HTTP it likes, and sees the other's.
func TestEndsTLS(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			e := endsTo(t, httpsTo("api.example.com"), false, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Via", r.Proto)
				w.Header().Set("Trailer", "X-Sum")
				fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, r.RequestURI)
				w.Header().Set("X-Sum", "7")
			})
			e.client.Transport.(*http.Transport).ForceAttemptHTTP2 = proto == "HTTP/2.0"
			res, text := e.get(t, "https://api.example.com/a%2Fb?c=%20d")
			if res.Proto != proto || text != "GET api.example.com /a%2Fb?c=%20d" || res.Header.Get("X-Via") != "HTTP/2.0" || res.Trailer.Get("X-Sum") != "7" {
				t.Errorf("%s: %q, %v, trailer %v", res.Proto, text, res.Header, res.Trailer)
			}
			e.client.CloseIdleConnections()
			a := e.rec.wait(t, verdictOf("allow", "api.example.com"))
			if a.Proto != policy.HTTPS || a.BytesOut < 300 || a.BytesIn < 300 {
				t.Errorf("recorded %+v", a)
			}
		})
	}
}

// Methods and paths of what is within TLS are judged.
func TestEndedByMethodAndPath(t *testing.T) {
	t.Parallel()
	doc := policy.Document{Rules: []policy.Rule{{Host: "api.example.com", Proto: "https", Methods: []string{"GET"}, Paths: []string{"/simple/*"}}}}
	e := endsTo(t, doc, false, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "served") })
	if res, text := e.get(t, "https://api.example.com/simple/x"); res.StatusCode != 200 || text != "served" {
		t.Errorf("%d %q", res.StatusCode, text)
	}
	if res, text := e.get(t, "https://api.example.com/admin"); res.StatusCode != 403 || !strings.Contains(text, "no rule allows") {
		t.Errorf("%d %q", res.StatusCode, text)
	}
	res, err := e.client.Post("https://api.example.com/simple/x", "text/plain", strings.NewReader("x"))
	if text := body(t, res, err); res.StatusCode != 403 {
		t.Errorf("%d %q", res.StatusCode, text)
	}
	e.rec.wait(t, verdictOf("deny", "api.example.com"))
}

// The server has to prove who it is, to the gateway.
func TestEndedVerifiesServer(t *testing.T) {
	t.Parallel()
	e := endsTo(t, httpsTo("api.example.com", "www.example.net"), false, func(w http.ResponseWriter, r *http.Request) { t.Error("it was asked") })
	e.behind("www.example.net", "93.184.215.16:443", e.servers[netip.MustParseAddrPort("93.184.215.14:443")])
	res, text := e.get(t, "https://www.example.net/")
	if res.StatusCode != 502 || !strings.Contains(text, "certificate") {
		t.Errorf("%d %q", res.StatusCode, text)
	}
}

// A client that names another server, or none, or asks for another host within,
// is refused.
func TestEndedForAnotherName(t *testing.T) {
	t.Parallel()
	e := endsTo(t, httpsTo("api.example.com", "other.example.com"), true, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "served ", r.Host) })
	for _, name := range []string{"other.example.com", ""} {
		c := tls.Client(mustReach(t, e.ns, "api.example.com", 443), &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err := c.Handshake(); err == nil {
			t.Errorf("server name %q: answered", name)
		}
		c.Close()
	}
	r, _ := http.NewRequest("GET", "https://api.example.com/", nil)
	r.Host = "other.example.com"
	res, err := e.client.Do(r)
	if text := body(t, res, err); err == nil && (res.ProtoMajor != 2 || res.StatusCode != http.StatusMisdirectedRequest) {
		t.Errorf("another authority: %s %d %q", res.Proto, res.StatusCode, text)
	}
}

// A host with a secret is reached by its own name only: not by an address, nor by
// another name for which anything may be sent. Another host is not bothered, and
// where the first one's addresses cannot be told, nothing is passed through.
func TestBoundHostBesideItsName(t *testing.T) {
	t.Parallel()
	doc := policy.Document{Rules: []policy.Rule{{Host: "api.example.com", Proto: "https"}, {Host: "alias.example.com", Ports: []int{443}, Proto: "tcp"},
		{CIDR: "93.184.215.0/24", Ports: []int{443}, Proto: "tcp"}}}
	const nat64 = "[64:ff9b::93.184.215.14]:443" // the same place, where a network translates
	served := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "served") }
	e := endsTo(t, doc, true, served)
	e.behind("alias.example.com", "93.184.215.14:443", e.servers[netip.MustParseAddrPort("93.184.215.14:443")])
	dial := func(to string) (err error) {
		var c net.Conn
		e.ns.do(func() error {
			c, err = net.Dial("tcp", to)
			return nil
		})
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		return tls.Client(c, &tls.Config{ServerName: "api.example.com", RootCAs: e.roots}).Handshake()
	}
	if err := dial("93.184.215.14:443"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("by its address: %v", err)
	}
	e.behind("", nat64, e.servers[netip.MustParseAddrPort("93.184.215.14:443")])
	if err := dial(nat64); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("by an address that carries its own: %v", err)
	}
	a := e.rec.wait(t, func(a egress.Attempt) bool {
		return a.Address == netip.MustParseAddr("93.184.215.14") && a.Verdict == "deny"
	})
	if a.Rule != "tls.end" || !strings.Contains(a.Reason, "api.example.com") {
		t.Errorf("recorded %+v", a)
	}
	_, err := reach(t, e.ns, "alias.example.com", 443)
	wantReset(t, err)
	e.rec.wait(t, verdictOf("deny", "alias.example.com"))
	if err := dial("93.184.215.15:443"); err != nil {
		t.Errorf("another host: %v", err)
	}
	e.away.mu.Lock()
	delete(e.away.names, "api.example.com")
	e.away.mu.Unlock()
	if err := dial("93.184.215.15:443"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("another host, when it cannot be told: %v", err)
	}
	_, res := e.through(t, "CONNECT 93.184.215.15:443 HTTP/1.1\r\nHost: 93.184.215.15:443\r\n\r\n")
	if told := body(t, res, nil); res.StatusCode != 403 || !strings.Contains(told, "could not be resolved") || strings.Contains(told, "no such name") {
		t.Errorf("it is told %q, which may hold what the host's resolvers say", told)
	}
}

// What a host knows of a key it may tell another: that one's answers are looked
// through, too.
func TestAnswersOfOtherHosts(t *testing.T) {
	t.Parallel()
	e := endsTo(t, httpsTo("api.example.com", "other.example.com"), true, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", apiKey)
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		fmt.Fprintf(z, `{"key": %q}`, apiKey)
	})
	res, text := e.get(t, "https://other.example.com/")
	if text != `{"key": "[secret:key]"}` || res.Header.Get("X-Echo") != "[secret:key]" || res.Header.Get("Set-Cookie") != "a=b" {
		t.Errorf("%q, %v", text, res.Header)
	}
}

// The secret is used and not seen: the sandbox has its placeholder, the server
// has the secret, and what the server says of it is masked.
func TestVault(t *testing.T) {
	t.Parallel()
	doc := tlsTo("api.example.com", "other.example.com") // for a host with a secret this means https
	e := endsTo(t, doc, true, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "text/plain")
		if r.URL.Path == "/gzip" {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			fmt.Fprintf(z, "you are %s", base64.StdEncoding.EncodeToString([]byte("x"+r.Header.Get("Authorization"))))
			return
		}
		fmt.Fprintf(w, "%v %s", r.Header.Get("Authorization") == "Bearer "+apiKey, r.Header.Get("Authorization"))
	})
	for _, field := range [][]string{nil, {"Authorization", "Bearer " + e.placeholder}} {
		res, text := e.get(t, "https://api.example.com/", field...)
		if text != "true Bearer [secret:key]" || res.Header.Get("X-Echo") != "Bearer [secret:key]" {
			t.Errorf("%v: %q, %v", field, text, res.Header)
		}
	}
	if _, text := e.get(t, "https://api.example.com/gzip"); !strings.Contains(text, "[secret:key base64]") {
		t.Errorf("%q", text)
	}
	for what, r := range map[string]func() (*http.Response, string){
		"another key": func() (*http.Response, string) {
			return e.get(t, "https://api.example.com/", "Authorization", "Bearer mine")
		},
		"in a query": func() (*http.Response, string) { return e.get(t, "https://api.example.com/?q="+e.placeholder) },
	} {
		if res, text := r(); res.StatusCode != 403 || !strings.Contains(text, "vault.") {
			t.Errorf("%s: %d %q", what, res.StatusCode, text)
		}
	}
	e.rec.wait(t, func(a egress.Attempt) bool { return a.Rule == vault.RuleLeak })
	e.rec.wait(t, func(a egress.Attempt) bool { return a.Rule == vault.RuleForeign })
}

// A placeholder in a body ends the request before it is passed on, however the
// body is cut. Where a busy machine pauses within it, what came before the pause
// is passed on, but never all of it; then it is tried again.
func TestVaultBody(t *testing.T) {
	t.Parallel()
	for range 10 {
		sent, placeholder := sendsPlaceholder(t)
		if strings.HasPrefix("before ", sent) {
			return
		}
		if !strings.HasPrefix("before "+placeholder, sent) || strings.Contains(sent, placeholder) {
			t.Fatalf("the server was sent %q", sent)
		}
	}
	t.Error("the server was sent the beginning of the placeholder each time")
}

// sendsPlaceholder sends a placeholder in a body, byte by byte, and returns what of
// the body came to the server.
func sendsPlaceholder(t *testing.T) (sent, placeholder string) {
	t.Helper()
	var got bytes.Buffer
	heard := make(chan struct{})
	e := endsTo(t, httpsTo("api.example.com"), true, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(&got, r.Body)
		close(heard)
	})
	pr, pw := io.Pipe()
	go func() {
		for _, c := range []byte("before " + e.placeholder + " after") {
			pw.Write([]byte{c})
		}
		pw.Close()
	}()
	res, err := e.client.Post("https://api.example.com/", "text/plain", pr)
	if err == nil {
		if text := body(t, res, nil); res.StatusCode != 403 || !strings.Contains(text, vault.RuleLeak) {
			t.Errorf("%d %q", res.StatusCode, text)
		}
	}
	e.rec.wait(t, func(a egress.Attempt) bool { return a.Rule == vault.RuleLeak })
	select {
	case <-heard:
	case <-time.After(10 * time.Second):
		t.Fatal("the server still waits")
	}
	return got.String(), e.placeholder
}

func TestEndedWebSocket(t *testing.T) {
	t.Parallel()
	e := endsTo(t, httpsTo("api.example.com"), true, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+apiKey {
			t.Errorf("Authorization %q", r.Header.Get("Authorization"))
		}
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		kind, b, err := c.Read(r.Context())
		if err == nil {
			err = c.Write(r.Context(), kind, bytes.ToUpper(b))
		}
		if err != nil {
			t.Error(err)
		}
		c.Close(websocket.StatusNormalClosure, "")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := e.webSocket(ctx, t)
	if err := c.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, b, err := c.Read(ctx); err != nil || string(b) != "HELLO" {
		t.Errorf("%q, %v", b, err)
	}
}

// A placeholder in a message closes a WebSocket, and is not passed on.
func TestEndedWebSocketLeak(t *testing.T) {
	t.Parallel()
	got := make(chan string, 10)
	e := endsTo(t, httpsTo("api.example.com"), true, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		for {
			_, b, err := c.Read(r.Context())
			if err != nil {
				close(got)
				return
			}
			got <- string(b)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	client := inside(t, e.ns, &tls.Config{RootCAs: e.trust.RootCAs})
	client.Timeout = 0
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	c, _, err := websocket.Dial(ctx, "wss://api.example.com/", &websocket.DialOptions{HTTPClient: client, CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for _, text := range []string{"one", "the key is " + e.placeholder} {
		if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("%v, want it closed with 1008", err)
	}
	if first, ok := <-got; !ok || first != "one" {
		t.Errorf("the server was sent %q first", first)
	}
	if second, ok := <-got; ok {
		t.Errorf("the server was sent %q", second)
	}
	e.rec.wait(t, func(a egress.Attempt) bool { return a.Rule == vault.RuleLeak })
}

// A rule of https that comes to a sandbox that trusts no authority is not carried,
// and a host with a secret is never passed through.
func TestEndedWhereItCannotBe(t *testing.T) {
	t.Parallel()
	out := newAway()
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, httpsTo("api.example.com"))})
	out.secure(t, "api.example.com", "93.184.215.14:443", func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }, nil)
	if _, err := reach(t, ns, "api.example.com", 443); err == nil {
		t.Error("connected")
	}
	if a := rec.wait(t, verdictOf("deny", "api.example.com")); a.Rule != "tls.end" {
		t.Errorf("recorded %+v", a)
	}
	doc := policy.Document{Rules: []policy.Rule{{Host: "api.example.com", Ports: []int{443}, Proto: "tcp"}}}
	e := endsTo(t, doc, true, func(http.ResponseWriter, *http.Request) { t.Error("it was asked") })
	if _, err := reach(t, e.ns, "api.example.com", 443); err == nil {
		t.Error("connected")
	}
	if a := e.rec.wait(t, verdictOf("deny", "api.example.com")); a.Rule != "tls.end" {
		t.Errorf("recorded %+v", a)
	}
}
