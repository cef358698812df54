package main

import (
	"net/netip"
	"testing"

	"github.com/rein-sh/rein/internal/sockdiag"
)

func from(port uint16) sockdiag.Connection {
	return sockdiag.Connection{Local: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), port), Remote: netip.MustParseAddrPort("198.18.0.1:443")}
}

// start makes a connection from a port that it has at once.
func start(c *connections, e sockdiag.Connection, by sockdiag.Maker) func(bool) {
	return c.begin(making{func(bool) netip.AddrPort { return e.Local }, e.Remote, by})
}

// Who makes a connection is known while it is being made, and after that.
func TestMaker(t *testing.T) {
	c, by := newConnections(), sockdiag.Maker{PID: 7, At: 1}
	if _, ok := c.who(from(1)); ok {
		t.Error("what nobody made has a maker")
	}
	made := start(c, from(1), by)
	for _, when := range []string{"while it is made", "after that"} {
		if got, ok := c.who(from(1)); !ok || got != by {
			t.Errorf("%s: %+v %t", when, got, ok)
		}
		if _, ok := c.who(from(2)); ok {
			t.Errorf("%s: another port has its maker", when)
		}
		other := from(1)
		other.Remote = netip.MustParseAddrPort("198.18.0.2:443")
		if _, ok := c.who(other); ok {
			t.Errorf("%s: another server has its maker", when)
		}
		made(true)
	}
}

// What did not begin is nobody's, though a socket is bound to the port.
func TestMakerOfNothing(t *testing.T) {
	c := newConnections()
	begun := false
	made := c.begin(making{func(sure bool) netip.AddrPort {
		if begun || sure {
			return from(1).Local
		}
		return netip.AddrPort{}
	}, from(1).Remote, sockdiag.Maker{PID: 7, At: 1}})
	if _, ok := c.who(from(1)); ok {
		t.Error("known before it began")
	}
	made(false)
	if _, ok := c.who(from(1)); ok {
		t.Error("known, and it never began")
	}
}

// The same ends twice within a moment: nobody can tell which is asked for.
func TestMakersOfTheSame(t *testing.T) {
	second := int64(1e9)
	for name, then := range map[string]func(*connections, sockdiag.Maker){
		"made":       func(c *connections, by sockdiag.Maker) { start(c, from(1), by)(true) },
		"being made": func(c *connections, by sockdiag.Maker) { start(c, from(1), by) },
	} {
		for after, pid := range map[int64]int{second: 0, 3 * second: 8} {
			c := newConnections()
			start(c, from(1), sockdiag.Maker{PID: 7, At: second})(true)
			then(c, sockdiag.Maker{PID: 8, At: second + after})
			if got, ok := c.who(from(1)); !ok || got.PID != pid {
				t.Errorf("%s after %d s: %+v %t, want %d", name, after/second, got, ok, pid)
			}
		}
	}
}

// No more than the last are known.
func TestMakersForgotten(t *testing.T) {
	c := newConnections()
	for port := range uint16(3 * lastMade) {
		start(c, from(port), sockdiag.Maker{PID: int(port) + 1, At: int64(port)})(true)
	}
	if _, ok := c.who(from(2*lastMade - 1)); ok || len(c.made) != lastMade || len(c.order) != lastMade || len(c.making) != 0 {
		t.Errorf("%d are known", len(c.made))
	}
	if got, ok := c.who(from(2 * lastMade)); !ok || got.PID != 2*lastMade+1 {
		t.Errorf("the last are not known: %+v %t", got, ok)
	}
}

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
