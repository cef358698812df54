package local

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/internal/seccomp"
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
	arch, ok := seccomp.Native()
	if !ok {
		return nil
	}
	return []unix.SockFilter{
		{Code: seccomp.Load, K: seccomp.Arch},
		{Code: seccomp.Equal, K: arch, Jf: 3},
		{Code: seccomp.Load, K: seccomp.Number},
		{Code: seccomp.Least, K: seccomp.X32, Jt: 1},
		{Code: seccomp.Ret, K: unix.SECCOMP_RET_ALLOW},
		{Code: seccomp.Ret, K: unix.SECCOMP_RET_KILL_PROCESS},
	}
}

// refuseForeignCalls installs nativeFilter on the calling thread, for it and all
// that it becomes and starts. It takes CAP_SYS_ADMIN in the thread's namespace.
func refuseForeignCalls() error {
	p := nativeFilter()
	if p == nil {
		return nil // runc's filter is left
	}
	if err := seccomp.Install(p); err != nil {
		return fmt.Errorf("refuse system calls of other conventions: %w", err)
	}
	return nil
}
