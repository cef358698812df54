package egress

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// answerARP claims every address but the sandbox's own, so that a packet to
// any on-link address comes here and is refused at once.
func (g *Gateway) answerARP(pkt *stack.PacketBuffer) {
	b, ok := pkt.Data().PullUp(header.ARPSize)
	if !ok {
		return
	}
	in := header.ARP(b)
	if !in.IsValid() || in.Op() != header.ARPRequest {
		return
	}
	target, _ := netip.AddrFromSlice(in.ProtocolAddressTarget())
	if target == sandbox4 {
		return // the sandbox announces itself, or looks for a duplicate
	}
	frame := make([]byte, header.EthernetMinimumSize+header.ARPSize)
	encodeEthernet(frame, header.ARPProtocolNumber)
	out := header.ARP(frame[header.EthernetMinimumSize:])
	out.SetIPv4OverEthernet()
	out.SetOp(header.ARPReply)
	copy(out.HardwareAddressSender(), gatewayMAC)
	copy(out.ProtocolAddressSender(), in.ProtocolAddressTarget())
	copy(out.HardwareAddressTarget(), in.HardwareAddressSender())
	copy(out.ProtocolAddressTarget(), in.ProtocolAddressSender())
	g.link.write([][]byte{frame})
}

// answerNeighbor does for IPv6 what answerARP does, and ignores the rest of
// neighbour discovery and group membership.
func (g *Gateway) answerNeighbor(p packet) {
	const fixed = header.ICMPv6HeaderSize + header.NDPNSMinimumSize
	if p.above[0] != byte(header.ICMPv6NeighborSolicit) || len(p.above) < fixed {
		return
	}
	target := header.NDPNeighborSolicit(p.above[header.ICMPv6HeaderSize:fixed]).TargetAddress()
	t := netip.AddrFrom16(target.As16())
	// From the unspecified address the sandbox looks for a duplicate of its
	// own address (RFC 4862 5.4); to claim that one would take it away.
	if p.src.IsUnspecified() || t == p.src || t == sandbox6 || t.IsMulticast() {
		return
	}
	option := header.NDPOptionsSerializer{header.NDPTargetLinkLayerAddressOption(gatewayMAC)}
	size := header.ICMPv6HeaderSize + header.NDPNAMinimumSize + option.Length()
	frame := make([]byte, header.EthernetMinimumSize+header.IPv6MinimumSize+size)
	encodeEthernet(frame, header.IPv6ProtocolNumber)
	ip := header.IPv6(frame[header.EthernetMinimumSize:])
	to := tcpip.AddrFromSlice(p.src.AsSlice())
	ip.Encode(&header.IPv6Fields{PayloadLength: uint16(size), TransportProtocol: header.ICMPv6ProtocolNumber,
		HopLimit: header.NDPHopLimit, SrcAddr: target, DstAddr: to})
	msg := header.ICMPv6(ip.Payload())
	msg.SetType(header.ICMPv6NeighborAdvert)
	na := header.NDPNeighborAdvert(msg.MessageBody())
	na.SetRouterFlag(true)
	na.SetSolicitedFlag(true)
	na.SetOverrideFlag(true)
	na.SetTargetAddress(target)
	na.Options().Serialize(option)
	msg.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: msg, Src: target, Dst: to}))
	g.link.write([][]byte{frame})
}

// writeUDP answers a datagram.
func (g *Gateway) writeUDP(id stack.TransportEndpointID, payload []byte) {
	udp := make([]byte, header.UDPMinimumSize, header.UDPMinimumSize+len(payload))
	udp = append(udp, payload...)
	header.UDP(udp).Encode(&header.UDPFields{SrcPort: id.LocalPort, DstPort: id.RemotePort, Length: uint16(len(udp))})
	sum := header.PseudoHeaderChecksum(header.UDPProtocolNumber, id.LocalAddress, id.RemoteAddress, uint16(len(udp)))
	sum = checksum.Checksum(udp, sum)
	if sum = ^sum; sum == 0 {
		sum = 0xffff // zero would say that there is none (RFC 768)
	}
	header.UDP(udp).SetChecksum(sum)

	const ttl = 64
	var head []byte
	if id.LocalAddress.Len() == header.IPv4AddressSize {
		head = make([]byte, header.EthernetMinimumSize+header.IPv4MinimumSize)
		encodeEthernet(head, header.IPv4ProtocolNumber)
		ip := header.IPv4(head[header.EthernetMinimumSize:])
		ip.Encode(&header.IPv4Fields{TotalLength: uint16(len(ip) + len(udp)), TTL: ttl,
			Protocol: uint8(header.UDPProtocolNumber), SrcAddr: id.LocalAddress, DstAddr: id.RemoteAddress})
		ip.SetChecksum(^ip.CalculateChecksum())
	} else {
		head = make([]byte, header.EthernetMinimumSize+header.IPv6MinimumSize)
		encodeEthernet(head, header.IPv6ProtocolNumber)
		header.IPv6(head[header.EthernetMinimumSize:]).Encode(&header.IPv6Fields{PayloadLength: uint16(len(udp)),
			TransportProtocol: header.UDPProtocolNumber, HopLimit: ttl, SrcAddr: id.LocalAddress, DstAddr: id.RemoteAddress})
	}
	g.link.write([][]byte{head, udp})
}
