package egress_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
)

var quiet = log.New(io.Discard, "", 0)

// behind puts what really listens at an address behind another, and a name.
func (a *away) behind(name, at, listener string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	to := netip.MustParseAddrPort(at)
	a.servers[to] = listener
	if name != "" {
		a.names[name] = append(a.names[name], to.Addr())
	}
}

// secure serves h over TLS, under a name below example.com. It returns whom a
// client has to trust.
func (a *away) secure(t testing.TB, name, at string, h http.HandlerFunc, c *tls.Config) *x509.CertPool {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.TLS = c
	s.EnableHTTP2 = true
	s.Config.ErrorLog = quiet
	s.StartTLS()
	t.Cleanup(s.Close)
	a.behind(name, at, s.Listener.Addr().String())
	return s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
}

// inside is a client in the sandbox, which finds names as programs there do.
func inside(t testing.TB, ns *netns, c *tls.Config) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true, ExpectContinueTimeout: 5 * time.Second,
		DialContext: func(_ context.Context, _, to string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(to)
			if err != nil {
				return nil, err
			}
			addr, err := netip.ParseAddr(host)
			if err != nil {
				addr, _ = resolve(t, ns, host, dns.TypeA)
			}
			return dialInside(ns, net.JoinHostPort(addr.String(), port))
		}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// resolved is the address of a name inside.
func (ns *netns) resolved(t testing.TB, name string) string {
	t.Helper()
	addr, _ := resolve(t, ns, name, dns.TypeA)
	return addr.String()
}

// run runs a program in the sandbox's network.
func (ns *netns) run(t testing.TB, stdin, name string, args ...string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Fatalf("%v: scripts/test.sh installs what the tests need", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	ns.do(cmd.Start)
	err := cmd.Wait()
	return out.String(), err
}

func body(t testing.TB, r *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Error(err)
		return ""
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func tlsTo(hosts ...string) policy.Document {
	var d policy.Document
	for _, host := range hosts {
		d.Rules = append(d.Rules, policy.Rule{Host: host, Ports: []int{443}})
	}
	return d
}

// slowly writes what it is given byte by byte.
type slowly struct{ net.Conn }

func (c slowly) Write(b []byte) (int, error) {
	for i := range b {
		if _, err := c.Conn.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// What is TLS for the name passes as it is: every version, however it is cut,
// also when the server asks the client twice.
func TestPassesTLS(t *testing.T) {
	t.Parallel()
	hello := func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello over %s", r.Proto) }
	for what, c := range map[string]struct {
		server, client *tls.Config
		slow           bool
		want           string
	}{
		"1.3":         {nil, &tls.Config{}, false, "HTTP/2.0"},
		"1.2":         {nil, &tls.Config{MaxVersion: tls.VersionTLS12}, false, "HTTP/2.0"},
		"segments":    {nil, &tls.Config{}, true, "HTTP/2.0"},
		"asked again": {&tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP384}}, &tls.Config{}, false, "HTTP/2.0"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			out := newAway()
			ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, tlsTo("api.example.com"))})
			c.client.RootCAs = out.secure(t, "api.example.com", "93.184.215.14:443", hello, c.server)
			client := inside(t, ns, c.client)
			if c.slow {
				tr := client.Transport.(*http.Transport)
				dial := tr.DialContext
				tr.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
					c, err := dial(ctx, network, to)
					return slowly{c}, err
				}
			}
			r, err := client.Get("https://api.example.com/")
			if got := body(t, r, err); got != "hello over "+c.want {
				t.Errorf("got %q", got)
			}
			client.CloseIdleConnections()
			a := rec.wait(t, verdictOf("allow", "api.example.com"))
			if a.Proto != policy.TLS || a.Rule != "rules[0]" || a.BytesOut < 300 || a.BytesIn < 300 {
				t.Errorf("recorded %+v", a)
			}
		})
	}
}

// wantGone writes b to a connection and expects it to be reset without an
// answer.
func wantGone(t testing.TB, what string, c net.Conn, b []byte) {
	t.Helper()
	_, err := c.Write(b)
	if err == nil {
		var n int
		if n, err = c.Read(make([]byte, 1)); n > 0 {
			t.Errorf("%s: answered", what)
		}
	}
	if err == io.EOF || err == nil {
		t.Errorf("%s: %v, want a reset", what, err)
		return
	}
	wantReset(t, err)
}

