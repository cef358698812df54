package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func limited(total, perMinute int) *names {
	return newNames(Limits{Names: total, NamesPerMinute: perMinute}.orDefault())
}

func mustBind(t *testing.T, n *names, name, rule string) (v4, v6 netip.Addr) {
	t.Helper()
	v4, v6, err := n.bind(name, rule)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v4, v6
}

// refusedBy asserts that a name gets no address because of a limit.
func refusedBy(t *testing.T, n *names, name, rule, limit string) {
	t.Helper()
	_, _, err := n.bind(name, rule)
	if r, ok := errors.AsType[*refusal](err); !ok || r.verdict.Rule != limit || r.verdict.Reason == "" {
		t.Fatalf("%s: %v, want a refusal by %s", name, err, limit)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	n := limited(1000, 1000)
	seen := map[netip.Addr]string{}
	for i := range 600 {
		name := fmt.Sprintf("h%d.example.org", i)
		v4, v6 := mustBind(t, n, name, "rules[0]")
		for _, a := range []netip.Addr{v4, v6} {
			if !names4.Contains(a) && !names6.Contains(a) || !isSynthetic(a) {
				t.Fatalf("%s stands for %s", a, name)
			}
			if other, ok := seen[a]; ok {
				t.Fatalf("%s stands for %s and %s", a, other, name)
			}
			seen[a] = name
		}
	}
	for a, name := range seen {
		if got, ok := n.lookup(a); !ok || got != name {
			t.Errorf("%s stands for %q, want %q", a, got, name)
		}
		again4, again6 := mustBind(t, n, name, "another rule")
		if a != again4 && a != again6 {
			t.Errorf("%s has %s and %s, had %s", name, again4, again6, a)
		}
		if mapped := netip.AddrFrom16(a.As16()); a.Is4() {
			if got, ok := n.lookup(mapped); !ok || got != name {
				t.Errorf("%s stands for %q, want %q", mapped, got, name)
			}
		}
	}
	for _, a := range []string{"198.18.0.0", "198.18.2.89", "198.19.255.255", "fd72:6569:6e00:1::", "fd72:6569:6e00:1::259",
		"fd72:6569:6e00:1:1::1", "fd72:6569:6e00:1:ffff:ffff:ffff:ffff"} {
		if name, ok := n.lookup(netip.MustParseAddr(a)); ok || !isSynthetic(netip.MustParseAddr(a)) {
			t.Errorf("%s stands for %q", a, name)
		}
	}
	for _, a := range []string{"198.17.255.255", "198.20.0.1", "0.0.0.1", "::1", Gateway4, Gateway6, "fd72:6569:6e00:2::1"} {
		if name, ok := n.lookup(netip.MustParseAddr(a)); ok || isSynthetic(netip.MustParseAddr(a)) {
			t.Errorf("%s stands for %q", a, name)
		}
	}
	if name, ok := n.lookup(netip.Addr{}); ok {
		t.Errorf("no address stands for %q", name)
	}
}

// No limit gives out the addresses at the ends.
func TestLastName(t *testing.T) {
	t.Parallel()
	if n := limited(1<<30, 1); n.max != maxNames {
		t.Errorf("%d names", n.max)
	}
	for number, want := range map[uint32]string{1: "198.18.0.1", maxNames: "198.19.255.254"} {
		if v4, _ := synthetic(number); v4.String() != want {
			t.Errorf("number %d is %s, want %s", number, v4, want)
		}
	}
}

func TestNamesExhausted(t *testing.T) {
	t.Parallel()
	n := limited(3, 100)
	for i := range 3 {
		mustBind(t, n, fmt.Sprintf("h%d.example.org", i), "rules[0]")
	}
	refusedBy(t, n, "h3.example.org", "rules[0]", "limit:names")
	refusedBy(t, n, "example.net", "rules[1]", "limit:names")
	mustBind(t, n, "h1.example.org", "rules[0]")
}

// Within any minute, no more than so many names below wildcards are new.
func TestNamesPerMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := limited(1000, 3)
		mustBind(t, n, "one.example.org", "rules[0]") // a rule's first is free
		mustBind(t, n, "a.example.org", "rules[0]")
		time.Sleep(20 * time.Second)
		mustBind(t, n, "one.example.net", "rules[1]")
		mustBind(t, n, "b.example.net", "rules[1]")
		mustBind(t, n, "c.example.org", "rules[0]")
		refusedBy(t, n, "d.example.org", "rules[0]", "limit:names_per_minute")
		refusedBy(t, n, "d.example.net", "rules[1]", "limit:names_per_minute")
		mustBind(t, n, "a.example.org", "rules[0]")
		mustBind(t, n, "exact.example.com", "rules[2]")
		time.Sleep(40*time.Second - 1)
		refusedBy(t, n, "d.example.org", "rules[0]", "limit:names_per_minute")
		time.Sleep(time.Nanosecond)
		mustBind(t, n, "d.example.org", "rules[0]")
		refusedBy(t, n, "e.example.org", "rules[0]", "limit:names_per_minute")
		time.Sleep(20 * time.Second)
		mustBind(t, n, "e.example.org", "rules[0]")
		mustBind(t, n, "f.example.org", "rules[0]")
		refusedBy(t, n, "g.example.org", "rules[0]", "limit:names_per_minute")
	})
}

func TestNamesConcurrently(t *testing.T) {
	t.Parallel()
	n := limited(100, 100)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			name := fmt.Sprintf("h%d.example.org", i%50)
			v4, v6, err := n.bind(name, "rules[0]")
			got4, ok4 := n.lookup(v4)
			got6, ok6 := n.lookup(v6)
			if err != nil || !ok4 || !ok6 || got4 != name || got6 != name {
				t.Errorf("%s: %v, %s stands for %q and %s for %q", name, err, v4, got4, v6, got6)
			}
		})
	}
	all.Wait()
}
