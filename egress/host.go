package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rein-sh/rein/secret"
)

// Host is the way out of the host: what a Gateway resolves names and dials
// with. It may be called concurrently, and must end when its context does.
type Host interface {
	// Lookup returns the addresses of a name in its canonical form, of both
	// families, in the order to try them; at least one when the error is nil.
	Lookup(ctx context.Context, name string) ([]netip.Addr, error)
	// Dial connects to exactly that address, over TCP.
	Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// Own reports whether the address is one of the host itself.
	Own(netip.Addr) bool
}

// HostOptions of NewHost. The zero value is the host as it is configured.
type HostOptions struct {
	// Resolvers are asked instead of those of ResolvConf, in this order.
	Resolvers []netip.AddrPort

	// Proxy carries every connection out when it is set, by HTTP CONNECT to
	// the address that was judged. Its scheme is http or https; it has neither
	// user nor path. Without a port it is 80 or 443.
	Proxy *url.URL
	// ProxyUser and ProxyPassword are sent to Proxy (basic authentication)
	// when the user is not empty.
	ProxyUser     string
	ProxyPassword secret.Value
	// ProxyCA are the certificates, in PEM, one of which an https proxy's must
	// be signed by. Required for one: the system's are not consulted.
	ProxyCA []byte

	// ResolvConf and Hosts are the system's files, see resolv.conf(5) and
	// hosts(5). Empty: those below /etc. One that does not exist counts as
	// empty.
	ResolvConf, Hosts string
}

// Kinds of errors of a System.
const (
	KindUnresolved Kind = "unresolved" // the name has no address
	KindProxy      Kind = "proxy"      // the upstream proxy does not let it pass
)

// System is the Host that this process runs on.
type System struct {
	resolver *resolver
	proxy    *upstream // nil: none
	own      interfaces
}

// hostDialTimeout is how long one address may take to answer.
const hostDialTimeout = 10 * time.Second

// NewHost reads the system's configuration, and never again: it keeps working
// in a process that has lost access to the file system. Environment variables
// are not looked at; of the system's sources of names only the hosts file and
// DNS are used. Errors are *Error.
func NewHost(o HostOptions) (*System, error) {
	r, err := newResolver(o)
	if err != nil {
		return nil, &Error{Kind: KindHost, Op: "read", Subject: "the host's resolver configuration", Err: err}
	}
	s := &System{resolver: r}
	if o.Proxy != nil {
		if s.proxy, err = newUpstream(o, r); err != nil {
			return nil, &Error{Kind: KindInvalid, Op: "use", Subject: "upstream proxy " + o.Proxy.Redacted(), Err: err,
				Hint: "it is written http://HOST:PORT or https://HOST:PORT"}
		}
	}
	if _, err := s.own.list(); err != nil {
		return nil, &Error{Kind: KindHost, Op: "list", Subject: "the host's addresses", Err: err}
	}
	return s, nil
}

// Lookup implements Host. Answers are believed for as long as they say, at
// least 5 seconds and at most 5 minutes. Errors are *Error.
func (s *System) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	return s.found(ctx, name, s.resolver.find(ctx, name))
}

// LookupAll is Lookup that fails where the addresses may not be all that the name
// has now: one family is not known, or there are too many.
func (s *System) LookupAll(ctx context.Context, name string) ([]netip.Addr, error) {
	c := s.resolver.find(ctx, name)
	if c.err == nil && c.rest != nil {
		c = &cached{err: c.rest}
	}
	return s.found(ctx, name, c)
}

// found is what is said of what was found.
func (s *System) found(ctx context.Context, name string, c *cached) ([]netip.Addr, error) {
	switch err := c.err; {
	case err == nil:
		return slices.Clone(c.addrs), nil
	case errors.Is(err, errNoAddress):
		return nil, &Error{Kind: KindUnresolved, Op: "look up", Subject: name, Err: err}
	case ctx.Err() != nil:
		return nil, &Error{Kind: KindTimeout, Op: "look up", Subject: name, Err: err}
	default:
		return nil, &Error{Kind: KindHost, Op: "look up", Subject: name, Err: err,
			Hint: "the host's name servers do not answer; egress.resolvers names others"}
	}
}

