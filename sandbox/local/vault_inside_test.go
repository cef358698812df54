package local_test

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/internal/clients"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
	"github.com/rein-sh/rein/secret"
)

const realKey = "ghp_RealRealRealRealRealRealRealReal0123"

// guarded is a server on loopback, yes.test, that knows realKey.
func guarded(t *testing.T) (ca []byte, port int) {
	t.Helper()
	return certified(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "key %v, echo %s\n", r.Header.Get("Authorization") == "Bearer "+realKey, r.Header.Get("Authorization"))
	})
}

// certified is a server on loopback with a certificate of yes.test.
func certified(t *testing.T, h http.HandlerFunc) (ca []byte, port int) {
	t.Helper()
	authority, err := clients.NewAuthority(pkix.Name{CommonName: "Of the test"})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Certify("yes.test")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return authority.PEM, s.Listener.Addr().(*net.TCPAddr).Port
}

// keyed is a sandbox that may reach yes.test at a port, with a key.
func keyed(port int, key string) sandbox.Spec {
	return sandbox.Spec{TTL: 5 * time.Minute,
		Network: policy.Document{Rules: []policy.Rule{{CIDR: "127.0.0.1", Ports: []int{port}, Proto: "tls"}, {Host: "yes.test", Ports: []int{port}, Proto: "tls"}}},
		Secrets: []vault.Secret{{Name: "key", Value: secret.New("key", key), Variable: "KEY",
			Use: []vault.Binding{{Host: "yes.test", Ports: []int{port}, As: vault.Bearer}}}}}
}

// A program inside uses a key that is nowhere inside.
func TestSecretOfTheHost(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			ca, port := guarded(t)
			p := providerWith(t, runtime, func(o *local.Options) {
				o.Egress.Resolvers = []netip.AddrPort{names(t)}
				o.Egress.CA = ca
			})
			s := connectedTo(t, p, keyed(port, realKey), nil)
			url := fmt.Sprintf("https://yes.test:%d/", port)
			for what, c := range map[string]struct{ command, want string }{
				"placeholder":  {`curl -sS -H "Authorization: Bearer $KEY" ` + url, "key true, echo Bearer [secret:key]"},
				"nothing":      {`curl -sS ` + url, "key true, echo Bearer [secret:key]"},
				"another key":  {`curl -sS -H "Authorization: Bearer mine" ` + url, "vault.foreign"},
				"in the query": {`curl -sS "` + url + `?q=$KEY"`, "vault.leak"},
				"python":       {`python3 -c 'import os,urllib.request; print(urllib.request.urlopen("` + url + `").read().decode())'`, "key true"},
				"the shape":    {`case $KEY in ghp_*) echo ${#KEY}; esac`, fmt.Sprint(len(realKey))},
				"the key":      {`(env; cat /proc/*/environ /proc/*/cmdline; grep -r 'Real[R]eal' /etc /run /tmp /workspace /home /.rein) 2>/dev/null | tr '\0' '\n' | grep -c 'Real[R]eal'`, "0\n"},
			} {
				r, err := s.Run(t.Context(), sandbox.Command{Shell: c.command, Timeout: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				if got := string(r.Stdout.Head); !strings.Contains(got, c.want) {
					t.Errorf("%s: %q %q, want %q", what, got, r.Stderr.Head, c.want)
				}
			}
			if err := s.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
