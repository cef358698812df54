package egress_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
)

func httpTo(hosts ...string) policy.Document {
	var d policy.Document
	for _, host := range hosts {
		d.Rules = append(d.Rules, policy.Rule{Host: host, Ports: []int{80}})
	}
	return d
}

// plain serves h without TLS.
func (a *away) plain(t testing.TB, name, at string, h http.HandlerFunc) {
	t.Helper()
	s := httptest.NewServer(h)
	s.Config.ErrorLog = quiet
	t.Cleanup(s.Close)
	a.behind(name, at, s.Listener.Addr().String())
}

// webTo is a sandbox that may speak HTTP with web.example.com.
func webTo(t testing.TB, h http.HandlerFunc) (*netns, *away, *records) {
	t.Helper()
	out := newAway()
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, httpTo("web.example.com"))})
	out.plain(t, "web.example.com", "93.184.215.14:80", h)
	return ns, out, rec
}

// ask sends text on a connection and reads one answer to a request of a method.
func ask(t testing.TB, c net.Conn, r *bufio.Reader, method, text string) (*http.Response, string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if method == http.MethodConnect && res.StatusCode == 200 {
		return res, ""
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("%q: %v", text, err)
	}
	return res, string(b)
}

// What goes out is what the client said: no field is added, none is changed.
func TestCarriesHTTP(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	out := newAway()
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, httpTo("web.example.com"))})
	out.serve(t, "web.example.com", "93.184.215.14:80", func(c *net.TCPConn) {
		r := bufio.NewReader(c)
		for {
			var head strings.Builder
			for !strings.HasSuffix(head.String(), "\r\n\r\n") {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				head.WriteString(line)
			}
			got <- head.String()
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Odd: \xe9\r\n\r\nok")
		}
	})
	c := mustReach(t, ns, "web.example.com", 80)
	r := bufio.NewReader(c)
	for in, want := range map[string]string{
		"GET /a%7Cb|c//../d?x=%zz;y&&z HTTP/1.1\r\nHost: WEB.example.com:80\r\nX-Forwarded-For: 1.2.3.4\r\nVia: mine\r\nCookie: a=b\r\n\r\n":                                      "",
		"GET / HTTP/1.1\r\nHost: web.example.com\r\nUser-Agent: curl/8\r\nAccept-Encoding: br\r\n\r\n":                                                                            "",
		"GET // HTTP/1.1\r\nHost: web.example.com\r\nX-A: 1\r\nX-A: 2\r\n\r\n":                                                                                                    "",
		"OPTIONS * HTTP/1.1\r\nHost: web.example.com\r\n\r\n":                                                                                                                     "",
		"GET http://web.example.com/abs?q HTTP/1.1\r\nHost: web.example.com\r\n\r\n":                                                                                              "GET /abs?q HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: web.example.com\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nProxy-Authorization: Basic eA==\r\n\r\n": "GET / HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: web.example.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n":                                      "GET / HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
	} {
		res, text := ask(t, c, r, "GET", in)
		if want == "" {
			want = in
		}
		if g := <-got; sorted(g) != sorted(want) {
			t.Errorf("sent    %q\nwant    %q\narrived %q", in, want, g)
		}
		if text != "ok" || res.Header.Get("X-Odd") != "\xe9" || len(res.Header) != 2 {
			t.Errorf("answer %q %v", text, res.Header)
		}
	}
	c.Close()
	a := rec.wait(t, verdictOf("allow", "web.example.com"))
	if a.Proto != policy.HTTP || a.BytesOut == 0 || a.BytesIn == 0 || a.Rule != "rules[0]" {
		t.Errorf("recorded %+v", a)
	}
}

// sorted is a head with its fields in the order of their text.
func sorted(head string) string {
	first, fields, _ := strings.Cut(strings.TrimSuffix(head, "\r\n\r\n"), "\r\n")
	list := strings.Split(fields, "\r\n")
	for i := range list {
		for j := range i {
			if list[j] > list[i] {
				list[i], list[j] = list[j], list[i]
			}
		}
	}
	return first + "\n" + strings.Join(list, "\n")
}

