package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
)

var proxyAt = fmt.Sprintf("%s:%d", egress.Gateway4, egress.ProxyPort)

// proxied is a client that knows the proxy and no names.
func proxied(t testing.TB, ns *netns, proxy string, c *tls.Config) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: c, Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: proxy}),
		DialContext: func(_ context.Context, _, to string) (net.Conn, error) { return dialInside(ns, to) }}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// toProxy is a connection to it.
func toProxy(t testing.TB, ns *netns) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := dialInside(ns, proxyAt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c, bufio.NewReader(c)
}

// What may be reached directly may be reached by the proxy, by either family,
// with several hosts on one connection.
func TestProxy(t *testing.T) {
	t.Parallel()
	out := newAway()
	d := policy.Document{Rules: []policy.Rule{{Host: "*.example.com"}, {CIDR: "93.184.215.15", Ports: []int{80}}, tcpTo("db.example.org", 5432), tcpTo("any.example.org", 8080)}}
	ns, g, rec := owned(t, egress.Options{Host: out, Policy: compile(t, d)})
	say := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s %s", text, r.Host, r.URL) }
	}
	roots := out.secure(t, "api.example.com", "93.184.215.14:443", say("api"), nil)
	out.plain(t, "web.example.com", "93.184.215.14:80", say("web"))
	out.plain(t, "www.example.com", "93.184.215.15:80", say("www"))
	out.plain(t, "any.example.org", "93.184.215.17:8080", say("any"))
	out.serve(t, "db.example.org", "93.184.215.16:5432", func(c *net.TCPConn) { io.WriteString(c, "hello "); io.Copy(c, c) })
	for _, at := range ns.reachable(proxyAt, fmt.Sprintf("[%s]:%d", egress.Gateway6, egress.ProxyPort)) {
		client := proxied(t, ns, at, &tls.Config{RootCAs: roots})
		for to, want := range map[string]string{
			"https://api.example.com/a?b":  "api api.example.com /a?b",
			"http://web.example.com/c":     "web web.example.com /c",
			"http://WWW.example.com:80/d":  "www WWW.example.com:80 /d",
			"http://any.example.org:8080/": "any any.example.org:8080 /",
			"http://93.184.215.15/literal": "www 93.184.215.15 /literal",
		} {
			r, err := client.Get(to)
			if got := body(t, r, err); got != want {
				t.Errorf("%s: %q, want %q", to, got, want)
			}
		}
		client.CloseIdleConnections()
	}
	for _, name := range []string{"api.example.com", "web.example.com", "www.example.com"} {
		a := rec.wait(t, verdictOf("allow", name))
		if a.BytesOut == 0 || a.BytesIn == 0 || !a.Address.IsValid() || a.LocalPort == 0 || a.Proto != policy.TLS && a.Proto != policy.HTTP {
			t.Errorf("recorded %+v", a)
		}
	}

	c, r := toProxy(t, ns)
	if res, _ := ask(t, c, r, "CONNECT", "CONNECT db.example.org:5432 HTTP/1.0\r\n\r\nfirst "); res.StatusCode != 200 {
		t.Fatalf("status %d", res.StatusCode)
	}
	io.WriteString(c, "and more")
	c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(r); string(got) != "hello first and more" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	rec.wait(t, verdictOf("allow", "db.example.org"))

	// Several hosts on one connection, and a policy that becomes narrower.
	c, r = toProxy(t, ns)
	get := func(host string) (int, string) {
		res, text := ask(t, c, r, "GET", "GET http://"+host+"/ HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		return res.StatusCode, text
	}
	_, before := out.count()
	for _, host := range []string{"web.example.com", "web.example.com", "www.example.com", "web.example.com"} {
		if status, text := get(host); status != 200 || !strings.Contains(text, host) {
			t.Errorf("%s: status %d, %s", host, status, text)
		}
	}
	if _, dialled := out.count(); dialled-before != 3 {
		t.Errorf("%d connections for three changes of host", dialled-before)
	}
	g.SetPolicy(compile(t, httpTo("www.example.com")))
	if status, text := get("web.example.com"); status != 403 || !strings.Contains(text, "rule:   default") {
		t.Errorf("status %d, %s", status, text)
	}
	if status, _ := get("www.example.com"); status != 200 {
		t.Errorf("what is still allowed: status %d", status)
	}
}

