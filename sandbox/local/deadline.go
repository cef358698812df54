package local

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// deadline is the end of a sandbox on the boot-time clock, which goes on while
// the machine sleeps. Go's own timers stop then.
type deadline struct {
	file   *os.File // timerfd(2), non-blocking, so that Close ends the read
	passed chan struct{}
	done   chan struct{}

	mu sync.Mutex
	at time.Time
}

func newDeadline(at time.Time) (*deadline, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	d := &deadline{file: os.NewFile(uintptr(fd), "deadline"), passed: make(chan struct{}), done: make(chan struct{})}
	if err := d.set(at); err != nil {
		d.file.Close()
		return nil, err
	}
	go d.wait()
	return d, nil
}

func (d *deadline) wait() {
	defer close(d.done)
	buf := make([]byte, 8)
	if _, err := d.file.Read(buf); err == nil {
		close(d.passed)
	}
}

// Passed is closed when the deadline has passed.
func (d *deadline) Passed() <-chan struct{} { return d.passed }

// Time returns the deadline in force.
func (d *deadline) Time() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

var errExpired = errors.New("the deadline has passed")

// Move sets a new deadline, earlier or later. One that has passed stays passed.
func (d *deadline) Move(at time.Time) error {
	select {
	case <-d.passed:
		return errExpired
	default:
	}
	return d.set(at)
}

func (d *deadline) set(at time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := max(time.Until(at), time.Nanosecond) // zero would disarm the timer
	spec := &unix.ItimerSpec{Value: unix.NsecToTimespec(left.Nanoseconds())}
	// Control keeps the descriptor in Go's poller, which Fd would not.
	raw, err := d.file.SyscallConn()
	if err != nil {
		return err
	}
	var setErr error
	if err := raw.Control(func(fd uintptr) { setErr = unix.TimerfdSettime(int(fd), 0, spec, nil) }); err != nil {
		return err
	}
	if setErr != nil {
		return fmt.Errorf("timerfd_settime: %w", setErr)
	}
	d.at = at
	return nil
}

// Close releases the timer. Passed is not closed by it.
func (d *deadline) Close() {
	d.file.Close()
	<-d.done
}
