package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// copySeals are what runc looks for in its own binary: where they are, it
	// makes no copy of it (libcontainer/nsenter/cloned_binary.c).
	copySeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	// sealPatience is how long the kernel may say that pages of the copy are in
	// use, which on a busy machine lasts. runc gives up at once.
	sealPatience = 5 * time.Second
)

// sealedCopy is a copy of a program in memory that nobody can change, also not a
// sandbox that gets at the file of the process that started it (CVE-2019-5736).
func sealedCopy(path string) (*os.File, error) {
	src, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	fd, err := unix.MemfdCreate("runtime", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3, where all can be executed
		fd, err = unix.MemfdCreate("runtime", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	dst := os.NewFile(uintptr(fd), "runtime")
	if _, err = io.Copy(onlyWriter{dst}, src); err == nil {
		err = os.NewSyscallError("fchmod", unix.Fchmod(fd, 0o555))
	}
	if err == nil {
		err = seal(fd)
	}
	var out *os.File
	if err == nil {
		out, err = os.Open("/proc/self/fd/" + strconv.Itoa(fd)) // nothing is executed that is open for writing
	}
	if err = errors.Join(err, dst.Close()); err != nil {
		return nil, fmt.Errorf("copy %s: %w", path, err)
	}
	return out, nil
}

// onlyWriter has io.Copy read and write: pages that a file system lends stay in
// use for longer.
type onlyWriter struct{ io.Writer }

func seal(fd int) error {
	deadline := time.Now().Add(sealPatience)
	for wait := time.Millisecond; ; wait *= 2 {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, copySeals)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return os.NewSyscallError("fcntl", err)
		}
		time.Sleep(wait)
	}
}
