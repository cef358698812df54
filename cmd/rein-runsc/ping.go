package main

import (
	abi "gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// refusePingSockets makes socket(2) fail with EACCES when it is asked for a
// datagram socket of ICMP. So does Linux where net.ipv4.ping_group_range is as a
// network namespace begins with it, and so runc's sandboxes (icmp(7)). gVisor
// gives one to everybody, and its stack hands such a socket echo replies alone
// (HandleError in pkg/tcpip/transport/icmp/endpoint.go is empty): of the answer
// that nothing leaves, its owner would never hear.
//
// It must be called before the runtime starts.
func refusePingSockets(t *kernel.SyscallTable) {
	for no, sc := range t.Table {
		if sc.Name == "socket" {
			sc.Fn = refusePing(sc.Fn)
			t.Table[no] = sc
		}
	}
	t.Init() // the fast-lookup table
}

// refusePing refuses the arguments of a ping socket. Of its second, the upper
// bits are flags.
func refusePing(next kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		family, kind, protocol := args[0].Int(), abi.SockType(args[1].Int()&abi.SOCK_TYPE_MASK), args[2].Int()
		if (family == abi.AF_INET || family == abi.AF_INET6) && kind == abi.SOCK_DGRAM &&
			(protocol == abi.IPPROTO_ICMP || protocol == abi.IPPROTO_ICMPV6) {
			return 0, nil, linuxerr.EACCES
		}
		return next(t, sysno, args)
	}
}
