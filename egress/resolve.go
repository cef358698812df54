package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// What a resolver says is believed for as long as it asks for, within
	// these bounds.
	minTTL = 5 * time.Second
	maxTTL = 5 * time.Minute
	// failureTTL is how long nobody is asked again for a name that could not
	// be looked up.
	failureTTL = time.Second

	maxCached    = 1024
	maxLookups   = 64 // at once; each has two sockets
	maxChain     = 12 // aliases on the way to an address
	maxAddresses = 32 // of a name

	// The bounds of what resolv.conf says.
	maxTry      = 5 * time.Second
	maxAttempts = 3
	// lookupTimeout bounds one lookup, whatever its tries add up to.
	lookupTimeout = 15 * time.Second
)

// errNoAddress is why a name that was looked up cannot be reached.
var errNoAddress = errors.New("the name has no address")

// exchangeFunc asks one server one question.
type exchangeFunc func(ctx context.Context, server netip.AddrPort, q dns.Question) (*dns.Msg, error)

// resolver looks names up for the host, as its system configuration says: in
// the hosts file, then at the name servers. It reads nothing after it is made,
// and names are complete: nothing is appended to them.
type resolver struct {
	servers  []netip.AddrPort
	try      time.Duration // how long one server has for one answer
	attempts int           // rounds over the servers
	hosts    map[string][]netip.Addr
	exchange exchangeFunc
	slots    chan struct{} // one for each lookup of addresses
	https    serviceCache
	services chan struct{} // one for each lookup of HTTPS records, which connections do not wait for

	mu    sync.Mutex
	cache map[string]*cached
}

// cached is what a lookup found, or is finding while done is open.
type cached struct {
	done  chan struct{}
	addrs []netip.Addr
	rest  error // why addrs may not be all of them
	err   error
	until time.Time
	// abandoned says that nothing was found because who looked gave up.
	abandoned bool
}

// lookup returns the addresses of a name.
func (r *resolver) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	c := r.find(ctx, name)
	return c.addrs, c.err
}

// find is what there is to know of a name.
func (r *resolver) find(ctx context.Context, name string) *cached {
	if addrs := r.local(name); addrs != nil {
		return &cached{addrs: addrs}
	}
	if !isHostName(name) {
		return &cached{err: fmt.Errorf("%w: it cannot be asked for", errNoAddress)}
	}
	for {
		c, mine := r.claim(name)
		if mine {
			r.fill(ctx, name, c)
			return c
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return &cached{err: ctx.Err()}
		}
		if !c.abandoned {
			return c
		}
	}
}

// local returns the addresses that need no question.
func (r *resolver) local(name string) []netip.Addr {
	if addrs := r.hosts[name]; addrs != nil {
		return addrs
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") { // RFC 6761 6.3
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	return nil
}

// isHostName reports whether a name has only letters, digits, hyphens and
// underscores between its dots, and the lengths of a name (RFC 1035 2.3.4).
func isHostName(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if len(label) == 0 || len(label) > 63 {
			return false
		}
		for _, b := range []byte(label) {
			if !(b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_') {
				return false
			}
		}
	}
	return true
}

// claim returns what is known of a name, or being found, or a new place that
// the caller must fill.
func (r *resolver) claim(name string) (c *cached, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if c := r.cache[name]; c != nil {
		select {
		case <-c.done:
			if now.Before(c.until) {
				return c, false
			}
		default:
			return c, false
		}
	}
	if len(r.cache) >= maxCached {
		r.makeRoom(now)
	}
	c = &cached{done: make(chan struct{})}
	r.cache[name] = c
	return c, true
}

// makeRoom forgets what is old, and anything when nothing is.
func (r *resolver) makeRoom(now time.Time) {
	for name, c := range r.cache {
		select {
		case <-c.done:
			if !now.Before(c.until) {
				delete(r.cache, name)
			}
		default:
		}
	}
	for name := range r.cache {
		if len(r.cache) < maxCached {
			return
		}
		delete(r.cache, name) // whoever fills or awaits it has it all the same
	}
}

// fill looks a claimed name up.
func (r *resolver) fill(ctx context.Context, name string, c *cached) {
	defer close(c.done)
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		c.err, c.abandoned = ctx.Err(), true
		return
	}
	asking, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	var ttl time.Duration
	c.addrs, c.rest, ttl, c.err = r.ask(asking, name)
	switch {
	case c.err == nil, errors.Is(c.err, errNoAddress):
		c.until = time.Now().Add(min(max(ttl, minTTL), maxTTL))
	case ctx.Err() != nil:
		c.abandoned = true
	default:
		c.until = time.Now().Add(failureTTL)
	}
}

// family is what a lookup of one type of address found.
type family struct {
	addrs []netip.Addr
	ttl   time.Duration
	err   error
}

