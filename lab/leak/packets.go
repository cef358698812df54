package leak

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// datagrams are the ways of UDP, to one and to many.
func (a Aim) datagrams() []way {
	var list []way
	one := []Outcome{Unreachable, Reset}
	for _, t := range a.targets() {
		list = append(list, datagram("udp to "+t.word, t.at, "", one))
	}
	quic := "\xc0\x00\x00\x00\x01\x08" + strings.Repeat("\x00", 1200)
	for _, d := range []struct{ name, at, data string }{
		{"quic", "192.0.2.1:443", quic}, {"quic by IPv6", "[2001:db8::1]:443", quic}, {"dns over quic", "1.1.1.1:853", quic},
		{"ntp", "192.0.2.1:123", "\x23" + strings.Repeat("\x00", 47)}, {"syslog", "192.0.2.1:514", "<14>"}, {"snmp", "192.0.2.1:161", "\x30"},
		{"stun", "192.0.2.1:3478", "\x00\x01\x00\x00\x21\x12\xa4\x42"}, {"wireguard", "192.0.2.1:51820", "\x01\x00\x00\x00"},
		{"tftp", "192.0.2.1:69", "\x00\x02"}, {"dns on another port", "192.0.2.1:5353", "\x00\x00"}, {"udp of 60,000 bytes", "192.0.2.1:9", strings.Repeat("x", 60000)},
		{"udp in fragments", "192.0.2.1:9", strings.Repeat("x", 65480-len(a.Token))}, // and the words: what fits a datagram and no packet of the link
	} {
		list = append(list, datagram(d.name, d.at, d.data, one))
	}
	// To many nobody may answer that it was refused.
	many := []Outcome{Silent, Unreachable, Forbidden, Reset}
	for _, d := range []struct{ name, at string }{
		{"mdns", "224.0.0.251:5353"}, {"ssdp", "239.255.255.250:1900"}, {"llmnr", "224.0.0.252:5355"}, {"multicast of the site", "239.1.2.3:9"},
		{"multicast by IPv6", "[ff02::1%eth0]:9"}, {"multicast of the site by IPv6", "[ff05::2%eth0]:9"}, {"broadcast", "255.255.255.255:9"}, {"broadcast of the link", a.broadcast()},
	} {
		list = append(list, datagram(d.name, d.at, "", many))
	}
	return list
}

func (a Aim) broadcast() string {
	b := a.Gateway[0].As4()
	b[3] = 255
	return netip.AddrPortFrom(netip.AddrFrom4(b), 9).String()
}

// datagram sends data and the message to an address and listens.
func datagram(name, at, data string, want []Outcome) way {
	return by("udp", name, "a datagram to "+at, want, func(ctx context.Context, p *probe) seen {
		c, err := dial(ctx, "udp", at)
		if err != nil {
			return refused(err)
		}
		defer c.Close()
		if raw, err := c.(syscall.Conn).SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1) }) // where it matters the write fails
		}
		_ = c.SetDeadline(time.Now().Add(patience / 2))
		for range 3 { // an error of the first is told by the next
			if _, err := c.Write([]byte(data + p.message())); err != nil {
				return datagramRefused(err)
			}
		}
		n, err := c.Read(make([]byte, 2048))
		if err != nil {
			return datagramRefused(err)
		}
		return open("%d bytes came back", n)
	})
}

