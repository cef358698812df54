package egress_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
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

// Nothing is put together of fragments: the first one is refused with an error
// and on record, later ones are on record alone. What they would have become
// cannot be told by the order they come in, or by where they overlap.
func TestFragments(t *testing.T) {
	t.Parallel()
	for family, fragment := range map[string]piece{"IPv4": piece4, "IPv6": piece6} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			whole, other := syn(443), syn(444)
			for name, c := range map[string]struct {
				frames   [][]byte
				answered int
			}{
				"in order":                {[][]byte{fragment(1, whole[:16], 0, true), fragment(1, whole[16:], 16, false)}, 1},
				"the last one first":      {[][]byte{fragment(2, whole[16:], 16, false), fragment(2, whole[:16], 0, true)}, 1},
				"overlapping":             {[][]byte{fragment(3, whole[:16], 0, true), fragment(3, other[8:], 8, false)}, 1},
				"two first ones":          {[][]byte{fragment(4, whole[:16], 0, true), fragment(4, other[:16], 0, true), fragment(4, whole[16:], 16, false)}, 2},
				"past the end of any":     {[][]byte{fragment(5, whole[:16], 65528, true), fragment(5, whole[16:], 65528, false)}, 0},
				"not a multiple of eight": {[][]byte{fragment(6, whole[:13], 0, true)}, 1},
				"nothing in it":           {[][]byte{fragment(7, nil, 0, true), fragment(7, nil, 8, false)}, 1},
			} {
				w, rec := newWire(t)
				for _, f := range c.frames {
					w.send(f)
				}
				for range c.answered {
					if got := w.recv(); !prohibited(got) {
						t.Errorf("%s was answered:\n%s", name, hex.Dump(got))
					}
				}
				w.silent()
				a := rec.wait(t, func(a egress.Attempt) bool { return a.Rule == "link" })
				if a.Verdict != "deny" || !strings.Contains(a.Reason, "fragment") {
					t.Errorf("%s: recorded %+v", name, a)
				}
				if len(rec.all()) > len(c.frames) {
					t.Errorf("%s: recorded %+v", name, rec.all())
				}
			}
		})
	}
}

// prohibited reports whether a frame is the error that says so.
func prohibited(frame []byte) bool {
	if header.Ethernet(frame).Type() == header.IPv4ProtocolNumber {
		m := header.ICMPv4(header.IPv4(frame[14:]).Payload())
		return m.Type() == header.ICMPv4DstUnreachable && m.Code() == header.ICMPv4AdminProhibited
	}
	m := header.ICMPv6(header.IPv6(frame[14:]).Payload())
	return m.Type() == header.ICMPv6DstUnreachable && m.Code() == header.ICMPv6Prohibited
}

// A fragment header around all of a packet makes no fragment of it (RFC 6946):
// that is judged as what it is.
func TestAtomicFragment(t *testing.T) {
	t.Parallel()
	w, rec := newWire(t)
	w.send(piece6(1, syn(443), 0, false))
	if flags, port := flagsOf(w.recv()); flags&header.TCPFlagRst == 0 || port != 443 {
		t.Errorf("answered with %v from port %d", flags, port)
	}
	rec.wait(t, func(a egress.Attempt) bool { return a.Proto == policy.TCP && a.Port == 443 })
}

// Of errors, of what goes to many, and of a neighbour's questions in pieces
// (RFC 6980) nothing is answered.
func TestFragmentsUnanswered(t *testing.T) {
	t.Parallel()
	w, rec := newWire(t)
	unreachable := icmp4(header.ICMPv4DstUnreachable, strings.Repeat("x", 28))
	f := ip4(s4, far4, header.ICMPv4ProtocolNumber, unreachable)
	header.IPv4(f[14:]).SetFlagsFragmentOffset(header.IPv4FlagMoreFragments, 0)
	many := ip4(s4, "224.0.0.251", header.UDPProtocolNumber, udp(5353, "x"))
	header.IPv4(many[14:]).SetFlagsFragmentOffset(header.IPv4FlagMoreFragments, 0)
	body := append(make([]byte, 4), netip.MustParseAddr(egress.Gateway6).AsSlice()...)
	neighbor := append([]byte{byte(header.ICMPv6ProtocolNumber), 0, 0, 1, 0, 0, 0, 1}, icmp6(s6, "ff02::1:ff00:1", header.ICMPv6NeighborSolicit, body)...)
	for dst, frame := range map[string][]byte{far4: f, "224.0.0.251": many, "ff02::1:ff00:1": ip6(s6, "ff02::1:ff00:1", 44, neighbor)} {
		w.send(frame)
		w.silent()
		rec.wait(t, func(a egress.Attempt) bool { return a.Address == netip.MustParseAddr(dst) && a.Rule == "link" })
	}
}

// Fragments without end cost nothing that grows and delay nobody.
func TestUnfinishedFragments(t *testing.T) {
	t.Parallel()
	for family, fragment := range map[string]piece{"IPv4": piece4, "IPv6": piece6} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			w, rec := newWire(t)
			for i := range uint16(3000) {
				w.send(fragment(i, bytes.Repeat([]byte{1}, 1024), 8+8*(i%2), true))
				if i%64 == 0 {
					w.silent()
				}
			}
			w.silent()
			w.send(whole(family))
			if flags, port := flagsOf(w.recv()); flags&header.TCPFlagRst == 0 || port != 443 {
				t.Errorf("answered with %v from port %d", flags, port)
			}
			rec.wait(t, func(a egress.Attempt) bool { return a.Proto == policy.TCP && a.Port == 443 })
		})
	}
}

// whole is a connection's first segment in one packet.
func whole(family string) []byte {
	if family == "IPv4" {
		return ip4(s4, far4, header.TCPProtocolNumber, syn(443))
	}
	return ip6(s6, far6, header.TCPProtocolNumber, syn(443))
}
