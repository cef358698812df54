package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// slirpHost is the host's loopback for slirp4netns.
const slirpHost = "10.0.2.2"

// ways are the networks that can be measured here, and notes those that cannot.
func (c config) ways(ctx context.Context, port int) (all []way, notes []string, err error) {
	for _, r := range runtimes {
		y, err := c.reinWay(ctx, r.runtime, r.name, port)
		if err != nil {
			return all, nil, err
		}
		all = append(all, y)
	}
	if os.Geteuid() != 0 {
		return all, []string{"veth and NAT, slirp4netns, pasta: root makes their networks"}, nil
	}
	for _, peer := range []struct {
		name, program string
		make          func(context.Context, int) (way, error)
	}{{vethKernel, "nft", vethWay}, {vethGVisor, "nft", c.vethGVisorWay}, {"slirp4netns", "slirp4netns", slirpWay}, {"pasta", "pasta", pastaWay}} {
		if !available(peer.program) || !available("ip") {
			notes = append(notes, peer.name+": make bench installs it, as root")
			continue
		}
		y, err := peer.make(ctx, port)
		if err != nil {
			notes = append(notes, fmt.Sprintf("%s: %v", peer.name, err))
			continue
		}
		y.name = peer.name
		all = append(all, y)
	}
	return all, notes, nil
}

// self is this program.
func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err) // Linux knows
	}
	return path
}

// in runs this program by a command that begins with argv.
func in(argv ...string) func(context.Context, ...string) (string, error) {
	return func(ctx context.Context, args ...string) (string, error) {
		all := append(append(append([]string(nil), argv[1:]...), self()), args...)
		return output(ctx, nil, argv[0], all...)
	}
}

// perform runs commands until one fails.
func perform(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		f := strings.Fields(line)
		if _, err := output(ctx, nil, f[0], f[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// vethWay is a network namespace behind a veth pair, and the kernel's NAT.
func vethWay(ctx context.Context, port int) (way, error) {
	v, err := newVeth(ctx, 77)
	if err != nil {
		return way{}, err
	}
	return way{at: fmt.Sprintf("%s:%d", v.natted, port), run: in("ip", "netns", "exec", v.ns), end: v.end}, nil
}

// veth is such a namespace. Nobody routes its addresses (RFC 5737, RFC 2544).
type veth struct {
	ns, natted string
	end        func() error
}

// newVeth makes the n-th, of at most 255.
func newVeth(ctx context.Context, n int) (veth, error) {
	ns := fmt.Sprintf("rein-bench-%d-%d", os.Getpid(), n)
	table := strings.ReplaceAll(ns, "-", "_")
	host, inside, natted := fmt.Sprintf("198.19.%d.1", n), fmt.Sprintf("198.19.%d.2", n), fmt.Sprintf("203.0.113.%d", n)
	outer, inner := fmt.Sprintf("reinb%da", n), fmt.Sprintf("reinb%db", n)
	end := func() error {
		ctx := context.WithoutCancel(ctx)
		return errors.Join(perform(ctx, "ip netns delete "+ns), perform(ctx, "nft delete table ip "+table))
	}
	err := perform(ctx, "ip netns add "+ns, "ip link add "+outer+" type veth peer name "+inner+" netns "+ns,
		"ip address add "+host+"/24 dev "+outer, "ip link set "+outer+" up",
		"ip -n "+ns+" address add "+inside+"/24 dev "+inner, "ip -n "+ns+" link set "+inner+" up", "ip -n "+ns+" route add default via "+host,
		"nft add table ip "+table, "nft add chain ip "+table+" pre { type nat hook prerouting priority -100 ; }",
		"nft add rule ip "+table+" pre ip daddr "+natted+" dnat to "+host)
	if err != nil {
		_ = end() // what there is of it
	}
	return veth{ns, natted, end}, err
}

// vethGVisorWay is the same with rein's gVisor and its own network stack in it:
// what gVisor costs without rein. It is good for one run, because gVisor takes
// the addresses of the namespace for itself.
func (c config) vethGVisorWay(ctx context.Context, port int) (y way, err error) {
	v, err := newVeth(ctx, 78)
	if err != nil {
		return y, err
	}
	bundle := filepath.Join(c.stateDir, "veth-gvisor")
	root := filepath.Join(bundle, "rootfs")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return y, errors.Join(err, v.end())
	}
	program, err := os.ReadFile(self())
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "bench"), program, 0o755)
	}
	if err != nil {
		return y, errors.Join(err, v.end())
	}
	run := func(ctx context.Context, args ...string) (string, error) {
		spec := specs.Spec{Version: specs.Version,
			Process: &specs.Process{Args: append([]string{"/bench"}, args...), Cwd: "/"},
			Root:    &specs.Root{Path: root, Readonly: true},
			Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace},
				{Type: specs.NetworkNamespace, Path: "/run/netns/" + v.ns}}}}
		data, err := json.Marshal(spec)
		if err == nil {
			err = os.WriteFile(filepath.Join(bundle, "config.json"), data, 0o600)
		}
		if err != nil {
			return "", err
		}
		// runsc mounts a namespace of its own beneath its state.
		return output(ctx, nil, "unshare", "--mount", filepath.Join(c.bin, "rein-runsc"), "--root", filepath.Join(bundle, "state"), "--platform=systrap",
			"--network=sandbox", "--ignore-cgroups", "run", "--bundle", bundle, v.ns)
	}
	return way{at: fmt.Sprintf("%s:%d", v.natted, port), run: run, end: v.end}, nil
}

// slirpWay is a network namespace whose packets slirp4netns carries.
func slirpWay(ctx context.Context, port int) (way, error) {
	ns := "rein-bench-slirp-" + strconv.Itoa(os.Getpid())
	remove := func() error { return perform(context.WithoutCancel(ctx), "ip netns delete "+ns) }
	if err := perform(ctx, "ip netns add "+ns); err != nil {
		return way{}, err
	}
	ready, tell, err := os.Pipe()
	if err != nil {
		return way{}, errors.Join(err, remove())
	}
	cmd := exec.CommandContext(ctx, "slirp4netns", "--configure", "--mtu=65520", "--netns-type=path", "--ready-fd=3", "/run/netns/"+ns, "tap0")
	cmd.ExtraFiles = []*os.File{tell}
	err = cmd.Start()
	tell.Close()
	if err != nil {
		return way{}, errors.Join(err, remove())
	}
	_ = ready.SetReadDeadline(time.Now().Add(10 * time.Second)) // pipes have deadlines
	_, err = ready.Read(make([]byte, 1))
	ready.Close()
	end := func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // it was ended
		return remove()
	}
	if err != nil {
		return way{}, errors.Join(fmt.Errorf("slirp4netns was not ready: %w", err), end())
	}
	return way{at: fmt.Sprintf("%s:%d", slirpHost, port), run: in("ip", "netns", "exec", ns), end: end}, nil
}

// pastaWay has pasta run the client. The host's gateway is its name for the
// host's loopback.
func pastaWay(ctx context.Context, port int) (way, error) {
	out, err := output(ctx, nil, "ip", "-4", "route", "show", "default")
	if err != nil {
		return way{}, err
	}
	f := strings.Fields(out)
	if len(f) < 3 || f[1] != "via" {
		return way{}, errors.New("this host has no default route, which pasta takes its addresses from")
	}
	return way{at: fmt.Sprintf("%s:%d", f[2], port), run: in("pasta", "--config-net", "--quiet", "--runas", "0", "--"), end: func() error { return nil }}, nil
}
