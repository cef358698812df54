package local

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nativeFilter ends a process that makes a system call by another convention
// than GOARCH's own: of 32 bits, of x32. It is nil where GOARCH's number has not
// been looked up.
//
// runc's filter refuses them too (callFilter), but what libseccomp does with an
// architecture that a filter does not name is to end the thread that called: the
// rest of the program goes on, and waits for it. Of two filters the stricter
// answer counts (seccomp(2)).
func nativeFilter() []unix.SockFilter {
	arch, ok := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !ok {
		return nil
	}
	const (
		number, callArch = 0, 4 // of struct seccomp_data
		load             = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jump             = unix.BPF_JMP | unix.BPF_K
		ret              = unix.BPF_RET | unix.BPF_K
		x32              = 0x40000000 // where its numbers begin (asm/unistd.h)
	)
	return []unix.SockFilter{
		{Code: load, K: callArch},
		{Code: jump | unix.BPF_JEQ, K: arch, Jf: 3},
		{Code: load, K: number},
		{Code: jump | unix.BPF_JGE, K: x32, Jt: 1},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		{Code: ret, K: unix.SECCOMP_RET_KILL_PROCESS},
	}
}

// refuseForeignCalls installs nativeFilter on the calling thread, for it and all
// that it becomes and starts. It takes CAP_SYS_ADMIN in the thread's namespace.
func refuseForeignCalls() error {
	p := nativeFilter()
	if p == nil {
		return nil // runc's filter is left
	}
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	// SPEC_ALLOW as runc has it: on kernels before 5.16 a filter without it slows
	// everything down. The kernel may not know it (before 4.17).
	for _, flags := range []uintptr{unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, 0} {
		_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
		switch {
		case errno == 0:
			return nil
		case errno != unix.EINVAL || flags == 0:
			return fmt.Errorf("refuse system calls of other conventions: seccomp: %w", errno)
		}
	}
	return nil
}
