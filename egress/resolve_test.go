package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// zone is a name server without a network: by owner and type, what it answers.
// It counts the questions.
type zone struct {
	mu    sync.Mutex
	data  map[string]string // "name TYPE" to records in the format of a zone file, or an RCODE
	asked []string
	hold  chan struct{} // when set, answers wait for it to be closed
}

func (z *zone) exchange(ctx context.Context, server netip.AddrPort, q dns.Question) (*dns.Msg, error) {
	key := strings.TrimSuffix(q.Name, ".") + " " + dns.TypeToString[q.Qtype]
	z.mu.Lock()
	z.asked = append(z.asked, key)
	text, hold := z.data[key], z.hold
	if at, ok := z.data[server.String()+" "+key]; ok {
		text = at
	}
	z.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	m := new(dns.Msg)
	m.Question = []dns.Question{q}
	if rcode, ok := dns.StringToRcode[text]; ok {
		m.Rcode = rcode
		return m, nil
	}
	if text == "silence" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for line := range strings.Lines(text) {
		rr, err := dns.NewRR(strings.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		if rr == nil {
			continue
		}
		if rr.Header().Rrtype == dns.TypeSOA {
			m.Ns = append(m.Ns, rr)
		} else {
			m.Answer = append(m.Answer, rr)
		}
	}
	return m, nil
}

func (z *zone) questions() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return len(z.asked)
}

func (z *zone) resolver(servers ...string) *resolver {
	if servers == nil {
		servers = []string{"192.0.2.1:53"}
	}
	r := &resolver{try: time.Second, attempts: 2, exchange: z.exchange,
		slots: make(chan struct{}, maxLookups), services: make(chan struct{}, maxHTTPS), cache: map[string]*cached{}}
	for _, s := range servers {
		r.servers = append(r.servers, netip.MustParseAddrPort(s))
	}
	return r
}

func text(addrs []netip.Addr) string { return strings.Trim(fmt.Sprint(addrs), "[]") }

