package main

import (
	"net/netip"

	abi "gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket"
	"gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
	"gvisor.dev/gvisor/pkg/tcpip"

	"github.com/rein-sh/rein/internal/sockdiag"
)

// rememberMakers has connect(2) remember who makes the connections that lead out
// of the sandbox. It must be called before the runtime starts.
func rememberMakers(t *kernel.SyscallTable, made *sockdiag.Makers) {
	for no, sc := range t.Table {
		if sc.Name == "connect" {
			sc.Fn = connect(made)
			t.Table[no] = sc
		}
	}
	t.Init() // the fast-lookup table
}

// connect is gVisor's Connect (pkg/sentry/syscalls/linux/sys_socket.go), which
// reads the address once, and remembers.
func connect(made *sockdiag.Makers) kernel.SyscallFn {
	return func(t *kernel.Task, _ uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
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
		done := func(bool) {}
		// A connection that is being made already is another call's.
		if remote := outside(a); remote.IsValid() && socket.IsTCP(s) && s.State() == abi.TCP_CLOSE {
			done = made.Begin(func(begun bool) netip.AddrPort { return localOf(t, s, begun) }, remote, makerOf(t))
		}
		failed := s.Connect(t, a, file.StatusFlags()&abi.SOCK_NONBLOCK == 0)
		done(failed == nil)
		return 0, nil, linuxerr.ConvertIntr(failed.ToError(), linuxerr.ERESTARTSYS)
	}
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
