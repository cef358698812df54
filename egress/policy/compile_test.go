package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/policy"
)

func compile(t testing.TB, d policy.Document) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(d)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func upTo(n int) (out []int) {
	for i := range n {
		out = append(out, i+1)
	}
	return out
}

func repositories(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("github:owner/repo%d", i))
	}
	return out
}

func TestCompileFaults(t *testing.T) {
	t.Parallel()
	one := func(r policy.Rule) policy.Document { return policy.Document{Rules: []policy.Rule{r}} }
	for _, c := range []struct {
		name string
		doc  policy.Document
		path string
		want string
		hint string
	}{
		{"mode", policy.Document{Mode: "loose"}, "mode", `"loose" is not known`, "strictest"},
		{"default", policy.Document{Default: "yes"}, "default", `"yes" is not known`, "deny, ask"},
		{"default allow", policy.Document{Default: "allow", Origin: policy.OriginHost}, "default", "is not allowed", ""},
		{"default allow of nobody", policy.Document{Default: "allow", Mode: "ordered"}, "default", "only the host's configuration", ""},
		{"default allow of somebody", policy.Document{Default: "allow", Mode: "ordered", Origin: "workspace"}, "default", "only the host's configuration", ""},
		{"report of nobody", policy.Document{ReportOnly: true}, "report_only", "only the host's configuration", ""},
		{"bundle", policy.Document{Bundles: []string{"npm", "nmp"}}, "bundles[1]", `"nmp" is no bundle`, "github-read"},
		{"repository", policy.Document{Bundles: []string{"github:rein-sh"}}, "bundles[0]", "is no bundle", "github:OWNER/REPO"},
		{"repository above", policy.Document{Bundles: []string{"github:a/.."}}, "bundles[0]", "is no bundle", ""},
		{"bundle twice", policy.Document{Bundles: []string{"npm", "npm"}}, "bundles[1]", "twice", ""},
		{"many bundles", policy.Document{Bundles: repositories(65)}, "bundles", "more than 64", ""},
		{"many ports", one(policy.Rule{Host: "a.example", Proto: "tcp", Ports: upTo(65)}), "rules[0].ports", "more than 64", ""},
		{"many methods", one(policy.Rule{Host: "a.example", Proto: "http", Methods: slices.Repeat([]string{"GET"}, 65)}), "rules[0].methods", "more than 64", ""},
		{"many paths", one(policy.Rule{Host: "a.example", Proto: "http", Paths: slices.Repeat([]string{"/"}, 65)}), "rules[0].paths", "more than 64", ""},
		{"limit", policy.Document{Limits: policy.Limits{MaxUploadBytes: -1}}, "limits.max_upload_bytes", "-1 is no limit", ""},
		{"nothing", one(policy.Rule{}), "rules[0]", "speaks of nothing", "host"},
		{"both", one(policy.Rule{Host: "a.example", CIDR: "192.0.2.0/24"}), "rules[0]", "both set", ""},
		{"action", one(policy.Rule{Host: "a.example", Action: "permit"}), "rules[0].action", `"permit"`, "allow, ask, deny"},
		{"proto", one(policy.Rule{Host: "a.example", Proto: "udp"}), "rules[0].proto", `"udp"`, "tls, https, http, tcp"},
		{"proto of deny", one(policy.Rule{Host: "a.example", Proto: "tls", Action: "deny"}), "rules[0].proto", "every protocol", ""},
		{"no proto", one(policy.Rule{Host: "a.example", Ports: []int{443, 22}}), "rules[0].ports[1]", "port 22 must be said", "proto: tcp"},
		{"no port", one(policy.Rule{Host: "a.example", Proto: "tcp"}), "rules[0].ports", "no port of its own", "[22]"},
		{"port", one(policy.Rule{Host: "a.example", Ports: []int{0}}), "rules[0].ports[0]", "0 is no port", ""},
		{"large port", one(policy.Rule{Host: "a.example", Ports: []int{65536}}), "rules[0].ports[0]", "65536 is no port", ""},
		{"port twice", one(policy.Rule{Host: "a.example", Ports: []int{443, 443}}), "rules[0].ports[1]", "twice", ""},
		{"name", one(policy.Rule{Host: "a_b.example"}), "rules[0].host", `has "_"`, ""},
		{"unicode", one(policy.Rule{Host: "bücher.example"}), "rules[0].host", "beyond ASCII", "xn--bcher-kva.example"},
		{"address as name", one(policy.Rule{Host: "10.0.0.1"}), "rules[0].host", "number", "cidr:"},
		{"odd address as name", one(policy.Rule{Host: "0x0a.1"}), "rules[0].host", "number", "cidr:"},
		{"address 6 as name", one(policy.Rule{Host: "[::1]"}), "rules[0].host", "is an address", "cidr:"},
		{"wildcard within", one(policy.Rule{Host: "a.*.example"}), "rules[0].host", "whole first label", ""},
		{"wildcard part", one(policy.Rule{Host: "*a.example"}), "rules[0].host", "whole first label", ""},
		{"wildcard twice", one(policy.Rule{Host: "*.*.example"}), "rules[0].host", "whole first label", ""},
		{"every name", one(policy.Rule{Host: "*"}), "rules[0].host", "every name", ""},
		{"wildcard over tld", one(policy.Rule{Host: "*.com"}), "rules[0].host", "anybody", ""},
		{"wildcard over suffix", one(policy.Rule{Host: "*.co.uk"}), "rules[0].host", "anybody", ""},
		{"wildcard over private suffix", one(policy.Rule{Host: "*.github.io"}), "rules[0].host", "anybody", ""},
		{"wildcard over unknown tld", one(policy.Rule{Host: "*.internal"}), "rules[0].host", "anybody", ""},
		{"wildcard above suffixes", one(policy.Rule{Host: "*.amazonaws.com"}), "rules[0].host", "anybody", ""},
		{"wildcard over wildcard suffix", one(policy.Rule{Host: "*.compute.amazonaws.com"}), "rules[0].host", "anybody", ""},
		{"wildcard asked", one(policy.Rule{Host: "*.com", Action: "ask"}), "rules[0].host", "anybody", ""},
		{"range", one(policy.Rule{CIDR: "10.0.0.0/33"}), "rules[0].cidr", "is no range", "192.0.2.0/24"},
		{"name as range", one(policy.Rule{CIDR: "a.example"}), "rules[0].cidr", "is no address", ""},
		{"bits beyond", one(policy.Rule{CIDR: "10.1.2.3/8"}), "rules[0].cidr", "bits beyond", "10.0.0.0/8"},
		{"odd spelling", one(policy.Rule{CIDR: "010.0.0.1"}), "rules[0].cidr", "odd spelling of 8.0.0.1", "write 8.0.0.1"},
		{"zone", one(policy.Rule{CIDR: "fe80::1%eth0"}), "rules[0].cidr", "odd spelling", ""},
		{"all mapped", one(policy.Rule{CIDR: "::ffff:0:0/90"}), "rules[0].cidr", "", "IPv4"},
		{"NAT64", one(policy.Rule{CIDR: "64:ff9b::/96"}), "rules[0].cidr", "IPv4 address they carry", "IPv4 range"},
		{"6to4", one(policy.Rule{CIDR: "2002:a00::/24"}), "rules[0].cidr", "IPv4 address they carry", ""},
		{"Teredo", one(policy.Rule{CIDR: "2001::/32"}), "rules[0].cidr", "IPv4 address they carry", ""},
		{"compatible", one(policy.Rule{CIDR: "::10.0.0.0/104"}), "rules[0].cidr", "carries IPv4", ""},
		{"names", one(policy.Rule{CIDR: "198.18.0.0/16"}), "rules[0].cidr", "stand for names", ""},
		{"over names", one(policy.Rule{CIDR: "0.0.0.0/0"}), "rules[0].cidr", "stand for names", ""},
		{"names 6", one(policy.Rule{CIDR: "fd00::/8"}), "rules[0].cidr", "stand for names", ""},
		{"metadata", one(policy.Rule{CIDR: "169.254.169.254"}), "rules[0].cidr", "metadata", ""},
		{"metadata 6", one(policy.Rule{CIDR: "fd00:ec2::254/128", Action: "ask"}), "rules[0].cidr", "metadata", ""},
		{"multicast", one(policy.Rule{CIDR: "224.0.0.0/8"}), "rules[0].cidr", "multicast", ""},
		{"unspecified", one(policy.Rule{CIDR: "::/128"}), "rules[0].cidr", "unspecified", ""},
		{"methods in tls", one(policy.Rule{Host: "a.example", Methods: []string{"GET"}}), "rules[0].methods", "cannot be seen in tls", "proto: http"},
		{"paths in tcp", one(policy.Rule{Host: "a.example", Proto: "tcp", Ports: []int{80}, Paths: []string{"/"}}), "rules[0].paths", "cannot be seen", ""},
		{"paths of ask", one(policy.Rule{Host: "a.example", Proto: "http", Action: "ask", Paths: []string{"/"}}), "rules[0].paths", "only a rule that allows", ""},
		{"paths of deny", one(policy.Rule{Host: "a.example", Proto: "http", Action: "deny", Paths: []string{"/"}}), "rules[0].paths", "only a rule that allows", ""},
		{"methods of a range", one(policy.Rule{CIDR: "1.1.1.1", Proto: "http", Methods: []string{"GET"}}), "rules[0].methods", "about addresses", ""},
		{"method", one(policy.Rule{Host: "a.example", Proto: "http", Methods: []string{"get"}}), "rules[0].methods[0]", "no method", "GET"},
		{"path", one(policy.Rule{Host: "a.example", Proto: "http", Paths: []string{"/a", "b"}}), "rules[0].paths[1]", "no path", ""},
		{"path with dots", one(policy.Rule{Host: "a.example", Proto: "http", Paths: []string{"/a/../b"}}), "rules[0].paths[0]", "no path", ""},
		{"path with stars", one(policy.Rule{Host: "a.example", Proto: "http", Paths: []string{"/*/b"}}), "rules[0].paths[0]", "no path", ""},
		{"https of a range", one(policy.Rule{CIDR: "192.0.2.0/24", Proto: "https"}), "rules[0].proto", "for names alone", "proto: tls"},
		{"udp", one(policy.Rule{Host: "a.example", Proto: "udp"}), "rules[0].proto", `"udp" is not known`, "nothing else leaves"},
		{"URL", one(policy.Rule{Host: "https://a.example/"}), "rules[0].host", `has ":"`, "write the host alone: a.example"},
		{"many", policy.Document{Rules: make([]policy.Rule, policy.MaxRules+1)}, "rules", "more than 4096", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, err := policy.Compile(c.doc)
			e, ok := errors.AsType[*policy.Error](err)
			if !ok || p != nil {
				t.Fatalf("%v, %v", p, err)
			}
			f := e.Faults[0]
			if len(e.Faults) != 1 || f.Path != c.path || !strings.Contains(f.Message, c.want) || !strings.Contains(f.Hint, c.hint) {
				t.Errorf("%q", e.Faults)
			}
			if e.Hint() != f.Hint || !strings.HasPrefix(e.Error(), c.path+": ") {
				t.Errorf("%q, %q", e, e.Hint())
			}
		})
	}
}

