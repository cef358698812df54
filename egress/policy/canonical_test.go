package policy_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/policy"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("a", 63)
	long := strings.Join([]string{label, label, label, label[:61]}, ".")
	for in, want := range map[string]string{
		"example.org":           "example.org",
		"Example.ORG":           "example.org",
		"example.org.":          "example.org",
		"a-b.example.org":       "a-b.example.org",
		"localhost":             "localhost",
		"1.example.org":         "1.example.org",
		"r3---sn-x.example.org": "r3---sn-x.example.org",
		"xn--bcher-kva.example": "xn--bcher-kva.example",
		"XN--BCHER-KVA.example": "xn--bcher-kva.example",
		"0x7f.example":          "0x7f.example",
		long:                    long,
		label + ".org":          label + ".org",
	} {
		if got, err := policy.Canonical(in); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	for in, why := range map[string]string{
		"":                     "is empty",
		".":                    "is empty",
		"..":                   "empty label",
		"example.org..":        "empty label",
		".example.org":         "empty label",
		"a..b":                 "empty label",
		"-a.example":           "hyphen",
		"a-.example":           "hyphen",
		label + "a.org":        "a label of more than 63",
		long + "a":             "more than 253",
		"under_score.example":  `has "_"`,
		"*.example.org":        `has "*"`,
		"example.org/x":        `has "/"`,
		"example.org:443":      `has ":"`,
		"user@example.org":     `has "@"`,
		"example.org\x00.evil": `has "\x00"`,
		"exam ple.org":         `has " "`,
		"example\u3002org":     "beyond ASCII",
		"bücher.example":       "beyond ASCII",
		"ｅxample.org":          "beyond ASCII",
		"\u212Aelvin.example":  "beyond ASCII", // the Kelvin sign lowers to k
		"xn--a.example":        "punycode",
		"xn--abc-.example":     "hyphen",
		"xn--.example":         "hyphen",
		"xn--example-.example": "hyphen",
		"xn--99999999.example": "punycode",
		"127.0.0.1":            "number",
		"2130706433":           "number",
		"0x7f.1":               "number",
		"0x7f000001":           "number",
		"0177.0.0.0x1":         "number",
		"foo.0x":               "number",
		"example.123":          "number",
		"[::1]":                "is an address",
		"::1":                  "is an address",
		"fe80::1%eth0":         "is an address",
	} {
		got, err := policy.Canonical(in)
		e, ok := errors.AsType[*policy.NameError](err)
		if !ok || got != "" || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %q, %v; want %q", in, got, err, why)
			continue
		}
		if address := strings.Contains(why, "number") || strings.Contains(why, "address"); e.Address != address {
			t.Errorf("%q: Address is %v", in, e.Address)
		}
	}
	for in, hint := range map[string]string{
		"bücher.example":              "write xn--bcher-kva.example",
		"https://api.example.com/v1":  "write the host alone: api.example.com",
		"api.example.com/v1":          "write the host alone: api.example.com",
		"http://API.example.com:8080": "the port stands apart: host: api.example.com, ports: [8080]",
		"api.example.com:443":         "the port stands apart: host: api.example.com, ports: [443]",
		"10.0.0.0/8":                  "a rule for a range has cidr:",
		"a.example,b.example":         "one host each",
		"a_b.example":                 "",
		"a_b.example:443":             "",
		"a.example:https":             "",
		"a.example:70000":             "",
	} {
		_, err := policy.Canonical(in)
		if e, _ := errors.AsType[*policy.NameError](err); e == nil || e.Hint != hint {
			t.Errorf("%q: %+v", in, err)
		}
	}
}

