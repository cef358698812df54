package daemon

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// idle reports whether a stream of the system has nothing to be read now, not even
// its end. Who waits for one that is not has only not run yet: on a busy machine
// that takes a while. Of other streams nothing is known but that somebody waits.
func idle(stream any) bool {
	c, ok := stream.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	n := 0
	err = raw.Control(func(fd uintptr) {
		n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) // below 0: it was interrupted, and is asked again
	})
	return err != nil || n == 0 // err: it is closed
}