// The proxy refuses what a direct connection would be refused, answers with the
// reason, records it, and nobody outside is asked.
func TestProxyRefuses(t *testing.T) {
	t.Parallel()
	out := newAway()
	out.names["inner.example.com"] = []netip.Addr{netip.MustParseAddr("10.0.0.7")}
	d := policy.Document{Rules: []policy.Rule{{Host: "*.example.com"}, tcpTo("*.example.com", 22), {CIDR: "93.184.215.14", Ports: []int{443}}}}
	ns, g, rec := owned(t, egress.Options{Host: out, Policy: compile(t, d),
		Owner: func(_ context.Context, s egress.Socket) string { return fmt.Sprintf("call-%d", s.Local.Port()) }})
	for in, want := range map[string]struct {
		rule, reason, name string
		port               uint16
	}{
		"CONNECT evil.example.net:443":        {"default", "", "evil.example.net", 443},
		"CONNECT api.example.com:25":          {"default", "port 25", "api.example.com", 25},
		"CONNECT 93.184.215.14:80":            {"default", "", "", 80},
		"CONNECT 93.184.215.16:443":           {"default", "", "", 443},
		"CONNECT 0x7f.1:443":                  {"address.loopback", "", "", 443},
		"CONNECT [::ffff:169.254.169.254]:80": {"address.metadata", "", "", 80},
		"CONNECT 198.18.99.99:443":            {"default", "no name has that address", "", 443},
		"CONNECT 10.88.0.1:3128":              {"link", "", "", 3128},
		"CONNECT [fd72:6569:6e00::2]:22":      {"link", "", "", 22},
		"CONNECT inner.example.com:22":        {"address.private", "10.0.0.7", "inner.example.com", 22},
		"CONNECT api.example.com:0":           {"proxy", "no such port", "", 0},
		"CONNECT api.example.com":             {"proxy", "a host and a port", "", 0},
		"CONNECT a_b.example.com\xc3:443":     {"http.framing", "", "", 0},
		"CONNECT a%b.example.com:443":         {"", "", "", 0},
		"GET http://evil.example.net/":        {"default", "", "evil.example.net", 80},
		"GET http://api.example.com:443/":     {"rules[0]", "allows TLS on port 443, and this is without", "api.example.com", 443},
		"GET https://api.example.com/":        {"proxy", "made with CONNECT", "", 0},
		"GET ftp://api.example.com/":          {"proxy", "made with CONNECT", "", 0},
		"GET /":                               {"proxy", "this is a proxy", "", 0},
		"GET http://[::1]/":                   {"address.loopback", "", "", 80},
		"GET http://169.254.169.254/latest":   {"address.metadata", "", "", 80},
		"GET http://api.example.com:99999/":   {"", "", "", 0},
	} {
		method, target, _ := strings.Cut(in, " ")
		host := strings.TrimPrefix(target, "/")
		if u, err := url.Parse(target); err == nil && u.Host != "" {
			host = u.Host
		}
		c, r := toProxy(t, ns)
		res, text := ask(t, c, r, method, in+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		if res.StatusCode != 403 && res.StatusCode != 400 || !strings.Contains(text, "rule:   "+want.rule) || !strings.Contains(text, want.reason) {
			t.Errorf("%s: status %d, %s", in, res.StatusCode, text)
		}
		c.Close()
		rec.wait(t, func(a egress.Attempt) bool {
			return a.Verdict == "deny" && a.Name == want.name && strings.HasPrefix(a.Rule, want.rule) && strings.Contains(a.Reason, want.reason) &&
				(want.port == 0 || a.Port == want.port) && a.LocalPort != 0 && a.Owner == fmt.Sprintf("call-%d", a.LocalPort)
		})
	}
	if looked, dialled := out.count(); looked != 1 || dialled != 0 { // inner.example.com
		t.Errorf("looked up %v, dialled %v", out.looked, out.dialled)
	}
	// Nothing else is there.
	_, err := dialInside(ns, egress.Gateway4+":8080")
	wantReset(t, err)
	_, err = dialInside(ns, strings.Replace(proxyAt, egress.Gateway4, "93.184.215.99", 1))
	wantReset(t, err)
	g.Open(false)
	c, r := toProxy(t, ns)
	if res, text := ask(t, c, r, "CONNECT", "CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n"); res.StatusCode != 403 {
		t.Errorf("without an owner: status %d, %s", res.StatusCode, text)
	}
}

// After CONNECT a connection is looked at as if it had been made directly.
func TestProxyLooks(t *testing.T) {
	t.Parallel()
	out := newAway()
	var arrived atomic.Int64
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, policy.Document{Rules: []policy.Rule{{Host: "api.example.com"}}})})
	count := func(c *net.TCPConn) {
		n, _ := io.Copy(io.Discard, c)
		arrived.Add(n)
	}
	out.serve(t, "api.example.com", "93.184.215.14:443", count)
	out.plain(t, "", "93.184.215.14:80", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "plain "+r.Host) })
	for what, first := range map[string][]byte{
		"evil.example.net": egress.InRecords(egress.BuiltHello(tls.VersionTLS12, egress.Named(0, "evil.example.net")), 1<<14),
		"not TLS":          []byte("SSH-2.0-x\r\n"),
	} {
		c, r := toProxy(t, ns)
		if res, text := ask(t, c, r, "CONNECT", "CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n"); res.StatusCode != 200 {
			t.Fatalf("status %d, %s", res.StatusCode, text)
		}
		wantGone(t, what, c, first)
		rec.wait(t, func(a egress.Attempt) bool {
			return a.Verdict == "deny" && a.Name == "api.example.com" && strings.Contains(a.Reason, what)
		})
	}
	if n := arrived.Load(); n != 0 {
		t.Errorf("%d bytes arrived", n)
	}
	c, r := toProxy(t, ns)
	if res, _ := ask(t, c, r, "CONNECT", "CONNECT api.example.com:80 HTTP/1.1\r\nHost: api.example.com:80\r\n\r\n"); res.StatusCode != 200 {
		t.Fatalf("status %d", res.StatusCode)
	}
	if res, text := ask(t, c, r, "GET", "GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n"); text != "plain api.example.com" {
		t.Errorf("status %d, %s", res.StatusCode, text)
	}
	if res, text := ask(t, c, r, "GET", "GET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n"); res.StatusCode != 403 {
		t.Errorf("status %d, %s", res.StatusCode, text)
	}
}

