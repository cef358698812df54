package policy

import (
	"net/netip"
	"slices"
	"strings"
)

// The ranges of the addresses that the gateway gives to names. No rule may
// speak of them.
const (
	Names4 = "198.18.0.0/15"
	Names6 = "fd72:6569:6e00:1::/64"
)

// Class says what an address is for.
type Class string

// The classes. All but Public need a rule that names their range; Metadata,
// Unspecified and Multicast are never reached.
const (
	Public        Class = "public"
	Private       Class = "private"
	Loopback      Class = "loopback"
	LinkLocal     Class = "link-local"
	Metadata      Class = "metadata"
	Multicast     Class = "multicast"
	Unspecified   Class = "unspecified"
	Shared        Class = "shared" // of carriers (RFC 6598)
	Documentation Class = "documentation"
	Benchmark     Class = "benchmark"
	Reserved      Class = "reserved"
	Own           Class = "own" // the host's
)

// never reports whether no rule can open addresses of the class.
func (c Class) never() bool { return c == Metadata || c == Unspecified || c == Multicast }

// Openable reports whether what a verdict's rule refuses, an address, is opened by
// a rule that names it.
func Openable(rule string) bool {
	class, ok := strings.CutPrefix(rule, ruleAddress)
	return ok && !Class(class).never()
}

// classFor is classOf by whom the address belongs to, too. Loopback is the host's own
// by itself.
func classFor(addr netip.Addr, own Ranges) (Class, netip.Prefix) {
	class, within := classOf(addr)
	if own != nil && class != Loopback && !class.never() && own(addr) {
		return Own, netip.PrefixFrom(addr, addr.BitLen())
	}
	return class, within
}

// what says it in a sentence.
func (c Class) what() string {
	if c == Own {
		return "this host's own"
	}
	return string(c)
}

type classified struct {
	class  Class
	prefix netip.Prefix
}

// The metadata services of clouds, as their documentation gives them. They hand
// out the credentials of the machine to whoever asks.
var metadata = prefixes(Metadata,
	"169.254.169.254/32",     // AWS, Google, Azure, Oracle, DigitalOcean, Hetzner, IBM, OpenStack and others
	"169.254.170.2/32",       // AWS ECS: credentials of a task
	"169.254.170.23/32",      // AWS EKS: credentials of a pod
	"fd00:ec2::254/128",      // AWS
	"fd00:ec2::23/128",       // AWS EKS
	"fd20:ce::254/128",       // Google
	"fd00:c1::a9fe:a9fe/128", // Oracle
	"fe80::a9fe:a9fe/128",    // OpenStack
	"169.254.42.42/32",       // Scaleway
	"fd00:42::42/128",        // Scaleway
	"100.100.100.200/32",     // Alibaba
	"169.254.0.23/32",        // Tencent
	"168.63.129.16/32",       // Azure: the channel to the host
	"192.0.0.192/32",         // Oracle Classic
)

