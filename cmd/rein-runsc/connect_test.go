package main

import (
	"net/netip"
	"testing"
)

// Where a connection leads is read of what a program says, which may be anything.
func TestOutside(t *testing.T) {
	four := func(a, b, c, d byte) []byte { return []byte{2, 0, 1, 187, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0} }
	for name, tc := range map[string]struct {
		addr []byte
		want string
	}{
		"IPv4":          {four(198, 18, 0, 1), "198.18.0.1:443"},
		"mapped":        {append([]byte{10, 0, 1, 187, 0, 0, 0, 0}, append(netip.MustParseAddr("::ffff:198.18.0.1").AsSlice(), 0, 0, 0, 0)...), "198.18.0.1:443"},
		"loopback":      {four(127, 0, 0, 1), ""},
		"unspecified":   {four(0, 0, 0, 0), ""},
		"cut":           {four(198, 18, 0, 1)[:6], ""},
		"nothing":       {nil, ""},
		"a Unix socket": {[]byte("\x01\x00/run/x"), ""},
	} {
		got := outside(tc.addr)
		if got.IsValid() != (tc.want != "") || got.IsValid() && got.String() != tc.want {
			t.Errorf("%s: %v, want %q", name, got, tc.want)
		}
	}
}