// What is not TLS for the name is reset, with the reason in the record, and
// nothing of it is sent to the host.
func TestRefusesTLS(t *testing.T) {
	t.Parallel()
	out := newAway()
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, tlsTo("*.example.com"))})
	hello := func(names ...string) []byte {
		return egress.InRecords(egress.BuiltHello(tls.VersionTLS12, egress.Named(0, names...)), 1<<14)
	}
	cases := map[string]struct {
		raw          []byte
		rule, reason string
	}{
		"other":    {hello("evil.example.net"), "tls.name", `server name is "evil.example.net"`},
		"sibling":  {hello("b.example.com"), "tls.name", "b.example.com"},
		"none":     {egress.InRecords(egress.BuiltHello(tls.VersionTLS12), 1<<14), "tls.name", "no server name"},
		"address":  {hello("93.184.215.14"), "tls.name", "93.184.215.14"},
		"two":      {hello("two.example.com", "evil.example.net"), "tls.hello", "more than one server name"},
		"odd":      {hello("odd.example.com\x00.evil.example.net"), "tls.name", "odd"},
		"ech":      {egress.InRecords(egress.BuiltHello(tls.VersionTLS12, egress.Named(0, "ech.example.com"), egress.Extension(0xfe0d, []byte{0, 0, 1})), 1<<14), "tls.hello", "hides the server's name"},
		"garbage":  {egress.InRecords(append(egress.BuiltHello(tls.VersionTLS12, egress.Named(0, "garbage.example.com")), 1, 2, 3), 1<<14), "tls.hello", "follows its ClientHello"},
		"http":     {[]byte("GET / HTTP/1.1\r\nHost: http.example.com\r\n\r\n"), "tls.hello", "rules[0] allows TLS only: it is not TLS"},
		"ssh":      {[]byte("SSH-2.0-x\r\n"), "tls.hello", "not TLS"},
		"too-long": {egress.InRecords(egress.BuiltHello(tls.VersionTLS12, egress.Named(0, "too-long.example.com"), egress.Extension(21, make([]byte, 17_000))), 1<<14), "tls.hello", "more than 16384 bytes"},
	}
	got := make(chan string, 2*len(cases))
	names := 0
	for what, c := range cases {
		names++
		name := what + ".example.com"
		out.serve(t, name, fmt.Sprintf("93.184.215.%d:443", names), func(c *net.TCPConn) {
			if b, _ := io.ReadAll(c); len(b) > 0 {
				got <- what
			}
		})
		wantGone(t, what, mustReach(t, ns, name, 443), c.raw)
		a := rec.wait(t, verdictOf("deny", name))
		if a.Rule != c.rule || !strings.Contains(a.Reason, c.reason) || a.BytesOut != 0 || a.Proto != policy.TLS || a.LocalPort == 0 {
			t.Errorf("%s: recorded %+v", what, a)
		}
	}
	close(got)
	for what := range got {
		t.Errorf("%s: the host was sent something", what)
	}

	out.serve(t, "half.example.com", "93.184.215.100:443", func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	c := mustReach(t, ns, "half.example.com", 443)
	c.Write(hello("half.example.com")[:20])
	c.CloseWrite()
	wantGone(t, "half", c, nil)
	if a := rec.wait(t, verdictOf("deny", "half.example.com")); !strings.Contains(a.Reason, "cut short") {
		t.Errorf("recorded %+v", a)
	}
}

// A second ClientHello, which a server may ask for, names the same server.
func TestRefusesSecondHello(t *testing.T) {
	t.Parallel()
	out := newAway()
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, tlsTo("*.example.com"))})
	hello := func(name string) []byte {
		return egress.InRecords(egress.BuiltHello(tls.VersionTLS12, egress.Named(0, name), egress.Extension(43, []byte{2, 3, 4})), 100)
	}
	early := []byte{20, 3, 3, 0, 1, 1}
	for name, second := range map[string][]byte{
		"same.example.com":  hello("same.example.com"),
		"other.example.com": hello("evil.example.net"),
		"none.example.com":  egress.InRecords(egress.BuiltHello(tls.VersionTLS12), 100),
	} {
		received := make(chan []byte, 1)
		out.serve(t, name, fmt.Sprintf("93.184.215.%d:443", 10+len(name)), func(c *net.TCPConn) {
			if _, err := io.ReadFull(c, make([]byte, len(hello(name)))); err != nil {
				t.Error(err)
			}
			c.Write(egress.HelloRetry)
			b, _ := io.ReadAll(c)
			received <- b
		})
		c := mustReach(t, ns, name, 443)
		if _, err := c.Write(hello(name)); err != nil {
			t.Fatal(err)
		}
		prefix := make([]byte, 43)
		if _, err := io.ReadFull(c, prefix); err != nil || !bytes.Equal(prefix, egress.HelloRetry[:43]) {
			t.Fatalf("%s: the server's answer is %x, %v", name, prefix, err)
		}
		if name == "same.example.com" {
			c.Write(append(slices.Clone(early), second...))
			c.CloseWrite()
			if got := <-received; !bytes.Equal(got, append(slices.Clone(early), second...)) {
				t.Errorf("%s: the server received %x", name, got)
			}
			continue
		}
		c.Write(early)
		_, err := c.Write(second)
		for err == nil { // the rest of what the server said may come before
			_, err = c.Read(make([]byte, 100))
		}
		wantReset(t, err)
		if got := <-received; len(got) > len(early) {
			t.Errorf("%s: the server received %x", name, got)
		}
		rec.wait(t, verdictOf("deny", name))
	}
}