// packets are the ways below and beside TCP and UDP.
func (a Aim) packets() []way {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	if len(a.Sinks) > 0 && a.Sinks[0].Addr().Is4() {
		v4 = a.Sinks[0].Addr()
	}
	none := []Outcome{Forbidden, Unsupported, Unreachable, Reset}
	list := []way{
		socket("icmp echo", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP, v4, none),
		socket("icmp echo by IPv6", unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6, v6, none),
		socket("icmp by a raw socket", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, v4, none),
		socket("icmp by a raw socket, IPv6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6, v6, none),
		socket("udp by a raw socket", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_UDP, v4, none),
		socket("tcp by a raw socket", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP, v4, none),
		socket("a whole IP packet", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW, v4, none),
	}
	for _, ip := range []struct {
		name  string
		proto int
	}{{"ip in ip", unix.IPPROTO_IPIP}, {"gre", unix.IPPROTO_GRE}, {"esp", unix.IPPROTO_ESP}, {"igmp", unix.IPPROTO_IGMP}, {"ospf", 89}, {"an unassigned protocol", 253}} {
		list = append(list, socket(ip.name, unix.AF_INET, unix.SOCK_RAW, ip.proto, v4, none))
	}
	list = append(list,
		socket("sctp", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP, v4, none),
		socket("dccp", unix.AF_INET, 6 /* SOCK_DCCP */, unix.IPPROTO_DCCP, v4, none),
		socket("udp-lite", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE, v4, none),
		socket("mptcp", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, v4, none),
	)
	for _, f := range []struct {
		name              string
		domain, kind, arg int
	}{
		{"a packet socket", unix.AF_PACKET, unix.SOCK_RAW, 0}, {"a packet socket without a header", unix.AF_PACKET, unix.SOCK_DGRAM, 0},
		{"vsock, to a hypervisor", unix.AF_VSOCK, unix.SOCK_STREAM, 0}, {"bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1},
		{"can bus", unix.AF_CAN, unix.SOCK_RAW, 1}, {"xdp", unix.AF_XDP, unix.SOCK_RAW, 0}, {"tipc", unix.AF_TIPC, unix.SOCK_STREAM, 0}, {"smc", unix.AF_SMC, unix.SOCK_STREAM, 0},
	} {
		list = append(list, by("packet", f.name, fmt.Sprintf("socket(%d, %d, %d)", f.domain, f.kind, f.arg), []Outcome{Forbidden, Unsupported, Absent, Unreachable, Reset},
			func(context.Context, *probe) seen { return other(f.domain, f.kind, f.arg) }))
	}
	return append(list, by("packet", "a tun device", "open /dev/net/tun and TUNSETIFF", []Outcome{Absent, Forbidden, Unsupported}, func(context.Context, *probe) seen { return tun() }), device("a kvm device", "/dev/kvm"), device("a disk of the host", "/dev/sda"), device("the memory of the host", "/dev/mem"))
}

// socket opens a socket of IP and sends the message to an address.
func socket(name string, domain, kind, proto int, to netip.Addr, want []Outcome) way {
	return by("packet", name, fmt.Sprintf("socket(%d, %d, %d), the byte to %s", domain, kind, proto, to), want, func(_ context.Context, p *probe) seen {
		fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			return refused(os.NewSyscallError("socket", err))
		}
		defer unix.Close(fd)
		wait := unix.NsecToTimeval(int64(patience / 2))
		for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
			if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &wait); err != nil {
				return refused(os.NewSyscallError("setsockopt", err))
			}
		}
		var sa unix.Sockaddr = &unix.SockaddrInet6{Addr: to.As16(), Port: port(kind, p.aim.Loopback)}
		if to.Is4() {
			sa = &unix.SockaddrInet4{Addr: to.As4(), Port: port(kind, p.aim.Loopback)}
		}
		if err := unix.Connect(fd, sa); err != nil {
			return refused(os.NewSyscallError("connect", err))
		}
		return p.exchange(fd, proto, to)
	})
}

func port(kind int, sink uint16) int {
	if kind == unix.SOCK_RAW {
		return 0
	}
	return int(sink)
}

// exchange writes the message on a connected socket and waits for an answer.
func (p *probe) exchange(fd, proto int, to netip.Addr) seen {
	data := []byte(p.message())
	switch proto {
	case unix.IPPROTO_ICMP:
		data = append([]byte{8, 0, 0, 0, 0, 1, 0, 1}, data...)
		binary.BigEndian.PutUint16(data[2:], checksum(data))
	case unix.IPPROTO_ICMPV6:
		data = append([]byte{128, 0, 0, 0, 0, 1, 0, 1}, data...)
	case unix.IPPROTO_RAW:
		data = append(header4(to, len(data)), data...)
	}
	if _, err := unix.Write(fd, data); err != nil {
		return refused(os.NewSyscallError("write", err))
	}
	n, err := unix.Read(fd, make([]byte, 2048))
	switch {
	case err == unix.EAGAIN || err == unix.EINPROGRESS:
		return seen{outcome: Silent, words: "nothing came back"}
	case err != nil:
		return datagramRefused(os.NewSyscallError("read", err))
	}
	return open("%d bytes came back", n)
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		w := uint32(b[i]) << 8
		if i+1 < len(b) {
			w |= uint32(b[i+1])
		}
		sum += w
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// header4 is an IPv4 header with a sender that is somebody else.
func header4(to netip.Addr, n int) []byte {
	h := make([]byte, 20)
	h[0], h[8], h[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(h[2:], uint16(20+n))
	copy(h[12:], []byte{203, 0, 113, 7})
	dst := to.As4()
	copy(h[16:], dst[:])
	return h
}

// other opens a socket that leads out beside IP. One that opens must lead
// nowhere: connecting says so.
func other(domain, kind, proto int) seen {
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return refused(os.NewSyscallError("socket", err))
	}
	defer unix.Close(fd)
	if domain != unix.AF_VSOCK {
		return open("the socket is made")
	}
	wait := unix.NsecToTimeval(int64(patience))
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait) // then the way takes longer
	if err := unix.Connect(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_HOST, Port: 9}); err != nil {
		return refused(os.NewSyscallError("connect", err))
	}
	return open("connected to the hypervisor")
}

// tun makes an interface of its own. gVisor has the device, and lets only an
// administrator use it.
func tun() seen {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return refused(os.NewSyscallError("open", err))
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lab0")
	if err != nil {
		return refused(err)
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return refused(os.NewSyscallError("ioctl", err))
	}
	return open("an interface of its own")
}

// device opens a device of the host.
func device(name, path string) way {
	return by("packet", name, "open "+path, []Outcome{Absent, Forbidden, Unsupported}, func(context.Context, *probe) seen {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return refused(err)
		}
		defer f.Close()
		return open("it opens")
	})
}
