package egress

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/rein-sh/rein/egress/policy"
)

// The handlers below see what belongs to no connection of the stack. Returning
// false makes the stack refuse it: TCP with a reset, UDP with port unreachable.

func (g *Gateway) onTCP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	h := header.TCP(pkt.TransportHeader().Slice())
	if len(h) < header.TCPMinimumSize {
		return false
	}
	to := destination(id)
	const opening = header.TCPFlagSyn | header.TCPFlagAck | header.TCPFlagRst
	switch flags := h.Flags(); {
	case flags&opening == header.TCPFlagSyn:
		if id.LocalPort == dnsPort {
			return g.dns.accept(id, pkt)
		}
		if isProxy(to) {
			return g.proxy.accept(id, pkt)
		}
		if isDoor(to) && len(g.models.hosts) > 0 {
			return g.door.accept(id, pkt)
		}
		return g.onSYN(id, pkt)
	case flags&header.TCPFlagRst != 0, id.LocalPort == dnsPort, to.Addr() == gateway4, to.Addr() == gateway6:
		return false // the rest of a connection that was closed here
	}
	g.onStray(id)
	return false
}

func (g *Gateway) onUDP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	if id.LocalPort != dnsPort {
		g.refuse(policy.UDP, "", destination(id))
		return false
	}
	return g.answerUDP(id, pkt.Data().AsRange().ToSlice())
}

func (g *Gateway) onEcho4(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	if h := header.ICMPv4(pkt.TransportHeader().Slice()); h.Type() == header.ICMPv4Echo {
		g.refuse(policy.ICMP, "", netip.AddrPortFrom(destination(id).Addr(), 0))
		_ = g.reject4.SendRejectionError(pkt, stack.RejectIPv4WithICMPAdminProhibited, true) // a lost packet is lost
	}
	return true // handled: the stack sends no echo reply
}

func (g *Gateway) onEcho6(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	if h := header.ICMPv6(pkt.TransportHeader().Slice()); h.Type() == header.ICMPv6EchoRequest {
		g.refuse(policy.ICMP, "", netip.AddrPortFrom(destination(id).Addr(), 0))
		_ = g.reject6.SendRejectionError(pkt, stack.RejectIPv6WithICMPAdminProhibited, true) // a lost packet is lost
	}
	return true // handled: the stack sends no echo reply
}

// destination is where the sandbox sent to.
func destination(id stack.TransportEndpointID) netip.AddrPort {
	return netip.AddrPortFrom(address(id.LocalAddress), id.LocalPort)
}

func address(a tcpip.Address) netip.Addr {
	addr, _ := netip.AddrFromSlice(a.AsSlice())
	return addr
}
