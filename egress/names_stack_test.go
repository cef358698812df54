package egress_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
)

// converse asks questions inside, one after the other over one connection.
func converse(t testing.TB, ns *netns, network, server string, questions ...*dns.Msg) (answers []*dns.Msg) {
	t.Helper()
	ns.do(func() error {
		c, err := net.Dial(network, server)
		if err != nil {
			return err
		}
		defer c.Close()
		for _, q := range questions {
			r, _, err := (&dns.Client{Net: network}).ExchangeWithConn(q, &dns.Conn{Conn: c})
			if err != nil {
				return fmt.Errorf("%s %s: %w", network, server, err)
			}
			answers = append(answers, r)
		}
		return nil
	})
	return answers
}

func about(name string, qtype uint16) *dns.Msg { return new(dns.Msg).SetQuestion(name, qtype) }

// Whoever is asked, it is the gateway that answers, without asking anybody.
func TestAnswersNames(t *testing.T) {
	t.Parallel()
	out := newAway()
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, policy.Document{Rules: []policy.Rule{
		tcpTo("db.example.org", 5432), {Host: "*.wild.example.org"}, {Host: "ask.example.org", Action: "ask"},
	}})})
	addrs := map[string][]string{} // by name
	for _, network := range []string{"udp", "tcp"} {
		for _, server := range ns.reachable(egress.Gateway4+":53", "8.8.8.8:53", "169.254.169.254:53",
			"["+egress.Gateway6+"]:53", "[2001:4860:4860::8888]:53") {
			for _, name := range []string{"db.example.org.", "DB.Example.Org.", "a.wild.example.org.", "ask.example.org."} {
				r := converse(t, ns, network, server, about(name, dns.TypeA), about(name, dns.TypeAAAA),
					about(name, dns.TypeHTTPS), about(name, dns.TypeTXT))
				key := strings.ToLower(name)
				addrs[key] = append(addrs[key], answers(t, r[0])+" "+answers(t, r[1]))
				for _, empty := range r[2:] {
					if empty.Rcode != 0 || len(empty.Answer) > 0 || len(empty.Ns) != 1 {
						t.Errorf("%s %s: %v", network, server, empty)
					}
				}
			}
			for _, name := range []string{"wild.example.org.", "example.org.", "db.example.org.corp.example.", "x.db.example.org.", "secret.example.com."} {
				if r := converse(t, ns, network, server, about(name, dns.TypeA))[0]; r.Rcode != dns.RcodeNameError || len(r.Ns) != 1 {
					t.Errorf("%s %s: %v", network, server, r)
				}
			}
		}
	}
	seen := map[string]string{}
	for name, all := range addrs {
		if all = slices.Compact(all); len(all) != 1 {
			t.Errorf("%s has %q", name, all)
		}
		if other, ok := seen[all[0]]; ok {
			t.Errorf("%s has %s, as %s", name, all[0], other)
		}
		seen[all[0]] = name
	}
	rec.wait(t, func(a egress.Attempt) bool { return a.Proto == policy.DNS && a.Name == "secret.example.com" })
	for _, a := range rec.all() {
		if a.Verdict != "deny" || addrs[a.Name+"."] != nil {
			t.Errorf("recorded %+v", a)
		}
	}
	if looked, dialled := out.count(); looked+dialled > 0 {
		t.Errorf("%d names were looked up and %d addresses dialled", looked, dialled)
	}
}

// answers is the one address in an answer.
func answers(t testing.TB, m *dns.Msg) string {
	t.Helper()
	var addr netip.Addr
	if len(m.Answer) == 1 && m.Answer[0].Header().Name == m.Question[0].Name {
		switch rr := m.Answer[0].(type) {
		case *dns.A:
			addr, _ = netip.AddrFromSlice(rr.A.To4())
		case *dns.AAAA:
			addr, _ = netip.AddrFromSlice(rr.AAAA)
		}
	}
	if !netip.MustParsePrefix(policy.Names4).Contains(addr) && !netip.MustParsePrefix(policy.Names6).Contains(addr) {
		t.Errorf("answered %v", m)
	}
	return addr.String()
}

// The resolver of Go, as one a program would use, finds both addresses.
func TestAnswersLookups(t *testing.T) {
	t.Parallel()
	ns, _, _ := owned(t, egress.Options{Policy: compile(t, policy.Document{Rules: []policy.Rule{{Host: "example.org"}}})})
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (c net.Conn, err error) {
		ns.do(func() error {
			c, err = net.Dial(network, egress.Gateway4+":53")
			return err
		})
		return c, err
	}}
	got, err := r.LookupNetIP(t.Context(), "ip", "example.org")
	if err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

// What has no address any more is said to have none, and has the same one
// when it may have one again.
func TestAnswersFollowThePolicy(t *testing.T) {
	t.Parallel()
	p := compile(t, policy.Document{Rules: []policy.Rule{{Host: "example.org"}, {Host: "example.net"}}})
	ns, g, _ := owned(t, egress.Options{Policy: p})
	first, _ := resolve(t, ns, "example.org", dns.TypeA)
	for what, change := range map[string]struct{ away, back func() }{
		"another policy": {func() { g.SetPolicy(compile(t, policy.Document{Rules: []policy.Rule{{Host: "example.net"}}})) }, func() { g.SetPolicy(p) }},
		"no policy":      {func() { g.SetPolicy(nil) }, func() { g.SetPolicy(p) }},
		"no owner":       {func() { g.Open(false) }, func() { g.Open(true) }},
	} {
		change.away()
		if addr, rcode := resolve(t, ns, "example.org", dns.TypeA); rcode != dns.RcodeNameError {
			t.Errorf("%s: answered %d, %v", what, rcode, addr)
		}
		change.back()
		if addr, _ := resolve(t, ns, "example.org", dns.TypeA); addr != first {
			t.Errorf("%s: %v, was %v", what, addr, first)
		}
	}
}

// A tunnel through names below a wildcard has its end, and says so.
func TestNamesRunOut(t *testing.T) {
	t.Parallel()
	for limit, l := range map[string]egress.Limits{"limit:names": {Names: 4}, "limit:names_per_minute": {NamesPerMinute: 3}} {
		out := newAway()
		ns, _, rec := owned(t, egress.Options{Host: out, Limits: l,
			Policy: compile(t, policy.Document{Rules: []policy.Rule{{Host: "*.example.org"}}})})
		for i := range 6 {
			want := dns.RcodeSuccess
			if i >= 4 {
				want = dns.RcodeServerFailure
			}
			if _, rcode := resolve(t, ns, fmt.Sprintf("c2VjcmV0%d.example.org", i), dns.TypeA); rcode != want {
				t.Errorf("%s: name %d is answered %d, want %d", limit, i, rcode, want)
			}
		}
		a := rec.wait(t, func(a egress.Attempt) bool { return a.Rule == limit })
		if a.Name != "c2vjcmv04.example.org" || a.Verdict != "deny" || a.Reason == "" {
			t.Errorf("recorded %+v", a)
		}
		if looked, _ := out.count(); looked > 0 {
			t.Errorf("%d names were looked up", looked)
		}
	}
}
