package egress

import (
	"fmt"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/header/parse"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/rein-sh/rein/egress/policy"
)

// Reasons of refusals that no policy can lift.
const (
	reasonSource  = "sent from an address that is not the sandbox's"
	reasonControl = "a control message nobody asked for"
	reasonPiece   = "a fragment: what fits no packet of this link is not carried"
)

var (
	sandbox4 = netip.MustParseAddr(Sandbox4)
	sandbox6 = netip.MustParseAddr(Sandbox6)
	gateway4 = netip.MustParseAddr(Gateway4)
	gateway6 = netip.MustParseAddr(Gateway6)
	// The directed broadcast address of the link.
	broadcast4 = netip.MustParseAddr("10.88.0.255")
)

// packet is what admit knows about an IP packet.
type packet struct {
	src, dst netip.Addr
	// proto is the protocol above IP and its extension headers. It is unknown
	// in later fragments.
	proto tcpip.TransportProtocolNumber
	piece bool   // a fragment of a packet, the first or a later one
	later bool   // a fragment other than the first
	above []byte // what is visible of the protocol's header; may be short
}

// kind is the packet's protocol in records, with its port.
func (p packet) kind() (policy.Proto, uint16) {
	switch p.proto {
	case header.TCPProtocolNumber:
		return policy.TCP, p.port()
	case header.UDPProtocolNumber:
		return policy.UDP, p.port()
	case header.ICMPv4ProtocolNumber, header.ICMPv6ProtocolNumber:
		return policy.ICMP, 0
	}
	return policy.Other, 0
}

func (p packet) port() uint16 {
	if p.later || len(p.above) < 4 {
		return 0
	}
	return uint16(p.above[2])<<8 | uint16(p.above[3])
}

// admit lets up into the stack what the stack can refuse better, and settles
// the rest here: address resolution, housekeeping, false senders, multicast
// and unknown protocols.
func (g *Gateway) admit(proto tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) bool {
	switch proto {
	case header.ARPProtocolNumber:
		g.answerARP(pkt)
		return false
	case header.IPv4ProtocolNumber:
		p, ok := parse4(pkt)
		return ok && g.admit4(p, pkt)
	case header.IPv6ProtocolNumber:
		p, ok := parse6(pkt)
		return ok && g.admit6(p, pkt)
	}
	g.refuseLink(policy.Other, netip.AddrPort{}, fmt.Sprintf("frames of type %#04x are not carried", uint16(proto)))
	return false
}

func (g *Gateway) admit4(p packet, pkt *stack.PacketBuffer) bool {
	many := p.dst.IsMulticast() || p.dst == broadcast4 || p.dst == netip.AddrFrom4([4]byte{255, 255, 255, 255})
	switch {
	case p.src != sandbox4:
		return g.drop(p, reasonSource)
	case p.proto == header.IGMPProtocolNumber && many:
		return false // group membership: housekeeping
	case p.piece:
		return g.dropPiece(p, many, pkt)
	}
	return g.admitAbove(p, many, control4)
}

func (g *Gateway) admit6(p packet, pkt *stack.PacketBuffer) bool {
	if p.proto == header.ICMPv6ProtocolNumber && len(p.above) > 0 && !p.piece && isHousekeeping6(p.above[0]) {
		g.answerNeighbor(p)
		return false
	}
	if p.src != sandbox6 && !p.src.IsLinkLocalUnicast() {
		return g.drop(p, reasonSource)
	}
	if p.piece {
		return g.dropPiece(p, p.dst.IsMulticast(), pkt)
	}
	return g.admitAbove(p, p.dst.IsMulticast(), control6)
}

// control is what admitAbove needs to know of a version of ICMP.
type control struct {
	proto   tcpip.TransportProtocolNumber
	isError func(byte) bool
	echo    byte
}

var (
	control4 = control{header.ICMPv4ProtocolNumber, isError4, byte(header.ICMPv4Echo)}
	control6 = control{header.ICMPv6ProtocolNumber, isError6, byte(header.ICMPv6EchoRequest)}
)

// admitAbove decides about a packet of the sandbox's own by what IP carries;
// many says that it has many receivers.
func (g *Gateway) admitAbove(p packet, many bool, icmp control) bool {
	switch {
	case many:
		return g.dropByPolicy(p)
	case p.proto == header.TCPProtocolNumber, p.proto == header.UDPProtocolNumber:
		return true
	case p.proto != icmp.proto:
		g.dropByPolicy(p)
		return true // the stack answers that it knows no such protocol
	case len(p.above) == 0:
		return false
	}
	// Errors can be about our own connections, and the stack's handler refuses
	// echo requests.
	if t := p.above[0]; icmp.isError(t) || t == icmp.echo {
		return true
	}
	return g.drop(p, reasonControl)
}

// isError4 reports whether an ICMPv4 type is an error message: unreachable,
// source quench, time exceeded, parameter problem.
func isError4(t byte) bool { return t == 3 || t == 4 || t == 11 || t == 12 }

// isError6 reports whether an ICMPv6 type is an error message (RFC 4443 2.1).
func isError6(t byte) bool { return t < 128 }

// isHousekeeping6 reports whether an ICMPv6 type is neighbour discovery
// (RFC 4861) or group membership (RFC 2710, RFC 3810).
func isHousekeeping6(t byte) bool { return t >= 130 && t <= 137 || t == 143 }

