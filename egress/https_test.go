package egress

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// said is services in text.
func said(list []Service) string {
	var b []string
	for _, s := range list {
		text := fmt.Sprintf("%d%v", s.Priority, s.ALPN)
		if s.NoDefaultALPN {
			text += "!"
		}
		b = append(b, text)
	}
	return strings.Join(b, " ")
}

// Of an HTTPS record there remains what leads nowhere else and hides nothing.
func TestServices(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ data, want string }{
		"protocols":      {`a.example. 60 IN HTTPS 1 . alpn="h3,h2"`, "1[h2]"},
		"all of it":      {`a.example. 60 IN HTTPS 1 . alpn="h2,http/1.1" no-default-alpn ipv4hint="192.0.2.1" ipv6hint="2001:db8::1" ech="AEX+DQBB" port="443"`, "1[h2 http/1.1]!"},
		"only h3":        {`a.example. 60 IN HTTPS 1 . alpn="h3"`, "1[]"},
		"nothing but h3": {`a.example. 60 IN HTTPS 1 . alpn="h3" no-default-alpn`, ""},
		"drafts of h3":   {`a.example. 60 IN HTTPS 1 . alpn="h3-29,h2,h2"`, "1[h2]"},
		"no parameters":  {`a.example. 60 IN HTTPS 1 .`, "1[]"},
		"itself":         {`a.example. 60 IN HTTPS 1 A.example. alpn="h2"`, "1[h2]"},
		"another target": {`a.example. 60 IN HTTPS 1 evil.example. alpn="h2"`, ""},
		"alias mode":     {`a.example. 60 IN HTTPS 0 evil.example.`, ""},
		"alias among":    {"a.example. 60 IN HTTPS 1 . alpn=\"h2\"\na.example. 60 IN HTTPS 0 evil.example.", ""},
		"another port":   {`a.example. 60 IN HTTPS 1 . alpn="h2" port="8443"`, ""},
		"mandatory":      {`a.example. 60 IN HTTPS 1 . mandatory="alpn" alpn="h2"`, "1[h2]"},
		"mandatory ech":  {`a.example. 60 IN HTTPS 1 . mandatory="ech" alpn="h2" ech="AEX+DQBB"`, ""},
		"unknown":        {`a.example. 60 IN HTTPS 1 . alpn="h2" key667="x"`, "1[h2]"},
		"by priority":    {"a.example. 60 IN HTTPS 2 . alpn=\"http/1.1\"\na.example. 60 IN HTTPS 1 . alpn=\"h2\"", "1[h2] 2[http/1.1]"},
		"another's":      {`b.example. 60 IN HTTPS 1 . alpn="h2"`, ""},
		"another class":  {`a.example. 60 CH HTTPS 1 . alpn="h2"`, ""},
		"an alias":       {"a.example. 60 IN CNAME b.example.\nb.example. 60 IN HTTPS 1 . alpn=\"h2\"", "1[h2]"},
		"a loop":         {"a.example. 60 IN CNAME a.example.", ""},
		"SVCB":           {`a.example. 60 IN SVCB 1 . alpn="h2"`, ""},
		"none":           {"", ""},
		"no such name":   {"NXDOMAIN", ""},
		"failure":        {"SERVFAIL", ""},
		"refused":        {"REFUSED", ""},
		"many":           {strings.Repeat("a.example. 60 IN HTTPS 1 .\n", 20), strings.TrimSuffix(strings.Repeat("1[] ", maxServices), " ")},
	} {
		z := &zone{data: map[string]string{"a.example HTTPS": c.data}}
		got, ttl := z.resolver().lookupServices(t.Context(), "a.example")
		if said(got) != c.want || ttl < minTTL || ttl > maxTTL {
			t.Errorf("%s: %q for %v, want %q", what, said(got), ttl, c.want)
		}
	}
	z := &zone{data: map[string]string{"localhost HTTPS": "localhost. 60 IN HTTPS 1 ."}}
	if got, _ := z.resolver().lookupServices(t.Context(), "localhost"); got != nil || z.questions() > 0 {
		t.Errorf("the host itself: %v", got)
	}
}

