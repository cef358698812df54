package isolation

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// call makes one system call. Its arguments are such that it changes nothing of
// the host where nothing refuses it: what has an effect is asked for with
// arguments that the kernel finds invalid once it has agreed to look at them.
func call(nr uintptr, args ...uintptr) func(Host) error {
	return func(Host) error { return syscallOf(nr, args...) }
}

func syscallOf(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

// none is an argument with all bits set: an invalid descriptor, flags, address.
const none = ^uintptr(0)

// again is the program once more, told h.
func again(h Host) (*exec.Cmd, *bytes.Buffer) {
	in, _ := json.Marshal(h) // strings, numbers and truths
	var out bytes.Buffer
	cmd := exec.Command(self)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &bytes.Buffer{}
	return cmd, &out
}

// newNamespace makes a process in a new namespace, by clone or by unshare.
func newNamespace(clone, unshare uintptr) func(Host) error {
	return func(Host) error {
		cmd, _ := again(Host{Where: TheHost, Trial: waiting})
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: clone, Unshareflags: unshare}
		if err := cmd.Start(); err != nil {
			return err
		}
		_ = cmd.Wait() // that it could be started is the answer
		return nil
	}
}

// withChild calls f with the pid of a process of the program's own.
func withChild(f func(pid int) error) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	in, _ := json.Marshal(Host{Where: TheHost, Trial: waiting})
	if _, err := w.Write(in); err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Stdin = r
	err = cmd.Start()
	r.Close()
	if err != nil {
		return err
	}
	err = f(cmd.Process.Pid)
	_ = cmd.Process.Kill() // stopped by ptrace, it reads no end of input
	_ = cmd.Wait()
	return err
}

// The first process: execd, or the one that starts commands where they have a
// pid namespace of their own.
const first = 1

func seize(pid int) error {
	runtime.LockOSThread()
	return syscallOf(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0)
}

func readMemory(pid int) error {
	var to [8]byte
	local := []unix.Iovec{{Base: &to[0], Len: 8}}
	// The program's own text is at the same place in its children, and mapped in
	// none that is not this program; the answer to who may look comes first.
	// A child that has just been started may not have it there yet.
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: textAddress(), Len: 8}}, 0)
		if !errors.Is(err, unix.EFAULT) || time.Now().After(end) {
			return err
		}
	}
}

func takeDescriptor(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	got, err := unix.PidfdGetfd(fd, 0, 0)
	if err == nil {
		unix.Close(got)
	}
	return err
}

// open opens a file for what flags say, and reads a byte of it where they say
// nothing.
func open(name string, flags int) func(Host) error {
	return func(Host) error { return openFile(name, flags) }
}

func openFile(name string, flags int) error {
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return err
	case st.IsDir():
		_, err = f.ReadDir(1)
	case flags == os.O_RDONLY:
		_, err = f.Read(make([]byte, 1))
	}
	return err
}
