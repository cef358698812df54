package egress_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
)

// Clients that begin to say something and go on with nothing take what their
// sandbox may have, and nothing of another's: that one is served meanwhile, and
// so is the way into the sandbox. Closing waits for none of them.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	const each, most = 40, 4*40 + 8
	begun := map[string]struct {
		port uint16
		says string
	}{
		"TLS hello":  {443, "\x16\x03\x01\x02"},
		"HTTP head":  {80, "GET / HTTP/1.1\r\nHost: web.exam"},
		"HTTP body":  {80, "POST /body HTTP/1.1\r\nHost: web.example.com\r\nContent-Length: 1000\r\n\r\nx"},
		"HTTP chunk": {80, "POST /body HTTP/1.1\r\nHost: web.example.com\r\nTransfer-Encoding: chunked\r\n\r\n400\r\nx"},
	}
	d := httpTo("web.example.com")
	d.Rules = append(d.Rules, policy.Rule{Host: "web.example.com", Ports: []int{443}})
	sandboxWith := func() (*netns, *egress.Gateway, *records) {
		out := newAway()
		ns, g, rec := owned(t, egress.Options{Host: out, Limits: egress.Limits{Connections: most, PerSecond: 1 << 20}, Policy: compile(t, d)})
		out.plain(t, "web.example.com", "93.184.215.14:80", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/body" {
				io.Copy(io.Discard, r.Body)
			}
			io.WriteString(w, "served")
		})
		out.serve(t, "", "93.184.215.14:443", func(c *net.TCPConn) { io.Copy(io.Discard, c) })
		return ns, g, rec
	}
	ns, g, rec := sandboxWith()
	other, _, _ := sandboxWith()
	inside := serve(t, ns, func(c net.Conn) { io.Copy(c, c) })
	addr, _ := resolve(t, ns, "web.example.com", dns.TypeA)
	otherAddr, _ := resolve(t, other, "web.example.com", dns.TypeA)

	var open []net.Conn
	for what, b := range begun {
		for range each {
			c, err := dialInside(ns, netip.AddrPortFrom(addr, b.port).String())
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, b.says); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			open = append(open, c)
		}
	}
	get := func(ns *netns, addr netip.Addr) error {
		c, err := dialInside(ns, netip.AddrPortFrom(addr, 80).String())
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: web.example.com\r\nConnection: close\r\n\r\n")
		b, err := io.ReadAll(c)
		if err == nil && !bytes.Contains(b, []byte("served")) {
			err = fmt.Errorf("said %q", b)
		}
		return err
	}
	for range 20 {
		if err := get(other, otherAddr); err != nil {
			t.Errorf("another sandbox: %v", err)
		}
	}
	if err := get(ns, addr); err != nil {
		t.Errorf("the same sandbox, within its limits: %v", err)
	}
	// The rest of what it may have, and no more.
	for i := 0; ; i++ {
		c, err := dialInside(ns, netip.AddrPortFrom(addr, 443).String())
		if err != nil {
			break
		}
		defer c.Close()
		if open = append(open, c); i > most {
			t.Fatalf("%d connections are open, of %d", len(open), most)
		}
	}
	rec.wait(t, func(a egress.Attempt) bool { return a.Rule == "limit:connections" })
	c := dial(t, g, inside)
	io.WriteString(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("the way into the sandbox: %v", err)
	}
	c.Close()
	begin := time.Now()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > 15*time.Second {
		t.Errorf("closing took %v", d)
	}
}