// Each request of a connection is judged; what is refused is answered with the
// reason and recorded, nothing of it arrives, and the next may pass.
func TestRefusesRequests(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int32
	ns, _, rec := webTo(t, func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		io.WriteString(w, r.Host)
	})
	c := mustReach(t, ns, "web.example.com", 80)
	r := bufio.NewReader(c)
	good := "GET / HTTP/1.1\r\nHost: web.example.com\r\n\r\n"
	passed := int32(0)
	pass := func() {
		t.Helper()
		passed++
		if res, text := ask(t, c, r, "GET", good); res.StatusCode != 200 || text != "web.example.com" || arrived.Load() != passed {
			t.Errorf("status %d, %q; %d requests arrived, want %d", res.StatusCode, text, arrived.Load(), passed)
		}
	}
	pass()
	for in, reason := range map[string]string{
		"GET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n":                                          `Host is "evil.example.net"`,
		"POST / HTTP/1.1\r\nHost: web.example.com:81\r\nContent-Length: 3\r\n\r\nabc":               `Host is "web.example.com:81"`,
		"GET / HTTP/1.1\r\nHost: web.example.com.evil.example.net\r\n\r\n":                          "evil",
		"GET http://other.example.net/ HTTP/1.1\r\nHost: other.example.net\r\n\r\n":                 "other.example.net",
		"GET / HTTP/1.1\r\nHost: 93.184.215.14\r\n\r\n":                                             "93.184.215.14",
		"GET / HTTP/1.1\r\nHost: \r\n\r\n":                                                          "Host is",
		"GET https://web.example.com/ HTTP/1.1\r\nHost: web.example.com\r\n\r\n":                    "scheme https",
		"GET / HTTP/1.1\r\nHost: third.example.net\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n":  "third",
		"PUT / HTTP/1.1\r\nHost: fourth.example.net\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": "fourth",
	} {
		res, text := ask(t, c, r, "GET", in)
		if res.StatusCode != 403 || !strings.Contains(text, "reason: ") || !strings.Contains(text, reason) || !strings.Contains(text, "rule:   http.") {
			t.Errorf("%q: status %d, %s", in, res.StatusCode, text)
		}
		a := rec.wait(t, func(a egress.Attempt) bool { return a.Verdict == "deny" && strings.Contains(a.Reason, reason) })
		if a.Proto != policy.HTTP || a.Name != "web.example.com" || a.Port != 80 || !strings.HasPrefix(a.Rule, "http.") || a.LocalPort == 0 || a.Generation != 1 {
			t.Errorf("recorded %+v", a)
		}
		pass()
	}
	res, text := ask(t, c, r, "GET", "GET / HTTP/1.1\r\nHost: evil.example.net\r\nAccept: application/json\r\n\r\n")
	var p struct {
		Error, Host, Rule, Reason string
		Port                      int
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil || res.Header.Get("Content-Type") != "application/json" ||
		p.Error != "refused" || p.Host != "web.example.com" || p.Port != 80 || p.Rule != "http.host" || p.Reason == "" {
		t.Errorf("%v: %s", err, text)
	}
	pass()
	// These end the connection.
	for in, reason := range map[string]string{
		"POST / HTTP/1.1\r\nHost: web.example.com\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x": "both Content-Length and",
		"GET / HTTP/1.1\r\nHost: web.example.com\r\nHost: evil.example.net\r\n\r\n":                                          "2 Host",
		"GET / HTTP/1.1\nHost: web.example.com\n\n":                                                                          "CR LF",
		"CONNECT web.example.com:80 HTTP/1.1\r\nHost: web.example.com\r\n\r\n":                                               "CONNECT",
		"CONNECT evil.example.net:443 HTTP/1.1\r\nHost: evil.example.net\r\n\r\n":                                            "evil.example.net:443",
		"\x16\x03\x01\x00\x05": "not HTTP",
		"GET / HTTP/1.1\r\nHost: fifth.example.net\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nGET /x": "fifth",
	} {
		c := mustReach(t, ns, "web.example.com", 80)
		r := bufio.NewReader(c)
		res, text := ask(t, c, r, "GET", good+in) // the good one is answered first
		if passed++; res.StatusCode != 200 {
			t.Errorf("%q: status %d, %s", in, res.StatusCode, text)
		}
		res, text = ask(t, c, r, "GET", "")
		if res.StatusCode != 400 && res.StatusCode != 403 || !strings.Contains(text, reason) {
			t.Errorf("%q: status %d, %s", in, res.StatusCode, text)
		}
		if n, err := r.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("%q: the connection goes on", in)
		}
		rec.wait(t, func(a egress.Attempt) bool { return a.Verdict == "deny" && strings.Contains(a.Reason, reason) })
	}
	if arrived.Load() != passed {
		t.Errorf("%d requests arrived, want %d", arrived.Load(), passed)
	}
}

// A body that is malformed is cut before the fault, so that the server learns
// that it is not whole.
func TestRefusesChunks(t *testing.T) {
	t.Parallel()
	read := make(chan error, 1)
	ns, _, rec := webTo(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
	})
	c := mustReach(t, ns, "web.example.com", 80)
	res, text := ask(t, c, bufio.NewReader(c), "POST", "POST / HTTP/1.1\r\nHost: web.example.com\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0x3\r\nabc\r\n0\r\n\r\n")
	if res.StatusCode != 400 || !strings.Contains(text, "size of a chunk") {
		t.Errorf("status %d, %s", res.StatusCode, text)
	}
	if err := <-read; err == nil {
		t.Error("the server took the body for whole")
	}
	rec.wait(t, func(a egress.Attempt) bool {
		return a.Rule == "http.framing" && strings.Contains(a.Reason, "size of a chunk")
	})
}