func TestResolve(t *testing.T) {
	t.Parallel()
	chain := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "c%d.example. 60 IN CNAME c%d.example.\n", i, i+1)
		}
		return b.String() + fmt.Sprintf("c%d.example. 60 IN A 192.0.2.9\n", n)
	}
	many := ""
	for i := range 100 {
		many += fmt.Sprintf("many.example. 60 IN A 192.0.2.%d\n", i)
	}
	for what, c := range map[string]struct {
		name string
		data map[string]string
		want string // addresses, or the error after "!"
	}{
		"both families": {"a.example", map[string]string{
			"a.example A":    "a.example. 60 IN A 192.0.2.1\na.example. 60 IN A 192.0.2.2",
			"a.example AAAA": "a.example. 60 IN AAAA 2001:db8::1"}, "192.0.2.1 2001:db8::1 192.0.2.2"},
		"IPv4 only":     {"a.example", map[string]string{"a.example A": "a.example. 60 IN A 192.0.2.1"}, "192.0.2.1"},
		"IPv6 only":     {"a.example", map[string]string{"a.example AAAA": "a.example. 60 IN AAAA 2001:db8::1"}, "2001:db8::1"},
		"one fails":     {"a.example", map[string]string{"a.example A": "a.example. 60 IN A 192.0.2.1", "a.example AAAA": "SERVFAIL"}, "192.0.2.1"},
		"mapped":        {"a.example", map[string]string{"a.example AAAA": "a.example. 60 IN AAAA ::ffff:127.0.0.1"}, "127.0.0.1"},
		"case":          {"a.example", map[string]string{"a.example A": "A.eXample. 60 IN A 192.0.2.1"}, "192.0.2.1"},
		"nothing":       {"a.example", nil, "!no address"},
		"no such name":  {"a.example", map[string]string{"a.example A": "NXDOMAIN", "a.example AAAA": "NXDOMAIN"}, "!no address"},
		"failure":       {"a.example", map[string]string{"a.example A": "SERVFAIL", "a.example AAAA": "SERVFAIL"}, "!SERVFAIL"},
		"refused":       {"a.example", map[string]string{"a.example A": "REFUSED", "a.example AAAA": "REFUSED"}, "!REFUSED"},
		"other's":       {"a.example", map[string]string{"a.example A": "b.example. 60 IN A 192.0.2.1"}, "!no address"},
		"wrong type":    {"a.example", map[string]string{"a.example A": "a.example. 60 IN AAAA 2001:db8::1"}, "!no address"},
		"wrong class":   {"a.example", map[string]string{"a.example A": "a.example. 60 CH A 192.0.2.1"}, "!no address"},
		"alias":         {"a.example", map[string]string{"a.example A": "a.example. 60 IN CNAME b.example.\nb.example. 60 IN A 192.0.2.1"}, "192.0.2.1"},
		"alias, turned": {"a.example", map[string]string{"a.example A": "b.example. 60 IN A 192.0.2.1\na.example. 60 IN CNAME b.example."}, "192.0.2.1"},
		"alias, cut short": {"a.example", map[string]string{"a.example A": "a.example. 60 IN CNAME b.example.",
			"b.example A": "b.example. 60 IN A 192.0.2.1"}, "192.0.2.1"},
		"alias past its address": {"a.example", map[string]string{
			"a.example A": "a.example. 60 IN CNAME b.example.\na.example. 60 IN A 192.0.2.66\nb.example. 60 IN A 192.0.2.1"}, "192.0.2.1"},
		"longest chain":  {"c0.example", map[string]string{"c0.example A": chain(maxChain)}, "192.0.2.9"},
		"too long":       {"c0.example", map[string]string{"c0.example A": chain(maxChain + 1), "c0.example AAAA": "NXDOMAIN"}, "!aliases"},
		"loop":           {"a.example", map[string]string{"a.example A": "a.example. 60 IN CNAME a.example.", "a.example AAAA": "NXDOMAIN"}, "!aliases"},
		"loop by pieces": {"a.example", map[string]string{"a.example A": "a.example. 60 IN CNAME b.example.", "b.example A": "b.example. 60 IN CNAME a.example."}, "!aliases"},
		"many": {"many.example", map[string]string{"many.example A": many}, text(func() (a []netip.Addr) {
			for i := range maxAddresses {
				a = append(a, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
			}
			return a
		}())},
		"localhost":      {"localhost", nil, "127.0.0.1 ::1"},
		"sub localhost":  {"db.localhost", nil, "127.0.0.1 ::1"},
		"empty":          {"", nil, "!cannot be asked"},
		"odd bytes":      {"a\\000.example", nil, "!cannot be asked"},
		"empty label":    {"a..example", nil, "!cannot be asked"},
		"long label":     {strings.Repeat("a", 64) + ".example", nil, "!cannot be asked"},
		"long name":      {strings.Repeat("a.", 127) + "a", nil, "!cannot be asked"},
		"underscore too": {"_a.example", map[string]string{"_a.example A": "_a.example. 60 IN A 192.0.2.1"}, "192.0.2.1"},
	} {
		z := &zone{data: c.data}
		got, err := z.resolver().lookup(t.Context(), c.name)
		if bad, ok := strings.CutPrefix(c.want, "!"); ok {
			if err == nil || !strings.Contains(err.Error(), bad) || got != nil {
				t.Errorf("%s: %v, %v; want an error about %q", what, got, err, bad)
			}
		} else if err != nil || text(got) != c.want {
			t.Errorf("%s: %v, %v; want %s", what, got, err, c.want)
		}
		if n := z.questions(); c.data == nil && what != "nothing" && n > 0 || n > 2*(maxChain+2) {
			t.Errorf("%s: %d questions", what, n)
		}
	}
}

// A server that fails or is silent is passed over; that a name does not exist
// is an answer.
func TestServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := &zone{data: map[string]string{
			"192.0.2.1:53 a.example A": "SERVFAIL", "192.0.2.1:53 a.example AAAA": "silence",
			"a.example A": "a.example. 60 IN A 192.0.2.7", "a.example AAAA": "a.example. 60 IN AAAA 2001:db8::7",
			"192.0.2.1:53 b.example A": "NXDOMAIN", "192.0.2.1:53 b.example AAAA": "NXDOMAIN", "b.example A": "b.example. 60 IN A 192.0.2.8",
			"c.example A": "silence", "c.example AAAA": "silence",
		}}
		r := z.resolver("192.0.2.1:53", "192.0.2.2:53")
		if got, err := r.lookup(t.Context(), "a.example"); err != nil || text(got) != "192.0.2.7 2001:db8::7" {
			t.Errorf("%v, %v", got, err)
		}
		if got, err := r.lookup(t.Context(), "b.example"); !errors.Is(err, errNoAddress) {
			t.Errorf("%v, %v", got, err)
		}
		begin := time.Now()
		got, err := r.lookup(t.Context(), "c.example")
		if err == nil || !strings.Contains(err.Error(), "192.0.2.2:53") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", got, err)
		}
		if d := time.Since(begin); d != 4*time.Second { // two servers, two attempts
			t.Errorf("gave up after %v", d)
		}
		r.attempts = 100
		time.Sleep(failureTTL)
		begin = time.Now()
		if got, err := r.lookup(t.Context(), "c.example"); err == nil || time.Since(begin) != lookupTimeout {
			t.Errorf("%v, %v after %v", got, err, time.Since(begin))
		}
	})
}

