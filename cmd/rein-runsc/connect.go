package main

import (
	"net/netip"
	"sync"
	"time"

	abi "gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket"
	"gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
	"gvisor.dev/gvisor/pkg/tcpip"

	"github.com/rein-sh/rein/internal/sockdiag"
)

const (
	// lastMade is how many connections are remembered, also after their end.
	lastMade = 4096
	// reuse is how long two connections between the same sockdiag.Connection must lie apart to
	// be told from each other. Nobody asks after a second (package egress).
	reuse = 2 * time.Second
)

// connections remembers who made the last TCP connections that lead out of the
// sandbox. Its methods may be called concurrently.
type connections struct {
	mu     sync.Mutex
	making map[*making]struct{} // in connect(2)
	made   map[sockdiag.Connection]sockdiag.Maker
	order  []sockdiag.Connection // a ring, once it is full
	next   int
}

// making is a connection that is being made, which may not have a port yet.
type making struct {
	socket localEnd
	remote netip.AddrPort
	maker  sockdiag.Maker
}

// localEnd tells the local end of a connection, of which the caller may know
// that it has begun; invalid while there is none.
type localEnd func(begun bool) netip.AddrPort

func newConnections() *connections {
	return &connections{making: map[*making]struct{}{}, made: map[sockdiag.Connection]sockdiag.Maker{}}
}

// watch has connect(2) remember. It must be called before the runtime starts.
func (c *connections) watch(t *kernel.SyscallTable) {
	for no, sc := range t.Table {
		if sc.Name == "connect" {
			sc.Fn = c.connect
			t.Table[no] = sc
		}
	}
	t.Init() // the fast-lookup table
}

// connect is gVisor's Connect (pkg/sentry/syscalls/linux/sys_socket.go), which
// reads the address once, and remembers.
func (c *connections) connect(t *kernel.Task, _ uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
	file := t.GetFile(args[0].Int())
	if file == nil {
		return 0, nil, linuxerr.EBADF
	}
	defer file.DecRef(t)
	s, ok := file.Impl().(socket.Socket)
	if !ok {
		return 0, nil, linuxerr.ENOTSOCK
	}
	a, err := linux.CaptureAddress(t, args[1].Pointer(), args[2].Uint())
	if err != nil {
		return 0, nil, err
	}
	made := func(bool) {}
	// A connection that is being made already is another call's.
	if remote := outside(a); remote.IsValid() && socket.IsTCP(s) && s.State() == abi.TCP_CLOSE {
		made = c.begin(making{func(begun bool) netip.AddrPort { return localOf(t, s, begun) }, remote, makerOf(t)})
	}
	blocking := file.StatusFlags()&abi.SOCK_NONBLOCK == 0
	failed := s.Connect(t, a, blocking)
	made(failed == nil)
	return 0, nil, linuxerr.ConvertIntr(failed.ToError(), linuxerr.ERESTARTSYS)
}

// outside is where a TCP connection to an address in a program's memory leads,
// unless that is the sandbox itself.
func outside(sockaddr []byte) netip.AddrPort {
	to, family, err := socket.AddressAndFamily(sockaddr)
	if err != nil || family != abi.AF_INET && family != abi.AF_INET6 {
		return netip.AddrPort{}
	}
	remote := addrPort(to)
	if a := remote.Addr(); a.IsLoopback() || a.IsUnspecified() {
		return netip.AddrPort{}
	}
	return remote
}

func addrPort(a tcpip.FullAddress) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(a.Addr.AsSlice())
	return netip.AddrPortFrom(addr.Unmap(), a.Port)
}

// localOf tells a socket's local end. One that has not begun to connect has
// none: another socket may be bound to the same. A socket has its name before
// it has that state.
func localOf(t *kernel.Task, s socket.Socket, begun bool) netip.AddrPort {
	name, _, err := s.GetSockName(t)
	if state := s.State(); err != nil || !begun && (state == abi.TCP_CLOSE || state == abi.TCP_LISTEN) {
		return netip.AddrPort{}
	}
	switch n := name.(type) {
	case *abi.SockAddrInet:
		return netip.AddrPortFrom(netip.AddrFrom4(n.Addr), socket.Ntohs(n.Port))
	case *abi.SockAddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(n.Addr).Unmap(), socket.Ntohs(n.Port))
	}
	return netip.AddrPort{}
}

func makerOf(t *kernel.Task) sockdiag.Maker {
	return sockdiag.Maker{PID: ancestor(t), At: t.Kernel().MonotonicClock().Now().Nanoseconds()}
}

// ancestor is the pid of t's process, or of its ancestor, whose parent is the
// sandbox's first process, as that knows it; 0 when there is none. A process
// whose parent ends meanwhile gets another one: it is looked at again.
func ancestor(t *kernel.Task) int {
	const rounds = 3
	for range rounds {
		below, p := t, t.Parent()
		for p != nil && p.Parent() != nil {
			below, p = p, p.Parent()
		}
		if p == nil {
			continue
		}
		if ns := p.PIDNamespace(); ns.IDOfThreadGroup(p.ThreadGroup()) == 1 {
			return int(ns.IDOfThreadGroup(below.ThreadGroup()))
		}
	}
	return 0
}

// begin says that a connection is being made. The caller says when that is
// over, and whether it knows that it was made.
func (c *connections) begin(m making) func(made bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.making[&m] = struct{}{}
	return func(made bool) {
		local := m.socket(made)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.making, &m)
		if local.IsValid() {
			c.remember(sockdiag.Connection{Local: local, Remote: m.remote}, m.maker)
		}
	}
}

// remember keeps e in place of what was made longest ago.
func (c *connections) remember(e sockdiag.Connection, m sockdiag.Maker) {
	if old, ok := c.made[e]; ok && m.At-old.At < int64(reuse) {
		m.PID = 0
	}
	c.made[e] = m
	if len(c.order) < lastMade {
		c.order = append(c.order, e)
		return
	}
	if old := c.order[c.next]; old != e {
		delete(c.made, old)
	}
	c.order[c.next] = e
	c.next = (c.next + 1) % lastMade
}

// who tells who made a connection.
func (c *connections) who(e sockdiag.Connection) (sockdiag.Maker, bool) {
	c.mu.Lock()
	found, ok := c.made[e]
	var all []*making
	for m := range c.making {
		if m.remote == e.Remote {
			all = append(all, m)
		}
	}
	c.mu.Unlock()
	for _, m := range all {
		if m.socket(false) != e.Local {
			continue
		}
		if ok && m.maker.At-found.At < int64(reuse) && m.maker != found {
			return sockdiag.Maker{At: m.maker.At}, true
		}
		found, ok = m.maker, true
	}
	return found, ok
}
