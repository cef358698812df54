package egress

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"github.com/rein-sh/rein/egress/policy"
)

// The addresses that stand for names inside a sandbox. The first is set aside
// for measurements within one network (RFC 2544, RFC 6890) and is on nobody's
// way; the second is a unique local prefix (RFC 4193) beside the link's.
var (
	names4 = netip.MustParsePrefix(policy.Names4)
	names6 = netip.MustParsePrefix(policy.Names6)
)

// maxNames is how many addresses of names4 are given out: all but the first
// and the last, which some programs hold for those of a network and a
// broadcast.
const maxNames = 1<<17 - 2

// names gives each name the sandbox may reach an address of each family, which
// stands for it as long as the gateway lives: no address ever stands for a
// second name.
type names struct {
	max int

	mu      sync.Mutex
	numbers map[string]uint32 // from 1
	names   []string          // by number - 1
	rules   map[string]bool   // that a name was bound under
	recent  []time.Time       // a ring: when the last names below wildcards were bound
	next    int               // the oldest of recent
}

func newNames(l Limits) *names {
	return &names{max: min(l.Names, maxNames), numbers: map[string]uint32{}, rules: map[string]bool{},
		recent: make([]time.Time, l.NamesPerMinute)}
}

// bind returns the addresses that stand for name, which is in its canonical
// form and which rule allows. The error is a *refusal by a limit: a name costs
// memory, and a name that has an address will be looked up when the sandbox
// connects to it, so that what is below a wildcard can carry data to whoever
// answers for it.
//
// The first name of a rule is free: a rule that names one host has no other.
func (n *names) bind(name, rule string) (v4, v6 netip.Addr, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	number, ok := n.numbers[name]
	if !ok {
		if number, err = n.add(name, rule); err != nil {
			return v4, v6, err
		}
	}
	v4, v6 = synthetic(number)
	return v4, v6, nil
}

func (n *names) add(name, rule string) (uint32, error) {
	if len(n.names) >= n.max {
		return 0, overLimit("names", "%d names have an address, no more get one", len(n.names))
	}
	if n.rules[rule] {
		now := time.Now()
		if oldest := n.recent[n.next]; !oldest.IsZero() && now.Sub(oldest) < time.Minute {
			return 0, overLimit("names_per_minute", "%d new names were asked for within a minute", len(n.recent))
		}
		n.recent[n.next] = now
		n.next = (n.next + 1) % len(n.recent)
	}
	n.rules[rule] = true
	n.names = append(n.names, name)
	number := uint32(len(n.names))
	n.numbers[name] = number
	return number, nil
}

// lookup returns the name addr stands for.
func (n *names) lookup(addr netip.Addr) (name string, ok bool) {
	if !isSynthetic(addr) {
		return "", false
	}
	var number uint64
	if a := addr.Unmap(); a.Is4() {
		first, b := names4.Addr().As4(), a.As4()
		number = uint64(binary.BigEndian.Uint32(b[:]) - binary.BigEndian.Uint32(first[:]))
	} else {
		b := a.As16()
		number = binary.BigEndian.Uint64(b[8:])
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if number == 0 || number > uint64(len(n.names)) {
		return "", false
	}
	return n.names[number-1], true
}

// isSynthetic reports whether addr can only stand for a name, whether or not
// it stands for one yet.
func isSynthetic(addr netip.Addr) bool {
	addr = addr.Unmap()
	return names4.Contains(addr) || names6.Contains(addr)
}

// synthetic returns the addresses with a number.
func synthetic(number uint32) (v4, v6 netip.Addr) {
	a, b := names4.Addr().As4(), names6.Addr().As16()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])+number)
	binary.BigEndian.PutUint64(b[8:], uint64(number))
	return netip.AddrFrom4(a), netip.AddrFrom16(b)
}