// Dial implements Host: directly, or through the upstream proxy. Errors are
// those of the net package, or *Error where the proxy refuses.
func (s *System) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, hostDialTimeout)
	defer cancel()
	if s.proxy != nil {
		return s.proxy.dial(ctx, to)
	}
	return dialExactly(ctx, to)
}

// Own implements Host. The list is at most 5 seconds old.
func (s *System) Own(addr netip.Addr) bool {
	list, _ := s.own.list() // when it cannot be read again, the old one holds
	return list[addr.Unmap().WithZone("")]
}

// dialExactly connects to one address and to nothing else.
func dialExactly(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if !to.IsValid() || to.Port() == 0 {
		return nil, fmt.Errorf("dial %s: not an address and a port", to)
	}
	// The last look before the kernel's: what was judged is what is dialled.
	d := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		if got, err := netip.ParseAddrPort(address); err != nil || got != to {
			return fmt.Errorf("about to connect to %s instead of %s", address, to)
		}
		return nil
	}}
	d.SetMultipathTCP(false) // it would tell the peer of the host's other addresses
	return d.DialContext(ctx, "tcp", to.String())
}

const (
	// dialStagger is how long an address has before the next one is tried
	// beside it (RFC 8305 5).
	dialStagger = 250 * time.Millisecond
	dialBeside  = 4 // addresses that are tried at once
)

type dialFunc func(context.Context, netip.AddrPort) (net.Conn, error)

// dialFirst connects to the first of several addresses that answers: they are
// tried in order, the next one when one has failed or the last has taken
// dialStagger, dialBeside at once. Every dial has ended when it returns.
func dialFirst(ctx context.Context, dial dialFunc, to []netip.AddrPort) (net.Conn, netip.AddrPort, error) {
	if len(to) == 1 { // nothing to start and to wait for
		c, err := dial(ctx, to[0])
		return c, to[0], err
	}
	type result struct {
		c   net.Conn
		to  netip.AddrPort
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan result, len(to))
	var running sync.WaitGroup
	defer func() {
		cancel()
		running.Wait()
		close(results)
		for late := range results {
			if late.err == nil {
				_ = late.c.Close() // nobody used it
			}
		}
	}()
	next := time.NewTimer(0)
	defer next.Stop()
	var errs []error
	for started := 0; len(errs) < len(to); {
		select {
		case <-next.C:
			if started == len(to) || started-len(errs) == dialBeside {
				continue
			}
			to := to[started]
			started++
			running.Go(func() {
				c, err := dial(ctx, to)
				results <- result{c, to, err}
			})
			next.Reset(dialStagger)
		case r := <-results:
			if r.err == nil {
				return r.c, r.to, nil
			}
			errs = append(errs, r.err)
			next.Reset(0)
		}
	}
	if len(errs) == 0 {
		return nil, netip.AddrPort{}, errNoAddress
	}
	return nil, netip.AddrPort{}, errs[0]
}

// interfaces are the addresses of this host's network interfaces.
type interfaces struct {
	mu    sync.Mutex
	read  time.Time
	addrs map[netip.Addr]bool
}

const interfacesAge = 5 * time.Second

// list returns the addresses, read again when they are old. When that fails
// they are the old ones.
func (i *interfaces) list() (map[netip.Addr]bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.read.IsZero() && time.Since(i.read) < interfacesAge {
		return i.addrs, nil
	}
	found, err := net.InterfaceAddrs()
	if err != nil {
		return i.addrs, err
	}
	i.addrs, i.read = make(map[netip.Addr]bool, len(found)), time.Now()
	for _, a := range found {
		if p, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(p.IP); ok {
				i.addrs[addr.Unmap()] = true
			}
		}
	}
	return i.addrs, nil
}
