package isolation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Asking the kernel, with arguments that have to be put together.

// clone3 asks for a user namespace with flags that do not go together: the kernel
// says EINVAL once it has read them.
func clone3(Host) error {
	args := [8]uint64{unix.CLONE_NEWUSER | unix.CLONE_FS}
	return syscallOf(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args))
}

func enter(namespace string) func(Host) error {
	return func(Host) error {
		f, err := os.Open(namespace)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Setns(int(f.Fd()), 0)
	}
}

func mount(source, target, kind string, flags uintptr) func(Host) error {
	return func(Host) error { return unix.Mount(source, target, kind, flags, "") }
}

func path(nr uintptr, before []uintptr, name string, after ...uintptr) func(Host) error {
	return func(Host) error {
		p, err := unix.BytePtrFromString(name)
		if err != nil {
			return err
		}
		return syscallOf(nr, append(append(before, uintptr(unsafe.Pointer(p))), after...)...)
	}
}

func pivotRoot(Host) error { return unix.PivotRoot("/", "/") }

func socket(family, kind, proto int) func(Host) error {
	return func(Host) error {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
}

// pingSocket lets its own group in, where it may, and opens a socket of ICMP.
func pingSocket(family, proto int) func(Host) error {
	return func(h Host) error {
		_ = os.WriteFile("/proc/sys/net/ipv4/ping_group_range", fmt.Appendf(nil, "%d %[1]d", os.Getegid()), 0) // the socket says whether it helped
		return socket(family, unix.SOCK_DGRAM, proto)(h)
	}
}

func markPackets(Host) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 1)
}

// addAddress gives lo another address, by netlink(7).
func addAddress(Host) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ne := binary.NativeEndian
	var b []byte
	b = ne.AppendUint32(b, 32)
	b = ne.AppendUint16(b, unix.RTM_NEWADDR)
	b = ne.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	b = ne.AppendUint32(ne.AppendUint32(b, 1), 0)
	b = append(b, unix.AF_INET, 32, 0, 0)
	b = ne.AppendUint32(b, 1) // lo
	b = ne.AppendUint16(ne.AppendUint16(b, 8), unix.IFA_LOCAL)
	b = append(b, 192, 0, 2, 9)
	ne.PutUint32(b, uint32(len(b)))
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return err
	}
	if n < 20 || ne.Uint16(reply[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("the answer is %x", reply[:n])
	}
	if errno := -int32(ne.Uint32(reply[16:])); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

// typeInto puts a character into the input of a terminal of its own, as if it
// had been typed. high is added to the request: the kernel reads 32 bits of it, a
// filter may compare 64.
func typeInto(high uintptr) func(Host) error {
	return func(Host) error {
		signal.Ignore(unix.SIGHUP) // when the terminal is closed
		ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			return err
		}
		defer ptmx.Close()
		number, err := unix.IoctlGetInt(int(ptmx.Fd()), unix.TIOCGPTN)
		if err == nil {
			err = unix.IoctlSetPointerInt(int(ptmx.Fd()), unix.TIOCSPTLCK, 0)
		}
		if err == nil {
			_, err = unix.Setsid()
		}
		if err != nil {
			return err
		}
		tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR, 0) // becomes the controlling one
		if err != nil {
			return err
		}
		defer tty.Close()
		c := byte('x')
		return syscallOf(unix.SYS_IOCTL, tty.Fd(), unix.TIOCSTI|high, uintptr(unsafe.Pointer(&c)))
	}
}

// becomeAnother changes the uid.
func becomeAnother(Host) error { return syscallOf(unix.SYS_SETRESUID, 65534, 65534, 65534) }

// takeCapabilities asks for all of them.
func takeCapabilities(Host) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	all := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}}
	return unix.Capset(&header, &all[0])
}

func makeDevice(Host) error {
	name := fmt.Sprintf("/tmp/rein-isolation-%d", os.Getpid())
	err := unix.Mknod(name, unix.S_IFBLK|0o600, int(unix.Mkdev(8, 0)))
	return errors.Join(err, ignoreMissing(os.Remove(name)))
}

func makeFIFO(Host) error {
	name := fmt.Sprintf("/tmp/rein-isolation-fifo-%d", os.Getpid())
	return errors.Join(unix.Mkfifo(name, 0o600), ignoreMissing(os.Remove(name)))
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// write opens a file for writing; of one that can be opened nothing is changed.
func write(name string) func(Host) error { return open(name, os.O_WRONLY) }

// makeDir makes a directory, and removes it.
func makeDir(name string) func(Host) error {
	return func(Host) error {
		if err := unix.Mkdir(name, 0o755); err != nil {
			return err
		}
		return unix.Rmdir(name)
	}
}
