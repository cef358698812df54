package egress_test

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
)

// wire is the sandbox's end of a link made of a socket pair: a sandbox that
// can write any frame.
type wire struct {
	t testing.TB
	f *os.File
	g *egress.Gateway
}

func newWire(t testing.TB) (*wire, *records) { return newWireWith(t, egress.Options{}) }

func newWireWith(t testing.TB, o egress.Options) (*wire, *records) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[1]), "sandbox")
	t.Cleanup(func() { f.Close() })
	o.FD = fds[0]
	g, rec := open(t, o)
	return &wire{t, f, g}, rec
}

func (w *wire) send(frame []byte) {
	w.t.Helper()
	if _, err := w.f.Write(frame); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) recv() []byte {
	w.t.Helper()
	w.f.SetReadDeadline(time.Now().Add(10 * time.Second))
	b := make([]byte, 1<<16)
	n, err := w.f.Read(b)
	if err != nil {
		w.t.Fatal(err)
	}
	return b[:n]
}

// silent asserts that nothing that was sent so far is being answered: frames
// are handled in order, so that the next answer is the one to a new question.
func (w *wire) silent() {
	w.t.Helper()
	w.send(arp(header.ARPRequest, egress.Sandbox4, "10.88.0.200"))
	got := w.recv()
	if header.Ethernet(got).Type() != header.ARPProtocolNumber {
		w.t.Errorf("was answered:\n%s", hex.Dump(got))
	}
}

func addr(s string) tcpip.Address { return tcpip.AddrFromSlice(netip.MustParseAddr(s).AsSlice()) }

func ethernet(proto tcpip.NetworkProtocolNumber, payload []byte) []byte {
	b := make([]byte, header.EthernetMinimumSize, header.EthernetMinimumSize+len(payload))
	header.Ethernet(b).Encode(&header.EthernetFields{SrcAddr: "\x02rein\x02", DstAddr: "\x02rein\x01", Type: proto})
	return append(b, payload...)
}

func ip4(src, dst string, proto tcpip.TransportProtocolNumber, payload []byte) []byte {
	b := make([]byte, header.IPv4MinimumSize)
	header.IPv4(b).Encode(&header.IPv4Fields{TotalLength: uint16(len(b) + len(payload)), TTL: 64, ID: 7,
		Protocol: uint8(proto), SrcAddr: addr(src), DstAddr: addr(dst)})
	header.IPv4(b).SetChecksum(^header.IPv4(b).CalculateChecksum())
	return ethernet(header.IPv4ProtocolNumber, append(b, payload...))
}

func ip6(src, dst string, next tcpip.TransportProtocolNumber, payload []byte) []byte {
	b := make([]byte, header.IPv6MinimumSize)
	header.IPv6(b).Encode(&header.IPv6Fields{PayloadLength: uint16(len(payload)), HopLimit: 255,
		TransportProtocol: next, SrcAddr: addr(src), DstAddr: addr(dst)})
	return ethernet(header.IPv6ProtocolNumber, append(b, payload...))
}

func icmp4(typ header.ICMPv4Type, data string) []byte {
	b := append(make([]byte, header.ICMPv4MinimumSize), data...)
	header.ICMPv4(b).SetType(typ)
	header.ICMPv4(b).SetChecksum(^checksum.Checksum(b, 0))
	return b
}

func icmp6(src, dst string, typ header.ICMPv6Type, body []byte) []byte {
	b := append(make([]byte, header.ICMPv6HeaderSize), body...)
	header.ICMPv6(b).SetType(typ)
	header.ICMPv6(b).SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{
		Header: header.ICMPv6(b), Src: addr(src), Dst: addr(dst)}))
	return b
}

func arp(op header.ARPOp, from, target string) []byte {
	b := header.ARP(make([]byte, header.ARPSize))
	b.SetIPv4OverEthernet()
	b.SetOp(op)
	copy(b.HardwareAddressSender(), "\x02rein\x02")
	copy(b.ProtocolAddressSender(), netip.MustParseAddr(from).AsSlice())
	copy(b.ProtocolAddressTarget(), netip.MustParseAddr(target).AsSlice())
	return ethernet(header.ARPProtocolNumber, b)
}

func udp(port uint16, payload string) []byte {
	b := append(make([]byte, header.UDPMinimumSize), payload...)
	header.UDP(b).Encode(&header.UDPFields{SrcPort: 4000, DstPort: port, Length: uint16(len(b))})
	return b
}

