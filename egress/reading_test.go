package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/internal/clients"
	"github.com/rein-sh/rein/secret"
)

// registries are the hosts of bundles, each with TLS, and deb.debian.org without,
// and a sandbox that may reach them by bundles.
type registries struct {
	ended

	mu   sync.Mutex
	seen []seen
}

// seen is a request that reached one of them.
type seen struct {
	what string // such as GET github.com/a?b, with the body after a space where it has one
	head http.Header

	after http.Header // trailers
}

func (r *registries) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	b, _ := io.ReadAll(q.Body)
	what := strings.TrimSpace(q.Method + " " + q.Host + q.RequestURI + " " + string(b))
	r.mu.Lock()
	r.seen = append(r.seen, seen{what, q.Header, q.Trailer})
	r.mu.Unlock()
	fmt.Fprint(w, "served")
}

// arrived empties the list.
func (r *registries) arrived() []seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.seen
	r.seen = nil
	return list
}

func registriesFor(t *testing.T, doc policy.Document, secrets ...vault.Secret) *registries {
	t.Helper()
	ca, err := clients.NewAuthority(pkix.Name{CommonName: "of the registries"})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"registry.npmjs.org", "pypi.org", "github.com", "codeload.github.com", "proxy.golang.org"}
	pair, err := ca.Certify(names...)
	if err != nil {
		t.Fatal(err)
	}
	r := &registries{ended: ended{away: newAway()}}
	r.secure(t, names[0], "93.184.215.20:443", r.ServeHTTP, &tls.Config{Certificates: []tls.Certificate{pair}})
	for i, name := range names[1:] {
		at := fmt.Sprintf("93.184.215.%d:443", 21+i)
		r.secure(t, name, at, r.ServeHTTP, &tls.Config{Certificates: []tls.Certificate{pair}})
	}
	plain := httptest.NewServer(r)
	t.Cleanup(plain.Close)
	r.behind("deb.debian.org", "93.184.215.30:80", plain.Listener.Addr().String())
	authority, err := egress.NewAuthority("rein test")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM)
	o := egress.Options{Host: r.away, Policy: compile(t, doc), Authority: authority, Roots: roots}
	if len(secrets) > 0 {
		v, faults := vault.New(vault.Key{1}, secrets)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		o.Vault, r.placeholder = v, v.Environment()["KEY"]
	}
	r.ns, r.gateway, r.rec = owned(t, o)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority.PEM())
	r.trust = &tls.Config{RootCAs: pool}
	r.client = inside(t, r.ns, r.trust)
	return r
}

// send makes a request, "METHOD URL", with a body where there is one. field are
// names and values.
func (r *registries) send(t *testing.T, text, body string, field ...string) (status int, said string) {
	t.Helper()
	method, url, _ := strings.Cut(text, " ")
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	q, err := http.NewRequest(method, url, reader)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(field); i += 2 {
		q.Header[field[i]] = []string{field[i+1]}
	}
	res, err := r.client.Do(q)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("%s: %v", text, err)
	}
	return res.StatusCode, string(b)
}

