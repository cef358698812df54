package sockdiag

import (
	"net/netip"
	"testing"
)

func from(port uint16) Connection {
	return Connection{Local: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), port), Remote: netip.MustParseAddrPort("198.18.0.1:443")}
}

// start makes a connection from a port that it has at once.
func start(s *Makers, c Connection, by Maker) func(bool) {
	return s.Begin(func(bool) netip.AddrPort { return c.Local }, c.Remote, by)
}

// Who makes a connection is known while it is being made, and after that.
func TestMaker(t *testing.T) {
	c, by := NewMakers(), Maker{PID: 7, At: 1}
	if _, ok := c.Who(from(1)); ok {
		t.Error("what nobody made has a maker")
	}
	made := start(c, from(1), by)
	for _, when := range []string{"while it is made", "after that"} {
		if got, ok := c.Who(from(1)); !ok || got != by {
			t.Errorf("%s: %+v %t", when, got, ok)
		}
		if _, ok := c.Who(from(2)); ok {
			t.Errorf("%s: another port has its maker", when)
		}
		other := from(1)
		other.Remote = netip.MustParseAddrPort("198.18.0.2:443")
		if _, ok := c.Who(other); ok {
			t.Errorf("%s: another server has its maker", when)
		}
		made(true)
	}
}

// What did not begin is nobody's, though a socket is bound to the port.
func TestMakerOfNothing(t *testing.T) {
	c := NewMakers()
	made := c.Begin(func(begun bool) netip.AddrPort {
		if begun {
			return from(1).Local
		}
		return netip.AddrPort{}
	}, from(1).Remote, Maker{PID: 7, At: 1})
	if _, ok := c.Who(from(1)); ok {
		t.Error("known before it began")
	}
	made(false)
	if _, ok := c.Who(from(1)); ok {
		t.Error("known, and it never began")
	}
}

// The same ends twice within a moment: nobody can tell which is asked for.
func TestMakersOfTheSame(t *testing.T) {
	second := int64(1e9)
	for name, then := range map[string]func(*Makers, Maker){
		"made":       func(c *Makers, by Maker) { start(c, from(1), by)(true) },
		"being made": func(c *Makers, by Maker) { start(c, from(1), by) },
	} {
		for after, pid := range map[int64]int{second: 0, 3 * second: 8} {
			c := NewMakers()
			start(c, from(1), Maker{PID: 7, At: second})(true)
			then(c, Maker{PID: 8, At: second + after})
			if got, ok := c.Who(from(1)); !ok || got.PID != pid {
				t.Errorf("%s after %d s: %+v %t, want %d", name, after/second, got, ok, pid)
			}
		}
	}
}

// No more than the last are known.
func TestMakersForgotten(t *testing.T) {
	c := NewMakers()
	for port := range uint16(3 * lastMade) {
		start(c, from(port), Maker{PID: int(port) + 1, At: int64(port)})(true)
	}
	if _, ok := c.Who(from(2*lastMade - 1)); ok || len(c.made) != lastMade || len(c.order) != lastMade || len(c.making) != 0 {
		t.Errorf("%d are known", len(c.made))
	}
	if got, ok := c.Who(from(2 * lastMade)); !ok || got.PID != 2*lastMade+1 {
		t.Errorf("the last are not known: %+v %t", got, ok)
	}
}
