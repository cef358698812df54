package leak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// inside are the ways by what else a sandbox shares with its host: Unix
// sockets, the gateway's own ports, the daemon's, /proc, and the settings of its
// network.
func (a Aim) inside() []way {
	gone := []Outcome{Absent, Reset, Forbidden}
	list := []way{unixSocket("the sink's abstract socket", "@"+a.Abstract, gone), unixSocket("X11's abstract socket", "@/tmp/.X11-unix/X0", gone), unixSocket("containerd's abstract socket", "@/containerd-shim/a.sock", gone)}
	for _, path := range append([]string{"/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/user/0/bus", "/run/systemd/journal/socket", "/dev/log",
		"/tmp/.X11-unix/X0", "/run/podman/podman.sock", "/run/nscd/socket", "/run/avahi-daemon/socket"}, a.Paths...) {
		list = append(list, unixSocket(path, path, gone), unixSocket("/proc/1/root"+path, "/proc/1/root"+path, gone))
	}
	for _, g := range a.Gateway {
		list = append(list, scan("every port of the gateway, "+family(g), g))
	}
	for _, own := range append([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}, a.Own...) {
		execd := netip.AddrPortFrom(own, uint16(a.Execd)).String()
		list = append(list, by("inside", "execd's port at "+own.String(), "POST http://"+execd+"/command", []Outcome{Reset, Unreachable, Page}, func(ctx context.Context, p *probe) seen {
			return p.post(ctx, "http://"+execd+"/command", "", "")
		}))
	}
	list = append(list,
		by("inside", "a route of one's own", "a netlink message that adds a route", []Outcome{Forbidden, Unsupported}, func(context.Context, *probe) seen { return route() }),
		by("inside", "an interface of one's own", "ioctl SIOCSIFFLAGS on eth0", []Outcome{Forbidden, Unsupported, Absent}, func(context.Context, *probe) seen { return interfaceFlags() }),
		by("inside", "another network namespace", "unshare(CLONE_NEWNET)", []Outcome{Forbidden, Unsupported}, func(context.Context, *probe) seen { return unshare() }),
		by("inside", "the host's network namespace", "open /proc/1/ns/net and setns", []Outcome{Forbidden, Absent, Unsupported}, func(context.Context, *probe) seen { return setns() }),
		file("the first process's environment", "/proc/1/environ", os.O_RDONLY), file("the first process's memory", "/proc/1/mem", os.O_RDWR),
		file("the kernel's messages", "/dev/kmsg", os.O_WRONLY), file("the kernel's switches", "/proc/sys/kernel/core_pattern", os.O_WRONLY), file("the kernel's triggers", "/proc/sysrq-trigger", os.O_WRONLY))
	return list
}

// unixSocket connects to a socket of the host's.
func unixSocket(name, path string, want []Outcome) way {
	return by("unix", "unix: "+name, "connect to "+path, want, func(ctx context.Context, p *probe) seen {
		if path == "@" {
			return notTried("the sink has no abstract socket")
		}
		at := path
		if len(path) > longestSocket && path[0] == '/' {
			dir, err := os.Open(filepath.Dir(path))
			if err != nil {
				return refused(err)
			}
			defer dir.Close()
			at = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
		}
		c, err := dial(ctx, "unix", at)
		if err != nil {
			return refused(err)
		}
		defer c.Close()
		return p.speak(c, "")
	})
}

// longestSocket is the longest path that an address of a Unix socket holds, in bytes
// (unix(7)); what is longer is reached by its directory.
const longestSocket = 107

// scanned are the ports that are tried at the gateway: those that services
// have, and the sink's.
func scanned(sink uint16) (list []uint16) {
	for port := range uint16(1024) {
		if port != 53 && port != 0 {
			list = append(list, port)
		}
	}
	return append(list, 1080, 2375, 2376, 3000, 3306, 5000, 5432, 6379, 8000, 8080, 8443, 8888, 9000, 9090, 11434, 44772, sink)
}