// ask asks for both families at once. One of them is enough; rest says what is
// not known then.
func (r *resolver) ask(ctx context.Context, name string) (addrs []netip.Addr, rest error, ttl time.Duration, err error) {
	var v4, v6 family
	var both sync.WaitGroup
	both.Go(func() { v4 = r.askFamily(ctx, name, dns.TypeA) })
	both.Go(func() { v6 = r.askFamily(ctx, name, dns.TypeAAAA) })
	both.Wait()
	ttl = min(v4.ttl, v6.ttl)
	if len(v4.addrs)+len(v6.addrs) > maxAddresses {
		rest = fmt.Errorf("it has more than %d addresses", maxAddresses)
	}
	switch addrs := interleave(v4.addrs, v6.addrs); {
	case len(addrs) == 0 && (v4.err == nil && v6.err == nil):
		return nil, nil, ttl, errNoAddress
	case len(addrs) == 0:
		return nil, nil, 0, cmp.Or(v4.err, v6.err)
	case v4.err != nil:
		return addrs, v4.err, v6.ttl, nil
	case v6.err != nil:
		return addrs, v6.err, v4.ttl, nil
	default:
		return addrs, rest, ttl, nil
	}
}

// interleave mixes the families, so that one that leads nowhere from this host
// costs one attempt.
func interleave(v4, v6 []netip.Addr) []netip.Addr {
	var all []netip.Addr
	for i := range max(len(v4), len(v6)) {
		if i < len(v4) {
			all = append(all, v4[i])
		}
		if i < len(v6) {
			all = append(all, v6[i])
		}
	}
	return all[:min(len(all), maxAddresses)]
}

// askFamily follows a name's aliases to its addresses of one family.
func (r *resolver) askFamily(ctx context.Context, name string, qtype uint16) family {
	f := family{ttl: maxTTL}
	q := dns.Question{Name: dns.Fqdn(name), Qtype: qtype, Qclass: dns.ClassINET}
	for links := 0; ; {
		m, err := r.askServers(ctx, q)
		if err != nil {
			return family{err: err}
		}
		end, n := f.follow(m.Answer, q.Name, maxChain-links)
		if links += n; links > maxChain {
			return family{err: fmt.Errorf("more than %d aliases lead nowhere", maxChain)}
		}
		f.collect(m, end, qtype)
		// Without an address, an end and a reason, the rest was left out.
		if len(f.addrs) > 0 || m.Rcode == dns.RcodeNameError || n == 0 || hasSOA(m) {
			return f
		}
		q.Name = end
	}
}

// follow walks the aliases of an answer from name, and returns where they end
// and how many there were: at most limit+1.
func (f *family) follow(answer []dns.RR, name string, limit int) (end string, links int) {
	next := map[string]*dns.CNAME{}
	for _, rr := range answer {
		if c, ok := rr.(*dns.CNAME); ok && c.Hdr.Class == dns.ClassINET {
			next[dns.CanonicalName(c.Hdr.Name)] = c
		}
	}
	end = dns.CanonicalName(name)
	for links <= limit {
		c := next[end]
		if c == nil {
			break
		}
		f.atMost(c.Hdr.Ttl)
		end = dns.CanonicalName(c.Target)
		links++
	}
	return end, links
}

// collect takes the addresses of owner out of an answer, and how long their
// absence holds (RFC 2308 5).
func (f *family) collect(m *dns.Msg, owner string, qtype uint16) {
	for _, rr := range m.Answer {
		h := rr.Header()
		if h.Class != dns.ClassINET || h.Rrtype != qtype || dns.CanonicalName(h.Name) != owner {
			continue
		}
		var addr netip.Addr
		switch rr := rr.(type) {
		case *dns.A:
			addr, _ = netip.AddrFromSlice(rr.A.To4())
		case *dns.AAAA:
			addr, _ = netip.AddrFromSlice(rr.AAAA.To16())
		}
		if addr = addr.Unmap(); addr.IsValid() {
			f.addrs = append(f.addrs, addr)
			f.atMost(h.Ttl)
		}
	}
	if len(f.addrs) > 0 {
		return
	}
	for _, rr := range m.Ns {
		if s, ok := rr.(*dns.SOA); ok {
			f.atMost(min(s.Hdr.Ttl, s.Minttl))
			return
		}
	}
	f.ttl = min(f.ttl, minTTL)
}

func (f *family) atMost(seconds uint32) {
	f.ttl = min(f.ttl, time.Duration(seconds)*time.Second)
}

func hasSOA(m *dns.Msg) bool {
	for _, rr := range m.Ns {
		if _, ok := rr.(*dns.SOA); ok {
			return true
		}
	}
	return false
}

// askServers asks one server after the other until one knows: that a name does
// not exist is an answer, that a server fails is not.
func (r *resolver) askServers(ctx context.Context, q dns.Question) (*dns.Msg, error) {
	var failed error
	for range r.attempts {
		failed = nil
		for _, server := range r.servers {
			m, err := r.askServer(ctx, server, q)
			if err == nil {
				return m, nil
			}
			if ctx.Err() != nil {
				return nil, fmt.Errorf("ask %s: %w", server, ctx.Err())
			}
			err = fmt.Errorf("ask %s: %w", server, err)
			if failed != nil { // one line, for a record
				err = fmt.Errorf("%w; %w", failed, err)
			}
			failed = err
		}
	}
	return nil, failed
}

func (r *resolver) askServer(ctx context.Context, server netip.AddrPort, q dns.Question) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, r.try)
	defer cancel()
	m, err := r.exchange(ctx, server, q)
	if err != nil {
		return nil, err
	}
	if m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return nil, fmt.Errorf("it answers %s", dns.RcodeToString[m.Rcode])
	}
	return m, nil
}
