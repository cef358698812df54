package daemon

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A nested warden needs CAP_SYS_ADMIN, and a profile such as Docker's then
// opens to the whole sandbox the system calls that only this capability makes
// useful. Commands do not have it. The kernel would refuse them too, but only
// after code that is better not reached, so their warden closes these calls
// again, for itself and what it starts. It needs none of them any more:
// ForkExec is a clone without namespaces.

// adminCalls are refused with EPERM, as the default profile of
// github.com/moby/profiles/seccomp does without CAP_SYS_ADMIN. A test compares
// them. Two are missing here: clone is refused by its flags, and clone3, whose
// flags no filter can see, does not exist (ENOSYS), so that the C library falls
// back to clone.
var adminCalls = [...]uint32{
	unix.SYS_BPF, unix.SYS_FANOTIFY_INIT, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSOPEN, unix.SYS_FSPICK,
	unix.SYS_LOOKUP_DCOOKIE, unix.SYS_LSM_GET_SELF_ATTR, unix.SYS_LSM_LIST_MODULES, unix.SYS_LSM_SET_SELF_ATTR,
	unix.SYS_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SETDOMAINNAME, unix.SYS_SETHOSTNAME, unix.SYS_SETNS,
	unix.SYS_SYSLOG, unix.SYS_UMOUNT2, unix.SYS_UNSHARE,
}

// newNamespaces are the flags that clone is refused with.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID |
	unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

// What a filter reads: struct seccomp_data of seccomp(2), little endian.
const (
	callNumber = 0
	callArch   = 4
	callArg0   = 16 // its lower half
)

// adminFilter is the program of the filter for GOARCH, or nil where its numbers
// and order of arguments have not been looked up.
func adminFilter() []unix.SockFilter {
	arch, ok := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !ok {
		return nil
	}
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		least = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		any   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
		// The call numbers of x32 begin here (asm/unistd.h); elsewhere there are
		// none.
		x32 = 0x40000000
	)
	const nosys, perm = len(adminCalls) + 11, len(adminCalls) + 12 // where these answers are
	p := []unix.SockFilter{
		{Code: load, K: callArch},
		{Code: equal, K: arch, Jt: 1},
		{Code: ret, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: callNumber},
		{Code: least, K: x32, Jt: uint8(nosys - 5)},
		{Code: equal, K: unix.SYS_CLONE3, Jt: uint8(nosys - 6)},
		{Code: equal, K: unix.SYS_CLONE, Jt: uint8(len(adminCalls) + 1)},
	}
	for _, nr := range adminCalls {
		p = append(p, unix.SockFilter{Code: equal, K: nr, Jt: uint8(perm - len(p) - 1)})
	}
	return append(p,
		unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: load, K: callArg0},
		unix.SockFilter{Code: any, K: newNamespaces, Jt: 2},
		unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
	)
}

// refuseAdminCalls installs the filter on the calling thread, which needs
// no_new_privs. What the thread starts inherits it.
func refuseAdminCalls() error {
	p := adminFilter()
	if p == nil {
		return fmt.Errorf("no system call filter for %s", runtime.GOARCH)
	}
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	// As runc has it by default: on kernels before 5.16 a filter without this
	// flag slows everything down. The kernel may not know it (before 4.17).
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
