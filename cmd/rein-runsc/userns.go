package main

import (
	abi "gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// refuseUserNamespaces makes clone(2), clone3(2) and unshare(2) fail with EPERM
// when they are asked for a user namespace. In one, any program has every
// capability, and with that it mounts file systems of any size: the sandbox's
// disk limit would be none. gVisor has no setting for it, and a seccomp filter
// cannot look into the arguments of clone3.
//
// It must be called before the runtime starts.
func refuseUserNamespaces(t *kernel.SyscallTable) {
	for no, sc := range t.Table {
		switch sc.Name {
		case "clone", "unshare":
			sc.Fn = refuseFlag(sc.Fn)
		case "clone3":
			sc.Fn = clone3
		default:
			continue
		}
		t.Table[no] = sc
	}
	t.Init() // the fast-lookup table
}

// refuseFlag refuses CLONE_NEWUSER in the first argument.
func refuseFlag(next kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if args[0].Uint()&abi.CLONE_NEWUSER != 0 {
			return 0, nil, linuxerr.EPERM
		}
		return next(t, sysno, args)
	}
}

// clone3 is gVisor's Clone3 (pkg/sentry/syscalls/linux/sys_thread.go) with the
// check. It reads its arguments once: between two reads another thread could
// change them.
func clone3(t *kernel.Task, _ uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
	ptr, size := args[0].Pointer(), args[1].SizeT()
	if int(size) < abi.CLONE_ARGS_SIZE_VER0 || int(size) > abi.CLONE_ARGS_SIZE_VER2 {
		return 0, nil, linuxerr.EINVAL
	}
	var c abi.CloneArgs
	if ptr != 0 {
		if _, err := c.CopyInN(t, ptr, int(size)); err != nil {
			return 0, nil, err
		}
	}
	switch {
	case c.Flags&abi.CLONE_NEWUSER != 0:
		return 0, nil, linuxerr.EPERM
	case c.Flags&abi.CLONE_DETACHED != 0,
		c.Flags&(abi.CLONE_THREAD|abi.CLONE_PARENT) != 0 && c.ExitSignal != 0:
		return 0, nil, linuxerr.EINVAL
	}
	tid, control, err := t.Clone(&c)
	if err != nil {
		return 0, nil, err
	}
	return uintptr(tid), control, nil
}