// HTTP without TLS to a port that is for TLS is refused, and let through by a policy
// that only reports.
func TestProxyPlainOnTLS(t *testing.T) {
	t.Parallel()
	for _, report := range []bool{false, true} {
		out := newAway()
		out.plain(t, "web.example.com", "93.184.215.14:443", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "plain") })
		d := tlsTo("web.example.com")
		d.ReportOnly = report
		ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, d)})
		c, r := toProxy(t, ns)
		status, verdict := 403, "deny"
		if report {
			status, verdict = 200, "report"
		}
		if res, text := ask(t, c, r, "GET", "GET http://web.example.com:443/ HTTP/1.1\r\nHost: web.example.com:443\r\n\r\n"); res.StatusCode != status {
			t.Errorf("report only %v: status %d, %s", report, res.StatusCode, text)
		}
		c.Close()
		if a := rec.wait(t, verdictOf(verdict, "web.example.com")); a.Rule != "rules[0]" || !strings.Contains(a.Reason, "this is without") {
			t.Errorf("recorded %+v", a)
		}
	}
}

// What is told inside of a host that cannot be reached has none of the host's own
// addresses: they are for the record.
func TestUnreachedTellsNothingOfTheHost(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]egress.HostOptions{
		"resolver": {Resolvers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.7:1")}},
		"proxy":    {Proxy: mustURL(t, "http://127.0.0.7:1")},
	} {
		host, err := egress.NewHost(o)
		if err != nil {
			t.Fatal(err)
		}
		ns, _, rec := owned(t, egress.Options{Host: host, Policy: compile(t, policy.Document{Rules: []policy.Rule{{Host: "web.example.com"}, {CIDR: "93.184.215.14"}}})})
		to := map[string]string{"resolver": "web.example.com", "proxy": "93.184.215.14"}[name]
		c, r := toProxy(t, ns)
		res, text := ask(t, c, r, "GET", "GET http://"+to+"/ HTTP/1.1\r\nHost: "+to+"\r\n\r\n")
		if res.StatusCode != 502 || strings.Contains(text, "127.0.0.7") {
			t.Errorf("%s: status %d, %s", name, res.StatusCode, text)
		}
		rec.wait(t, func(a egress.Attempt) bool { return strings.Contains(a.Reason, "127.0.0.7") })
	}
}

