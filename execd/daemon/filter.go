package daemon

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/internal/seccomp"
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

// adminFilter is the program of the filter for GOARCH, or nil where its numbers
// and order of arguments have not been looked up.
func adminFilter() []unix.SockFilter {
	arch, ok := seccomp.Native()
	if !ok {
		return nil
	}
	const nosys, perm = len(adminCalls) + 11, len(adminCalls) + 12 // where these answers are
	p := []unix.SockFilter{
		{Code: seccomp.Load, K: seccomp.Arch},
		{Code: seccomp.Equal, K: arch, Jt: 1},
		{Code: seccomp.Ret, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: seccomp.Load, K: seccomp.Number},
		{Code: seccomp.Least, K: seccomp.X32, Jt: uint8(nosys - 5)},
		{Code: seccomp.Equal, K: unix.SYS_CLONE3, Jt: uint8(nosys - 6)},
		{Code: seccomp.Equal, K: unix.SYS_CLONE, Jt: uint8(len(adminCalls) + 1)},
	}
	for _, nr := range adminCalls {
		p = append(p, unix.SockFilter{Code: seccomp.Equal, K: nr, Jt: uint8(perm - len(p) - 1)})
	}
	return append(p,
		unix.SockFilter{Code: seccomp.Ret, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: seccomp.Load, K: seccomp.Arg0},
		unix.SockFilter{Code: seccomp.Any, K: newNamespaces, Jt: 2},
		unix.SockFilter{Code: seccomp.Ret, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: seccomp.Ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		unix.SockFilter{Code: seccomp.Ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
	)
}

// refuseAdminCalls installs the filter on the calling thread, which needs
// no_new_privs. What the thread starts inherits it.
func refuseAdminCalls() error {
	p := adminFilter()
	if p == nil {
		return fmt.Errorf("no system call filter for %s", runtime.GOARCH)
	}
	return seccomp.Install(p)
}