// What is read from a registry is asked for in nobody's name, and the record says
// what was taken out.
func TestBundleStripsCredentials(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			t.Parallel()
			r := registriesFor(t, policy.Document{Bundles: []string{"npm"}})
			r.client.Transport.(*http.Transport).ForceAttemptHTTP2 = http2
			status, said := r.send(t, "GET https://registry.npmjs.org/@a%2fb?x=1", "", "Authorization", "Bearer npm_theirs", "Cookie", "session=theirs", "Npm-Otp", "123456",
				"X-Anything-Token", "theirs", "X_api_key", "theirs", "X-Data", "theirs", "Referer", "https://theirs.example/", "X-Forwarded-For", "theirs",
				"Accept", "application/vnd.npm.install-v1+json", "User-Agent", "npm/10.2.4 node/v20.1.0 theirs", "If-None-Match", `"e"`)
			if status != 200 || said != "served" {
				t.Fatalf("%d %q", status, said)
			}
			got := r.arrived()
			if len(got) != 1 || got[0].what != "GET registry.npmjs.org/@a%2fb?x=1" || strings.Contains(fmt.Sprint(got[0].head), "theirs") {
				t.Fatalf("it was asked %+v", got)
			}
			for name, want := range map[string]string{"Accept": "application/vnd.npm.install-v1+json", "User-Agent": "npm/10", "If-None-Match": `"e"`} {
				if got[0].head.Get(name) != want {
					t.Errorf("%s: %q, want %q", name, got[0].head.Get(name), want)
				}
			}
			// What says more than a program's name is not sent.
			for agent, want := range map[string]string{"secret-aGVsbG8gd29ybGQgaGVsbG8gd29ybGQ/1": "rein", "secret/1": "rein", "uv/1234.5678.9012.3456": "rein", "uv/0.4.30": "uv/0",
				"pip/23.0.1 {\"cpu\":\"theirs\"}": "pip/23", "hf_hub/0.2; theirs": "hf_hub/0", "Debian APT-HTTP/1.3 (2.6.1)": "Debian", "git/2.39.5-theirs": "rein"} {
				r.send(t, "GET https://registry.npmjs.org/a", "", "User-Agent", agent, "Content-Type", "theirs")
				if got := r.arrived(); len(got) != 1 || got[0].head.Get("User-Agent") != want || got[0].head.Get("Content-Type") != "" {
					t.Errorf("%s: it was asked %+v", agent, got)
				}
			}
			r.client.CloseIdleConnections()
			a := r.rec.wait(t, verdictOf("allow", "registry.npmjs.org"))
			want := "bundles.npm allows registry.npmjs.org on port 443 (https), methods GET, HEAD; credentials that a bundle does not let through were taken out: Authorization, Cookie, Npm-Otp, X-Anything-Token, X_api_key"
			if got := strings.ReplaceAll(a.Reason, "X_Api_Key", "X_api_key"); got != want || a.Rule != "bundles.npm" {
				t.Errorf("recorded %q\nwant     %q", got, want)
			}
		})
	}
}

// Nothing is published through a registry, whoever's token it is with.
func TestBundlePublishing(t *testing.T) {
	t.Parallel()
	r := registriesFor(t, policy.Document{Bundles: []string{"npm", "pypi", "github-read", "go"}})
	for _, c := range []struct {
		what, request, body string
		field               []string
	}{
		{"npm publish", "PUT https://registry.npmjs.org/left-pad", `{"_attachments":{}}`, []string{"Authorization", "Bearer npm_theirs"}},
		{"npm login", "POST https://registry.npmjs.org/-/v1/login", "{}", nil},
		{"npm unpublish", "DELETE https://registry.npmjs.org/left-pad/-rev/1", "", nil},
		{"npm audit", "POST https://registry.npmjs.org/-/npm/v1/security/advisories/bulk", "{}", nil},
		{"twine", "POST https://pypi.org/legacy/", "file", []string{"Authorization", "Basic dGhlaXJz"}},
		{"a gist", "POST https://github.com/gist", "x", nil},
		{"git push asks", "GET https://github.com/theirs/repo.git/info/refs?service=git-receive-pack", "", nil},
		{"git push", "POST https://github.com/theirs/repo.git/git-receive-pack", "0000PACK", nil},
		{"git push, as fetch", "POST https://github.com/theirs/repo.git/git-upload-pack?service=git-receive-pack", "0000PACK", nil},
		{"LFS", "POST https://github.com/theirs/repo.git/info/lfs/objects/batch", "{}", nil},
		{"a GET with a body", "GET https://registry.npmjs.org/left-pad", "data", nil},
		{"a HEAD with a body", "HEAD https://registry.npmjs.org/left-pad", "data", nil},
		{"another method in a field", "GET https://registry.npmjs.org/left-pad", "", []string{"X-Http-Method-Override", "PUT"}},
		{"another path in a field", "POST https://github.com/a/b/git-upload-pack", "x", []string{"X-Original-Url", "/a/b/git-receive-pack"}},
		{"a method of one's own", "PUBLISH https://proxy.golang.org/x", "", nil},
	} {
		status, said := r.send(t, c.request, c.body, c.field...)
		if status != 403 || !strings.HasPrefix(c.request, "HEAD") && !strings.Contains(said, "rule:   bundles.") {
			t.Errorf("%s: %d %q", c.what, status, said)
		}
		if got := r.arrived(); len(got) > 0 {
			t.Errorf("%s: it arrived: %+v", c.what, got)
		}
	}
	// Also a body of which nothing says how long it is.
	for _, http2 := range []bool{true, false} {
		client := inside(t, r.ns, &tls.Config{RootCAs: r.trust.RootCAs})
		client.Transport.(*http.Transport).ForceAttemptHTTP2 = http2
		q, _ := http.NewRequest("GET", "https://registry.npmjs.org/left-pad", struct{ io.Reader }{strings.NewReader("data")})
		res, err := client.Do(q)
		if text := body(t, res, err); err == nil && (res.StatusCode != 403 || (res.ProtoMajor == 2) != http2) || len(r.arrived()) > 0 {
			t.Errorf("a body without an end: %s %d %q", res.Proto, res.StatusCode, text)
		}
	}
	for _, bundle := range []string{"npm", "pypi", "github-read", "go"} {
		r.rec.wait(t, func(a egress.Attempt) bool {
			return a.Verdict == "deny" && a.Rule == "bundles."+bundle && strings.Contains(a.Reason, "no rule allows")
		})
	}
}

