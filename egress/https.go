package egress

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// httpsTimeout bounds the lookup of an HTTPS record, which programs ask for
	// beside the addresses and hardly wait for.
	httpsTimeout = 2 * time.Second
	// maxHTTPS lookups run for one sandbox at once. Beyond them, and for what
	// is not known in time, there is no record.
	maxHTTPS     = 16
	maxServices  = 8 // records of a name
	standardPort = 443
)

// Services is implemented by a Host that also looks up HTTPS records (RFC
// 9460). It may be called concurrently, and must end when its context does.
type Services interface {
	// Services returns what there is, and for how long that holds. It is nil
	// where nothing is known.
	Services(ctx context.Context, name string) ([]Service, time.Duration)
}

// Service is what a sandbox is told of an HTTPS record: nothing that leads
// elsewhere, and no keys to hide by where a connection goes.
type Service struct {
	Priority      uint16
	ALPN          []string // of h2 and http/1.1
	NoDefaultALPN bool     // http/1.1 only when ALPN has it
}

// serviceCache keeps HTTPS records for as long as they say.
type serviceCache struct {
	mu    sync.Mutex
	known map[string]knownServices
}

type knownServices struct {
	list  []Service
	until time.Time
}

func (c *serviceCache) get(name string) ([]Service, time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.known[name]
	left := time.Until(k.until)
	return k.list, left, ok && left > 0
}

func (c *serviceCache) put(name string, list []Service, ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.known == nil || len(c.known) >= maxCached {
		old := c.known
		c.known = map[string]knownServices{}
		for name, k := range old {
			if now.Before(k.until) && len(c.known) < maxCached/2 {
				c.known[name] = k
			}
		}
	}
	c.known[name] = knownServices{list, now.Add(ttl)}
}

// Services implements Services. A name that stands in the hosts file has none.
func (s *System) Services(ctx context.Context, name string) ([]Service, time.Duration) {
	return s.resolver.lookupServices(ctx, name)
}

func (r *resolver) lookupServices(ctx context.Context, name string) ([]Service, time.Duration) {
	if r.local(name) != nil || !isHostName(name) {
		return nil, minTTL
	}
	if list, left, ok := r.https.get(name); ok {
		return list, left
	}
	select {
	case r.services <- struct{}{}:
		defer func() { <-r.services }()
	case <-ctx.Done():
		return nil, failureTTL
	}
	list, ttl, err := r.askServices(ctx, name)
	if err != nil {
		list, ttl = nil, minTTL // the addresses do without
	}
	ttl = min(max(ttl, minTTL), maxTTL)
	if ctx.Err() == nil {
		r.https.put(name, list, ttl)
	}
	return list, ttl
}

// askServices follows a name's aliases to its HTTPS records.
func (r *resolver) askServices(ctx context.Context, name string) ([]Service, time.Duration, error) {
	f := family{ttl: maxTTL}
	q := dns.Question{Name: dns.Fqdn(name), Qtype: dns.TypeHTTPS, Qclass: dns.ClassINET}
	for links := 0; ; {
		m, err := r.askServers(ctx, q)
		if err != nil {
			return nil, 0, err
		}
		end, n := f.follow(m.Answer, q.Name, maxChain-links)
		if links += n; links > maxChain {
			return nil, 0, errors.New("the aliases lead nowhere")
		}
		list, found := f.readServices(m.Answer, end, dns.CanonicalName(dns.Fqdn(name)))
		if found || m.Rcode == dns.RcodeNameError || n == 0 || hasSOA(m) {
			if !found {
				f.collect(m, end, dns.TypeHTTPS) // how long that holds
			}
			return list, f.ttl, nil
		}
		q.Name = end
	}
}

// readServices takes the records of owner out of an answer. One that makes the
// name an alias of another leaves none.
func (f *family) readServices(answer []dns.RR, owner, name string) (list []Service, found bool) {
	alias := false
	for _, rr := range answer {
		h, ok := rr.(*dns.HTTPS)
		if !ok || h.Hdr.Class != dns.ClassINET || dns.CanonicalName(h.Hdr.Name) != owner {
			continue
		}
		found = true
		f.atMost(h.Hdr.Ttl)
		alias = alias || h.Priority == 0
		target := dns.CanonicalName(h.Target)
		if target != "." && target != owner && target != name {
			continue
		}
		if s, ok := readService(h); ok {
			list = append(list, s)
		}
	}
	if alias {
		return nil, found
	}
	slices.SortStableFunc(list, func(a, b Service) int { return cmp.Compare(a.Priority, b.Priority) })
	return list[:min(len(list), maxServices)], found
}

// readService keeps of a record what may be said, unless it is of no use
// without the rest.
func readService(h *dns.HTTPS) (Service, bool) {
	s := Service{Priority: h.Priority}
	for _, v := range h.Value {
		switch v := v.(type) {
		case *dns.SVCBMandatory:
			for _, key := range v.Code {
				if key != dns.SVCB_ALPN && key != dns.SVCB_NO_DEFAULT_ALPN && key != dns.SVCB_PORT {
					return s, false // who cannot have it must not use the record
				}
			}
		case *dns.SVCBPort:
			if v.Port != standardPort {
				return s, false // a rule for it may not be there
			}
		case *dns.SVCBNoDefaultAlpn:
			s.NoDefaultALPN = true
		case *dns.SVCBAlpn:
			for _, p := range v.Alpn {
				if (p == "h2" || p == "http/1.1") && !slices.Contains(s.ALPN, p) {
					s.ALPN = append(s.ALPN, p)
				}
			}
		}
	}
	// Without a protocol left, only the default could be spoken.
	return s, len(s.ALPN) > 0 || !s.NoDefaultALPN
}

// serviceRecords are what a name's question is answered with.
func serviceRecords(owner string, list []Service, ttl time.Duration) (answer []dns.RR) {
	for _, s := range list {
		rr := &dns.HTTPS{SVCB: dns.SVCB{Priority: s.Priority, Target: ".",
			Hdr: dns.RR_Header{Name: owner, Rrtype: dns.TypeHTTPS, Class: dns.ClassINET, Ttl: uint32(max(ttl, time.Second) / time.Second)}}}
		if len(s.ALPN) > 0 {
			rr.Value = append(rr.Value, &dns.SVCBAlpn{Alpn: s.ALPN})
		}
		if s.NoDefaultALPN {
			rr.Value = append(rr.Value, &dns.SVCBNoDefaultAlpn{})
		}
		answer = append(answer, rr)
	}
	return answer
}

// addServices completes the answer to a question for HTTPS records of a name
// that is allowed. It asks the name's server, as a connection would.
func (g *Gateway) addServices(q dnsQuestion, reply *dns.Msg) {
	host, ok := g.opts.Host.(Services)
	if !ok {
		return
	}
	select {
	case g.lookups <- struct{}{}:
		defer func() { <-g.lookups }()
	default:
		return
	}
	ctx, cancel := context.WithTimeout(g.ctx, httpsTimeout)
	defer cancel()
	list, ttl := host.Services(ctx, q.name)
	if answer := serviceRecords(q.about[0].Name, list, ttl); len(answer) > 0 {
		reply.Answer, reply.Ns = answer, nil
	}
}
