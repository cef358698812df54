package egress_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/egress"
)

// noNamespaces says why no sandbox can be imitated here; empty when one can.
var noNamespaces string

// TestMain runs an ordinary user's tests as root of a new user namespace,
// where network namespaces and taps may be made.
func TestMain(m *testing.M) {
	if os.Geteuid() == 0 {
		if lo, err := netlink.LinkByName("lo"); err == nil {
			_ = netlink.LinkSetUp(lo) // a new namespace's is down; without it, tests that need it say so
		}
		goleak.VerifyTestMain(m)
		return
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		noNamespaces = "an ordinary user may not make user namespaces here: " + err.Error()
		goleak.VerifyTestMain(m)
		return
	}
	_ = cmd.Wait() // the exit code says it
	os.Exit(cmd.ProcessState.ExitCode())
}

// netns is a network namespace held by one thread, which plays the sandbox.
type netns struct {
	tb   testing.TB
	work chan func()
	done chan struct{}
	v6   bool // whether the host has IPv6
}

func newNetns(tb testing.TB) *netns {
	tb.Helper()
	if noNamespaces != "" {
		tb.Skip(noNamespaces)
	}
	ns := &netns{tb: tb, work: make(chan func()), done: make(chan struct{})}
	var once sync.Once
	ready := make(chan error)
	go func() {
		defer close(ns.done)
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		ready <- unix.Unshare(unix.CLONE_NEWNET)
		for f := range ns.work {
			f()
		}
	}()
	stop := func() { once.Do(func() { close(ns.work); <-ns.done }) }
	if err := <-ready; err != nil {
		stop()
		tb.Skipf("no network namespaces here: %v", err)
	}
	tb.Cleanup(stop)
	return ns
}

// do runs f inside and waits. Sockets made by f's own goroutine belong to the
// namespace, wherever they are used afterwards.
func (ns *netns) do(f func() error) {
	ns.tb.Helper()
	errs := make(chan error)
	ns.work <- func() { errs <- f() }
	if err := <-errs; err != nil {
		ns.tb.Fatal(err)
	}
}

// tap makes the sandbox's interface and returns the host's descriptor.
func (ns *netns) tap() (fd int) {
	ns.tb.Helper()
	ns.do(func() error {
		var err error
		fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		req, err := unix.NewIfreq("eth0")
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
			return fmt.Errorf("TUNSETIFF: %w", err)
		}
		return ns.configure()
	})
	if fd < 0 {
		ns.tb.Skip("/dev/net/tun cannot be opened")
	}
	return fd
}

// veth makes the sandbox's interface as one end of a pair and returns a packet
// socket on the other, which is in the same namespace but has no address.
func (ns *netns) veth() (fd int) {
	ns.tb.Helper()
	ns.do(func() error {
		err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: egress.MTU}, PeerName: "host0"})
		if err != nil {
			return err
		}
		host, err := netlink.LinkByName("host0")
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkSetMTU(host, egress.MTU), netlink.LinkSetARPOff(host), netlink.LinkSetUp(host)); err != nil {
			return err
		}
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: host.Attrs().Index})
		return errors.Join(err, ns.configure())
	})
	return fd
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// configure gives the interface eth0 of this namespace what a provider would.
func (ns *netns) configure() error {
	if lo, err := netlink.LinkByName("lo"); err != nil {
		return err
	} else if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	eth, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(egress.SandboxMAC)
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.LinkSetHardwareAddr(eth, mac), netlink.LinkSetMTU(eth, egress.MTU), netlink.LinkSetUp(eth)); err != nil {
		return err
	}
	stop := make(chan struct{})
	defer close(stop)
	routes := make(chan netlink.RouteUpdate, 64) // more than the few that come
	if err := netlink.RouteSubscribe(routes, stop); err != nil {
		return err
	}
	for _, a := range []struct {
		ours, gateway string
		bits, flags   int
		all           string
	}{
		{egress.Sandbox4, egress.Gateway4, egress.Bits4, 0, "0.0.0.0/0"},
		{egress.Sandbox6, egress.Gateway6, egress.Bits6, unix.IFA_F_NODAD, "::/0"},
	} {
		addr, err := netlink.ParseAddr(fmt.Sprintf("%s/%d", a.ours, a.bits))
		if err != nil {
			return err
		}
		addr.Flags = a.flags
		err = netlink.AddrAdd(eth, addr)
		if err != nil && addr.IP.To4() == nil {
			return nil // IPv6 is switched off
		}
		if err != nil {
			return fmt.Errorf("address %s: %w", addr, err)
		}
		_, all, err := net.ParseCIDR(a.all)
		if err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Dst: all, Gw: net.ParseIP(a.gateway)}); err != nil {
			return fmt.Errorf("route via %s: %w", a.gateway, err)
		}
	}
	// The kernel receives for an IPv6 address only a little after it was added,
	// when its local route is in place.
	for u := range routes {
		if u.Type == unix.RTM_NEWROUTE && u.Route.Type == unix.RTN_LOCAL && u.Dst != nil && u.Dst.IP.Equal(net.ParseIP(egress.Sandbox6)) {
			ns.v6 = true
			return nil
		}
	}
	return errors.New("the IPv6 address did not come up")
}

// reachable leaves out the IPv6 targets where there is no IPv6.
func (ns *netns) reachable(targets ...string) []string {
	return slices.DeleteFunc(targets, func(to string) bool { return !ns.v6 && strings.HasPrefix(to, "[") })
}

// setUp takes eth0 of this namespace up or down. Routes are lost with it, but
// not the one to the link itself.
func setUp(up bool) error {
	eth, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	if up {
		return netlink.LinkSetUp(eth)
	}
	return netlink.LinkSetDown(eth)
}
