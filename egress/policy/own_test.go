package policy_test

import (
	"net/netip"
	"testing"

	"github.com/rein-sh/rein/egress/policy"
)

// A rule for the loopback range names it, also where the host has the address;
// a range that merely holds another address of the host does not name that.
func TestHostsOwnAddresses(t *testing.T) {
	t.Parallel()
	own := func(a netip.Addr) bool {
		return a == netip.MustParseAddr("127.0.0.1") || a == netip.IPv6Loopback() || a == netip.MustParseAddr("10.1.2.3")
	}
	for _, c := range []struct {
		cidr, addr string
		want       policy.Action
	}{
		{"127.0.0.0/8", "127.0.0.1", policy.Allow},
		{"127.0.0.1", "127.0.0.1", policy.Allow},
		{"127.0.0.2", "127.0.0.1", policy.Deny},
		{"::1/128", "::1", policy.Allow},
		{"10.0.0.0/8", "10.1.2.3", policy.Deny},
		{"10.1.2.0/24", "10.1.2.3", policy.Deny},
		{"10.1.2.3", "10.1.2.3", policy.Allow},
		{"10.0.0.0/8", "10.1.2.4", policy.Allow},
	} {
		p, err := policy.Compile(policy.Document{Origin: policy.OriginHost, Rules: []policy.Rule{
			{CIDR: c.cidr, Ports: []int{22}, Proto: "tcp"}, {Host: "a.example", Ports: []int{22}, Proto: "tcp"}}})
		if err != nil {
			t.Fatal(err)
		}
		addr := netip.MustParseAddr(c.addr)
		if v := p.Literal(addr, 22, own); v.Action != c.want {
			t.Errorf("%s by a rule for %s: %+v", c.addr, c.cidr, v)
		}
		if v := p.Address("a.example", addr, 22, own); v.Action != c.want {
			t.Errorf("what resolves to %s by a rule for %s: %+v", c.addr, c.cidr, v)
		}
	}
}