func solicit(src, target string) []byte {
	body := append(make([]byte, 4), netip.MustParseAddr(target).AsSlice()...)
	return ip6(src, "ff02::1:ff00:1", header.ICMPv6ProtocolNumber, icmp6(src, "ff02::1:ff00:1", header.ICMPv6NeighborSolicit, body))
}

const (
	s4, s6 = egress.Sandbox4, egress.Sandbox6
	far4   = "93.184.215.14"
	far6   = "2606:2800:220:1::1"
)

// Each frame is answered by an ICMP error that comes from where it was sent.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	w, rec := newWire(t)
	echo6 := func(dst string) []byte {
		return ip6(s6, dst, header.ICMPv6ProtocolNumber, icmp6(s6, dst, header.ICMPv6EchoRequest, []byte("\x00\x01\x00\x01hello")))
	}
	for name, c := range map[string]struct {
		frames    [][]byte
		dst       string
		typ, code byte
		proto     policy.Proto
		port      uint16
	}{
		"echo to the gateway":    {[][]byte{ip4(s4, egress.Gateway4, header.ICMPv4ProtocolNumber, icmp4(header.ICMPv4Echo, "hello"))}, egress.Gateway4, 3, 13, policy.ICMP, 0},
		"echo to anyone":         {[][]byte{ip4(s4, far4, header.ICMPv4ProtocolNumber, icmp4(header.ICMPv4Echo, "hello"))}, far4, 3, 13, policy.ICMP, 0},
		"echo to loopback":       {[][]byte{ip4(s4, "127.0.0.1", header.ICMPv4ProtocolNumber, icmp4(header.ICMPv4Echo, "hello"))}, "127.0.0.1", 3, 13, policy.ICMP, 0},
		"UDP":                    {[][]byte{ip4(s4, far4, header.UDPProtocolNumber, udp(123, "x"))}, far4, 3, 3, policy.UDP, 123},
		"DNS without an id":      {[][]byte{ip4(s4, far4, header.UDPProtocolNumber, udp(53, "x"))}, far4, 3, 3, policy.DNS, 53},
		"SCTP":                   {[][]byte{ip4(s4, far4, 132, make([]byte, 12))}, far4, 3, 2, policy.Other, 0},
		"nothing above IP":       {[][]byte{ip4(s4, "4.4.4.4", 253, nil)}, "4.4.4.4", 3, 2, policy.Other, 0},
		"v6 echo to the gateway": {[][]byte{echo6(egress.Gateway6)}, egress.Gateway6, 1, 1, policy.ICMP, 0},
		"v6 echo to anyone":      {[][]byte{echo6(far6)}, far6, 1, 1, policy.ICMP, 0},
		"v6 UDP":                 {[][]byte{ip6(s6, far6, header.UDPProtocolNumber, udp(123, "x"))}, far6, 1, 4, policy.UDP, 123},
		"v6 SCTP":                {[][]byte{ip6(s6, far6, 132, make([]byte, 12))}, far6, 4, 1, policy.Other, 0},
		"v6 UDP behind options": {[][]byte{ip6(s6, "2001:db8::5", 60, append([]byte{17, 0, 1, 4, 0, 0, 0, 0}, udp(9, "x")...))},
			"2001:db8::5", 1, 4, policy.UDP, 9},
	} {
		for _, f := range c.frames {
			w.send(f)
		}
		got := w.recv()
		want := netip.MustParseAddr(c.dst)
		var from tcpip.Address
		var msg []byte
		if want.Is4() {
			from, msg = header.IPv4(got[14:]).SourceAddress(), header.IPv4(got[14:]).Payload()
		} else {
			from, msg = header.IPv6(got[14:]).SourceAddress(), header.IPv6(got[14:]).Payload()
		}
		if from != addr(c.dst) || msg[0] != c.typ || msg[1] != c.code {
			t.Errorf("%s: type %d code %d from %s; want type %d code %d from %s", name, msg[0], msg[1], from, c.typ, c.code, c.dst)
		}
		a := rec.wait(t, func(a egress.Attempt) bool { return a.Proto == c.proto && a.Address == want && a.Port == c.port })
		if a.Verdict != "deny" || a.Rule == "" {
			t.Errorf("%s: recorded %+v", name, a)
		}
	}
}