// The ranges that are not for the public network, from IANA's registries of
// special-purpose addresses, IPv4 and IPv6, and RFC 4291.
var special = slices.Concat(metadata,
	prefixes(Private, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
	prefixes(Loopback, "127.0.0.0/8", "::1/128"),
	prefixes(LinkLocal, "169.254.0.0/16", "fe80::/10"),
	prefixes(Multicast, "224.0.0.0/4", "ff00::/8"),
	prefixes(Unspecified, "0.0.0.0/8", "::/128"),
	prefixes(Shared, "100.64.0.0/10"),
	prefixes(Documentation, "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
	prefixes(Benchmark, "198.18.0.0/15", "2001:2::/48"),
	prefixes(Reserved, "192.0.0.0/24", "192.88.99.0/24", "240.0.0.0/4", "100::/64", "2001::/23", "5f00::/16"),
)

// The same, apart.
var (
	special4 = slices.DeleteFunc(slices.Clone(special), func(s classified) bool { return s.prefix.Addr().Is6() })
	special6 = slices.DeleteFunc(slices.Clone(special), func(s classified) bool { return s.prefix.Addr().Is4() })
)

var (
	names4 = netip.MustParsePrefix(Names4)
	names6 = netip.MustParsePrefix(Names6)

	global6 = netip.MustParsePrefix("2000::/3")
	nat64   = netip.MustParsePrefix("64:ff9b::/96")   // RFC 6052
	nat64To = netip.MustParsePrefix("64:ff9b:1::/48") // RFC 8215, for the operator to divide
	sixTo4  = netip.MustParsePrefix("2002::/16")      // RFC 3056
	teredo  = netip.MustParsePrefix("2001::/32")      // RFC 4380
	compat  = netip.MustParsePrefix("::/96")          // RFC 4291 2.5.5.1, deprecated
)

func prefixes(class Class, texts ...string) []classified {
	out := make([]classified, len(texts))
	for i, text := range texts {
		out[i] = classified{class, netip.MustParsePrefix(text)}
	}
	return out
}

// ClassOf returns the class of an address by itself; see Unmap for what it may
// stand for.
func ClassOf(addr netip.Addr) Class {
	class, _ := classOf(addr)
	return class
}

// classOf also returns the range that makes it so; for Public and what is not
// assigned there is none.
func classOf(addr netip.Addr) (Class, netip.Prefix) {
	addr = addr.WithZone("").Unmap()
	ranges := special6
	if addr.Is4() {
		ranges = special4
	}
	for _, s := range ranges {
		if s.prefix.Contains(addr) {
			return s.class, s.prefix
		}
	}
	if addr.Is4() || global6.Contains(addr) || nat64.Contains(addr) {
		return Public, netip.Prefix{}
	}
	return Reserved, netip.Prefix{}
}

// Unmap returns the addresses that addr stands for, all of which have to be
// judged: an IPv6 address that carries an IPv4 address (mapped, compatible,
// NAT64, 6to4, Teredo) stands for that one, and any other for itself. How many
// bits of NAT64's local prefix are the operator's is not known, so that every
// place counts; Teredo carries the server's address and the client's.
func Unmap(addr netip.Addr) []netip.Addr {
	addr = addr.WithZone("").Unmap()
	if addr.Is4() || !embeds(addr) {
		return []netip.Addr{addr}
	}
	b := addr.As16()
	at := func(i ...int) netip.Addr { return netip.AddrFrom4([4]byte{b[i[0]], b[i[1]], b[i[2]], b[i[3]]}) }
	switch {
	case sixTo4.Contains(addr):
		return []netip.Addr{at(2, 3, 4, 5)}
	case teredo.Contains(addr):
		return []netip.Addr{at(4, 5, 6, 7), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}
	case nat64To.Contains(addr): // RFC 6052 2.2: lengths 48, 56, 64 and 96
		return local64(b)
	}
	return []netip.Addr{at(12, 13, 14, 15)} // NAT64 and compatible
}

// embeds reports whether an address carries an IPv4 address. Neither ::, nor
// ::1, nor the rest of their /112 do.
func embeds(addr netip.Addr) bool {
	if compat.Contains(addr) {
		b := addr.As16()
		return b[12] != 0 || b[13] != 0
	}
	return nat64.Contains(addr) || nat64To.Contains(addr) || sixTo4.Contains(addr) || teredo.Contains(addr)
}

// local64 returns what an address of NAT64's local prefix can stand for: of the
// lengths 48, 56, 64 and 96 (RFC 6052 2.2), those whose rest is zero.
func local64(b [16]byte) []netip.Addr {
	var out []netip.Addr
	for _, at := range [][4]int{{6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}, {12, 13, 14, 15}} {
		addr := netip.AddrFrom4([4]byte{b[at[0]], b[at[1]], b[at[2]], b[at[3]]})
		rest := !slices.ContainsFunc(b[at[3]+1:], func(c byte) bool { return c != 0 })
		if rest && !addr.IsUnspecified() && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	if out == nil {
		out = append(out, netip.IPv4Unspecified())
	}
	return out
}
