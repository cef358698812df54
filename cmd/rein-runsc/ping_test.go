package main

import (
	"errors"
	"testing"

	abi "gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// Sockets of ICMP are refused by the tables that the runtime uses; every other
// gets as far as it did. What a program inside sees is tested in package local.
func TestRefusePingSockets(t *testing.T) {
	passed := errors.New("passed")
	for _, table := range []*kernel.SyscallTable{linux.AMD64, linux.ARM64} {
		no, err := table.LookupNo("socket")
		if err != nil {
			t.Fatal(err)
		}
		sc := table.Table[no]
		sc.Fn = func(*kernel.Task, uintptr, arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			return 0, nil, passed
		}
		mine := &kernel.SyscallTable{Table: map[uintptr]kernel.Syscall{no: sc}}
		refusePingSockets(mine)
		for _, s := range []struct {
			family   int64
			kind     abi.SockType
			protocol int64
			want     error
		}{
			{abi.AF_INET, abi.SOCK_DGRAM, abi.IPPROTO_ICMP, linuxerr.EACCES},
			{abi.AF_INET6, abi.SOCK_DGRAM, abi.IPPROTO_ICMPV6, linuxerr.EACCES},
			{abi.AF_INET, abi.SOCK_DGRAM | abi.SOCK_CLOEXEC | abi.SOCK_NONBLOCK, abi.IPPROTO_ICMP, linuxerr.EACCES},
			{1<<32 | abi.AF_INET, abi.SOCK_DGRAM, 1<<32 | abi.IPPROTO_ICMP, linuxerr.EACCES}, // of each, 32 bits count
			{abi.AF_INET, abi.SOCK_DGRAM, 0, passed},
			{abi.AF_INET6, abi.SOCK_DGRAM, abi.IPPROTO_UDP, passed},
			{abi.AF_INET, abi.SOCK_STREAM, abi.IPPROTO_TCP, passed},
			{abi.AF_INET, abi.SOCK_RAW, abi.IPPROTO_ICMP, passed}, // gVisor's own EPERM
			{abi.AF_NETLINK, abi.SOCK_DGRAM, abi.NETLINK_USERSOCK, passed},
			{abi.AF_UNIX, abi.SOCK_DGRAM, 1, passed},
		} {
			args := arch.SyscallArguments{{Value: uintptr(s.family)}, {Value: uintptr(s.kind)}, {Value: uintptr(s.protocol)}}
			if _, _, err := mine.Lookup(no)(nil, no, args); !errors.Is(err, s.want) {
				t.Errorf("%v: socket(%#x, %#x, %#x): %v, want %v", table.Arch, s.family, s.kind, s.protocol, err, s.want)
			}
		}
	}
}