// Names below a wildcard that are given to the proxy are limited like those in
// questions: to look one up tells its owner something.
func TestProxyLimitsNames(t *testing.T) {
	t.Parallel()
	out := newAway()
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, httpTo("*.example.com")), Limits: egress.Limits{NamesPerMinute: 3}})
	c, r := toProxy(t, ns)
	for i := range 8 {
		host := fmt.Sprintf("s%d.example.com", i)
		res, text := ask(t, c, r, "GET", "GET http://"+host+"/ HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		if i >= 4 && (res.StatusCode != 403 || !strings.Contains(text, "limit:names_per_minute")) || i < 3 && res.StatusCode != 502 {
			t.Errorf("%s: status %d, %s", host, res.StatusCode, text)
		}
	}
	rec.wait(t, func(a egress.Attempt) bool { return a.Rule == "limit:names_per_minute" })
	if looked, _ := out.count(); looked > 4 {
		t.Errorf("%d names were looked up", looked)
	}
}

// A question is asked of CONNECT, too, and its answer is waited for.
func TestProxyAsks(t *testing.T) {
	t.Parallel()
	out := newAway()
	out.serve(t, "db.example.org", "93.184.215.16:5432", func(c *net.TCPConn) { io.WriteString(c, "hello") })
	d := policy.Document{Rules: []policy.Rule{{Host: "*.example.org", Ports: []int{5432}, Proto: "tcp", Action: "ask"}}}
	ns, _, _ := owned(t, egress.Options{Host: out, Policy: compile(t, d),
		Ask: func(_ context.Context, q egress.Question) policy.Answer {
			if q.Name == "db.example.org" && q.Socket.Local.Port() != 0 {
				return policy.Granted
			}
			return policy.Denied
		}})
	c, r := toProxy(t, ns)
	if res, text := ask(t, c, r, "CONNECT", "CONNECT no.example.org:5432 HTTP/1.1\r\nHost: no.example.org:5432\r\n\r\n"); res.StatusCode != 403 {
		t.Errorf("status %d, %s", res.StatusCode, text)
	}
	c, r = toProxy(t, ns)
	if res, _ := ask(t, c, r, "CONNECT", "CONNECT db.example.org:5432 HTTP/1.1\r\nHost: db.example.org:5432\r\n\r\n"); res.StatusCode != 200 {
		t.Errorf("status %d", res.StatusCode)
	}
	if got, err := io.ReadAll(r); string(got) != "hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// A connection that the proxy keeps for a next request ends with what allowed it:
// it takes no place until its client says something.
func TestProxyIdleIsNarrowed(t *testing.T) {
	t.Parallel()
	out := newAway()
	ns, g, rec := owned(t, egress.Options{Host: out, Policy: compile(t, httpTo("web.example.com")), Limits: egress.Limits{Connections: 1}})
	say := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }
	out.plain(t, "web.example.com", "93.184.215.14:80", say)
	out.plain(t, "www.example.com", "93.184.215.15:80", say)
	c, in := toProxy(t, ns)
	const get = "GET http://web.example.com/ HTTP/1.1\r\nHost: web.example.com\r\n\r\n"
	if res, text := ask(t, c, in, "GET", get); res.StatusCode != 200 {
		t.Fatalf("status %d, %s", res.StatusCode, text)
	}
	g.SetPolicy(compile(t, httpTo("www.example.com")))
	rec.wait(t, verdictOf("deny", "web.example.com"))
	c2, in2 := toProxy(t, ns)
	if res, text := ask(t, c2, in2, "GET", "GET http://www.example.com/ HTTP/1.1\r\nHost: www.example.com\r\n\r\n"); res.StatusCode != 200 {
		t.Errorf("status %d, %s", res.StatusCode, text)
	}
	if res, text := ask(t, c, in, "GET", get); res.StatusCode != 403 {
		t.Errorf("status %d, %s", res.StatusCode, text)
	}
}

