package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/egress/policy"
)

// heard is a connection to a host that hears nothing it may not.
type heard struct {
	still
	mu sync.Mutex
	b  bytes.Buffer
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.Write(b)
}

// listeningHost connects everything to one heard.
type listeningHost struct {
	stillHost
	heard heard
}

func (h *listeningHost) Dial(context.Context, netip.AddrPort) (net.Conn, error) { return &h.heard, nil }

// A client's first message that comes too slowly is given up, by the byte, and
// so is one that never begins; of neither does a byte leave.
func TestSlowHello(t *testing.T) {
	web := endpoint{name: "a.example.org", port: 443}
	whole := inRecords(builtHello(tls.VersionTLS12, named(0, "a.example.org")), maxRecord)
	for what, pause := range map[string]time.Duration{"slow": time.Second, "never": time.Hour} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := &listeningHost{}
				g, e := simulated(t, Options{Host: host}, policy.Rule{Host: "a.example.org"})
				f, refused := g.newFlow(web, 40000)
				if refused != nil {
					t.Fatal(refused)
				}
				if err := f.connect(); err != nil {
					t.Fatal(err)
				}
				here, there := net.Pipe()
				var wg sync.WaitGroup
				defer wg.Wait()
				defer there.Close()
				wg.Go(func() {
					for _, b := range whole {
						time.Sleep(pause)
						if _, err := there.Write([]byte{b}); err != nil {
							return
						}
					}
				})
				f.inside = here
				begin := time.Now()
				err := serveTLS(f.ctx, f)
				if what == "slow" {
					wantRule(t, err, ruleTLS)
				}
				if d := time.Since(begin); err == nil || d != helloTimeout {
					t.Errorf("after %v: %v", d, err)
				}
				here.Close()
				f.end(err)
				if n := host.heard.b.Len(); n > 0 {
					t.Errorf("%d bytes have left", n)
				}
				if list := e.get(); len(list) != 1 || list[0].BytesOut != 0 {
					t.Errorf("recorded %+v", list)
				}
			})
		})
	}
}
