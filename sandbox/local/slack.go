package local

import (
	"os/exec"
	goruntime "runtime"
	"time"

	"golang.org/x/sys/unix"
)

// How late the kernel may have timers fire, to have several fire at once
// (PR_SET_TIMERSLACK in prctl(2)). Go's scheduler sleeps for 20 microseconds again
// and again while anything runs, which on a virtual machine costs a fifth of the
// processor: the timers of a keeper and of execd have time, and those of gVisor,
// which are its programs' own, have Linux's default, as commands do.
const (
	ownSlack     = time.Millisecond
	defaultSlack = 50 * time.Microsecond
)

// startWithSlack starts cmd with ownSlack, which its children inherit.
func startWithSlack(cmd *exec.Cmd) error {
	goruntime.LockOSThread() // whose slack the child inherits
	defer goruntime.UnlockOSThread()
	if before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err == nil && setSlack(ownSlack) == nil {
		defer setSlack(time.Duration(before)) // cannot fail: it was so
	}
	return cmd.Start()
}

// setSlack sets that of this thread, and of what it starts.
func setSlack(d time.Duration) error {
	return unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d.Nanoseconds()), 0, 0, 0)
}
