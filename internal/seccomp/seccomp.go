// Package seccomp installs filters of system calls, and has what the programs of
// all filters begin with. What a filter refuses is its owner's.
package seccomp

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a filter reads: struct seccomp_data of seccomp(2), little endian.
const (
	Number = 0
	Arch   = 4
	Arg0   = 16 // its lower half
)

// X32 is where the call numbers of x32 begin (asm/unistd.h); on other machines
// than amd64 there are none.
const X32 = 0x40000000

// Instructions of a filter.
const (
	Load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	Equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	Least = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	Any   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	Ret   = unix.BPF_RET | unix.BPF_K
)

// Native is what stands at Arch for GOARCH's own calls. It is not ok where that
// has not been looked up.
func Native() (arch uint32, ok bool) {
	arch, ok = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	return arch, ok
}

// Install puts a filter on the calling thread, for it and all that it becomes
// and starts. It takes no_new_privs, or CAP_SYS_ADMIN in the thread's namespace.
func Install(filter []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// SPEC_ALLOW as runc has it by default: on kernels before 5.16 a filter without
	// it slows everything down. The kernel may not know it (before 4.17).
	for _, flags := range []uintptr{unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, 0} {
		_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
		switch {
		case errno == 0:
			return nil
		case errno != unix.EINVAL || flags == 0:
			return fmt.Errorf("seccomp: %w", errno)
		}
	}
	return nil
}