// Lookups of HTTPS records that take their time hold no address up.
func TestServicesAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{data: map[string]string{"a.example A": "a.example. 60 IN A 192.0.2.1"}}
		r := z.resolver()
		r.exchange = func(ctx context.Context, server netip.AddrPort, q dns.Question) (*dns.Msg, error) {
			if q.Qtype == dns.TypeHTTPS {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return z.exchange(ctx, server, q)
		}
		for i := range 2 * maxLookups {
			go r.lookupServices(t.Context(), fmt.Sprintf("%d.example", i))
		}
		synctest.Wait()
		start := time.Now()
		if addrs, err := r.lookup(t.Context(), "a.example"); err != nil || text(addrs) != "192.0.2.1" || time.Since(start) != 0 {
			t.Errorf("%v, %v, after %v", addrs, err, time.Since(start))
		}
	})
}

// What is known is not asked for again before its time, and failures neither.
func TestServicesCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{data: map[string]string{"a.example HTTPS": "a.example. 60 IN HTTPS 1 .", "b.example HTTPS": "SERVFAIL"}}
		r := z.resolver()
		for _, c := range []struct {
			name  string
			after time.Duration
			asked int
		}{{"a.example", 0, 1}, {"a.example", 59 * time.Second, 1}, {"a.example", time.Second, 2}, {"b.example", 0, 2 + r.attempts}, {"b.example", minTTL - 1, 2 + r.attempts}} {
			time.Sleep(c.after)
			_, _ = r.lookupServices(t.Context(), c.name)
			if n := z.questions(); n != c.asked {
				t.Errorf("%s after %v: %d questions, want %d", c.name, c.after, n, c.asked)
			}
		}
		for i := range 3 * maxCached {
			r.https.put(fmt.Sprint(i), nil, time.Minute)
		}
		if len(r.https.known) > maxCached {
			t.Errorf("%d are kept", len(r.https.known))
		}
	})
}

func FuzzServices(f *testing.F) {
	q := dns.Question{Name: "a.example.", Qtype: dns.TypeHTTPS, Qclass: dns.ClassINET}
	for _, lines := range []string{
		`a.example. 60 IN HTTPS 1 . alpn="h3,h2" ipv4hint="192.0.2.1" ech="AEX+DQBB"`,
		"a.example. 60 IN HTTPS 0 b.example.",
		"a.example. 60 IN CNAME b.example.\nb.example. 60 IN HTTPS 1 . mandatory=\"port\" port=\"443\"",
	} {
		m, err := (&zone{data: map[string]string{"a.example HTTPS": lines}}).exchange(f.Context(), netip.AddrPort{}, q)
		if err != nil {
			f.Fatal(err)
		}
		m.Response, m.Compress = true, true
		b, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-3])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := matching(b, 0, q)
		if !ok {
			return
		}
		r := &resolver{servers: make([]netip.AddrPort, 1), try: time.Second, attempts: 1,
			services: make(chan struct{}, 1), cache: map[string]*cached{},
			exchange: func(context.Context, netip.AddrPort, dns.Question) (*dns.Msg, error) { return m, nil }}
		list, ttl := r.lookupServices(t.Context(), "a.example")
		if len(list) > maxServices || ttl < minTTL || ttl > maxTTL {
			t.Fatalf("%v for %v", list, ttl)
		}
		answer := &dns.Msg{Question: []dns.Question{q}, Answer: serviceRecords(q.Name, list, ttl)}
		packed, err := answer.Pack()
		if err != nil {
			t.Fatal(err)
		}
		var back dns.Msg
		if err := back.Unpack(packed); err != nil {
			t.Fatal(err)
		}
		for _, rr := range back.Answer {
			h := rr.(*dns.HTTPS)
			bad := slices.ContainsFunc(h.Value, func(v dns.SVCBKeyValue) bool {
				return v.Key() != dns.SVCB_ALPN && v.Key() != dns.SVCB_NO_DEFAULT_ALPN
			})
			if h.Priority == 0 || h.Target != "." || bad || strings.Contains(h.String(), "h3") {
				t.Fatalf("the sandbox is told %v", h)
			}
		}
	})
}
