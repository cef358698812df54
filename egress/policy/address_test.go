package policy_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/policy"
)

var inside = policy.Document{Rules: []policy.Rule{
	0:  {Host: "*.corp.example", Ports: []int{443, 22}, Proto: "tcp"},
	1:  {CIDR: "10.1.0.0/16", Ports: []int{22}, Proto: "tcp"},
	2:  {CIDR: "10.1.2.0/24", Action: "deny"},
	3:  {CIDR: "8.8.8.0/24", Action: "deny"},
	4:  {CIDR: "9.9.9.9", Ports: []int{443, 22}, Proto: "tcp", Action: "ask"},
	5:  {CIDR: "172.0.0.0/8", Ports: []int{22}, Proto: "tcp"},
	6:  {CIDR: "fd12::/16", Ports: []int{22}, Proto: "tcp"},
	7:  {CIDR: "169.254.0.0/16", Ports: []int{22, 80}, Proto: "tcp"},
	8:  {CIDR: "1.1.1.1"},
	9:  {CIDR: "2001:4860::/32"},
	10: {CIDR: "127.0.0.0/8", Ports: []int{22}, Proto: "tcp"},
	11: {CIDR: "93.184.216.34", Ports: []int{22}, Proto: "tcp"},
	12: {CIDR: "93.184.216.0/24", Ports: []int{22}, Proto: "tcp"},
}}

func own(a netip.Addr) bool {
	return a == addr("93.184.216.34") || a == addr("93.184.216.35") || a == addr("2001:4860::35") || a == addr("10.1.7.7") || a == addr("127.0.0.1")
}