func TestParseAddr(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"127.0.0.1":                "127.0.0.1",
		"127.0.0.1.":               "127.0.0.1",
		"127.1":                    "127.0.0.1",
		"127.0.1":                  "127.0.0.1",
		"2130706433":               "127.0.0.1",
		"017700000001":             "127.0.0.1",
		"0x7f000001":               "127.0.0.1",
		"0X7F.0.0.0x1":             "127.0.0.1",
		"0177.0.0.01":              "127.0.0.1",
		"010.0.0.1":                "8.0.0.1",
		"1.0x":                     "1.0.0.0",
		"0":                        "0.0.0.0",
		"4294967295":               "255.255.255.255",
		"169.16689662":             "169.254.169.254",
		"::1":                      "::1",
		"[::1]":                    "::1",
		"0:0:0:0:0:0:0:1":          "::1",
		"fe80::1%eth0":             "fe80::1",
		"[fe80::1%25eth0]":         "fe80::1",
		"::ffff:127.0.0.1":         "127.0.0.1",
		"::ffff:7f00:1":            "127.0.0.1",
		"[::FFFF:7F00:1]":          "127.0.0.1",
		"64:ff9b::169.254.169.254": "64:ff9b::a9fe:a9fe",
	} {
		if got, err := policy.ParseAddr(in); err != nil || got != netip.MustParseAddr(want) {
			t.Errorf("%q: %v, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", ".", "example.org", "1.2.3.4.5", "256.0.0.1", "1.2.3.256", "1.2.65536", "4294967296", "08.0.0.1", "1..2",
		"-1", "+1", "1_0", "[127.0.0.1]", "[::1", "::1]", "0xg", "1.2.3.4/8", "１２７.0.0.1", ":::", "1:2", " 127.0.0.1"} {
		if got, err := policy.ParseAddr(in); err == nil {
			t.Errorf("%q: %v", in, got)
		}
	}
}

func TestUnmap(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"192.0.2.1":                            "192.0.2.1",
		"2001:db8::1":                          "2001:db8::1",
		"::1":                                  "::1",
		"::":                                   "::",
		"::ffff:10.0.0.1":                      "10.0.0.1",
		"::10.0.0.1":                           "10.0.0.1",
		"::127.0.0.1":                          "127.0.0.1",
		"64:ff9b::10.0.0.1":                    "10.0.0.1",
		"64:ff9b:1::10.0.0.1":                  "10.0.0.1",
		"64:ff9b:1:a00:0:100::":                "10.0.0.1 0.0.1.0 0.1.0.0", // length 48; 56 and 64 could be meant too
		"64:ff9b:1:7f:0:1::":                   "127.0.0.1 0.0.1.0",
		"64:ff9b:1:1:a:0:100:0":                "10.0.0.1 1.0.0.0", // length 64, or 96
		"64:ff9b:1::":                          "0.0.0.0",
		"2002:a00:1::":                         "10.0.0.1",
		"2002:a9fe:a9fe::1":                    "169.254.169.254",
		"2001:0:4136:e378:8000:63bf:3fff:fdd2": "65.54.227.120 192.0.2.45", // RFC 4380's example
		"2001:0:a00:1::":                       "10.0.0.1 255.255.255.255",
	} {
		var got []string
		for _, a := range policy.Unmap(netip.MustParseAddr(in)) {
			got = append(got, a.String())
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %s; want %s", in, s, want)
		}
	}
}

func TestClassOf(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]policy.Class{
		"8.8.8.8": policy.Public, "2606:4700::1111": policy.Public, "64:ff9b::8.8.8.8": policy.Public,
		"10.1.2.3": policy.Private, "172.16.0.1": policy.Private, "172.31.255.255": policy.Private, "172.32.0.1": policy.Public,
		"192.168.0.1": policy.Private, "fd00::1": policy.Private, "fec0::1": policy.Private,
		"127.9.9.9": policy.Loopback, "::1": policy.Loopback, "::ffff:127.0.0.1": policy.Loopback,
		"169.254.1.1": policy.LinkLocal, "fe80::1": policy.LinkLocal,
		"169.254.169.254": policy.Metadata, "169.254.170.2": policy.Metadata, "fd00:ec2::254": policy.Metadata,
		"fd20:ce::254": policy.Metadata, "100.100.100.200": policy.Metadata, "168.63.129.16": policy.Metadata, "fe80::a9fe:a9fe": policy.Metadata,
		"224.0.0.1": policy.Multicast, "ff02::1": policy.Multicast,
		"0.0.0.0": policy.Unspecified, "0.1.2.3": policy.Unspecified, "::": policy.Unspecified,
		"100.64.0.1": policy.Shared, "100.128.0.1": policy.Public,
		"192.0.2.1": policy.Documentation, "2001:db8::1": policy.Documentation, "3fff::1": policy.Documentation,
		"198.18.0.1": policy.Benchmark, "198.19.255.255": policy.Benchmark, "198.20.0.0": policy.Public,
		"240.0.0.1": policy.Reserved, "255.255.255.255": policy.Reserved, "192.0.0.1": policy.Reserved, "4000::1": policy.Reserved, "100::1": policy.Reserved,
	} {
		if got := policy.ClassOf(netip.MustParseAddr(in)); got != want {
			t.Errorf("%s: %s; want %s", in, got, want)
		}
	}
}