// dropPiece refuses a fragment. The MTU of the link leaves room for all that a
// program has a reason to send in one piece; putting pieces together is state
// that the sandbox could fill and confuse. A first piece is answered, as a whole
// packet is (RFC 1812 4.3.2.7).
func (g *Gateway) dropPiece(p packet, many bool, pkt *stack.PacketBuffer) bool {
	g.drop(p, reasonPiece)
	if p.later || many {
		return false
	}
	whole := pkt.Clone()
	defer whole.DecRef()
	whole.NICID = nicID
	with4, with6 := stack.RejectIPv4WithICMPAdminProhibited, stack.RejectIPv6WithICMPAdminProhibited
	if p.proto == header.UDPProtocolNumber { // what a whole one is told, and every program understands
		with4, with6 = stack.RejectIPv4WithICMPPortUnreachable, stack.RejectIPv6WithICMPPortUnreachable
	}
	if p.dst.Is4() {
		if parse.IPv4(whole) {
			parseAbove(p, whole)
			_ = g.reject4.SendRejectionError(whole, with4, true) // a lost packet is lost
		}
	} else if _, _, _, _, ok := parse.IPv6(whole); ok {
		parseAbove(p, whole)
		_ = g.reject6.SendRejectionError(whole, with6, true) // a lost packet is lost
	}
	return false
}

// parseAbove has pkt know its header above IP, where an answer depends on that:
// errors are never answered.
func parseAbove(p packet, pkt *stack.PacketBuffer) {
	switch p.proto {
	case header.ICMPv4ProtocolNumber:
		parse.ICMPv4(pkt)
	case header.ICMPv6ProtocolNumber:
		parse.ICMPv6(pkt)
	}
}

// drop records p as refused by the link.
func (g *Gateway) drop(p packet, reason string) bool {
	proto, port := p.kind()
	g.refuseLink(proto, netip.AddrPortFrom(p.dst, port), reason)
	return false
}

// dropByPolicy records p as refused by the policy.
func (g *Gateway) dropByPolicy(p packet) bool {
	proto, port := p.kind()
	g.refuse(proto, "", netip.AddrPortFrom(p.dst, port))
	return false
}

// parse4 reads an IPv4 header. A malformed one is not a packet to anywhere.
func parse4(pkt *stack.PacketBuffer) (packet, bool) {
	b, ok := pkt.Data().PullUp(header.IPv4MinimumSize)
	if !ok {
		return packet{}, false
	}
	h := header.IPv4(b)
	n := int(h.HeaderLength())
	if b, ok = visible(pkt, n); !ok || n < header.IPv4MinimumSize || b[0]>>4 != 4 {
		return packet{}, false
	}
	src, dst := h.SourceAddress(), h.DestinationAddress()
	later := h.FragmentOffset() != 0
	return packet{
		src:   netip.AddrFrom4(src.As4()),
		dst:   netip.AddrFrom4(dst.As4()),
		proto: tcpip.TransportProtocolNumber(h.Protocol()),
		piece: later || h.More(),
		later: later,
		above: b[n:],
	}, true
}

// maxExtensions bounds how many IPv6 extension headers are walked; a packet
// with more counts as an unknown protocol.
const maxExtensions = 8

// parse6 reads an IPv6 header and walks its extension headers (RFC 8200 4).
func parse6(pkt *stack.PacketBuffer) (packet, bool) {
	b, ok := visible(pkt, header.IPv6MinimumSize)
	if !ok || b[0]>>4 != 6 {
		return packet{}, false
	}
	h := header.IPv6(b)
	src, dst := h.SourceAddress(), h.DestinationAddress()
	p := packet{src: netip.AddrFrom16(src.As16()), dst: netip.AddrFrom16(dst.As16())}
	next, above := h.NextHeader(), b[header.IPv6MinimumSize:]
	for range maxExtensions {
		size := 0
		switch header.IPv6ExtensionHeaderIdentifier(next) {
		case header.IPv6HopByHopOptionsExtHdrIdentifier, header.IPv6RoutingExtHdrIdentifier,
			header.IPv6DestinationOptionsExtHdrIdentifier:
			if len(above) >= 2 {
				size = 8 * (int(above[1]) + 1)
			}
		case header.IPv6FragmentExtHdrIdentifier:
			size = header.IPv6FragmentExtHdrLength
			if len(above) >= size {
				p.later = uint16(above[2])<<8|uint16(above[3])&^7 != 0
				p.piece = p.later || above[3]&1 != 0 // else it is whole (RFC 6946)
			}
		default:
			p.proto, p.above = tcpip.TransportProtocolNumber(next), above
			return p, true
		}
		if size == 0 || len(above) < size {
			p.proto = tcpip.TransportProtocolNumber(header.IPv6NoNextHeaderIdentifier)
			return p, p.piece // of another packet nothing is known
		}
		next, above = above[0], above[size:]
		if p.later {
			return p, true
		}
	}
	p.proto = tcpip.TransportProtocolNumber(header.IPv6NoNextHeaderIdentifier)
	return p, true
}

// visible returns the beginning of pkt, at least atLeast bytes of it and
// usually enough for the headers above IP.
func visible(pkt *stack.PacketBuffer, atLeast int) ([]byte, bool) {
	const usual = 128
	if b, ok := pkt.Data().PullUp(max(atLeast, min(usual, pkt.Data().Size()))); ok {
		return b, true
	}
	return nil, false
}