// What a name resolves to: public addresses pass by the name's rule, others
// only with a second rule that names their range, on the port.
func TestAddress(t *testing.T) {
	t.Parallel()
	p := compile(t, inside)
	for _, c := range []judgement{
		{"1.2.3.4", 22, policy.Allow, policy.TCP, "rules[0]"},
		{"2606:4700::1111", 443, policy.Allow, policy.TCP, "rules[0]"},
		{"64:ff9b::1.2.3.4", 443, policy.Allow, policy.TCP, "rules[0]"},
		{"::ffff:1.2.3.4", 443, policy.Allow, policy.TCP, "rules[0]"},
		{"1.2.3.4", 80, policy.Deny, "", "default"},
		{"10.1.1.1", 22, policy.Allow, policy.TCP, "rules[0]"},
		{"::ffff:10.1.1.1", 22, policy.Allow, policy.TCP, "rules[0]"},
		{"64:ff9b::10.1.1.1", 22, policy.Allow, policy.TCP, "rules[0]"},
		{"10.1.1.1", 443, policy.Deny, "", "address.private"},
		{"10.1.2.1", 22, policy.Deny, "", "rules[2]"},
		{"10.2.1.1", 22, policy.Deny, "", "address.private"},
		{"::ffff:10.2.1.1", 22, policy.Deny, "", "address.private"},
		{"64:ff9b::10.2.1.1", 22, policy.Deny, "", "address.private"},
		{"64:ff9b:1::10.2.1.1", 22, policy.Deny, "", "address.private"},
		{"64:ff9b:1:a02:1:100::", 22, policy.Deny, "", "address.private"},
		{"2002:a02:101::1", 22, policy.Deny, "", "address.private"},
		{"2001:0:a02:101::", 22, policy.Deny, "", "address.private"},
		{"::10.2.1.1", 22, policy.Deny, "", "address.private"},
		{"172.16.0.1", 22, policy.Deny, "", "address.private"}, // rules[5] holds it, but does not name it
		{"172.64.0.1", 22, policy.Allow, policy.TCP, "rules[0]"},
		{"192.168.1.1", 22, policy.Deny, "", "address.private"},
		{"fd12::1", 22, policy.Allow, policy.TCP, "rules[0]"},
		{"fd13::1", 22, policy.Deny, "", "address.private"},
		{"127.0.0.1", 22, policy.Allow, policy.TCP, "rules[0]"},
		{"127.0.0.1", 443, policy.Deny, "", "address.loopback"},
		{"::1", 22, policy.Deny, "", "address.loopback"},
		{"169.254.1.1", 22, policy.Allow, policy.TCP, "rules[0]"},
		{"169.254.169.254", 22, policy.Deny, "", "address.metadata"},
		{"::ffff:169.254.169.254", 22, policy.Deny, "", "address.metadata"},
		{"64:ff9b::169.254.169.254", 22, policy.Deny, "", "address.metadata"},
		{"2002:a9fe:a9fe::", 22, policy.Deny, "", "address.metadata"},
		{"fe80::a9fe:a9fe", 22, policy.Deny, "", "address.metadata"},
		{"fe80::1%eth0", 22, policy.Deny, "", "address.link-local"},
		{"0.0.0.0", 22, policy.Deny, "", "address.unspecified"},
		{"::", 22, policy.Deny, "", "address.unspecified"},
		{"224.0.0.1", 22, policy.Deny, "", "address.multicast"},
		{"255.255.255.255", 22, policy.Deny, "", "address.reserved"},
		{"100.64.0.1", 22, policy.Deny, "", "address.shared"},
		{"192.0.2.1", 22, policy.Deny, "", "address.documentation"},
		{"198.18.0.1", 22, policy.Deny, "", "address.benchmark"},
		{policy.Names6[:len(policy.Names6)-3] + "1", 22, policy.Deny, "", "address.private"},
		{"4000::1", 22, policy.Deny, "", "address.reserved"},
		{"8.8.8.8", 22, policy.Deny, policy.TCP, "rules[3]"},
		{"64:ff9b::8.8.8.8", 22, policy.Deny, policy.TCP, "rules[3]"},
		{"9.9.9.9", 22, policy.Ask, policy.TCP, "rules[4]"},
		{"93.184.216.34", 22, policy.Allow, policy.TCP, "rules[0]"},
		{"93.184.216.35", 22, policy.Deny, "", "address.own"}, // a range that holds it is not about it
		{"::ffff:93.184.216.35", 22, policy.Deny, "", "address.own"},
		{"2001:4860::35", 443, policy.Deny, "", "address.own"},
		{"10.1.7.7", 22, policy.Deny, "", "address.own"},
	} {
		c.want(t, p.Address("git.corp.example", addr(c.to), c.port, own))
	}
	for a, want := range map[string]string{"10.2.1.1": "git.corp.example resolves to an address that may not be reached: 10.2.1.1 is private, and no rule names 10.0.0.0/8 on port 22",
		"10.1.7.7": "git.corp.example resolves to an address that may not be reached: 10.1.7.7 is this host's own, and no rule names 10.1.7.7/32 on port 22"} {
		if v := p.Address("git.corp.example", addr(a), 22, own); v.Reason != want {
			t.Errorf("%q; want %q", v.Reason, want)
		}
	}
	if v := p.Address("other.example", addr("1.2.3.4"), 22, nil); v.Action != policy.Deny {
		t.Errorf("%+v", v)
	}
	if v := p.Address("git.corp.example", netip.Addr{}, 22, nil); v.Action != policy.Deny {
		t.Errorf("%+v", v)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	p := compile(t, inside)
	list := func(texts ...string) (out []netip.Addr) {
		for _, s := range texts {
			out = append(out, addr(s))
		}
		return out
	}
	for _, c := range []struct {
		addrs  []netip.Addr
		action policy.Action
		rule   string
	}{
		{nil, policy.Deny, "answer"},
		{list("1.2.3.4", "2606:4700::1111"), policy.Allow, "rules[0]"},
		{list("1.2.3.4", "10.1.1.1"), policy.Allow, "rules[0]"},
		{list("1.2.3.4", "10.2.1.1"), policy.Deny, "address.private"},
		{list("10.2.1.1", "1.2.3.4"), policy.Deny, "address.private"},
		{list("1.2.3.4", "169.254.169.254"), policy.Deny, "address.metadata"},
		{list("1.2.3.4", "9.9.9.9"), policy.Ask, "rules[4]"},
		{list("1.2.3.4", "::1", "9.9.9.9"), policy.Deny, "address.loopback"},
	} {
		v := p.Addresses("git.corp.example", c.addrs, 22, nil)
		if v.Action != c.action || v.Rule != c.rule {
			t.Errorf("%v: %+v", c.addrs, v)
		}
	}
	if v := p.Addresses("git.corp.example", list("1.2.3.4", "10.2.1.1"), 22, nil); !strings.Contains(v.Reason, "as a whole") ||
		!strings.Contains(v.Reason, "resolves to an address that may not be reached: 10.2.1.1") {
		t.Errorf("%q", v.Reason)
	}
}

func TestLiteral(t *testing.T) {
	t.Parallel()
	p := compile(t, inside)
	for _, c := range []judgement{
		{"1.1.1.1", 443, policy.Allow, policy.TLS, "rules[8]"},
		{"1.1.1.1", 80, policy.Allow, policy.HTTP, "rules[8]"},
		{"1.1.1.1", 22, policy.Deny, "", "default"},
		{"1.1.1.2", 443, policy.Deny, "", "default"},
		{"::ffff:1.1.1.1", 443, policy.Allow, policy.TLS, "rules[8]"},
		{"64:ff9b::1.1.1.1", 443, policy.Allow, policy.TLS, "rules[8]"},
		{"2001:4860::8888", 443, policy.Allow, policy.TLS, "rules[9]"},
		{"10.1.1.1", 22, policy.Allow, policy.TCP, "rules[1]"},
		{"10.1.1.1", 443, policy.Deny, "", "address.private"},
		{"10.1.2.1", 22, policy.Deny, "", "rules[2]"},
		{"172.16.0.1", 22, policy.Deny, "", "address.private"},
		{"172.64.0.1", 22, policy.Allow, policy.TCP, "rules[5]"},
		{"169.254.169.254", 80, policy.Deny, "", "address.metadata"},
		{"169.254.1.1", 80, policy.Allow, policy.TCP, "rules[7]"},
		{"9.9.9.9", 443, policy.Ask, policy.TCP, "rules[4]"},
		{"93.184.216.34", 22, policy.Allow, policy.TCP, "rules[11]"},
		{"93.184.216.35", 22, policy.Deny, "", "address.own"},
		{"93.184.216.36", 22, policy.Allow, policy.TCP, "rules[12]"},
		{"198.18.0.7", 443, policy.Deny, "", "address.benchmark"},
	} {
		c.want(t, p.Literal(addr(c.to), c.port, own))
	}
	// Asking by default opens no range that is not public.
	p = compile(t, policy.Document{Default: "ask"})
	for a, want := range map[string]policy.Action{"8.8.8.8": policy.Ask, "10.0.0.1": policy.Deny, "127.0.0.1": policy.Deny, "169.254.169.254": policy.Deny, "93.184.216.34": policy.Deny} {
		if v := p.Literal(addr(a), 443, own); v.Action != want {
			t.Errorf("%s: %+v", a, v)
		}
	}
}

func TestServer(t *testing.T) {
	t.Parallel()
	p := compile(t, policy.Document{Rules: []policy.Rule{{Host: "a.example"}, {Host: "b.example", Action: "ask"}, {CIDR: "1.1.1.1"}}})
	for _, c := range []struct {
		target, sni string
		action      policy.Action
		rule        string
	}{
		{"a.example", "a.example", policy.Allow, "rules[0]"},
		{"a.example", "A.Example", policy.Allow, "rules[0]"},
		{"a.example", "a.example.", policy.Allow, "rules[0]"},
		{"a.example", "", policy.Deny, "tls.name"},
		{"a.example", "b.example", policy.Deny, "tls.name"},
		{"a.example", "x.a.example", policy.Deny, "tls.name"},
		{"a.example", "a.example\x00.evil", policy.Deny, "tls.name"},
		{"a.example", "1.1.1.1", policy.Deny, "tls.name"},
		{"b.example", "b.example", policy.Ask, "rules[1]"},
		{"b.example", "a.example", policy.Deny, "tls.name"},
		{"c.example", "a.example", policy.Deny, "default"},
		{"1.1.1.1", "", policy.Allow, "rules[2]"},
		{"1.1.1.1", "a.example", policy.Deny, "tls.name"},
		{"1.1.1.2", "", policy.Deny, "default"},
	} {
		if v := p.Server(c.target, 443, c.sni); v.Action != c.action || v.Rule != c.rule {
			t.Errorf("%s, %q: %+v", c.target, c.sni, v)
		}
	}
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	p := compile(t, policy.Document{Rules: []policy.Rule{
		0: {Host: "a.example", Ports: []int{80, 8080}, Proto: "http"},
		1: {Host: "r.example", Proto: "http", Methods: []string{"GET", "HEAD"}, Paths: []string{"/simple/*", "/index"}},
		2: {Host: "r.example", Proto: "http", Methods: []string{"POST"}, Paths: []string{"/log"}},
		3: {CIDR: "1.1.1.1"},
		4: {CIDR: "2001:4860::8888"},
		5: {Host: "b.example", Action: "ask"},
		6: {Host: "m.example", Proto: "http", Methods: []string{"GET"}},
		7: {Host: "w.r.example", Proto: "http", Methods: []string{"GET"}},
		8: {Host: "*.r.example", Proto: "http", Paths: []string{"/open/*"}},
	}})
	for _, c := range []struct {
		target             string
		port               uint16
		host, method, path string
		action             policy.Action
		rule               string
	}{
		{"a.example", 80, "a.example", "PUT", "/x", policy.Allow, "rules[0]"},
		{"a.example", 80, "A.EXAMPLE.", "GET", "/", policy.Allow, "rules[0]"},
		{"a.example", 80, "a.example:80", "GET", "/", policy.Allow, "rules[0]"},
		{"a.example", 8080, "a.example:8080", "GET", "/", policy.Allow, "rules[0]"},
		{"a.example", 8080, "a.example", "GET", "/", policy.Allow, "rules[0]"},
		{"a.example", 8080, "a.example:80", "GET", "/", policy.Deny, "http.host"},
		{"a.example", 80, "a.example:080x", "GET", "/", policy.Deny, "http.host"},
		{"a.example", 80, "a.example:", "GET", "/", policy.Deny, "http.host"},
		{"a.example", 80, "a.example:+80", "GET", "/", policy.Deny, "http.host"},
		{"a.example", 80, "a.example:80:80", "GET", "/", policy.Deny, "http.host"},
		{"a.example", 80, "", "GET", "/", policy.Deny, "http.host"},
		{"a.example", 80, "b.example", "GET", "/", policy.Deny, "http.host"},
		{"a.example", 80, "a.example@b.example", "GET", "/", policy.Deny, "http.host"},
		{"a.example", 80, "1.1.1.1", "GET", "/", policy.Deny, "http.host"},
		{"r.example", 80, "r.example", "GET", "/simple/x?a=../b", policy.Allow, "rules[1]"},
		{"r.example", 80, "r.example", "HEAD", "/index", policy.Allow, "rules[1]"},
		{"r.example", 80, "r.example", "GET", "/index/x", policy.Deny, "rules[1]"},
		{"r.example", 80, "r.example", "GET", "/simple", policy.Deny, "rules[1]"},
		{"r.example", 80, "r.example", "POST", "/simple/x", policy.Deny, "rules[1]"},
		{"r.example", 80, "r.example", "get", "/simple/x", policy.Deny, "rules[1]"},
		{"r.example", 80, "r.example", "POST", "/log", policy.Allow, "rules[2]"},
		{"r.example", 80, "r.example", "GET", "/simple/../admin", policy.Deny, "http.path"},
		{"r.example", 80, "r.example", "GET", "/simple/%2e%2e/admin", policy.Deny, "http.path"},
		{"r.example", 80, "r.example", "GET", "/simple/..%2Fadmin", policy.Deny, "http.path"},
		{"r.example", 80, "r.example", "GET", `/simple/..\admin`, policy.Deny, "http.path"},
		{"r.example", 80, "r.example", "GET", "/simple//x", policy.Deny, "http.path"},
		{"r.example", 80, "r.example", "GET", "/simple/%252e%252e/admin", policy.Deny, "http.path"},
		{"r.example", 80, "r.example", "GET", "/simple/;x/..;/admin", policy.Deny, "http.path"},
		{"r.example", 80, "r.example", "GET", "", policy.Deny, "http.path"},
		{"r.example", 80, "r.example", "GET", "/simple/%c0%ae%c0%ae/admin", policy.Deny, "http.path"},
		{"r.example", 80, "r.example", "GET", "/simple/..%20/admin", policy.Deny, "http.path"},
		{"r.example", 80, "r.example", "GET", "/simple/..%01/admin", policy.Deny, "http.path"},
		{"r.example", 80, "r.example", "GET", "/simple/..%7f/admin", policy.Deny, "http.path"},
		{"r.example", 80, "r.example", "GET", "/simple/.../admin", policy.Deny, "http.path"},
		{"r.example", 80, "r.example", "GET", "/simple/caf%c3%a9/a.b..c/", policy.Allow, "rules[1]"},
		{"m.example", 80, "m.example", "GET", "/a/../b", policy.Allow, "rules[6]"},
		{"m.example", 80, "m.example", "PUT", "/a", policy.Deny, "rules[6]"},
		{"w.r.example", 80, "w.r.example", "GET", "/a", policy.Allow, "rules[7]"},
		{"w.r.example", 80, "w.r.example", "PUT", "/open/a", policy.Allow, "rules[8]"},
		{"w.r.example", 80, "w.r.example", "PUT", "/a", policy.Deny, "rules[7]"},
		{"1.1.1.1", 80, "1.1.1.1", "GET", "/", policy.Allow, "rules[3]"},
		{"1.1.1.1", 80, "1.1.1.1:80", "GET", "/", policy.Allow, "rules[3]"},
		{"1.1.1.1", 80, "a.example", "GET", "/", policy.Deny, "http.host"},
		{"2001:4860::8888", 80, "[2001:4860::8888]", "GET", "/", policy.Allow, "rules[4]"},
		{"2001:4860::8888", 80, "[2001:4860::8888]:80", "GET", "/", policy.Allow, "rules[4]"},
		{"2001:4860::8888", 80, "[2001:4860::8888]:81", "GET", "/", policy.Deny, "http.host"},
		{"2001:4860::8888", 80, "2001:4860::8888", "GET", "/", policy.Deny, "http.host"},
		{"2001:4860::8888", 80, "[2001:4860::8888]x", "GET", "/", policy.Deny, "http.host"},
		{"2001:4860::8888", 80, "[2001:4860::8888", "GET", "/", policy.Deny, "http.host"},
		{"2001:4860::8888", 80, "[2001:4860::8889]", "GET", "/", policy.Deny, "http.host"},
		{"b.example", 80, "b.example", "GET", "/", policy.Ask, "rules[5]"},
		{"c.example", 80, "c.example", "GET", "/", policy.Deny, "default"},
	} {
		v := p.HTTP(c.target, c.port, c.host, c.method, c.path)
		if v.Action != c.action || v.Rule != c.rule || v.Reason == "" {
			t.Errorf("%s:%d %q %s %s: %+v", c.target, c.port, c.host, c.method, c.path, v)
		}
	}
}

// In an ordered policy a denial ends the search for a rule that allows a method.
func TestHTTPOrdered(t *testing.T) {
	t.Parallel()
	p := compile(t, policy.Document{Mode: "ordered", Rules: []policy.Rule{
		{Host: "a.example", Proto: "http", Methods: []string{"GET"}}, {Host: "a.example", Action: "deny"}, {Host: "a.example"}}})
	for method, want := range map[string]policy.Action{"GET": policy.Allow, "PUT": policy.Deny} {
		if v := p.HTTP("a.example", 80, "a.example", method, "/"); v.Action != want {
			t.Errorf("%s: %+v", method, v)
		}
	}
}
