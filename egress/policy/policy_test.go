package policy_test

import (
	"net/netip"
	"testing"

	"github.com/rein-sh/rein/egress/policy"
)

func TestZeroDenies(t *testing.T) {
	t.Parallel()
	if (policy.Verdict{}).Allowed() {
		t.Error("the zero verdict allows")
	}
	var p policy.Policy
	for _, r := range []policy.Request{
		{},
		{Name: "example.com", Proto: policy.DNS, Port: 53},
		{Addr: netip.MustParseAddr("10.88.0.1"), Port: 443, Proto: policy.TCP},
		{SandboxID: "a", Addr: netip.MustParseAddr("::1"), Port: 1, Proto: policy.UDP},
		{Addr: netip.MustParseAddr("1.1.1.1"), Proto: policy.ICMP},
		{Proto: "unheard of"},
	} {
		if v := p.Decide(r); v.Allowed() || v.Rule == "" || v.Reason == "" {
			t.Errorf("%+v: %+v", r, v)
		}
	}
}
