package egress_test

import (
	"bufio"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"testing"

	"github.com/rein-sh/rein/egress"
)

// A request on a connection that is open, through the gateway and, for
// comparison, to the same server without it.
func BenchmarkHTTPRequest(b *testing.B) {
	out := newAway()
	ns, _, _ := owned(b, egress.Options{Host: out, Policy: compile(b, httpTo("web.example.com"))})
	out.plain(b, "web.example.com", "93.184.215.14:80", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
	direct := "http://" + out.servers[netip.MustParseAddrPort("93.184.215.14:80")] + "/"
	for what, c := range map[string]struct {
		client *http.Client
		url    string
	}{
		"gateway": {inside(b, ns, nil), "http://web.example.com/"},
		"proxy":   {proxied(b, ns, proxyAt, nil), "http://web.example.com/"},
		"direct":  {&http.Client{Transport: &http.Transport{}}, direct},
	} {
		b.Run(what, func(b *testing.B) {
			defer c.client.CloseIdleConnections()
			for b.Loop() {
				r, err := c.client.Get(c.url)
				if got := body(b, r, err); got != "hello" {
					b.Fatal(got)
				}
			}
		})
	}
}

// Bytes of one answer, and of one upload.
func BenchmarkHTTPBytes(b *testing.B) {
	const size = 256 << 20
	out := newAway()
	ns, _, _ := owned(b, egress.Options{Host: out, Policy: compile(b, httpTo("web.example.com")),
		Limits: egress.Limits{Bytes: 1 << 50, MaxUploadBytes: 1 << 50}})
	out.plain(b, "web.example.com", "93.184.215.14:80", func(w http.ResponseWriter, r *http.Request) {
		if n, _ := io.Copy(io.Discard, r.Body); n > 0 {
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(size))
		io.Copy(w, io.LimitReader(zeros{}, size))
	})
	b.Run("download", func(b *testing.B) {
		c := mustReach(b, ns, "web.example.com", 80)
		r := bufio.NewReaderSize(c, 256<<10)
		b.SetBytes(size)
		for b.Loop() {
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: web.example.com\r\n\r\n"); err != nil {
				b.Fatal(err)
			}
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("upload", func(b *testing.B) {
		client := inside(b, ns, nil)
		defer client.CloseIdleConnections()
		b.SetBytes(size)
		for b.Loop() {
			r, err := client.Post("http://web.example.com/", "x/y", io.LimitReader(zeros{}, size))
			body(b, r, err)
		}
	})
}
