package main

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/egress/policy"
)

func TestParseTarget(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]policy.Rule{
		"example.com":           {Host: "example.com"},
		"*.example.com:443":     {Host: "*.example.com", Ports: []int{443}},
		"db.example:5432/tcp":   {Host: "db.example", Ports: []int{5432}, Proto: "tcp"},
		"example.com/http":      {Host: "example.com", Proto: "http"},
		"192.0.2.7":             {CIDR: "192.0.2.7"},
		"192.0.2.7:22/tcp":      {CIDR: "192.0.2.7", Ports: []int{22}, Proto: "tcp"},
		"192.0.2.0/24":          {CIDR: "192.0.2.0/24"},
		"192.0.2.0/24:22/tcp":   {CIDR: "192.0.2.0/24", Ports: []int{22}, Proto: "tcp"},
		"2001:db8::1":           {CIDR: "2001:db8::1"},
		"[2001:db8::1]:443/tls": {CIDR: "2001:db8::1", Ports: []int{443}, Proto: "tls"},
		"2001:db8::/32":         {CIDR: "2001:db8::/32"},
	} {
		got, err := parseTarget(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", text, err, diff)
		}
	}
	for text, hint := range map[string]string{
		"https://example.com":           "write example.com",
		"https://example.com:8443/x/y":  "write example.com:8443/tls",
		"http://user@example.com:80/":   "write example.com:80/http",
		"http://[2001:db8::1]:8080/tcp": "write [2001:db8::1]:8080/http",
		"git://example.com":             "write example.com",
	} {
		if _, err := parseTarget(text); err == nil || hintOf(err) != hint {
			t.Errorf("%s: %v, hint %q", text, err, hintOf(err))
		}
	}
	for _, text := range []string{"https://", "", ":443", "example.com:https", "example.com:0", "example.com:70000", "[example.com]:443"} {
		if r, err := parseTarget(text); err == nil {
			t.Errorf("%q is %+v", text, r)
		}
	}
}

// What the command line opens is added to the target's policy, and what makes no
// sense is refused by the flag that says it.
func TestOpening(t *testing.T) {
	t.Parallel()
	base := policy.Document{Rules: []policy.Rule{{Host: "evil.example", Action: "deny"}}, Bundles: []string{"npm"}}
	d, err := opening{allow: []string{"a.example"}, bundles: []string{"pypi"}}.onto(base)
	if err != nil || len(d.Rules) != 2 || d.Rules[1].Host != "a.example" || len(d.Bundles) != 2 || len(base.Rules) != 1 {
		t.Errorf("%+v %v", d, err)
	}
	base.Mode = policy.ModeOrdered
	if d, err := (opening{allow: []string{"evil.example"}}).onto(base); err != nil || d.Rules[0].Action != "" {
		t.Errorf("%+v %v", d, err)
	}
	if d, err := (opening{bundles: []string{"npm", "pypi", "pypi"}}).onto(base); err != nil || len(d.Bundles) != 2 {
		t.Errorf("bundles that are open already: %+v %v", d.Bundles, err)
	}
	for text, hint := range map[string]string{
		"a.example:22":         "write a.example:22/tls or /http, whose names are checked, or a.example:22/tcp",
		"[2001:db8::1]:22":     "write [2001:db8::1]:22/tls or /http, whose names are checked, or [2001:db8::1]:22/tcp",
		"a.example,b.example":  "one host each",
		"a.example:443/quic":   "known: tls, https, http, tcp; nothing else leaves",
		"https://a.example/v1": "write a.example",
	} {
		if _, err := (opening{allow: []string{text}}).onto(policy.Document{}); err == nil || hintOf(err) != hint {
			t.Errorf("%s: %v, hint %q", text, err, hintOf(err))
		}
	}
	for _, o := range []opening{
		{allow: []string{"a.example:22"}}, {allow: []string{"*.co.uk"}}, {allow: []string{"169.254.169.254"}}, {allow: []string{"a_b"}},
		{allow: []string{"a.example/ftp"}}, {bundles: []string{"pipy"}},
	} {
		_, err := o.onto(policy.Document{})
		if u, ok := errors.AsType[*usageError](err); !ok || hintOf(u) == "" {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
