package local

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/sandbox"
)

// linkName is the sandbox's only interface besides loopback.
const linkName = "eth0"

// linkConfig describes the sandbox's end of its link.
type linkConfig struct {
	MTU        int      `json:"mtu"`
	MAC        string   `json:"mac"`
	GatewayMAC string   `json:"gateway_mac"`
	Addresses  []string `json:"addresses"` // with prefix length
	Gateways   []string `json:"gateways"`
}

// setUpLink makes eth0 in the nest's network namespace and returns the
// descriptor on which the keeper reads and writes its Ethernet frames.
//
// The usual link is a tap. A tun would be enough for runc, but gVisor takes the
// interface over with a packet socket and needs Ethernet frames. Where
// /dev/net/tun is missing, a veth pair does, whose other end lies in a second
// network namespace that only the packet socket keeps alive.
func setUpLink(cfg linkConfig) (fd int, linkType string, err error) {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return -1, "", fmt.Errorf("bring up the loopback interface: %w", err)
	}
	linkType = "tap"
	fd, err = openTap(linkName)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) || errors.Is(err, unix.ENODEV) {
		tapErr := err
		linkType = "packet"
		if fd, err = openVethPair(linkName, cfg.MTU); err != nil {
			return -1, "", &sandbox.Error{Kind: sandbox.KindHost, Op: "make the network link",
				Err:  fmt.Errorf("tap: %w; veth: %w", tapErr, err),
				Hint: "sudo modprobe tun && sudo chmod 0666 /dev/net/tun"}
		}
	}
	if err != nil {
		return -1, "", fmt.Errorf("make the tap interface: %w", err)
	}
	if err := configureLink(cfg); err != nil {
		unix.Close(fd)
		return -1, "", err
	}
	return fd, linkType, nil
}

func openTap(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("open /dev/net/tun", err)
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("TUNSETIFF", err)
	}
	return fd, nil
}

// openVethPair makes a veth pair whose near end is name and returns a packet
// socket bound to the far end. The far end is in a network namespace of its
// own, so that nothing in the sandbox sees it.
func openVethPair(name string, mtu int) (int, error) {
	type result struct {
		fd  int
		err error
	}
	near, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(near)
	done := make(chan result, 1)
	go func() {
		// The thread is left in the far namespace and ends with this goroutine.
		runtime.LockOSThread()
		fd, err := farEnd(name, near, mtu)
		done <- result{fd, err}
	}()
	r := <-done
	return r.fd, r.err
}

func farEnd(name string, near, mtu int) (int, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return -1, os.NewSyscallError("unshare", err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "far0"
	attrs.MTU = mtu
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerNamespace: netlink.NsFd(near)}
	if err := netlink.LinkAdd(veth); err != nil {
		return -1, fmt.Errorf("make the veth pair: %w", err)
	}
	far, err := netlink.LinkByName("far0")
	if err != nil {
		return -1, err
	}
	if err := netlink.LinkSetUp(far); err != nil {
		return -1, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	addr := &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: far.Attrs().Index}
	if err := unix.Bind(fd, addr); err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("bind", err)
	}
	return fd, nil
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// configureLink gives the interface its address and default routes. The
// gateway's hardware address is fixed, so no time goes to asking for it.
func configureLink(cfg linkConfig) error {
	link, err := netlink.LinkByName(linkName)
	if err != nil {
		return fmt.Errorf("find %s: %w", linkName, err)
	}
	mac, err := net.ParseMAC(cfg.MAC)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetHardwareAddr(link, mac); err != nil {
		return fmt.Errorf("set the hardware address of %s: %w", linkName, err)
	}
	if err := netlink.LinkSetMTU(link, cfg.MTU); err != nil {
		return fmt.Errorf("set the MTU of %s to %d: %w", linkName, cfg.MTU, err)
	}
	for _, a := range cfg.Addresses {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, addr); err != nil {
			if addr.IP.To4() == nil {
				continue // IPv6 is switched off on this host; nothing is lost
			}
			return fmt.Errorf("add address %s: %w", a, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up %s: %w", linkName, err)
	}
	for _, g := range cfg.Gateways {
		ip := net.ParseIP(g)
		err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: ip})
		if err != nil && ip.To4() != nil {
			return fmt.Errorf("route through %s: %w", g, err)
		}
	}
	return nil
}
