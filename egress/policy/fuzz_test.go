package policy_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/policy"
)

// What has a canonical form is its own, and no address.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"example.org", "EXAMPLE.org.", "xn--bcher-kva.example", "XN--a", "127.1", "0x7f.1", "[::1]", "a_b", "b\u00fccher.example",
		"a..b", "r3---sn-x.example", "1.2.3.4.example", "a.0x", "\x00", "a\u3002b", "a.b%2ec"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := policy.Canonical(s)
		if err != nil {
			if _, ok := errors.AsType[*policy.NameError](err); !ok || name != "" || err.Error() == "" {
				t.Fatalf("%q: %q, %#v", s, name, err)
			}
			return
		}
		if again, err := policy.Canonical(name); err != nil || again != name {
			t.Fatalf("%q: %q, then %q, %v", s, name, again, err)
		}
		if !strings.EqualFold(strings.TrimSuffix(s, "."), name) || len(name) > 253 ||
			strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
			t.Fatalf("%q: %q", s, name)
		}
		if a, err := policy.ParseAddr(name); err == nil {
			t.Fatalf("%q is a name and the address %s", s, a)
		}
		if r := policy.Registrable(name); !strings.HasSuffix(name, r) || r == "" {
			t.Fatalf("%q: registrable %q", name, r)
		}
		policy.Encoded(name)
		policy.Receives(name)
	})
}

// An address in any spelling is read as a plain one, and what it stands for
// stands for itself.
func FuzzParseAddr(f *testing.F) {
	for _, s := range []string{"127.0.0.1", "127.1", "0177.0x1", "2130706433", "[::1]", "fe80::1%eth0", "::ffff:10.0.0.1", "64:ff9b:1::1", "2002::1", "2001::1", "0x", "1.2.3.4.5", "99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := policy.ParseAddr(s)
		if err != nil {
			if a.IsValid() {
				t.Fatalf("%q: %s, %v", s, a, err)
			}
			return
		}
		if again, err := policy.ParseAddr(a.String()); err != nil || again != a || a.Zone() != "" || a.Is4In6() {
			t.Fatalf("%q: %s, then %s, %v", s, a, again, err)
		}
		if plain, err := netip.ParseAddr(s); err == nil && plain.WithZone("").Unmap() != a {
			t.Fatalf("%q: %s, but it is %s", s, a, plain)
		}
		if _, err := policy.Canonical(s); err == nil {
			t.Fatalf("%q is a name and the address %s", s, a)
		}
		for _, one := range policy.Unmap(a) {
			if again := policy.Unmap(one); len(again) != 1 || again[0] != one || policy.ClassOf(one) == "" {
				t.Fatalf("%q stands for %s, which stands for %v", s, one, again)
			}
		}
	})
}

// Any document compiles or says where it is wrong, and what compiles never
// opens what must stay closed.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{`{}`, `{"default":"ask","bundles":["pypi","github:a/b"]}`,
		`{"rules":[{"host":"*.example.org","ports":[443,8443],"proto":"tls"},{"cidr":"10.0.0.0/8","action":"ask"},{"host":"b.example","action":"deny"}]}`,
		`{"mode":"ordered","default":"allow","report_only":true,"rules":[{"cidr":"::ffff:1.2.3.0/120"},{"host":"a.example","proto":"http","methods":["GET"],"paths":["/a*"]}]}`} {
		f.Add([]byte(s), "a.example", []byte{10, 0, 0, 1}, uint16(443))
	}
	f.Fuzz(func(t *testing.T, doc []byte, name string, raw []byte, port uint16) {
		var d policy.Document
		if json.Unmarshal(doc, &d) != nil {
			return
		}
		d.Origin = policy.OriginAPI
		p, err := policy.Compile(d)
		if err != nil {
			e, ok := errors.AsType[*policy.Error](err)
			if !ok || p != nil || len(e.Faults) == 0 {
				t.Fatalf("%v, %#v", p, err)
			}
			for _, f := range e.Faults {
				if f.Path == "" || f.Message == "" {
					t.Fatalf("%+v", f)
				}
			}
			return
		}
		v := p.Connect(name, port)
		if dns := p.Name(name); v.Action > dns.Action {
			t.Fatalf("connecting: %+v; the name: %+v", v, dns)
		}
		if _, err := policy.Canonical(name); err != nil && v.Action != policy.Deny {
			t.Fatalf("%q: %+v", name, v)
		}
		p.Server(name, port, name)
		p.HTTP(name, port, name, "GET", "/")
		if e, err := p.Explain(name, port, nil); err == nil && len(e.Ports) != 1 {
			t.Fatalf("%+v", e)
		}
		a, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		for _, v := range []policy.Verdict{p.Literal(a, port, nil), p.Address(name, a, port, nil)} {
			for _, one := range policy.Unmap(a) {
				if c := policy.ClassOf(one); v.Action != policy.Deny && (c == policy.Metadata || c == policy.Unspecified || c == policy.Multicast) {
					t.Fatalf("%s is %s: %+v", a, c, v)
				}
			}
		}
		if w := p.Address(name, a, port, nil); w.Action > v.Action {
			t.Fatalf("%s: %+v, but %s: %+v", name, v, a, w)
		}
	})
}