// Frames that must not be answered are recorded all the same.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	w, rec := newWire(t)
	dnsResponse := "\x12\x34\x80\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01x\x00\x00\x01\x00\x01"
	for name, c := range map[string]struct {
		frame []byte
		proto policy.Proto
		dst   string // empty: no address
		port  uint16
		rule  string
	}{
		"multicast":          {ip4(s4, "224.0.0.251", header.UDPProtocolNumber, udp(5353, "x")), policy.UDP, "224.0.0.251", 5353, "protocol"},
		"broadcast":          {ip4(s4, "255.255.255.255", header.UDPProtocolNumber, udp(67, "x")), policy.UDP, "255.255.255.255", 67, "protocol"},
		"directed broadcast": {ip4(s4, "10.88.0.255", header.UDPProtocolNumber, udp(137, "x")), policy.UDP, "10.88.0.255", 137, "protocol"},
		"false sender":       {ip4("10.0.0.1", far4, header.UDPProtocolNumber, udp(1, "x")), policy.UDP, far4, 1, "link"},
		"gateway as sender":  {ip4(egress.Gateway4, s4, header.UDPProtocolNumber, udp(2, "x")), policy.UDP, s4, 2, "link"},
		"timestamp request":  {ip4(s4, far4, header.ICMPv4ProtocolNumber, icmp4(header.ICMPv4Timestamp, "123456789012")), policy.ICMP, far4, 0, "link"},
		"echo reply":         {ip4(s4, "8.8.4.4", header.ICMPv4ProtocolNumber, icmp4(header.ICMPv4EchoReply, "x")), policy.ICMP, "8.8.4.4", 0, "link"},
		"unknown frame type": {ethernet(0x88cc, make([]byte, 60)), policy.Other, "", 0, "link"},
		"v6 multicast":       {ip6(s6, "ff02::fb", header.UDPProtocolNumber, udp(5353, "x")), policy.UDP, "ff02::fb", 5353, "protocol"},
		"v6 false sender":    {ip6("2001:db8::1", far6, header.UDPProtocolNumber, udp(3, "x")), policy.UDP, far6, 3, "link"},
		"v6 no sender":       {ip6("::", far6, header.UDPProtocolNumber, udp(4, "x")), policy.UDP, far6, 4, "link"},
		"v6 echo reply": {ip6(s6, far6, header.ICMPv6ProtocolNumber, icmp6(s6, far6, header.ICMPv6EchoReply, make([]byte, 8))),
			policy.ICMP, far6, 0, "link"},
	} {
		w.send(c.frame)
		w.silent()
		var dst netip.Addr
		if c.dst != "" {
			dst = netip.MustParseAddr(c.dst)
		}
		a := rec.wait(t, func(a egress.Attempt) bool { return a.Proto == c.proto && a.Address == dst && a.Port == c.port })
		if a.Rule != c.rule || a.Verdict != "deny" || a.Reason == "" {
			t.Errorf("%s: recorded %+v", name, a)
		}
	}
	before := len(rec.all())
	for name, frame := range map[string][]byte{
		"empty Ethernet":   ethernet(header.IPv4ProtocolNumber, nil),
		"runt":             {1, 2, 3},
		"cut IPv4":         ip4(s4, far4, header.UDPProtocolNumber, udp(1, "x"))[:25],
		"cut IPv6":         ip6(s6, far6, header.UDPProtocolNumber, udp(1, "x"))[:45],
		"group membership": ip4(s4, "224.0.0.22", header.IGMPProtocolNumber, make([]byte, 16)),
		"router wanted":    ip6("fe80::2", "ff02::2", header.ICMPv6ProtocolNumber, icmp6("fe80::2", "ff02::2", header.ICMPv6RouterSolicit, make([]byte, 4))),
		"router announced": ip6("fe80::2", "ff02::1", header.ICMPv6ProtocolNumber, icmp6("fe80::2", "ff02::1", header.ICMPv6RouterAdvert, make([]byte, 12))),
	} {
		w.send(frame)
		w.silent()
		if got := rec.all(); len(got) != before {
			t.Errorf("%s was recorded: %+v", name, got[before:])
			before = len(got)
		}
	}
	// The DNS response names something, so it is recorded, but a response is
	// never answered with DNS: the port is unreachable.
	w.send(ip4(s4, far4, header.UDPProtocolNumber, udp(53, dnsResponse)))
	if got := header.IPv4(w.recv()[14:]); got.Protocol() != uint8(header.ICMPv4ProtocolNumber) {
		t.Errorf("a DNS response was answered with protocol %d", got.Protocol())
	}
	rec.wait(t, func(a egress.Attempt) bool { return a.Proto == policy.DNS && a.Name == "x" })
}