// A WebSocket is two ways, whatever its first request says.
func TestBundleWebSocket(t *testing.T) {
	t.Parallel()
	r := registriesFor(t, policy.Document{Bundles: []string{"npm"}})
	c := tls.Client(mustReach(t, r.ns, "registry.npmjs.org", 443), &tls.Config{ServerName: "registry.npmjs.org", RootCAs: r.trust.RootCAs})
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: registry.npmjs.org\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if text := body(t, res, err); err == nil && (res.StatusCode != 403 || !strings.Contains(text, "WebSocket")) {
		t.Errorf("%d %q", res.StatusCode, text)
	}
	if got := r.arrived(); len(got) > 0 {
		t.Errorf("it arrived: %+v", got)
	}
}

// typeOf is what a request of git says of its body, whatever the client said.
func typeOf(request string) string {
	if strings.HasPrefix(request, "POST") {
		return "application/x-git-upload-pack-request"
	}
	return ""
}

// git clones, and of a bundle of one repository that one alone.
func TestBundleGit(t *testing.T) {
	t.Parallel()
	clone := func(repo string) []string {
		return []string{"GET https://github.com/" + repo + ".git/info/refs?service=git-upload-pack", "POST https://github.com/" + repo + ".git/git-upload-pack", "GET https://codeload.github.com/" + repo + "/tar.gz/main"}
	}
	for _, c := range []struct {
		bundle string
		open   bool // for others
	}{{"github-read", true}, {"github:acme/tool", false}} {
		r := registriesFor(t, policy.Document{Bundles: []string{c.bundle}})
		for _, repo := range []string{"acme/tool", "Acme/Tool", "acme/other", "theirs/tool"} {
			allowed := c.open || strings.EqualFold(repo, "acme/tool")
			for _, request := range clone(repo) {
				want := ""
				if strings.HasPrefix(request, "POST") {
					want = "0011command=fetch"
				}
				status, said := r.send(t, request, want, "Git-Protocol", "version=2", "Authorization", "Basic dGhlaXJz", "User-Agent", "git/2.39.5", "Content-Type", "application/x-www-form-urlencoded")
				got := r.arrived()
				if allowed && (status != 200 || len(got) != 1 || !strings.HasSuffix(got[0].what, want) || got[0].head.Get("Authorization") != "" ||
					got[0].head.Get("Git-Protocol") != "version=2" || got[0].head.Get("Content-Type") != typeOf(request) || got[0].head.Get("User-Agent") != "git/2") ||
					!allowed && (status != 403 || len(got) != 0 || !strings.Contains(said, "the bundle is for acme/tool")) {
					t.Errorf("%s: %s: %d %q, it was asked %+v", c.bundle, request, status, said, got)
				}
			}
		}
	}
}

