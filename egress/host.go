package egress

import (
	"context"
	"net"
	"net/netip"
)

// Host is the way out of the host: what a Gateway resolves names and dials
// with. It may be called concurrently, and must end when its context does.
type Host interface {
	// Lookup returns every address of a name in canonical form.
	Lookup(ctx context.Context, name string) ([]netip.Addr, error)
	// Dial connects to exactly that address.
	Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// Own reports whether the address is one of the host's.
	Own(netip.Addr) bool
}
