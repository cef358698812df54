package egress_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
)

// piece makes a fragment of a TCP segment, from an offset that is a multiple of
// eight.
type piece func(id uint16, payload []byte, offset uint16, more bool) []byte

func piece4(id uint16, payload []byte, offset uint16, more bool) []byte {
	f := ip4(s4, far4, header.TCPProtocolNumber, payload)
	h := header.IPv4(f[14:])
	h.SetID(id)
	flags := uint8(0)
	if more {
		flags = header.IPv4FlagMoreFragments
	}
	h.SetFlagsFragmentOffset(flags, offset)
	h.SetChecksum(0)
	h.SetChecksum(^h.CalculateChecksum())
	return f
}

func piece6(id uint16, payload []byte, offset uint16, more bool) []byte {
	field := offset // in units of eight from the third bit on (RFC 8200 4.5)
	if more {
		field |= 1
	}
	b := binary.BigEndian.AppendUint16([]byte{byte(header.TCPProtocolNumber), 0}, field)
	b = binary.BigEndian.AppendUint32(b, uint32(id))
	return ip6(s6, far6, 44, append(b, payload...))
}

// flagsOf are those of the segment in a frame, and the port it comes from.
func flagsOf(frame []byte) (header.TCPFlags, uint16) {
	segment := frame[14+header.IPv6MinimumSize:]
	if header.Ethernet(frame).Type() == header.IPv4ProtocolNumber {
		segment = header.IPv4(frame[14:]).Payload()
	}
	return header.TCP(segment).Flags(), header.TCP(segment).SourcePort()
}

// The tests of fragments run by themselves: gVisor's ipv4 endpoint reads the
// header of a packet that it has put together where parseTransport may have let go
// of it, and the race detector takes what other gateways do with that memory for
// ours.

// What is put together of fragments is judged as what came whole. Fragments that
// overlap are none of a packet, whichever of them came first: which of two ports
// is meant is nobody's to choose.
func TestOverlappingFragments(t *testing.T) {
	for family, fragment := range map[string]piece{"IPv4": piece4, "IPv6": piece6} {
		t.Run(family, func(t *testing.T) {
			w, rec := newWire(t)
			whole, other := syn(443), syn(444)
			for id, frames := range [][][]byte{
				{fragment(1, whole[:16], 0, true), fragment(1, other[8:], 8, false)},
				{fragment(2, other[8:], 8, false), fragment(2, whole[:16], 0, true)},
				{fragment(3, whole[:8], 0, true), fragment(3, other[:16], 0, true), fragment(3, whole[16:], 16, false)},
				{fragment(4, whole[:16], 0, true), fragment(4, other[:8], 0, true), fragment(4, whole[16:], 16, false)},
				{fragment(5, whole[:16], 65528, true), fragment(5, whole[16:], 65528, false)}, // past the end of any packet
				{fragment(6, whole[:13], 0, true)},                                            // not a multiple of eight
			} {
				for _, f := range frames {
					w.send(f)
				}
				w.send(arp(header.ARPRequest, egress.Sandbox4, "10.88.0.200"))
				for {
					got := w.recv()
					if header.Ethernet(got).Type() == header.ARPProtocolNumber {
						break
					}
					// An error of ICMP may tell; nothing is connected or refused.
					if proto := header.IPv4(got[14:]).Protocol(); header.Ethernet(got).Type() == header.IPv4ProtocolNumber && proto != uint8(header.ICMPv4ProtocolNumber) {
						t.Errorf("%d was answered:\n%s", id+1, hex.Dump(got))
					}
					if next := header.IPv6(got[14:]).NextHeader(); header.Ethernet(got).Type() == header.IPv6ProtocolNumber && next != uint8(header.ICMPv6ProtocolNumber) {
						t.Errorf("%d was answered:\n%s", id+1, hex.Dump(got))
					}
				}
			}
			for _, a := range rec.all() {
				if a.Proto == policy.TCP {
					t.Errorf("recorded %+v", a)
				}
			}
			// The smallest there are, the last one first: it is judged when it is whole.
			w.send(fragment(9, whole[16:], 16, false))
			w.send(fragment(9, whole[8:16], 8, true))
			w.send(fragment(9, whole[:8], 0, true))
			if flags, port := flagsOf(w.recv()); flags&header.TCPFlagRst == 0 || port != 443 {
				t.Errorf("answered with %v from port %d", flags, port)
			}
			rec.wait(t, func(a egress.Attempt) bool { return a.Proto == policy.TCP && a.Port == 443 })
		})
	}
}

// Fragments of either family that never become a packet cost a bounded amount
// and delay nobody.
func TestUnfinishedFragments(t *testing.T) {
	for family, fragment := range map[string]piece{"IPv4": piece4, "IPv6": piece6} {
		t.Run(family, func(t *testing.T) {
			w, rec := newWire(t)
			for i := range uint16(3000) {
				w.send(fragment(i, bytes.Repeat([]byte{1}, 1024), 8*(i%2), true))
				if i%64 == 0 {
					w.silent()
				}
			}
			w.silent()
			whole := syn(443)
			w.send(fragment(60_000, whole[:16], 0, true))
			w.send(fragment(60_000, whole[16:], 16, false))
			if flags, port := flagsOf(w.recv()); flags&header.TCPFlagRst == 0 || port != 443 {
				t.Errorf("answered with %v from port %d", flags, port)
			}
			rec.wait(t, func(a egress.Attempt) bool { return a.Proto == policy.TCP && a.Port == 443 })
		})
	}
}
