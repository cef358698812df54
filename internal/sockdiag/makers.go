package sockdiag

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// lastMade is how many connections are remembered, also after their end.
	lastMade = 4096
	// reuse is how long two connections between the same ends must lie apart to
	// be told from each other: a question about the first comes within a second.
	reuse = 2 * time.Second
)

// Makers remembers who made the last connections. Its methods may be called
// concurrently. The zero value is not usable; call NewMakers.
type Makers struct {
	mu     sync.Mutex
	making map[*making]struct{}
	made   map[Connection]Maker
	order  []Connection // a ring, once it is full
	next   int
}

// LocalEnd tells the local end of a connection that is being made; invalid
// while it has not begun, which it has when begun is true.
type LocalEnd func(begun bool) netip.AddrPort

type making struct {
	local  LocalEnd
	remote netip.AddrPort
	by     Maker
}

// NewMakers returns one that remembers nothing yet.
func NewMakers() *Makers {
	return &Makers{making: map[*making]struct{}{}, made: map[Connection]Maker{}}
}

// Begin says that a connection is going to be made. The caller calls done when
// it is, or is not, or goes on without it, and says whether it knows that it was
// made. It must not hold what local waits for.
func (s *Makers) Begin(local LocalEnd, remote netip.AddrPort, by Maker) (done func(made bool)) {
	m := &making{local, remote, by}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.making[m] = struct{}{}
	return func(made bool) {
		end := local(made)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.making, m)
		if end.IsValid() {
			s.remember(Connection{end, remote}, by)
		}
	}
}

// remember keeps c in place of what was made longest ago.
func (s *Makers) remember(c Connection, by Maker) {
	if old, ok := s.made[c]; ok {
		by = either(old, by)
	}
	s.made[c] = by
	if len(s.order) < lastMade {
		s.order = append(s.order, c)
		return
	}
	if old := s.order[s.next]; old != c {
		delete(s.made, old)
	}
	s.order[s.next] = c
	s.next = (s.next + 1) % lastMade
}

// either is the later one, unless the earlier may still be asked about.
func either(old, by Maker) Maker {
	if by != old && by.At-old.At < int64(reuse) {
		by.PID = 0
	}
	return by
}

// Who tells who made a connection, or makes it.
func (s *Makers) Who(c Connection) (Maker, bool) {
	var by Maker
	var found bool
	for _, m := range s.to(c.Remote) {
		if m.local(false) == c.Local {
			by, found = m.by, true
			break // no two sockets have the same ends
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	made, ok := s.made[c] // last: it may have been made meanwhile
	if ok && found {
		by = either(made, by)
	} else if ok {
		by = made
	}
	return by, ok || found
}

// to are the connections that are being made to a remote end.
func (s *Makers) to(remote netip.AddrPort) (list []*making) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m := range s.making {
		if m.remote == remote {
			list = append(list, m)
		}
	}
	return list
}
