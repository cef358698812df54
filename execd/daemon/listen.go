package daemon

import (
	"net"
	"net/netip"
)

// OnlyFrom answers connections from one address; others are closed at once.
func OnlyFrom(l net.Listener, peer netip.Addr) net.Listener {
	return onlyFrom{l, peer.Unmap()}
}

type onlyFrom struct {
	net.Listener
	peer netip.Addr
}

func (l onlyFrom) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		a, err := netip.ParseAddrPort(c.RemoteAddr().String())
		if err == nil && a.Addr().Unmap().WithZone("") == l.peer {
			return c, nil
		}
		c.Close()
	}
}
