package local

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/internal/seccomp"
)

// keeperCalls are system calls that a keeper never makes once its sandbox runs:
// with which somebody who had taken it over by a frame would start programs, look
// into others, or reach code of the kernel that nothing here needs. One of them
// ends the keeper, and with it its sandbox.
var keeperCalls = [...]uint32{
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP,
	unix.SYS_PIDFD_GETFD, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON,
	unix.SYS_SYSLOG, unix.SYS_PERSONALITY, unix.SYS_MEMFD_CREATE, unix.SYS_SHMAT, unix.SYS_KEXEC_FILE_LOAD,
}

// olderCalls are those that only amd64 has.
func olderCalls() []uint32 {
	const fork, vfork = 57, 58 // asm/unistd_64.h
	if runtime.GOARCH == "amd64" {
		return []uint32{fork, vfork}
	}
	return nil
}

// Where a filter finds the lower halves of arguments (struct seccomp_data).
const (
	arg0 = seccomp.Arg0
	arg2 = seccomp.Arg0 + 2*8
)

// keeperFilter is the program, or nil where GOARCH's numbers have not been looked
// up. Besides keeperCalls it ends a process that calls by another convention,
// makes memory that can be executed, starts a process (a thread is none), or
// makes a socket of another family than IP, Unix and netlink's.
func keeperFilter() []unix.SockFilter {
	arch, ok := seccomp.Native()
	if !ok {
		return nil
	}
	p := []unix.SockFilter{
		{Code: seccomp.Load, K: seccomp.Arch},
		{Code: seccomp.Equal, K: arch, Jt: 1},
		{Code: seccomp.Ret, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: seccomp.Load, K: seccomp.Number},
		{Code: seccomp.Least, K: seccomp.X32, Jf: 1},
		{Code: seccomp.Ret, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: seccomp.Equal, K: unix.SYS_CLONE3, Jf: 1}, // whose flags no filter can see: clone is tried instead
		{Code: seccomp.Ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	}
	for _, nr := range slices.Concat(keeperCalls[:], olderCalls()) {
		p = append(p, unix.SockFilter{Code: seccomp.Equal, K: nr, Jf: 1}, unix.SockFilter{Code: seccomp.Ret, K: unix.SECCOMP_RET_KILL_PROCESS})
	}
	const kill, allow = unix.SECCOMP_RET_KILL_PROCESS, unix.SECCOMP_RET_ALLOW
	for _, nr := range []uint32{unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_PKEY_MPROTECT} {
		p = append(p, unix.SockFilter{Code: seccomp.Equal, K: nr, Jf: 4},
			unix.SockFilter{Code: seccomp.Load, K: arg2}, unix.SockFilter{Code: seccomp.Any, K: unix.PROT_EXEC, Jf: 1},
			unix.SockFilter{Code: seccomp.Ret, K: kill}, unix.SockFilter{Code: seccomp.Ret, K: allow})
	}
	return append(p,
		unix.SockFilter{Code: seccomp.Equal, K: unix.SYS_CLONE, Jf: 4},
		unix.SockFilter{Code: seccomp.Load, K: arg0}, unix.SockFilter{Code: seccomp.Any, K: unix.CLONE_THREAD, Jt: 1},
		unix.SockFilter{Code: seccomp.Ret, K: kill}, unix.SockFilter{Code: seccomp.Ret, K: allow},
		unix.SockFilter{Code: seccomp.Equal, K: unix.SYS_SOCKET, Jf: 6},
		unix.SockFilter{Code: seccomp.Load, K: arg0},
		unix.SockFilter{Code: seccomp.Equal, K: unix.AF_UNIX, Jt: 4}, unix.SockFilter{Code: seccomp.Equal, K: unix.AF_INET, Jt: 3},
		unix.SockFilter{Code: seccomp.Equal, K: unix.AF_INET6, Jt: 2}, unix.SockFilter{Code: seccomp.Equal, K: unix.AF_NETLINK, Jt: 1},
		unix.SockFilter{Code: seccomp.Ret, K: kill},
		unix.SockFilter{Code: seccomp.Ret, K: allow})
}

// filterKeeper installs keeperFilter on all threads of this process, which has
// no_new_privs.
func filterKeeper() error {
	p := keeperFilter()
	if p == nil {
		return nil // as without landlock: the other walls stand
	}
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	failed, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC|unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, uintptr(unsafe.Pointer(&prog)))
	switch {
	case errno != 0:
		return fmt.Errorf("refuse the keeper's needless system calls: %w", errno)
	case failed != 0:
		return fmt.Errorf("refuse the keeper's needless system calls: thread %d has other filters", failed)
	}
	return nil
}