// The gateway is every neighbour but the sandbox itself.
func TestNeighbors(t *testing.T) {
	t.Parallel()
	w, _ := newWire(t)
	for _, target := range []string{egress.Gateway4, "10.88.0.77", "172.16.0.1"} {
		w.send(arp(header.ARPRequest, s4, target))
		got := header.ARP(w.recv()[14:])
		if got.Op() != header.ARPReply || string(got.HardwareAddressSender()) != "\x02rein\x01" ||
			!bytes.Equal(got.ProtocolAddressSender(), netip.MustParseAddr(target).AsSlice()) ||
			!bytes.Equal(got.ProtocolAddressTarget(), netip.MustParseAddr(s4).AsSlice()) {
			t.Errorf("asked for %s: %x", target, got)
		}
	}
	w.send(arp(header.ARPRequest, "0.0.0.0", s4)) // is my address taken?
	w.silent()
	w.send(arp(header.ARPRequest, s4, s4)) // here I am
	w.silent()
	w.send(arp(header.ARPReply, s4, egress.Gateway4))
	w.silent()

	for _, target := range []string{egress.Gateway6, "fd72:6569:6e00::77", "fe80::1"} {
		w.send(solicit(s6, target))
		ip := header.IPv6(w.recv()[14:])
		msg := header.ICMPv6(ip.Payload())
		na := header.NDPNeighborAdvert(msg.MessageBody())
		if msg.Type() != header.ICMPv6NeighborAdvert || na.TargetAddress() != addr(target) || !na.SolicitedFlag() ||
			ip.HopLimit() != 255 || ip.DestinationAddress() != addr(s6) || !bytes.Contains(na.Options(), []byte("\x02\x01\x02rein\x01")) {
			t.Errorf("solicited %s: %x", target, ip)
		}
		sum := header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: msg, Src: addr(target), Dst: addr(s6)})
		if sum != msg.Checksum() {
			t.Errorf("checksum %#x, want %#x", msg.Checksum(), sum)
		}
	}
	w.send(solicit("::", s6)) // is my address taken?
	w.silent()
	w.send(solicit("::", "fe80::2"))
	w.silent()
	w.send(solicit("fe80::2", s6))
	w.silent()
}

// A frame for another MAC address is as good as one for ours.
func TestAnyMAC(t *testing.T) {
	t.Parallel()
	w, rec := newWire(t)
	f := ip4(s4, far4, header.UDPProtocolNumber, udp(7, "x"))
	copy(f, "\x0alien!")
	w.send(f)
	w.recv()
	rec.wait(t, func(a egress.Attempt) bool { return a.Port == 7 })
}

// Half-open connections to port 53 are bounded, and closing the gateway does
// not wait for them.
func TestHalfOpenDNS(t *testing.T) {
	t.Parallel()
	w, rec := newWire(t)
	accepted, refused := 0, 0
	const syns = 100
	for i := range uint16(syns) {
		w.send(ip4(s4, far4, header.TCPProtocolNumber, synFrom(6000+i, 53)))
		got := header.TCP(header.IPv4(w.recv()[14:]).Payload())
		for got.DestinationPort() != 6000+i { // what was answered before is answered again after a second
			got = header.TCP(header.IPv4(w.recv()[14:]).Payload())
		}
		switch {
		case got.Flags()&header.TCPFlagRst != 0:
			refused++
		case got.Flags() == header.TCPFlagSyn|header.TCPFlagAck:
			accepted++
		}
	}
	if accepted != 32 || refused != syns-32 {
		t.Errorf("%d accepted and %d refused of %d", accepted, refused, syns)
	}
	rec.wait(t, func(a egress.Attempt) bool { return a.Proto == policy.TCP && a.Port == 53 })
	begin := time.Now()
	if err := w.g.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > 15*time.Second {
		t.Errorf("closing took %v", d)
	}
	sum := 0
	for _, a := range rec.all() {
		sum += a.Count
	}
	if sum != syns { // those that asked nothing are recorded too
		t.Errorf("%d attempts recorded, want %d", sum, syns)
	}
}

