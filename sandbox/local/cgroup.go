package local

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/cgroups/systemd"
	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/sandbox"
)

// cgroupPlan says how this user can bound a sandbox from outside on this host.
type cgroupPlan struct {
	// Mode is "v1", "v2", "v2 systemd" or "" when nobody can.
	Mode string
	// Reason and Remedy say why Mode is empty.
	Reason, Remedy string
	// Controllers that can be used: cpu, memory, pids.
	Controllers []string
	// Swap says that swap can be bounded too.
	Swap bool
}

// cgroupHost is what a plan is made from. Kept apart so that each kind of host
// can be tested.
type cgroupHost struct {
	Unified bool // cgroup v2 alone at /sys/fs/cgroup
	Root    bool
	// Writable controllers: for v1 the hierarchies, for v2 the delegated ones.
	Writable []string
	Swap     bool // swap is accounted for
	Systemd  bool // the user has a systemd instance to ask
}

var wantedControllers = []string{"cpu", "memory", "pids"}

const delegationRemedy = `sudo mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\nDelegate=cpu cpuset io memory pids\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf && sudo systemctl daemon-reload`

// planCgroup chooses. It is pure.
func planCgroup(h cgroupHost) cgroupPlan {
	var have []string
	for _, c := range wantedControllers {
		if slices.Contains(h.Writable, c) {
			have = append(have, c)
		}
	}
	switch {
	case !h.Unified && len(have) > 0:
		return cgroupPlan{Mode: "v1", Controllers: have, Swap: h.Swap}
	case !h.Unified:
		return cgroupPlan{Reason: "this host has cgroup v1, which only root may use", Remedy: "boot with systemd.unified_cgroup_hierarchy=1, or run rein as root"}
	case h.Root && len(have) > 0:
		return cgroupPlan{Mode: "v2", Controllers: have, Swap: h.Swap}
	case h.Systemd && len(have) > 0:
		return cgroupPlan{Mode: "v2 systemd", Controllers: have, Swap: h.Swap}
	case h.Systemd:
		return cgroupPlan{Reason: "systemd delegates no controller to this user", Remedy: delegationRemedy}
	}
	return cgroupPlan{Reason: "cgroup v2 is not delegated to this user", Remedy: delegationRemedy}
}

// lookAtCgroups gathers what planCgroup needs.
func lookAtCgroups() cgroupHost {
	h := cgroupHost{Unified: cgroups.IsCgroup2UnifiedMode(), Root: os.Geteuid() == 0}
	if !h.Unified {
		for _, c := range wantedControllers {
			dir, err := cgroups.FindCgroupMountpoint("", c)
			if err == nil && unix.Access(dir, unix.W_OK) == nil && !readOnlyMount(dir) {
				h.Writable = append(h.Writable, c)
			}
			if c == "memory" && unix.Access(filepath.Join(dir, "memory.memsw.limit_in_bytes"), unix.F_OK) == nil {
				h.Swap = true
			}
		}
		return h
	}
	h.Systemd = systemd.IsRunningSystemd()
	h.Swap = true
	dir := "/sys/fs/cgroup"
	if !h.Root {
		dir = fmt.Sprintf("/sys/fs/cgroup/user.slice/user-%d.slice/user@%d.service", os.Getuid(), os.Getuid())
	}
	if readOnlyMount(dir) {
		return h
	}
	if b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers")); err == nil {
		h.Writable = strings.Fields(string(b))
	}
	return h
}

func readOnlyMount(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) != nil || st.Flags&unix.ST_RDONLY != 0
}

// cgroup is the host's bound around one whole sandbox: runtime, execd and user
// code together. A nil *cgroup bounds nothing.
type cgroup struct {
	manager   cgroups.Manager
	resources *cgroups.Resources
	paths     []string // known before any of them is made
	threaded  bool     // cgroup v1: threads are moved one by one
	entered   bool
	oom       *os.File // memory.events, or memory.oom_control
}

// newCgroup makes the cgroup of a sandbox; nil when the plan has no mode.
func newCgroup(plan cgroupPlan, id string, runtime ociRuntime, res sandbox.Resources) (*cgroup, error) {
	if plan.Mode == "" {
		return nil, nil
	}
	cfg := &cgroups.Cgroup{Path: "/rein-" + id, Resources: cgroupResources(plan, runtime, res)}
	if plan.Mode == "v2 systemd" {
		uid := os.Getuid()
		cfg = &cgroups.Cgroup{Name: id, ScopePrefix: "rein", Parent: "user.slice", Systemd: true, Rootless: true, OwnerUID: &uid, Resources: cfg.Resources}
	}
	var paths map[string]string
	if plan.Mode == "v1" {
		// Only the hierarchies that bound something; the library's default is all.
		paths = map[string]string{}
		for _, c := range plan.Controllers {
			mount, err := cgroups.FindCgroupMountpoint("", c)
			if err != nil {
				return nil, fmt.Errorf("find the %s hierarchy: %w", c, err)
			}
			paths[c] = filepath.Join(mount, cfg.Path)
		}
	}
	m, err := manager.NewWithPaths(cfg, paths)
	if err != nil {
		return nil, fmt.Errorf("make the cgroup: %w", err)
	}
	return &cgroup{manager: m, resources: cfg.Resources, paths: slices.Sorted(maps.Values(m.GetPaths())), threaded: plan.Mode == "v1"}, nil
}

