package main

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// keyboard reads standard input so that reading can be stopped: a read of a
// terminal cannot, and would take a key that is for the user's shell.
type keyboard struct {
	r    io.Reader
	file *os.File // nil when r is no file
	wake [2]*os.File
}

// newKeyboard returns a keyboard; stop must be called.
func newKeyboard(r io.Reader) *keyboard {
	k := &keyboard{r: r}
	f, ok := r.(*os.File)
	if !ok {
		return k
	}
	if pr, pw, err := os.Pipe(); err == nil {
		k.file, k.wake = f, [2]*os.File{pr, pw}
	}
	return k
}

// ends reports whether stop ends a read that waits.
func (k *keyboard) ends() bool { return k.file != nil }

// stop ends reading, now and later.
func (k *keyboard) stop() {
	if k.file != nil {
		k.wake[1].Close()
	}
}

// read reads some bytes. With a wait that is not negative it returns
// os.ErrDeadlineExceeded when nothing came in that time; after stop,
// os.ErrClosed.
func (k *keyboard) read(buf []byte, wait time.Duration) (int, error) {
	if k.file == nil {
		return k.r.Read(buf)
	}
	ms := -1
	if wait >= 0 {
		ms = int(wait.Milliseconds())
	}
	fds := []unix.PollFd{{Fd: int32(k.file.Fd()), Events: unix.POLLIN}, {Fd: int32(k.wake[0].Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, ms)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, os.ErrDeadlineExceeded
		case fds[1].Revents != 0:
			k.wake[0].Close()
			return 0, os.ErrClosed
		}
		return k.file.Read(buf)
	}
}

// discardInput drops what was typed to a terminal and not read.
func discardInput(f *os.File) { _ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) }