// A server may end its connection where the client keeps its own: the next
// request goes to the same address, without another look-up.
func TestServerCloses(t *testing.T) {
	t.Parallel()
	ns, out, rec := webTo(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		io.WriteString(w, "x")
	})
	c := mustReach(t, ns, "web.example.com", 80)
	r := bufio.NewReader(c)
	for range 3 {
		if res, text := ask(t, c, r, "GET", "GET / HTTP/1.1\r\nHost: web.example.com\r\n\r\n"); text != "x" || res.Close {
			t.Errorf("%q, closed: %v", text, res.Close)
		}
	}
	if looked, dialled := out.count(); looked != 1 || dialled != 3 {
		t.Errorf("%d names looked up, %d addresses dialled", looked, dialled)
	}
	c.Close()
	if a := rec.wait(t, verdictOf("allow", "web.example.com")); a.Count != 1 {
		t.Errorf("recorded %+v", a)
	}
	out.mu.Lock()
	clear(out.servers)
	out.mu.Unlock()
}

// Old clients, answers without a body, and a server that is gone.
func TestAnswers(t *testing.T) {
	t.Parallel()
	ns, out, _ := webTo(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		case "/same":
			w.Header().Set("Etag", `"x"`)
			w.WriteHeader(http.StatusNotModified)
		case "/cut":
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "abc")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		default:
			w.Header().Set("Content-Length", "5")
			io.WriteString(w, "hello"[:5])
		}
	})
	c := mustReach(t, ns, "web.example.com", 80)
	r := bufio.NewReader(c)
	for path, want := range map[string]string{"/none": "204 ", "/same": "304 ", "/": "200 hello"} {
		res, text := ask(t, c, r, "GET", "GET "+path+" HTTP/1.1\r\nHost: web.example.com\r\n\r\n")
		if got := fmt.Sprint(res.StatusCode, " ", text); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if res, text := ask(t, c, r, "HEAD", "HEAD / HTTP/1.1\r\nHost: web.example.com\r\n\r\n"); res.ContentLength != 5 || text != "" {
		t.Errorf("HEAD: length %d, %q", res.ContentLength, text)
	}
	if _, err := io.WriteString(c, "GET /cut HTTP/1.1\r\nHost: web.example.com\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(res.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an answer that was cut: %v", err)
	}
	c = mustReach(t, ns, "web.example.com", 80)
	if res, text := ask(t, c, bufio.NewReader(c), "GET", "GET / HTTP/1.0\r\nHost: web.example.com\r\n\r\n"); text != "hello" || !res.Close {
		t.Errorf("HTTP/1.0: %q, closed: %v", text, res.Close)
	}

	out.serve(t, "web.example.com", "93.184.215.14:80", func(*net.TCPConn) {}) // takes the place, and closes at once
	c = mustReach(t, ns, "web.example.com", 80)
	if res, text := ask(t, c, bufio.NewReader(c), "GET", "GET / HTTP/1.1\r\nHost: web.example.com\r\n\r\n"); res.StatusCode != 502 || !strings.Contains(text, "could not be reached") {
		t.Errorf("status %d, %s", res.StatusCode, text)
	}
}

func TestProgramsHTTP(t *testing.T) {
	t.Parallel()
	ns, _, rec := webTo(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %d bytes from %q", r.Method, len(b), r.UserAgent())
	})
	at := ns.resolved(t, "web.example.com")
	for _, args := range [][]string{{}, {"--http2"}, {"-0"}, {"-T", "-"}, {"-H", "Expect: 100-continue", "-d", strings.Repeat("x", 100)}} {
		got, err := ns.run(t, "input", "curl", append(args, "-sS", "-A", "me", "--resolve", "web.example.com:80:"+at, "http://web.example.com/")...)
		if err != nil || !strings.HasSuffix(got, `bytes from "me"`) {
			t.Errorf("curl %v: %v: %s", args, err, got)
		}
	}
	got, err := ns.run(t, "", "curl", "-sS", "-f", "--resolve", "evil.example.net:80:"+at, "http://evil.example.net/")
	if err == nil || !strings.Contains(got, "403") {
		t.Errorf("%v: %s", err, got)
	}
	rec.wait(t, func(a egress.Attempt) bool { return a.Verdict == "deny" && a.Rule == "http.host" })
}