// A SYN that waits for the file that all sandboxes share holds no packet up, and
// no change of the policy.
func TestLockedHostFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shared")
	m, err := egress.OpenHostMeter(path, egress.HostLimits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	w, rec := newWireWith(t, egress.Options{Host: newAway(), HostMeter: m, Policy: compile(t, policy.Document{
		Rules: []policy.Rule{{CIDR: far4, Ports: []int{22}, Proto: "tcp"}}})})
	w.g.Open(true)
	other, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.FcntlFlock(other.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Len: 1}); err != nil {
		t.Fatal(err)
	}
	w.send(ip4(s4, far4, header.TCPProtocolNumber, syn(22)))
	prompt(t, "what came after the SYN", w.silent)
	prompt(t, "a change of the policy", func() { w.g.SetPolicy(nil) })
	other.Close() // gives the lock back
	rec.wait(t, func(a egress.Attempt) bool {
		return a.Port == 22 && a.Verdict == "deny" && a.Rule == policy.RuleDefault
	})
}

// When the device is gone the gateway says so.
func TestDone(t *testing.T) {
	t.Parallel()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	g, _ := open(t, egress.Options{FD: fds[0]})
	unix.Close(fds[1])
	select {
	case <-g.Done():
	case <-time.After(10 * time.Second):
		t.Error("the gateway did not notice that its link is gone")
	}
}

// Whatever frame a sandbox writes, the gateway goes on.
func FuzzFrame(f *testing.F) {
	for _, frame := range [][]byte{
		arp(header.ARPRequest, s4, egress.Gateway4),
		ip4(s4, far4, header.ICMPv4ProtocolNumber, icmp4(header.ICMPv4Echo, "hello")),
		ip4(s4, far4, header.UDPProtocolNumber, udp(53, "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01x\x00\x00\x01\x00\x01")),
		ip4(s4, far4, header.UDPProtocolNumber, udp(9, "x")),
		ip4(s4, far4, header.TCPProtocolNumber, syn(443)),
		ip4(s4, far4, header.TCPProtocolNumber, syn(53)),
		ip4(s4, far4, 132, make([]byte, 12)),
		ip4(s4, "224.0.0.251", header.UDPProtocolNumber, udp(5353, "x")),
		ip6(s6, far6, header.UDPProtocolNumber, udp(53, "")),
		ip6(s6, far6, header.TCPProtocolNumber, syn(443)),
		ip6(s6, far6, 60, append([]byte{17, 0, 1, 4, 0, 0, 0, 0}, udp(9, "x")...)),
		ip6(s6, far6, 44, append([]byte{17, 0, 0, 1, 0, 0, 0, 9}, udp(9, "x")...)),
		ip6(s6, far6, header.ICMPv6ProtocolNumber, icmp6(s6, far6, header.ICMPv6EchoRequest, make([]byte, 8))),
		solicit(s6, egress.Gateway6),
		ethernet(0x88cc, []byte("x")),
		{1},
	} {
		f.Add(frame)
	}
	w, _ := newWireWith(f, egress.Options{Host: newAway(), Policy: compile(f, policy.Document{Rules: []policy.Rule{
		{CIDR: far4, Ports: []int{443}, Proto: "tcp"}, {CIDR: far6, Ports: []int{443}, Proto: "tcp"}, {Host: "*.example.org", Ports: []int{22}, Proto: "tcp"}}})})
	w.g.Open(true)
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) == 0 || len(frame) > egress.MTU+header.EthernetMinimumSize {
			return
		}
		w := &wire{t, w.f, w.g}
		w.send(frame)
		probe := netip.MustParseAddr("10.88.0.201").AsSlice()
		w.send(arp(header.ARPRequest, s4, "10.88.0.201"))
		for {
			got := w.recv()
			if header.Ethernet(got).Type() == header.ARPProtocolNumber && bytes.Equal(header.ARP(got[14:]).ProtocolAddressSender(), probe) {
				return
			}
		}
	})
}

func syn(port uint16) []byte { return synFrom(5000, port) }

func synFrom(from, port uint16) []byte {
	b := make([]byte, header.TCPMinimumSize)
	header.TCP(b).Encode(&header.TCPFields{SrcPort: from, DstPort: port, SeqNum: 1, DataOffset: header.TCPMinimumSize,
		Flags: header.TCPFlagSyn, WindowSize: 1000})
	return b
}