// All faults come at once, in the order of the document.
func TestCompileAllFaults(t *testing.T) {
	t.Parallel()
	_, err := policy.Compile(policy.Document{Mode: "x", Default: "y", Bundles: []string{"z"}, Limits: policy.Limits{Bytes: -1},
		Rules: []policy.Rule{{Host: "a b", Ports: []int{0, 7}, Action: "no"}, {Host: "good.example"}, {CIDR: "x"}}})
	e, ok := errors.AsType[*policy.Error](err)
	if !ok {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range e.Faults {
		paths = append(paths, f.Path)
	}
	want := "mode default rules[0].action rules[0].ports[0] rules[0].host rules[2].cidr bundles[0] limits.bytes"
	if got := strings.Join(paths, " "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if e.Hint() != "" {
		t.Errorf("one hint of many: %q", e.Hint())
	}
}

// What a wildcard over many owners would open may be denied all the same.
func TestCompileBroadDenials(t *testing.T) {
	t.Parallel()
	p := compile(t, policy.Document{Default: "ask", Rules: []policy.Rule{
		{Host: "*.ru", Action: "deny"}, {CIDR: "0.0.0.0/0", Action: "deny"}, {CIDR: "169.254.169.254", Action: "deny"}}})
	if v := p.Connect("a.b.ru", 443); v.Action != policy.Deny || v.Rule != "rules[0]" {
		t.Errorf("%+v", v)
	}
	if v := p.Connect("ru.example", 443); v.Action != policy.Ask {
		t.Errorf("%+v", v)
	}
	if v := p.Address("ru.example", addr("8.8.8.8"), 443, nil); v.Action != policy.Deny || v.Rule != "rules[1]" {
		t.Errorf("%+v", v)
	}
	p = compile(t, policy.Document{Default: "ask", Rules: []policy.Rule{{Host: "*", Action: "deny"}}})
	if v := p.Name("example.org"); v.Action != policy.Deny || v.Rule != "rules[0]" {
		t.Errorf("%+v", v)
	}
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	for _, origin := range []policy.Origin{policy.OriginHost, policy.OriginAPI} {
		p := compile(t, policy.Document{Default: "allow", Mode: "ordered", Origin: origin})
		if v := p.Connect("example.org", 443); v.Action != policy.Allow || v.Proto != policy.TLS || v.Rule != policy.RuleDefault {
			t.Errorf("%+v", v)
		}
	}
	// A document cannot say it of itself.
	for _, text := range []string{`{"default":"allow","mode":"ordered","origin":"host"}`, `{"default":"allow","mode":"ordered","Origin":"host","-":"host"}`} {
		var d policy.Document
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		if _, err := policy.Compile(d); err == nil {
			t.Errorf("%s compiled", text)
		}
	}
}

func TestDocumentJSON(t *testing.T) {
	t.Parallel()
	const text = `{"default":"ask","mode":"strictest","bundles":["pypi"],"rules":[{"host":"a.example","ports":[443],"proto":"tls","action":"ask"},` +
		`{"cidr":"10.0.0.0/8","ports":[22],"proto":"tcp"}],"limits":{"connections":3}}`
	var d policy.Document
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	if got, err := json.Marshal(d); err != nil || string(got) != text {
		t.Errorf("%s, %v", got, err)
	}
	if p := compile(t, d); p.Limits().Connections != 3 {
		t.Errorf("%+v", p.Limits())
	}
	if got, _ := json.Marshal(policy.Document{}); string(got) != "{}" {
		t.Errorf("%s", got)
	}
}

// What a policy was made of may change afterwards.
func TestImmutable(t *testing.T) {
	t.Parallel()
	d := policy.Document{Rules: []policy.Rule{{Host: "a.example", Proto: "http", Ports: []int{80}, Methods: []string{"GET"}, Paths: []string{"/a"}}}}
	p := compile(t, d)
	d.Rules[0].Ports[0], d.Rules[0].Methods[0], d.Rules[0].Paths[0], d.Rules[0].Host = 81, "PUT", "/b", "b.example"
	if v := p.HTTP("a.example", 80, "a.example", "GET", "/a"); v.Action != policy.Allow {
		t.Errorf("%+v", v)
	}
	if v := p.HTTP("a.example", 80, "a.example", "PUT", "/b"); v.Action != policy.Deny {
		t.Errorf("%+v", v)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	p := compile(t, policy.Document{Default: "ask", Bundles: []string{"crates"}, Rules: []policy.Rule{
		{Host: "*.example.org"}, {CIDR: "10.0.0.0/8", Ports: []int{22}, Proto: "tcp", Action: "ask"}, {Host: "bad.example", Action: "deny"}}})
	want := []string{
		"rules[0] allows *.example.org on ports 443 (tls), 80 (http)",
		"rules[1] asks about 10.0.0.0/8 on port 22 (tcp)",
		"rules[2] denies bad.example",
		"bundles.crates allows index.crates.io on port 443 (https), methods GET, HEAD",
		"bundles.crates allows static.crates.io on port 443 (https), methods GET, HEAD",
		"default: asks about everything else",
	}
	if got := p.Summary(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q", got)
	}
	if got := (*policy.Policy)(nil).Summary(); got != nil {
		t.Errorf("%q", got)
	}
}