// What git sends ends with its body: no fields come after it.
func TestBundleTrailers(t *testing.T) {
	t.Parallel()
	r := registriesFor(t, policy.Document{Bundles: []string{"github-read"}})
	q, _ := http.NewRequest("POST", "https://github.com/acme/tool/git-upload-pack", struct{ io.Reader }{strings.NewReader("0000")})
	q.Trailer = http.Header{"X-Data": {"theirs"}}
	res, err := r.client.Do(q)
	if text := body(t, res, err); err != nil || res.StatusCode != 200 {
		t.Fatalf("%v %q", err, text)
	}
	if got := r.arrived(); len(got) != 1 || len(got[0].after) != 0 || got[0].what != "POST github.com/acme/tool/git-upload-pack 0000" {
		t.Errorf("it was asked %+v", got)
	}
}

// Where Debian's servers are spoken to without TLS, directly or by the proxy, the
// same holds; ports of anything else are closed.
func TestBundleWithoutTLS(t *testing.T) {
	t.Parallel()
	r := registriesFor(t, policy.Document{Bundles: []string{"debian", "pypi"}})
	proxied := inside(t, r.ns, nil)
	proxied.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "10.88.0.1:3128"})
	for what, client := range map[string]*http.Client{"directly": r.client, "by the proxy": proxied} {
		r.client = client
		status, said := r.send(t, "GET http://deb.debian.org/debian/dists/x", "", "Authorization", "Basic dGhlaXJz", "Proxy-Authorization", "Basic dGhlaXJz", "Range", "bytes=1-2")
		got := r.arrived()
		if status != 200 || said != "served" || len(got) != 1 || len(got[0].head["Authorization"])+len(got[0].head["Proxy-Authorization"]) != 0 || got[0].head.Get("Range") != "bytes=1-2" {
			t.Errorf("%s: %d %q, it was asked %+v", what, status, said, got)
		}
		for _, request := range []string{"POST http://deb.debian.org/x", "PUT http://deb.debian.org/x", "GET http://deb.debian.org/x"} {
			if status, said := r.send(t, request, "data"); status != 403 || len(r.arrived()) != 0 {
				t.Errorf("%s: %s: %d %q", what, request, status, said)
			}
		}
	}
	tunnelled := inside(t, r.ns, &tls.Config{RootCAs: r.trust.RootCAs})
	tunnelled.Transport.(*http.Transport).Proxy = proxied.Transport.(*http.Transport).Proxy
	r.client = tunnelled
	status, said := r.send(t, "GET https://pypi.org/simple/", "", "Authorization", "Basic dGhlaXJz")
	if got := r.arrived(); status != 200 || len(got) != 1 || got[0].head.Get("Authorization") != "" {
		t.Errorf("by CONNECT: %d %q, it was asked %+v", status, said, got)
	}
	if status, said := r.send(t, "POST https://pypi.org/legacy/", "file"); status != 403 || len(r.arrived()) != 0 {
		t.Errorf("by CONNECT: %d %q", status, said)
	}
	if status, _ := r.send(t, "GET http://pypi.org/simple/", ""); status == 200 {
		t.Error("pypi.org without TLS was reached")
	}
	for _, port := range []int{21, 22, 8080} {
		if c, err := reach(t, r.ns, "deb.debian.org", port); err == nil {
			c.Close()
			t.Errorf("port %d: connected", port)
		}
	}
	if got := r.arrived(); len(got) > 0 {
		t.Errorf("it arrived: %+v", got)
	}
}

