package local

import (
	"fmt"
	"os"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// harden gives up what the keeper no longer needs, before it reads the first
// frame from its sandbox: as root its uid, which becomes the host id that the
// sandbox's own root is mapped to (so it can still end the nest); the file
// system, by landlock; system calls that it never makes, by seccomp; and any way
// to regain them.
func (k *keeper) harden() error {
	if base := k.cfg.Info.IDBase; base != 0 && os.Geteuid() == 0 {
		// All threads at once (syscall does that); groups first, uid last.
		if err := syscall.Setgroups(nil); err != nil {
			return fmt.Errorf("drop the keeper's groups: %w", err)
		}
		if err := syscall.Setresgid(base, base, base); err != nil {
			return fmt.Errorf("drop the keeper's group: %w", err)
		}
		if err := syscall.Setresuid(base, base, base); err != nil {
			return fmt.Errorf("drop the keeper's uid: %w", err)
		}
	}
	// A process that changed its uid is not dumpable already; this is for the
	// rootless keeper, which shares its uid with the sandbox's processes.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the keeper undumpable: %w", err)
	}
	// All threads, also in a binary linked with cgo, where syscall cannot.
	if _, _, errno := psx.Syscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("set no_new_privs: %w", errno)
	}
	// Nothing is opened by name from here on. Kernels without landlock keep
	// the others; rein probe says so.
	if err := landlock.V5.BestEffort().RestrictPaths(); err != nil {
		return fmt.Errorf("restrict the keeper with landlock: %w", err)
	}
	return filterKeeper()
}
