package egress_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
)

// reading allows one method and the paths below /open/.
func reading() policy.Document {
	return policy.Document{Rules: []policy.Rule{{Host: "web.example.com", Ports: []int{80}, Methods: []string{"GET"}, Paths: []string{"/open/*"}}}}
}

// A field by which servers take a request for another one does not get it past
// the policy.
func TestOverriddenRequest(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"X-HTTP-Method-Override: delete":                         `no rule allows "DELETE" "/open/a"`,
		"X-HTTP-Method: DELETE":                                  `no rule allows "DELETE"`,
		"X_Method_Override: DELETE":                              `no rule allows "DELETE"`,
		"X-Original-URL: /admin":                                 `no rule allows "GET" "/admin"`,
		"X-Rewrite-URL: /open/../admin":                          "not in its plain form",
		"X-Original-URL: /open/b":                                "",
		"X-HTTP-Method-Override: GET":                            "",
		strings.Repeat("X-Method-Override: GET\r\n", 9) + "A: b": "says 11 times",
	} {
		out := newAway()
		ns, _, _ := owned(t, egress.Options{Host: out, Policy: compile(t, reading())})
		out.plain(t, "web.example.com", "93.184.215.14:80", func(http.ResponseWriter, *http.Request) {})
		c := mustReach(t, ns, "web.example.com", 80)
		res, text := ask(t, c, bufio.NewReader(c), "GET", "GET /open/a HTTP/1.1\r\nHost: web.example.com\r\n"+field+"\r\n\r\n")
		if want == "" && res.StatusCode != 200 || want != "" && (res.StatusCode != 403 || !strings.Contains(text, want)) {
			t.Errorf("%s: %d %q, want %q", field, res.StatusCode, text, want)
		}
	}
}

// A request under way ends with the policy that allowed it.
func TestNarrowedInRequest(t *testing.T) {
	t.Parallel()
	out := newAway()
	ns, g, rec := owned(t, egress.Options{Host: out, Policy: compile(t, httpTo("web.example.com"))})
	begun := make(chan struct{}, 1)
	out.plain(t, "web.example.com", "93.184.215.14:80", func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			begun <- struct{}{}
			_, _ = io.Copy(io.Discard, r.Body) // until it is cut
		}
	})
	idle, busy := mustReach(t, ns, "web.example.com", 80), mustReach(t, ns, "web.example.com", 80)
	in := bufio.NewReader(idle)
	const get = "GET /open/a HTTP/1.1\r\nHost: web.example.com\r\n\r\n"
	if res, text := ask(t, idle, in, "GET", get); res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	send(t, busy, "POST / HTTP/1.1\r\nHost: web.example.com\r\nContent-Length: 1000\r\n\r\nx")
	<-begun
	g.SetPolicy(compile(t, reading()))
	if b, err := io.ReadAll(busy); err == nil || len(b) > 0 {
		t.Errorf("a request that is no longer allowed: %q %v", b, err)
	}
	rec.wait(t, func(a egress.Attempt) bool {
		return a.Verdict == "deny" && strings.Contains(a.Reason, `no rule allows "POST" "/"`)
	})
	if res, text := ask(t, idle, in, "GET", get); res.StatusCode != 200 {
		t.Errorf("what is still allowed: %d %s", res.StatusCode, text)
	}
}

func send(t testing.TB, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// upgrades has a server at web.example.com agree to every upgrade, and go on.
func upgrades(t *testing.T, out *away, then func(c net.Conn, in io.Reader)) {
	t.Helper()
	out.plain(t, "web.example.com", "93.184.215.14:80", func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		then(c, rw)
	})
}

