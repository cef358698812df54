package egress

import (
	"context"
	"net"
	"net/netip"
	"net/url"

	"github.com/rein-sh/rein/secret"
)

// Host is the way out of a gateway. Its methods may be called concurrently.
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
	// the address that was judged. Its scheme is http or https, and it has no
	// user and no path.
	Proxy *url.URL
	// ProxyUser and ProxyPassword are sent to Proxy (basic authentication)
	// when the user is not empty.
	ProxyUser     string
	ProxyPassword secret.Value
	// ProxyCA are the certificates, in PEM, that an https proxy's must be
	// signed by. Required for one: the system's are not consulted.
	ProxyCA []byte

	// ResolvConf and Hosts are the system's files, see resolv.conf(5) and
	// hosts(5). Empty: those below /etc. One that does not exist counts as
	// empty.
	ResolvConf, Hosts string
}
