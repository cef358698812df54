package egress_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
)

// serving is away that knows an HTTPS record of every name.
type serving struct {
	*away
	mu    sync.Mutex
	asked []string
}

func (s *serving) Services(_ context.Context, name string) ([]egress.Service, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, name)
	return []egress.Service{{Priority: 1, ALPN: []string{"h2"}}}, time.Minute
}

// An allowed name has its HTTPS record; about others nobody is asked, nor about
// a name whose connections would have to be asked for.
func TestHTTPSRecord(t *testing.T) {
	t.Parallel()
	out := &serving{away: newAway()}
	d := policy.Document{Rules: []policy.Rule{{Host: "a.example.org"}, {Host: "ask.example.org", Action: "ask"}}}
	ns, _, _ := owned(t, egress.Options{Host: out, Policy: compile(t, d)})
	for _, network := range []string{"udp", "tcp"} {
		for name, want := range map[string]int{"a.example.org.": 1, "ask.example.org.": 0, "no.example.org.": 0} {
			ns.do(func() error {
				c, err := net.Dial(network, egress.Gateway4+":53")
				if err != nil {
					return err
				}
				defer c.Close()
				r, _, err := new(dns.Client).ExchangeWithConn(new(dns.Msg).SetQuestion(name, dns.TypeHTTPS), &dns.Conn{Conn: c})
				if err != nil {
					return err
				}
				if len(r.Answer) != want || want > 0 && (r.Answer[0].String() != name+"\t60\tIN\tHTTPS\t1 . alpn=\"h2\"" || len(r.Ns) > 0) {
					t.Errorf("%s over %s: %v", name, network, r)
				}
				return nil
			})
		}
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	if slices.ContainsFunc(out.asked, func(name string) bool { return name != "a.example.org" }) || len(out.asked) != 2 {
		t.Errorf("asked about %v", out.asked)
	}
}
