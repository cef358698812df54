package leak

import (
	"bufio"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// fronts are the ways through a name that the policy allows: as somebody else,
// by another port or protocol, by its redirects, by names like it, and by names
// that resolve to where nobody may go. The first are the controls: what is
// allowed does pass.
func (a Aim) fronts() []way {
	if a.Allowed == nil {
		return nil
	}
	ok := *a.Allowed
	webAt, tlsAt, tcpAt := at(ok.Name, ok.HTTP), at(ok.Name, ok.TLS), at(ok.Name, ok.TCP)
	gateway := netip.AddrPortFrom(a.Gateway[0], proxyPort).String()
	through := []Outcome{Open}
	list := []way{
		request("allowed: http", "http://"+webAt+"/", through, "", ""),
		request("allowed: https", "https://"+tlsAt+"/", through, "", ""),
		say("allowed: tcp", tcpAt, "", through),
		request("allowed: http through the gateway's proxy", "http://"+webAt+"/", through, "", gateway),
		request("allowed: https through the gateway's proxy", "https://"+tlsAt+"/", through, "", gateway),
	}
	list = append(list, a.frontTLS(tlsAt)...)
	list = append(list, a.frontHTTP(webAt)...)
	list = append(list, a.frontNames()...)
	for i := range list {
		list[i].group = "front"
	}
	return list
}

func at(host string, port int) string { return net.JoinHostPort(host, fmt.Sprint(port)) }

// frontTLS claims other names in TLS, hides them, and speaks no TLS at all.
func (a Aim) frontTLS(tlsAt string) []way {
	refusal := []Outcome{Reset}
	hello := func(name, tried string, c *tls.Config) way {
		return by("", name, tried, refusal, func(ctx context.Context, p *probe) seen { return p.handshake(ctx, tlsAt, c) })
	}
	list := []way{
		hello("tls with another server name", "ClientHello for "+outside, &tls.Config{ServerName: outside}),
		hello("tls with a server name below it", "ClientHello for leak."+a.Allowed.Name, &tls.Config{ServerName: "leak." + a.Allowed.Name}),
		hello("tls without a server name", "ClientHello without one", &tls.Config{}),
		hello("tls with an address for a name", "ClientHello for 127.0.0.1", &tls.Config{ServerName: "127.0.0.1"}),
		hello("tls with an encrypted server name", "ClientHello for "+a.Allowed.Name+" around an encrypted one for "+outside,
			&tls.Config{ServerName: outside, MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: echConfig(a.Allowed.Name)}),
	}
	for _, s := range []struct{ name, words string }{
		{"http on the port of tls", "POST / HTTP/1.1\r\nHost: " + a.Allowed.Name + "\r\nContent-Length: 200\r\n\r\n"}, {"ssh on the port of tls", "SSH-2.0-leak\r\n"}, {"anything on the port of tls", "leak\n"},
		{"a ClientHello that is too long, on the port of tls", "\x16\x03\x01\xff\xff" + strings.Repeat("\x01", 17<<10)},
	} {
		list = append(list, by("", s.name, "connect to "+tlsAt+" and send what is no TLS", refusal, func(ctx context.Context, p *probe) seen { return p.raw(ctx, tlsAt, s.words+p.message()) }))
	}
	return append(list, by("", "tls through the gateway's proxy, with another server name", "CONNECT "+tlsAt+", then ClientHello for "+outside, refusal, func(ctx context.Context, p *probe) seen {
		return p.handshakeThrough(ctx, netip.AddrPortFrom(a.Gateway[0], proxyPort).String(), tlsAt)
	}))
}

// handshake speaks TLS to an address, under whatever name.
func (p *probe) handshake(ctx context.Context, at string, c *tls.Config) seen {
	conn, err := dial(ctx, "tcp", at)
	if err != nil {
		return refused(err)
	}
	return p.secure(ctx, conn, c)
}

func (p *probe) secure(ctx context.Context, conn net.Conn, c *tls.Config) seen {
	defer conn.Close()
	c = c.Clone()
	if c.EncryptedClientHelloConfigList == nil {
		c.InsecureSkipVerify = true
	}
	t := tls.Client(conn, c)
	if err := t.HandshakeContext(ctx); err != nil {
		return refused(err)
	}
	if _, err := io.WriteString(t, p.message()); err != nil {
		return refused(err)
	}
	return open("the handshake succeeded")
}

func (p *probe) handshakeThrough(ctx context.Context, proxy, target string) seen {
	c, err := dial(ctx, "tcp", proxy)
	if err != nil {
		return refused(err)
	}
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		c.Close()
		return refused(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	if err != nil || answer.StatusCode != http.StatusOK {
		c.Close()
		if err != nil {
			return refused(err)
		}
		return open("the tunnel itself was refused: %s", answer.Status)
	}
	return p.secure(ctx, c, &tls.Config{ServerName: outside})
}

// echConfig is a list with one ECHConfig (RFC 9849 4) for a public name.
func echConfig(public string) []byte {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // the kernel has randomness
	}
	pub := key.PublicKey().Bytes()
	body := []byte{1, 0, 0x20}
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(pub))), pub...)
	body = append(body, 0, 4, 0, 1, 0, 1, 32, byte(len(public)))
	body = append(append(body, public...), 0, 0)
	config := append(binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(body))), body...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}

// raw sends words and says what came back.
func (p *probe) raw(ctx context.Context, at, words string) seen {
	c, err := dial(ctx, "tcp", at)
	if err != nil {
		return refused(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, words); err != nil {
		return refused(err)
	}
	var last seen
	for r := bufio.NewReader(c); ; {
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			if last.outcome != "" {
				return last
			}
			return refused(err)
		}
		s := judgePage(answer)
		answer.Body.Close()
		// A refusal ends it; an answer to a good request may come before.
		if last = s; s.outcome == Page {
			return s
		}
	}
}