// Whoever has to know all addresses of a name is told where some are not known.
func TestLookupAll(t *testing.T) {
	t.Parallel()
	many := ""
	for i := range maxAddresses + 1 {
		many += fmt.Sprintf("many.example. 60 IN A 192.0.2.%d\n", i)
	}
	z := &zone{data: map[string]string{"both.example A": "both.example. 60 IN A 192.0.2.1", "half.example A": "SERVFAIL",
		"half.example AAAA": "half.example. 60 IN AAAA 2001:db8::1", "many.example A": many, "none.example A": "NXDOMAIN", "none.example AAAA": "NXDOMAIN"}}
	s := &System{resolver: z.resolver()}
	for range 2 { // also of what is remembered
		for name, want := range map[string]string{"both.example": "192.0.2.1", "half.example": "!SERVFAIL", "many.example": "!more than 32", "none.example": "!no address"} {
			got, err := s.LookupAll(t.Context(), name)
			if message, fails := strings.CutPrefix(want, "!"); fails && (err == nil || !strings.Contains(err.Error(), message)) || !fails && (err != nil || text(got) != want) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	}
	for _, name := range []string{"half.example", "many.example"} {
		if got, err := s.Lookup(t.Context(), name); err != nil || len(got) == 0 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const negative = "example. 9 IN SOA ns.example. me.example. 1 2 3 4 "
		z := &zone{data: map[string]string{
			"short.example A": "short.example. 0 IN A 192.0.2.1", "short.example AAAA": negative + "3600",
			"long.example A": "long.example. 86400 IN A 192.0.2.1", "long.example AAAA": "long.example. 86400 IN AAAA 2001:db8::1",
			"mid.example A": "mid.example. 30 IN CNAME x.example.\nx.example. 20 IN A 192.0.2.1", "mid.example AAAA": "mid.example. 40 IN AAAA 2001:db8::1",
			"none.example A": negative + "30", "none.example AAAA": negative + "7",
			"fails.example A": "SERVFAIL", "fails.example AAAA": "SERVFAIL",
		}}
		r := z.resolver()
		for name, ttl := range map[string]time.Duration{
			"short.example": minTTL, "long.example": maxTTL, "mid.example": 20 * time.Second,
			"none.example": 7 * time.Second, "fails.example": failureTTL,
		} {
			ask := func() int {
				before := z.questions()
				first, err := r.lookup(t.Context(), name)
				if (err == nil) != strings.Contains("short.example long.example mid.example", name) {
					t.Errorf("%s: %v, %v", name, first, err)
				}
				return z.questions() - before
			}
			if n := ask(); n == 0 {
				t.Errorf("%s: was not asked for", name)
			}
			time.Sleep(ttl - 1)
			if n := ask(); n != 0 {
				t.Errorf("%s: asked for again before %v", name, ttl)
			}
			time.Sleep(time.Nanosecond)
			if n := ask(); n == 0 {
				t.Errorf("%s: believed for more than %v", name, ttl)
			}
		}
	})
}

// The cache is bounded, and what is old goes first.
func TestCacheBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := &zone{}
		r := z.resolver()
		for i := range 3 * maxCached {
			if i == maxCached {
				time.Sleep(minTTL)
			}
			r.lookup(t.Context(), fmt.Sprintf("h%d.example", i))
			if len(r.cache) > maxCached {
				t.Fatalf("%d names are remembered", len(r.cache))
			}
		}
		last := fmt.Sprintf("h%d.example", 3*maxCached-1)
		before := z.questions()
		r.lookup(t.Context(), last)
		if z.questions() != before {
			t.Error("the last name is forgotten")
		}
	})
}

// Whoever asks for a name that is being looked up gets what is found, and asks
// again when who looked gave up.
func TestTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := &zone{hold: make(chan struct{}), data: map[string]string{"a.example A": "a.example. 60 IN A 192.0.2.1"}}
		r := z.resolver()
		r.try = time.Minute
		first, giveUp := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if got, err := r.lookup(first, "a.example"); !errors.Is(err, context.Canceled) {
				t.Errorf("%v, %v", got, err)
			}
		})
		synctest.Wait()
		for range 20 {
			all.Go(func() {
				if got, err := r.lookup(t.Context(), "a.example"); err != nil || text(got) != "192.0.2.1" {
					t.Errorf("%v, %v", got, err)
				}
			})
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		all.Go(func() {
			if got, err := r.lookup(impatient, "a.example"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, %v", got, err)
			}
		})
		time.Sleep(2 * time.Second)
		if n := z.questions(); n != 2 {
			t.Errorf("%d questions for one name at once", n)
		}
		giveUp()
		synctest.Wait()
		if n := z.questions(); n != 4 {
			t.Errorf("%d questions after the first gave up", n)
		}
		close(z.hold)
		all.Wait()
		if n := z.questions(); n != 4 {
			t.Errorf("%d questions", n)
		}
	})
}

