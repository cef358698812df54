package egress_test

import (
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/rein-sh/rein/egress/policy"
)

// What ending TLS costs: a request on a connection that is open, and bytes both
// ways, of which text is looked through where a secret is bound. Beside it, the
// same where TLS passes through.
func BenchmarkEndedTLS(b *testing.B) {
	const size = 64 << 20
	h := func(w http.ResponseWriter, r *http.Request) {
		if n, _ := io.Copy(io.Discard, r.Body); n > 0 {
			return
		}
		switch r.URL.Path {
		case "/text":
			w.Header().Set("Content-Type", "text/plain")
		case "/bytes":
			w.Header().Set("Content-Type", "application/octet-stream")
		default:
			io.WriteString(w, "hello")
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(size))
		io.Copy(w, io.LimitReader(letters{}, size))
	}
	for _, c := range []struct {
		name  string
		doc   policy.Document
		bound bool
	}{{"through", tlsTo("api.example.com"), false}, {"ended", httpsTo("api.example.com"), false}, {"secret", httpsTo("api.example.com"), true}} {
		e := endsTo(b, c.doc, c.bound, h)
		if c.name == "through" {
			e.trust.RootCAs = e.roots
		}
		e.client.Timeout = 0
		b.Run(c.name+"/request", func(b *testing.B) {
			for b.Loop() {
				if _, text := e.get(b, "https://api.example.com/"); text != "hello" {
					b.Fatal(text)
				}
			}
		})
		for _, path := range []string{"/bytes", "/text"} {
			b.Run(c.name+"/download"+path, func(b *testing.B) {
				b.SetBytes(size)
				for b.Loop() {
					res, err := e.client.Get("https://api.example.com" + path)
					if err != nil {
						b.Fatal(err)
					}
					if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil {
						b.Fatal(n, err)
					}
					res.Body.Close()
				}
			})
		}
		b.Run(c.name+"/upload", func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				r, err := e.client.Post("https://api.example.com/", "x/y", io.LimitReader(letters{}, size))
				body(b, r, err)
			}
		})
		e.client.CloseIdleConnections()
	}
}

// letters are text.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "0123456789abcdef ghijklmnopqrstuvwxyz\n"[i%38]
	}
	return len(p), nil
}