// scan tries many ports of the gateway. Its proxy is tried by itself.
func scan(name string, gateway netip.Addr) way {
	return by("inside", name, "connect to ports 1 to 1023 but 53, and others, of "+gateway.String(), []Outcome{Reset}, func(ctx context.Context, p *probe) seen {
		ports := make(chan uint16)
		var all sync.WaitGroup
		var mu sync.Mutex
		counts := map[Outcome]int{}
		worst := seen{outcome: Reset}
		for range 32 {
			all.Go(func() {
				for port := range ports {
					s := p.knock(ctx, netip.AddrPortFrom(gateway, port))
					mu.Lock()
					if counts[s.outcome]++; s.outcome != Reset && worst.outcome != Open {
						worst = seen{outcome: s.outcome, words: fmt.Sprintf("port %d: %s", port, s.words)}
					}
					mu.Unlock()
				}
			})
		}
		for _, port := range scanned(p.aim.Loopback) {
			ports <- port
		}
		close(ports)
		all.Wait()
		worst.words = strings.TrimSpace(fmt.Sprintf("%v %s", counts, worst.words))
		return worst
	})
}

func (p *probe) knock(ctx context.Context, at netip.AddrPort) seen {
	c, err := dial(ctx, "tcp", at.String())
	if err != nil {
		return refused(err)
	}
	defer c.Close()
	return p.speak(c, "")
}

// file opens a file that would lead out.
func file(name, path string, flags int) way {
	return by("inside", name, "open "+path, []Outcome{Forbidden, Absent, Unsupported}, func(_ context.Context, p *probe) seen {
		f, err := os.OpenFile(path, flags, 0)
		if errors.Is(err, syscall.EROFS) {
			return seen{outcome: Forbidden, words: err.Error()}
		}
		if err != nil {
			return refused(err)
		}
		defer f.Close()
		if flags != os.O_RDONLY {
			return open("it opens")
		}
		b, err := io.ReadAll(io.LimitReader(f, 4096))
		if err != nil {
			return refused(err)
		}
		if len(b) == 0 {
			return seen{outcome: Absent, words: "it is empty"}
		}
		return open("%d bytes are readable", len(b))
	})
}

// route asks the kernel for a default route past the gateway.
func route() seen {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return refused(os.NewSyscallError("socket", err))
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval(int64(time.Second))
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait) // then the way takes longer
	// nlmsghdr, rtmsg, RTA_GATEWAY 10.88.0.9
	message := []byte{36, 0, 0, 0, unix.RTM_NEWROUTE, 0, 0x05, 0x06, 1, 0, 0, 0, 0, 0, 0, 0,
		unix.AF_INET, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, 0, unix.RTN_UNICAST, 0, 0, 0, 0,
		8, 0, unix.RTA_GATEWAY, 0, 10, 88, 0, 9}
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return refused(os.NewSyscallError("sendto", err))
	}
	buf := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return refused(os.NewSyscallError("recvfrom", err))
	}
	if n < 20 || buf[4] != unix.NLMSG_ERROR {
		return open("%d bytes that are no refusal", n)
	}
	if code := int32(uint32(buf[16]) | uint32(buf[17])<<8 | uint32(buf[18])<<16 | uint32(buf[19])<<24); code < 0 {
		return refused(os.NewSyscallError("route", syscall.Errno(-code)))
	}
	return open("the route is there")
}

func interfaceFlags() seen {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return refused(os.NewSyscallError("socket", err))
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("eth0")
	if err != nil {
		return refused(err)
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_PROMISC)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return refused(os.NewSyscallError("ioctl", err))
	}
	return open("the flags are set")
}

// unshare runs in a thread of its own, which ends with it: what it changed must
// not be other ways'.
func unshare() seen {
	return thread(func() seen {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return refused(os.NewSyscallError("unshare", err))
		}
		return open("a network namespace of its own")
	})
}

func setns() seen {
	return thread(func() seen {
		fd, err := unix.Open("/proc/1/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return refused(os.NewSyscallError("open", err))
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return refused(os.NewSyscallError("setns", err))
		}
		return open("in the namespace of the first process")
	})
}