// A connection to an address has no server name.
func TestTLSToAddress(t *testing.T) {
	t.Parallel()
	out := newAway()
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, policy.Document{Rules: []policy.Rule{{CIDR: "93.184.215.14"}}})})
	out.secure(t, "", "93.184.215.14:443", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }, nil)
	r, err := inside(t, ns, &tls.Config{InsecureSkipVerify: true}).Get("https://93.184.215.14/")
	if got := body(t, r, err); got != "hello" {
		t.Errorf("got %q", got)
	}
	c, err := dialInside(ns, "93.184.215.14:443")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wantGone(t, "a name", c, egress.InRecords(egress.BuiltHello(tls.VersionTLS12, egress.Named(0, "a.example.com")), 1<<14))
	if a := rec.wait(t, verdictOf("deny", "")); a.Rule != "tls.name" {
		t.Errorf("recorded %+v", a)
	}
}

// A policy that only reports lets pass what is not TLS, and says what it is.
func TestReportsTLS(t *testing.T) {
	t.Parallel()
	out := newAway()
	d := tlsTo("a.example.com")
	d.ReportOnly = true
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, d)})
	out.serve(t, "a.example.com", "93.184.215.14:443", func(c *net.TCPConn) { io.Copy(c, c) })
	c := mustReach(t, ns, "a.example.com", 443)
	const sent = "SSH-2.0-x\r\n"
	io.WriteString(c, sent)
	c.CloseWrite()
	if got, err := io.ReadAll(c); string(got) != sent || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if a := rec.wait(t, verdictOf("report", "a.example.com")); a.Rule != "tls.hello" || !strings.Contains(a.Reason, "not TLS") {
		t.Errorf("recorded %+v", a)
	}
}

// authority writes certificates to a file for programs.
func authority(t testing.TB, out *away, name, at string, h http.HandlerFunc) (file string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = quiet
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	out.behind(name, at, s.Listener.Addr().String())
	file = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// Programs as they are.
func TestProgramsTLS(t *testing.T) {
	t.Parallel()
	out := newAway()
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, tlsTo("api.example.com", "example.com"))})
	hello := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello over "+r.Proto) }
	ca := authority(t, out, "example.com", "93.184.215.14:443", hello)
	addr, _ := resolve(t, ns, "example.com", dns.TypeA)
	t.Run("curl", func(t *testing.T) {
		got, err := ns.run(t, "", "curl", "-sS", "--cacert", ca, "--resolve", "example.com:443:"+addr.String(), "https://example.com/")
		if err != nil || !strings.HasPrefix(got, "hello over HTTP/") {
			t.Errorf("%v: %s", err, got)
		}
		got, err = ns.run(t, "", "curl", "-sS", "-k", "--resolve", "evil.example.net:443:"+addr.String(), "https://evil.example.net/")
		if err == nil {
			t.Errorf("another name at the address: %s", got)
		}
		if a := rec.wait(t, verdictOf("deny", "example.com")); a.Rule != "tls.name" || !strings.Contains(a.Reason, "evil.example.net") {
			t.Errorf("recorded %+v", a)
		}
	})
	t.Run("openssl", func(t *testing.T) {
		for _, version := range []string{"-tls1_2", "-tls1_3"} {
			got, err := ns.run(t, "GET / HTTP/1.0\r\nHost: example.com\r\n\r\n", "openssl", "s_client", "-quiet", "-ign_eof", version,
				"-CAfile", ca, "-verify_return_error", "-servername", "example.com", "-connect", addr.String()+":443")
			if err != nil || !strings.Contains(got, "hello over HTTP/1.0") {
				t.Errorf("%s: %v: %s", version, err, got)
			}
		}
		if got, err := ns.run(t, "", "openssl", "s_client", "-noservername", "-connect", addr.String()+":443"); err == nil {
			t.Errorf("without a server name: %s", got)
		}
	})
}