// What follows a request that upgrades arrives whole, however early it was sent.
func TestEarlyUpgraded(t *testing.T) {
	t.Parallel()
	out := newAway()
	ns, _, _ := owned(t, egress.Options{Host: out, Policy: compile(t, httpTo("web.example.com"))})
	upgrades(t, out, func(c net.Conn, in io.Reader) { _, _ = io.Copy(c, in) })
	c := mustReach(t, ns, "web.example.com", 80)
	const early = "sent before the answer"
	send(t, c, "GET / HTTP/1.1\r\nHost: web.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+early)
	in := bufio.NewReader(c)
	if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != 101 {
		t.Fatalf("%+v %v", res, err)
	}
	back := make([]byte, len(early))
	if _, err := io.ReadFull(in, back); err != nil || string(back) != early {
		t.Errorf("came back: %q %v", back, err)
	}
}

// A server that ends its direction of what a request was upgraded to can still be
// sent to.
func TestUpgradedHalfClosed(t *testing.T) {
	t.Parallel()
	out := newAway()
	ns, _, _ := owned(t, egress.Options{Host: out, Policy: compile(t, httpTo("web.example.com"))})
	got := make(chan string, 1)
	upgrades(t, out, func(c net.Conn, in io.Reader) {
		_, _ = io.WriteString(c, "last")
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
		b, _ := io.ReadAll(in)
		got <- string(b)
	})
	c := mustReach(t, ns, "web.example.com", 80)
	send(t, c, "GET / HTTP/1.1\r\nHost: web.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(c)
	if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != 101 {
		t.Fatalf("%+v %v", res, err)
	}
	if b, err := io.ReadAll(in); err != nil || string(b) != "last" {
		t.Errorf("came: %q %v", b, err)
	}
	send(t, c, "sent after the server's end")
	if err := c.CloseWrite(); err != nil {
		t.Error(err)
	}
	if b := <-got; b != "sent after the server's end" {
		t.Errorf("went: %q", b)
	}
}

// What was upgraded through the proxy ends with its flow, also where the server has
// ended its direction and the client is silent.
func TestUpgradedIsAborted(t *testing.T) {
	t.Parallel()
	out := newAway()
	ns, g, rec := owned(t, egress.Options{Host: out, Policy: compile(t, httpTo("web.example.com"))})
	upgrades(t, out, func(c net.Conn, in io.Reader) {
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
		_, _ = io.Copy(io.Discard, in)
	})
	c, in := toProxy(t, ns)
	send(t, c, "GET http://web.example.com/ HTTP/1.1\r\nHost: web.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != 101 {
		t.Fatalf("%+v %v", res, err)
	}
	if b, err := io.ReadAll(in); err != nil || len(b) != 0 {
		t.Errorf("came: %q %v", b, err)
	}
	g.SetPolicy(nil)
	rec.wait(t, verdictOf("deny", "web.example.com"))
	if _, err := io.WriteString(c, "x"); err != nil {
		wantReset(t, err)
		return
	}
	_, err := c.Read(make([]byte, 1))
	wantReset(t, err)
}

// Half an answer does not look like a whole one: not through the proxy, and not
// where its end is that of the connection.
func TestCutAnswer(t *testing.T) {
	t.Parallel()
	for what, head := range map[string]string{
		"tunnel": "CONNECT web.example.com:80 HTTP/1.1\r\nHost: web.example.com:80\r\n\r\nGET / HTTP/1.0\r\nHost: web.example.com\r\n\r\n",
		"proxy":  "GET http://web.example.com/ HTTP/1.0\r\nHost: web.example.com\r\n\r\n",
	} {
		out := newAway()
		ns, g, _ := owned(t, egress.Options{Host: out, Policy: compile(t, httpTo("web.example.com"))})
		out.plain(t, "web.example.com", "93.184.215.14:80", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		c, in := toProxy(t, ns)
		send(t, c, head)
		if what == "tunnel" {
			if res, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"}); err != nil || res.StatusCode != 200 {
				t.Fatal(res, err)
			}
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := bufio.NewReader(res.Body)
		if _, err := b.Peek(4); err != nil {
			t.Fatal(err)
		}
		g.SetPolicy(compile(t, httpTo("other.example.com")))
		if all, err := io.ReadAll(b); err == nil {
			t.Errorf("%s: half an answer looks whole: %q", what, all)
		}
	}
}

// What a server breaks off is broken off inside.
func TestCutByServer(t *testing.T) {
	t.Parallel()
	ns, _, rec := webTo(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	c := mustReach(t, ns, "web.example.com", 80)
	send(t, c, "GET / HTTP/1.0\r\nHost: web.example.com\r\n\r\n")
	if b, err := io.ReadAll(c); err == nil {
		t.Errorf("half an answer looks whole: %q", b)
	}
	rec.wait(t, func(a egress.Attempt) bool {
		return a.Verdict == "allow" && strings.HasSuffix(a.Reason, "; an answer was cut short")
	})
}