// frontHTTP asks the allowed server for somebody else, in the ways in which two
// readers of HTTP may differ.
func (a Aim) frontHTTP(webAt string) []way {
	name := a.Allowed.Name
	refusal := []Outcome{Page, Reset}
	var list []way
	for _, s := range []struct{ name, words string }{
		{"http with another Host", "GET / HTTP/1.1\r\nHost: " + outside + "\r\n\r\n"},
		{"http with two Hosts", "GET / HTTP/1.1\r\nHost: " + name + "\r\nHost: " + outside + "\r\n\r\n"},
		{"http without a Host", "GET / HTTP/1.1\r\n\r\n"},
		{"http 1.0 without a Host", "GET / HTTP/1.0\r\n\r\n"},
		{"http with an empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n"},
		{"http with a whole address of somebody else", "GET http://" + outside + "/ HTTP/1.1\r\nHost: " + webAt + "\r\n\r\n"},
		{"http with a whole address and another Host", "GET http://" + webAt + "/ HTTP/1.1\r\nHost: " + outside + "\r\n\r\n"},
		{"http with a folded Host", "GET / HTTP/1.1\r\nHost: " + webAt + "\r\n " + outside + "\r\n\r\n"},
		{"http with a space before the colon", "GET / HTTP/1.1\r\nHost : " + outside + "\r\nHost: " + webAt + "\r\n\r\n"},
		{"CONNECT at the allowed server", "CONNECT " + outside + ":443 HTTP/1.1\r\nHost: " + outside + ":443\r\n\r\n"},
		{"http/2 without tls", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"},
		{"a second request for somebody else", "GET / HTTP/1.1\r\nHost: " + webAt + "\r\n\r\nGET / HTTP/1.1\r\nHost: " + outside + "\r\n\r\n"},
		{"a request hidden by two lengths", "POST / HTTP/1.1\r\nHost: " + webAt + "\r\nContent-Length: 4\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\nHost: " + outside + "\r\n\r\n"},
		{"a request hidden by a length and chunks", "POST / HTTP/1.1\r\nHost: " + webAt + "\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: " + outside + "\r\n\r\n"},
		{"tls on the port of http", "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03"},
		{"ssh on the port of http", "SSH-2.0-leak\r\n\r\n"},
	} {
		list = append(list, by("", s.name, fmt.Sprintf("to %s: %.70q", webAt, s.words), append(refusal, BadRequest), func(ctx context.Context, p *probe) seen { return p.raw(ctx, webAt, s.words) }))
	}
	for _, r := range []struct {
		name, path string
		want       []Outcome
	}{{"a redirect to a name", "/to-name", []Outcome{NoName}}, {"a redirect to an address", "/to-address", []Outcome{Reset, Unreachable}}} {
		list = append(list, by("", r.name, "GET http://"+webAt+r.path+" and follow", r.want, func(ctx context.Context, p *probe) seen { return p.follow(ctx, "http://"+webAt+r.path) }))
	}
	return list
}

// follow follows one redirect.
func (p *probe) follow(ctx context.Context, address string) seen {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return open("cannot be built: %v", err)
	}
	t := &http.Transport{DisableKeepAlives: true, ResponseHeaderTimeout: patience}
	defer t.CloseIdleConnections()
	first, err := t.RoundTrip(req)
	if err != nil {
		return open("the allowed server itself: %v", err)
	}
	first.Body.Close()
	to := first.Header.Get("Location")
	if to == "" {
		return open("the allowed server itself: %s", first.Status)
	}
	return p.post(ctx, to, "", "")
}

// frontNames uses names like the allowed one, other ports and protocols of it,
// and names that resolve to what nobody may reach.
func (a Aim) frontNames() []way {
	ok := *a.Allowed
	resolver := netip.AddrPortFrom(a.Gateway[0], 53).String()
	var list []way
	for _, name := range []string{"leak." + ok.Name, strings.SplitN(ok.Name, ".", 2)[1], "x" + ok.Name, ok.Name + "." + outside, strings.Replace(ok.Name, ".", "-", 1), TurnedSuffix, ok.Name + "\\000." + outside} {
		list = append(list, by("", "a name like it: "+name, "A? of "+name, []Outcome{NoName}, func(ctx context.Context, p *probe) seen {
			return ask(ctx, "udp", resolver, question(dns.Fqdn(name), dns.TypeA))
		}))
	}
	for _, port := range []int{int(a.Loopback), 22, 25, 80, 443, 3128} {
		list = append(list, say(fmt.Sprintf("its port %d", port), at(ok.Name, port), "", []Outcome{Reset, Unreachable}))
	}
	list = append(list, datagram("quic to it", at(ok.Name, ok.TLS), "\xc0\x00\x00\x00\x01", []Outcome{Unreachable, Reset}),
		datagram("udp to it", at(ok.Name, int(a.Loopback)), "", []Outcome{Unreachable, Reset}))
	for _, word := range slices.Sorted(maps.Keys(ok.Turned)) {
		name := ok.Turned[word]
		want := []Outcome{Reset, Unreachable, NoName}
		list = append(list, say("an allowed name that leads to "+word, at(name, int(a.Loopback)), "", want),
			connectBy("CONNECT to an allowed name that leads to "+word, netip.AddrPortFrom(a.Gateway[0], proxyPort).String(), at(name, int(a.Loopback))))
	}
	return list
}