// Connections to the proxy are bounded, and those that say nothing cost nobody
// outside anything.
func TestProxyConnections(t *testing.T) {
	t.Parallel()
	out := newAway()
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, httpTo("web.example.com"))})
	var conns []net.Conn
	for {
		c, err := dialInside(ns, proxyAt)
		if err != nil {
			wantReset(t, err)
			break
		}
		defer c.Close()
		if conns = append(conns, c); len(conns) > egress.MaxProxyConns {
			t.Fatalf("%d connections are open", len(conns))
		}
	}
	if len(conns) != egress.MaxProxyConns {
		t.Errorf("%d connections were opened", len(conns))
	}
	rec.wait(t, func(a egress.Attempt) bool {
		return a.Verdict == "deny" && a.Port == egress.ProxyPort && strings.Contains(a.Reason, "connections to the proxy are open")
	})
	conns[0].Close()
	for { // its place is free a little later
		c, err := dialInside(ns, proxyAt)
		if err == nil {
			c.Close()
			break
		}
	}
}

// Programs that are told of the proxy, and know no names.
func TestProgramsByProxy(t *testing.T) {
	t.Parallel()
	out := newAway()
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, policy.Document{Rules: []policy.Rule{{Host: "example.com"}}})})
	hello := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }
	ca := authority(t, out, "example.com", "93.184.215.14:443", hello)
	out.plain(t, "", "93.184.215.14:80", hello)
	for _, to := range []string{"https://example.com/", "http://example.com/"} {
		if got, err := ns.run(t, "", "curl", "-sS", "-x", "http://"+proxyAt, "--cacert", ca, to); err != nil || got != "hello" {
			t.Errorf("curl %s: %v: %s", to, err, got)
		}
	}
	if got, err := ns.run(t, "", "curl", "-sS", "-x", "http://"+proxyAt, "https://evil.example.net/"); err == nil || !strings.Contains(got, "403") {
		t.Errorf("curl: %v: %s", err, got)
	}
	rec.wait(t, verdictOf("deny", "evil.example.net"))
	if got, err := ns.run(t, "GET / HTTP/1.0\r\nHost: example.com\r\n\r\n", "openssl", "s_client", "-quiet", "-ign_eof", "-proxy", proxyAt,
		"-CAfile", ca, "-verify_return_error", "-servername", "example.com", "-connect", "example.com:443"); err != nil || !strings.Contains(got, "hello") {
		t.Errorf("openssl: %v: %s", err, got)
	}
	script := "import urllib.request,ssl,sys\n" +
		"h=[urllib.request.ProxyHandler({'http':sys.argv[1],'https':sys.argv[1]}),urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=sys.argv[2]))]\n" +
		"o=urllib.request.build_opener(*h)\n" +
		"for u in sys.argv[3:]: print(o.open(u,timeout=10).read().decode())\n"
	if got, err := ns.run(t, "", "python3", "-c", script, "http://"+proxyAt, ca, "https://example.com/", "http://example.com/"); err != nil || got != "hello\nhello\n" {
		t.Errorf("python3: %v: %s", err, got)
	}
}