// cgroupResources translates the limits. The process limit acts inside the
// sandbox; the host's has headroom for the runtime's own threads and, under
// gVisor, for what stands for a process of the sandbox: a stub with a thread
// for each core and some more. The sentry does not survive a stub it cannot
// make.
func cgroupResources(plan cgroupPlan, runtime ociRuntime, res sandbox.Resources) *cgroups.Resources {
	r := &cgroups.Resources{SkipDevices: true}
	for _, c := range plan.Controllers {
		switch c {
		case "cpu":
			const period = 100_000
			r.CpuPeriod = period
			r.CpuQuota = int64(res.CPU * period)
		case "memory":
			r.Memory = res.Memory
			if runtime.Kind == kindGVisor {
				r.Memory += gvisorOverhead
			}
			if plan.Swap {
				r.MemorySwap = r.Memory // no swap on top
			}
		case "pids":
			r.PidsLimit = int64(res.PIDs) + 256
			if runtime.Kind == kindGVisor {
				r.PidsLimit = int64(res.PIDs)*int64(goruntime.NumCPU()+4) + 1024
			}
		}
	}
	return r
}

// gvisorOverhead is what the sentry and its helpers take for themselves.
const gvisorOverhead = 192 << 20

// lend puts the calling thread, which must be locked, into the cgroup until
// back is called, so that what it forks is born there. Moving another process
// later means waiting for all CPUs, once per hierarchy: 5 to 15 ms. A thread
// that moves itself does not wait (cgroup_procs_write_start in the kernel).
// Where that is not possible lend does nothing and enter moves the process.
func (c *cgroup) lend() (back func() error, err error) {
	stay := func() error { return nil }
	if c == nil || !c.threaded {
		return stay, nil
	}
	home := map[string]string{}
	for name := range c.manager.GetPaths() {
		if home[name], err = cgroups.GetOwnCgroupPath(name); err != nil {
			return stay, nil
		}
	}
	if err := c.make(-1); err != nil {
		return stay, err
	}
	back = func() error { return moveThread(home) }
	if moveThread(c.manager.GetPaths()) != nil {
		return stay, back() // of some it may be in already
	}
	c.entered = true
	return back, nil
}

// moveThread moves the calling thread to a cgroup of each hierarchy.
func moveThread(paths map[string]string) error {
	for _, dir := range paths {
		if err := os.WriteFile(filepath.Join(dir, "tasks"), []byte("0"), 0); err != nil {
			return fmt.Errorf("move a thread between cgroups: %w", err)
		}
	}
	return nil
}

// enter puts a process, and so all its later children, into the cgroup, unless
// it was born there.
func (c *cgroup) enter(pid int) error {
	if c == nil || c.entered {
		return nil
	}
	c.entered = true
	return c.make(pid)
}

// make makes the cgroup with its limits, and puts a process into it if pid is
// not -1.
func (c *cgroup) make(pid int) error {
	if err := c.manager.Apply(pid); err != nil {
		return fmt.Errorf("enter the cgroup: %w", err)
	}
	if err := c.manager.Set(c.resources); err != nil {
		return fmt.Errorf("set the cgroup's limits: %w", err)
	}
	if c.oom != nil {
		return nil
	}
	for _, name := range []string{"memory.events", "memory.oom_control"} {
		f, err := os.Open(filepath.Join(c.manager.Path("memory"), name))
		if err == nil {
			c.oom = f
			break
		}
	}
	return nil
}

// oomKills reads how many processes the kernel has killed in the cgroup for
// want of memory; 0 when it cannot be known.
func (c *cgroup) oomKills() int {
	if c == nil || c.oom == nil {
		return 0
	}
	buf := make([]byte, 4096)
	n, _ := c.oom.ReadAt(buf, 0) // io.EOF is how a short file ends
	for line := range strings.Lines(string(buf[:n])) {
		var kills int
		if _, err := fmt.Sscanf(line, "oom_kill %d", &kills); err == nil {
			return kills
		}
	}
	return 0
}

// removeCgroups removes the (empty) cgroups of a sandbox that is gone. The
// kernel takes a moment to let go of the last process.
func removeCgroups(paths []string) error {
	var errs []error
	for _, path := range paths {
		var err error
		for range 50 {
			err = unix.Rmdir(path)
			if err == nil || errors.Is(err, unix.ENOENT) {
				err = nil
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			errs = append(errs, &os.PathError{Op: "rmdir", Path: path, Err: err})
		}
	}
	return errors.Join(errs...)
}
