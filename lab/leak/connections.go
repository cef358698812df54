package leak

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// connections are the ways of TCP that are no HTTP.
func (a Aim) connections() []way {
	refusal := []Outcome{Reset, Unreachable}
	var list []way
	for _, s := range []struct {
		name string
		port int
		say  string
	}{
		{"smtp", 25, "EHLO leak\r\n"}, {"submission", 587, "EHLO leak\r\n"}, {"smtps", 465, ""}, {"ssh", 22, "SSH-2.0-leak\r\n"}, {"ftp", 21, "USER "}, {"telnet", 23, ""},
		{"imap", 143, "a LOGIN "}, {"irc", 6667, "NICK "}, {"git", 9418, "0032git-upload-pack /"}, {"rsync", 873, "@RSYNCD: 31.0\n"}, {"ldap", 389, "0"}, {"mqtt", 1883, "\x10"},
		{"postgres", 5432, "\x00\x00\x00\x08\x04\xd2\x16\x2f"}, {"mysql", 3306, ""}, {"redis", 6379, "PING "}, {"docker", 2375, "GET / HTTP/1.0\r\n\r\n"}, {"socks", 1080, "\x05\x01\x00"}, {"tor", 9001, ""},
		{"whois", 43, ""}, {"finger", 79, ""}, {"syslog over tcp", 514, "<14>"},
	} {
		at := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(s.port)).String()
		list = append(list, say(s.name, at, s.say, refusal))
	}
	list = append(list, by("tcp", "dns over tls", "TLS to 1.1.1.1:853", refusal, func(ctx context.Context, p *probe) seen { return p.hello(ctx, "1.1.1.1:853", "one.one.one.one") }))
	for _, t := range a.targets() {
		list = append(list, say("tcp to "+t.word, t.at, "", refusal),
			by("tcp", "tcp fast open to "+t.word, "the byte in the SYN to "+t.at, refusal, func(ctx context.Context, p *probe) seen { return p.fastOpen(t.at) }))
	}
	return append(list,
		from("tcp from port 53", 53, a.targets()[0].at), from("tcp from port 443", 443, a.targets()[0].at))
}

// say connects and says something and the message.
func say(name, at, words string, want []Outcome) way {
	return by("tcp", name, "connect to "+at, want, func(ctx context.Context, p *probe) seen {
		c, err := dial(ctx, "tcp", at)
		if err != nil {
			return refused(err)
		}
		defer c.Close()
		return p.speak(c, words)
	})
}

// speak sends the message on a connection. That there is one is too much.
func (p *probe) speak(c net.Conn, words string) seen {
	if _, err := io.WriteString(c, words+p.message()); err != nil {
		return open("connected, then %v", err)
	}
	buf := make([]byte, 64)
	n, err := c.Read(buf)
	if err != nil {
		return open("connected and sent, then %v", err)
	}
	return open("answered %q", buf[:n])
}

// hello makes a TLS connection under a server name.
func (p *probe) hello(ctx context.Context, at, name string) seen {
	c, err := dial(ctx, "tcp", at)
	if err != nil {
		return refused(err)
	}
	defer c.Close()
	t := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}) //nolint:gosec // it is to reach anybody
	if err := t.HandshakeContext(ctx); err != nil {
		return refused(err)
	}
	if _, err := io.WriteString(t, p.message()); err != nil {
		return refused(err)
	}
	return open("a TLS connection")
}

// from connects from a certain port.
func from(name string, port int, at string) way {
	return by("tcp", name, fmt.Sprintf("connect from port %d to %s", port, at), []Outcome{Reset, Unreachable, Forbidden}, func(ctx context.Context, p *probe) seen {
		d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{Port: port}}
		c, err := d.DialContext(ctx, "tcp", at)
		if err != nil {
			if isInUse(err) {
				return notTried("port %d is in use", port)
			}
			return refused(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		return p.speak(c, "")
	})
}

// fastOpen puts the message into the SYN (RFC 7413).
func (p *probe) fastOpen(at string) seen {
	to := netip.MustParseAddrPort(at)
	domain := unix.AF_INET6
	var sa unix.Sockaddr = &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
	if to.Addr().Is4() {
		domain, sa = unix.AF_INET, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return refused(os.NewSyscallError("socket", err))
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval(int64(patience))
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait) // then the way takes longer
	if err := unix.Sendto(fd, []byte(p.message()), unix.MSG_FASTOPEN, sa); err != nil {
		return refused(os.NewSyscallError("sendto", err))
	}
	if err := unix.Connect(fd, sa); err != nil {
		return refused(os.NewSyscallError("connect", err))
	}
	return open("connected")
}
