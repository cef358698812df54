package egress_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/egress"
)

// through sends a request to the gateway's proxy and returns the connection and
// the answer.
func (e *ended) through(t testing.TB, head string) (net.Conn, *http.Response) {
	t.Helper()
	c, err := dialInside(e.ns, net.JoinHostPort(egress.Gateway4, "3128"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, head); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(head, " ")
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	return c, res
}

// The proxy is no way around the vault.
func TestVaultThroughProxy(t *testing.T) {
	t.Parallel()
	e := endsTo(t, httpsTo("api.example.com", "other.example.com"), true, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintf(w, "%v %s", r.Header.Get("Authorization") == "Bearer "+apiKey, r.Header.Get("Authorization"))
	})
	fake := e.ns.resolved(t, "api.example.com")
	for _, to := range []string{"api.example.com:443", "API.example.com.:443", fake + ":443"} {
		for key, want := range map[string]string{e.placeholder: "true Bearer [secret:key]", "mine": "vault.foreign"} {
			c, res := e.through(t, "CONNECT "+to+" HTTP/1.1\r\nHost: "+to+"\r\n\r\n")
			if res.StatusCode != 200 {
				t.Errorf("%s: %d", to, res.StatusCode)
				continue
			}
			s := tls.Client(c, &tls.Config{RootCAs: e.trust.RootCAs, ServerName: "api.example.com"})
			fmt.Fprintf(s, "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n", key)
			b, _ := io.ReadAll(s)
			if !strings.Contains(string(b), want) || strings.Contains(string(b), apiKey) {
				t.Errorf("%s: %q", to, b)
			}
		}
	}
	for _, head := range []string{
		"GET http://api.example.com:443/ HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n",
		"GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
		"GET https://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
		"CONNECT 93.184.215.14:443 HTTP/1.1\r\nHost: 93.184.215.14:443\r\n\r\n",
	} {
		if _, res := e.through(t, head); res.StatusCode != 403 {
			t.Errorf("%q: %d", head, res.StatusCode)
		}
	}
	c, res := e.through(t, "CONNECT other.example.com:443 HTTP/1.1\r\nHost: other.example.com:443\r\n\r\n")
	if res.StatusCode != 200 {
		t.Fatal(res.StatusCode)
	}
	s := tls.Client(c, &tls.Config{RootCAs: e.trust.RootCAs, ServerName: "api.example.com", InsecureSkipVerify: true})
	if s.Handshake() == nil {
		t.Error("another server name in a tunnel was answered")
	}
}
