package policy_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/policy"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// judgement is what is to be said of a connection to a name or an address.
type judgement struct {
	to     string
	port   uint16
	action policy.Action
	proto  policy.Proto
	rule   string
}

func (j judgement) want(t *testing.T, v policy.Verdict) {
	t.Helper()
	if v.Action != j.action || v.Proto != j.proto || v.Rule != j.rule || v.Reason == "" {
		t.Errorf("%s port %d: %+v", j.to, j.port, v)
	}
}

func TestZeroDenies(t *testing.T) {
	t.Parallel()
	if v := (policy.Verdict{}); v.Allowed() || v.Action != policy.Deny || v.Action.String() != "deny" {
		t.Error("the zero verdict allows")
	}
	empty, err := policy.Compile(policy.Document{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := policy.Compile(policy.Document{Rules: []policy.Rule{}, Bundles: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	requests := []policy.Request{
		{},
		{Name: "example.com", Proto: policy.DNS, Port: 53},
		{Stage: policy.AtName, Name: "example.com", Proto: policy.DNS},
		{Addr: addr("10.88.0.1"), Port: 443, Proto: policy.TCP},
		{Addr: addr("8.8.8.8"), Port: 443},
		{Name: "example.com", Port: 443},
		{Stage: policy.AtAddress, Name: "example.com", Addr: addr("8.8.8.8"), Port: 443},
		{Stage: policy.AtServer, Name: "example.com", Port: 443, ServerName: "example.com"},
		{Stage: policy.AtHTTP, Name: "example.com", Port: 80, Host: "example.com", Method: "GET", Path: "/"},
		{Stage: 99, Name: "example.com", Port: 443},
		{SandboxID: "a", Addr: addr("::1"), Port: 1, Proto: policy.UDP},
		{Addr: addr("1.1.1.1"), Proto: policy.ICMP},
		{Proto: "unheard of"},
	}
	for name, p := range map[string]*policy.Policy{"nil": nil, "zero": {}, "empty document": empty, "empty lists": list} {
		for _, r := range requests {
			if v := p.Decide(r); v.Action != policy.Deny || v.Reported || v.Rule == "" || v.Reason == "" {
				t.Errorf("%s: %+v: %+v", name, r, v)
			}
		}
		if p.Limits() != (policy.Limits{}) || p.Notes() != nil {
			t.Errorf("%s: %+v %v", name, p.Limits(), p.Notes())
		}
	}
}

// No policy carries anything but TCP and DNS.
func TestOtherProtocols(t *testing.T) {
	t.Parallel()
	p := compile(t, policy.Document{Default: "allow", Mode: "ordered", Origin: policy.OriginHost, ReportOnly: true})
	for _, proto := range []policy.Proto{policy.UDP, policy.ICMP, policy.Other, "sctp"} {
		if v := p.Decide(policy.Request{Name: "example.org", Port: 443, Proto: proto}); v.Action != policy.Deny || v.Rule != "protocol" {
			t.Errorf("%s: %+v", proto, v)
		}
	}
}

var rules = policy.Document{Rules: []policy.Rule{
	0:  {Host: "api.example.org"},
	1:  {Host: "*.wild.example"},
	2:  {Host: "git.example.org", Ports: []int{22}, Proto: "tcp"},
	3:  {Host: "ask.example.org", Action: "ask"},
	4:  {Host: "bad.wild.example", Action: "deny"},
	5:  {Host: "part.wild.example", Ports: []int{80}, Action: "deny"},
	6:  {Host: "alt.example.org", Ports: []int{8443}, Proto: "tls"},
	7:  {Host: "maybe.wild.example", Action: "ask"},
	8:  {Host: "both.example.org", Ports: []int{9000}, Proto: "tcp"},
	9:  {Host: "both.example.org", Ports: []int{9000}, Proto: "http"},
	10: {Host: "API2.Example.ORG."},
	11: {Host: "xn--bcher-kva.example"},
}}

func TestConnect(t *testing.T) {
	t.Parallel()
	p := compile(t, rules)
	for _, c := range []judgement{
		{"api.example.org", 443, policy.Allow, policy.TLS, "rules[0]"},
		{"api.example.org", 80, policy.Allow, policy.HTTP, "rules[0]"},
		{"API.Example.Org.", 443, policy.Allow, policy.TLS, "rules[0]"},
		{"api.example.org", 22, policy.Deny, "", "default"},
		{"api.example.org", 0, policy.Deny, "", "default"},
		{"example.org", 443, policy.Deny, "", "default"},
		{"x.api.example.org", 443, policy.Deny, "", "default"},
		{"api.example.org.evil.example", 443, policy.Deny, "", "default"},
		{"a.wild.example", 443, policy.Allow, policy.TLS, "rules[1]"},
		{"a.b.wild.example", 443, policy.Allow, policy.TLS, "rules[1]"},
		{"wild.example", 443, policy.Deny, "", "default"},
		{"evilwild.example", 443, policy.Deny, "", "default"},
		{"git.example.org", 22, policy.Allow, policy.TCP, "rules[2]"},
		{"git.example.org", 443, policy.Deny, "", "default"},
		{"ask.example.org", 443, policy.Ask, policy.TLS, "rules[3]"},
		{"ask.example.org", 23, policy.Deny, "", "default"},
		{"bad.wild.example", 443, policy.Deny, "", "rules[4]"},
		{"bad.wild.example", 22, policy.Deny, "", "rules[4]"},
		{"part.wild.example", 80, policy.Deny, "", "rules[5]"},
		{"part.wild.example", 443, policy.Allow, policy.TLS, "rules[1]"},
		{"alt.example.org", 8443, policy.Allow, policy.TLS, "rules[6]"},
		{"maybe.wild.example", 443, policy.Ask, policy.TLS, "rules[7]"},
		{"both.example.org", 9000, policy.Allow, policy.HTTP, "rules[8]"},
		{"api2.example.org", 443, policy.Allow, policy.TLS, "rules[10]"},
		{"XN--bcher-KVA.example", 443, policy.Allow, policy.TLS, "rules[11]"},
		{"bücher.example", 443, policy.Deny, "", "name"},
		{"api.example.org\x00", 443, policy.Deny, "", "name"},
		{"*.wild.example", 443, policy.Deny, "", "name"},
		{"10.0.0.1", 443, policy.Deny, "", "name"},
	} {
		c.want(t, p.Connect(c.to, c.port))
	}
	if v := p.Connect("api.example.org", 22); !strings.Contains(v.Reason, "port 22") || !strings.Contains(v.Reason, "rules[0] allows api.example.org on ports 443") {
		t.Errorf("%q does not say what would be allowed", v.Reason)
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	p := compile(t, rules)
	for name, want := range map[string]policy.Action{
		"api.example.org": policy.Allow, "git.example.org": policy.Allow, "a.b.wild.example": policy.Allow, "ask.example.org": policy.Ask,
		"part.wild.example": policy.Allow, "bad.wild.example": policy.Deny, "wild.example": policy.Deny, "example.org": policy.Deny, "": policy.Deny,
		"maybe.wild.example": policy.Ask, "1.2.3.4": policy.Deny, "a_b.wild.example": policy.Deny,
	} {
		if v := p.Name(name); v.Action != want || v.Rule == "" || v.Reason == "" {
			t.Errorf("%q: %+v", name, v)
		}
	}
	p = compile(t, policy.Document{Default: "ask", Rules: []policy.Rule{{Host: "no.example", Action: "deny"}, {Host: "some.example", Ports: []int{443}, Action: "deny"}}})
	for name, want := range map[string]policy.Action{"other.example": policy.Ask, "no.example": policy.Deny, "some.example": policy.Ask} {
		if v := p.Name(name); v.Action != want {
			t.Errorf("%q: %+v", name, v)
		}
	}
}

func TestOrdered(t *testing.T) {
	t.Parallel()
	p := compile(t, policy.Document{Mode: "ordered", Default: "allow", Origin: policy.OriginAPI, Rules: []policy.Rule{
		{Host: "good.bad.example"},
		{Host: "*.bad.example", Action: "deny"},
		{Host: "late.bad.example"},
		{CIDR: "8.8.8.0/24", Action: "deny"},
		{Host: "after.example"},
	}})
	for name, want := range map[string]policy.Action{"good.bad.example": policy.Allow, "x.bad.example": policy.Deny, "late.bad.example": policy.Deny,
		"bad.example": policy.Allow, "anything.example": policy.Allow} {
		if v := p.Connect(name, 443); v.Action != want || v.Allowed() && v.Proto != policy.TLS {
			t.Errorf("%q: %+v", name, v)
		}
		if v := p.Name(name); v.Action != want {
			t.Errorf("%q: %+v", name, v)
		}
	}
	if v := p.Connect("anything.example", 2222); v.Action != policy.Allow || v.Proto != policy.TCP {
		t.Errorf("%+v", v)
	}
	for name, want := range map[string]policy.Action{"good.bad.example": policy.Allow, "after.example": policy.Deny, "anything.example": policy.Deny} {
		if v := p.Address(name, addr("8.8.8.8"), 443, nil); v.Action != want {
			t.Errorf("%q: %+v", name, v)
		}
	}
	// A default that allows opens what is public, and nothing else.
	for _, a := range []string{"10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "198.18.0.1", "64:ff9b::10.0.0.1"} {
		if v := p.Address("anything.example", addr(a), 443, nil); v.Action != policy.Deny {
			t.Errorf("%s: %+v", a, v)
		}
		if v := p.Literal(addr(a), 443, nil); v.Action != policy.Deny {
			t.Errorf("%s: %+v", a, v)
		}
	}
	if v := p.Literal(addr("9.9.9.9"), 443, nil); v.Action != policy.Allow {
		t.Errorf("%+v", v)
	}
}

func TestReportOnly(t *testing.T) {
	t.Parallel()
	p := compile(t, policy.Document{ReportOnly: true, Origin: policy.OriginHost, Rules: []policy.Rule{
		{Host: "good.example"}, {Host: "bad.example", Action: "deny"}, {Host: "ask.example", Action: "ask"}}})
	for _, c := range []struct {
		v        policy.Verdict
		action   policy.Action
		reported bool
		rule     string
	}{
		{p.Connect("good.example", 443), policy.Allow, false, "rules[0]"},
		{p.Connect("bad.example", 443), policy.Allow, true, "rules[1]"},
		{p.Connect("other.example", 22), policy.Allow, true, "default"},
		{p.Connect("ask.example", 443), policy.Ask, false, "rules[2]"},
		{p.Name("other.example"), policy.Allow, true, "default"},
		{p.Literal(addr("8.8.8.8"), 443, nil), policy.Allow, true, "default"},
		{p.Server("good.example", 443, "front.example"), policy.Allow, true, "tls.name"},
		{p.HTTP("good.example", 80, "front.example", "GET", "/"), policy.Allow, true, "http.host"},
		{p.Literal(addr("10.0.0.1"), 443, nil), policy.Deny, false, "address.private"},
		{p.Literal(addr("169.254.169.254"), 80, nil), policy.Deny, false, "address.metadata"},
		{p.Address("other.example", addr("127.0.0.1"), 443, nil), policy.Deny, false, "address.loopback"},
		{p.Connect("no name", 443), policy.Deny, false, "name"},
	} {
		if c.v.Action != c.action || c.v.Reported != c.reported || c.v.Rule != c.rule || c.v.Allowed() && c.v.Proto == "" {
			t.Errorf("%+v; want %v %v %s", c.v, c.action, c.reported, c.rule)
		}
	}
	if v := p.Connect("other.example", 22); v.Proto != policy.TCP {
		t.Errorf("%+v", v)
	}
}

// Of many rules that speak of a name, none is overlooked.
func TestManyRules(t *testing.T) {
	t.Parallel()
	d := policy.Document{}
	for range 40 {
		d.Rules = append(d.Rules, policy.Rule{Host: "a.example"})
	}
	for _, i := range []int{0, 15, 16, 39} {
		d.Rules[i].Action = "deny"
		if v := compile(t, d).Connect("a.example", 443); v.Action != policy.Deny || v.Rule != fmt.Sprintf("rules[%d]", i) {
			t.Errorf("rule %d: %+v", i, v)
		}
		d.Rules[i].Action = ""
	}
	if v := compile(t, d).Connect("a.example", 443); v.Action != policy.Allow || v.Rule != "rules[0]" {
		t.Errorf("%+v", v)
	}
}

func TestVerdictJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v    policy.Verdict
		want string
	}{
		{policy.Verdict{}, `{"action":"deny","rule":"","reason":""}`},
		{policy.Verdict{Action: policy.Ask, Proto: policy.TLS, Rule: "rules[0]", Reason: "r"}, `{"action":"ask","proto":"tls","rule":"rules[0]","reason":"r"}`},
		{policy.Verdict{Action: policy.Allow, Reported: true}, `{"action":"allow","rule":"","reason":"","reported":true}`},
	} {
		if got, err := json.Marshal(c.v); err != nil || string(got) != c.want {
			t.Errorf("%s, %v; want %s", got, err, c.want)
		}
	}
}