// So many lookups at once, and no more.
func TestLookupSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := &zone{hold: make(chan struct{})}
		r := z.resolver()
		var all sync.WaitGroup
		for i := range 3 * maxLookups {
			all.Go(func() { r.lookup(t.Context(), fmt.Sprintf("h%d.example", i)) })
		}
		synctest.Wait()
		if n := z.questions(); n != 2*maxLookups {
			t.Errorf("%d questions at once", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if got, err := r.lookup(ctx, "waits.example"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", got, err)
		}
		close(z.hold)
		all.Wait()
		if n := z.questions(); n != 6*maxLookups {
			t.Errorf("%d questions", n)
		}
	})
}

func TestHostFiles(t *testing.T) {
	t.Parallel()
	hosts := parseHosts([]byte("# comment\n127.0.0.1\tlocalhost lo # more\n::1 localhost\n10.1.2.3  DB.Corp.Example db\n" +
		"::ffff:10.1.2.4 mapped\nrubbish here\n10.1.2.5\n\n10.1.2.6 db.corp.example.\n"))
	for name, want := range map[string]string{"localhost": "127.0.0.1 ::1", "lo": "127.0.0.1", "db": "10.1.2.3",
		"db.corp.example": "10.1.2.3 10.1.2.6", "mapped": "10.1.2.4", "here": "", "more": ""} {
		if got := text(hosts[name]); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for conf, want := range map[string]struct {
		servers  []string
		try      time.Duration
		attempts int
	}{
		"": {[]string{"127.0.0.1:53"}, 5 * time.Second, 2},
		"nameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver rubbish\nsearch example.org\noptions timeout:1 attempts:3 rotate": {
			[]string{"192.0.2.1:53", "[fe80::1%eth0]:53"}, time.Second, 3},
		"options timeout:600 attempts:100\nnameserver ::1": {[]string{"[::1]:53"}, maxTry, maxAttempts},
		strings.Repeat("nameserver 192.0.2.1\n", 20):       {slices.Repeat([]string{"192.0.2.1:53"}, maxServers), 5 * time.Second, 2},
	} {
		r := new(resolver)
		if err := r.configure([]byte(conf)); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range r.servers {
			got = append(got, s.String())
		}
		if !slices.Equal(got, want.servers) || r.try != want.try || r.attempts != want.attempts {
			t.Errorf("%q: %q, %v, %d", conf, got, r.try, r.attempts)
		}
	}
}

// Whatever a name server writes, what is taken from it is bounded.
func FuzzNameServer(f *testing.F) {
	q := dns.Question{Name: "a.example.", Qtype: dns.TypeA, Qclass: dns.ClassINET}
	seed := func(lines string) {
		z := &zone{data: map[string]string{"a.example A": lines}}
		m, err := z.exchange(f.Context(), netip.AddrPort{}, q)
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
	seed("NXDOMAIN")
	seed("a.example. 60 IN A 192.0.2.1\na.example. 0 IN A 127.0.0.1")
	seed("a.example. 60 IN CNAME b.example.\nb.example. 60 IN CNAME a.example.")
	seed("a.example. 60 IN CNAME b.example.\nb.example. 60 IN A 192.0.2.1\nexample. 9 IN SOA ns.example. me.example. 1 2 3 4 5")
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := matching(b, 0, q)
		if !ok {
			return
		}
		r := &resolver{servers: make([]netip.AddrPort, 1), try: time.Second, attempts: 1,
			slots: make(chan struct{}, 1), cache: map[string]*cached{},
			exchange: func(context.Context, netip.AddrPort, dns.Question) (*dns.Msg, error) { return m, nil }}
		got, err := r.lookup(t.Context(), "a.example")
		if (err == nil) != (len(got) > 0) || len(got) > maxAddresses {
			t.Fatalf("%v, %v", got, err)
		}
		for _, a := range got {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
				t.Fatalf("address %v", a)
			}
		}
		if c := r.cache["a.example"]; time.Until(c.until) > maxTTL {
			t.Fatalf("believed until %v", c.until)
		}
	})
}