// A rule and a secret of one's own beside a bundle hold for what they say: the
// request has the secret, and nobody else's.
func TestBundleWithSecret(t *testing.T) {
	t.Parallel()
	doc := policy.Document{Bundles: []string{"npm", "pypi"}, Rules: []policy.Rule{{Host: "registry.npmjs.org", Proto: "https", Methods: []string{"PUT"}, Paths: []string{"/@mine*"}}}}
	r := registriesFor(t, doc, vault.Secret{Name: "key", Value: secret.New("key", apiKey), Variable: "KEY",
		Use: []vault.Binding{{Host: "registry.npmjs.org", As: vault.Bearer, Paths: []string{"/@mine*"}}, {Host: "registry.npmjs.org", As: vault.Header, Name: "Npm-Otp", Paths: []string{"/@mine*"}}}})
	for _, request := range []string{"GET https://registry.npmjs.org/@mine", "PUT https://registry.npmjs.org/@mine"} {
		for _, field := range [][]string{nil, {"Authorization", "Bearer " + r.placeholder, "Cookie", "theirs"}} {
			status, said := r.send(t, request, map[bool]string{true: "x"}[request[0] == 'P'], field...)
			got := r.arrived()
			if status != 200 || len(got) != 1 || got[0].head.Get("Authorization") != "Bearer "+apiKey || got[0].head.Get("Npm-Otp") != apiKey || got[0].head.Get("Cookie") != "" {
				t.Errorf("%s: %d %q, it was asked %+v", request, status, said, got)
			}
		}
	}
	for _, c := range []struct{ request, token, rule string }{
		{"GET https://registry.npmjs.org/@mine", "npm_theirs", vault.RuleForeign},
		{"GET https://registry.npmjs.org/other", "npm_theirs", vault.RuleForeign}, // the host has a secret: who is asked for it is looked at
		{"GET https://pypi.org/simple/", r.placeholder, vault.RuleLeak},
		{"PUT https://registry.npmjs.org/other", r.placeholder, "rules[0]"},
	} {
		status, said := r.send(t, c.request, "", "Authorization", "Bearer "+c.token)
		if got := r.arrived(); status != 403 || !strings.Contains(said, "rule:   "+c.rule) || len(got) != 0 {
			t.Errorf("%s: %d %q, it was asked %+v", c.request, status, said, got)
		}
	}
	if status, said := r.send(t, "GET https://registry.npmjs.org/other", ""); status != 200 {
		t.Errorf("%d %q", status, said)
	}
	if got := r.arrived(); len(got) != 1 || got[0].head.Get("Authorization") != "" {
		t.Errorf("it was asked %+v", got)
	}
	// What a secret stood in the place of was not taken out.
	r.client.CloseIdleConnections()
	a := r.rec.wait(t, verdictOf("allow", "registry.npmjs.org"))
	if !strings.Contains(a.Reason, "taken out: Cookie") || strings.Contains(a.Reason, "Authorization") {
		t.Errorf("recorded %q", a.Reason)
	}
}

// A policy that comes while a request is carried ends what it does not let through.
func TestBundleNarrows(t *testing.T) {
	t.Parallel()
	r := registriesFor(t, policy.Document{Rules: []policy.Rule{{Host: "registry.npmjs.org", Proto: "https"}}})
	pr, pw := io.Pipe()
	q, _ := http.NewRequestWithContext(context.Background(), "PUT", "https://registry.npmjs.org/a", pr)
	done := make(chan error, 1)
	go func() {
		res, err := r.client.Do(q)
		if err == nil {
			if res.StatusCode != 200 {
				err = fmt.Errorf("status %d", res.StatusCode)
			}
			res.Body.Close()
		}
		done <- err
	}()
	if _, err := pw.Write([]byte("the first half")); err != nil {
		t.Fatal(err)
	}
	r.gateway.SetPolicy(compile(t, policy.Document{Bundles: []string{"npm"}}))
	pw.Write([]byte("the second half"))
	pw.Close()
	if err := <-done; err == nil {
		t.Error("it was carried to its end")
	}
	if slices.ContainsFunc(r.arrived(), func(s seen) bool { return strings.Contains(s.what, "second") }) {
		t.Error("the second half arrived")
	}
}
