package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/sandbox"
)

// hostFacts are what Probe reads of the host. Kept apart so that each kind of
// host can be tested.
type hostFacts struct {
	Root              bool
	MaxUserNamespaces string // user.max_user_namespaces
	UnprivilegedClone string // kernel.unprivileged_userns_clone, where the kernel has it
	AppArmorRestricts string // kernel.apparmor_restrict_unprivileged_userns, where it has it
	Tun               error  // opening /dev/net/tun
	Landlock          bool
	Filter            bool  // keeperFilter is for this architecture
	Namespaces        error // what happened when the namespaces were really made
	Runtime           error // what happened when the runtime was asked its version
	Keep              string
}

func readSysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}

// staticFacts are those that cost nothing to read.
func staticFacts() hostFacts {
	f := hostFacts{
		Root:              os.Geteuid() == 0,
		MaxUserNamespaces: readSysctl("user.max_user_namespaces"),
		UnprivilegedClone: readSysctl("kernel.unprivileged_userns_clone"),
		AppArmorRestricts: readSysctl("kernel.apparmor_restrict_unprivileged_userns"),
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if f.Tun = err; err == nil {
		unix.Close(fd)
	}
	// landlock_create_ruleset(2) with LANDLOCK_CREATE_RULESET_VERSION.
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1)
	f.Landlock = errno == 0 && version > 0
	f.Filter = keeperFilter() != nil
	return f
}

// namespaceProblems are what this host lacks for namespaces, which it refused with
// an error.
func namespaceProblems(refused error) []sandbox.Problem {
	f := staticFacts()
	f.Namespaces = refused
	f.Keep, _ = os.Executable() // who is refused them is the keeper
	return problemsOf(f)
}

// problemsOf is pure.
func problemsOf(f hostFacts) []sandbox.Problem {
	var ps []sandbox.Problem
	add := func(fatal bool, remedy, format string, args ...any) {
		ps = append(ps, sandbox.Problem{What: fmt.Sprintf(format, args...), Remedy: remedy, Fatal: fatal})
	}
	if f.MaxUserNamespaces == "0" {
		add(true, "sudo sysctl -w user.max_user_namespaces=65536", "user namespaces are switched off (user.max_user_namespaces is 0)")
	}
	if !f.Root && f.UnprivilegedClone == "0" {
		add(true, "sudo sysctl -w kernel.unprivileged_userns_clone=1", "only root may make user namespaces (kernel.unprivileged_userns_clone is 0)")
	}
	if !f.Root && f.AppArmorRestricts == "1" && f.Namespaces != nil {
		add(true, appArmorRemedy(f.Keep), "AppArmor lets only profiled programs make user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1)")
	}
	if f.Namespaces != nil && len(ps) == 0 {
		add(true, "run on a kernel and in a container that allow new user namespaces (docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined)",
			"the kernel refuses new namespaces: %v", f.Namespaces)
	}
	if f.Runtime != nil {
		add(true, "", "the runtime does not run: %v", f.Runtime)
	}
	if f.Tun != nil {
		add(false, "sudo modprobe tun && sudo chmod 0666 /dev/net/tun", "/dev/net/tun cannot be used (%v); a veth pair does instead, at a lower rate", f.Tun)
	}
	if !f.Landlock {
		add(false, "boot with landlock in the lsm= list", "the kernel has no landlock: the keeper keeps its view of the file system")
	}
	if !f.Filter {
		add(false, "run on amd64 or arm64", "the keeper's system calls are not filtered on this architecture")
	}
	return ps
}

// appArmorRemedy is a profile that allows rein, and only rein, what Ubuntu
// 24.04 forbids by default.
func appArmorRemedy(rein string) string {
	if rein == "" {
		rein = "/usr/local/bin/rein"
	}
	return fmt.Sprintf("printf 'abi <abi/4.0>,\\nprofile rein %s flags=(unconfined) {\\n  userns,\\n}\\n' | sudo tee /etc/apparmor.d/rein && sudo apparmor_parser -r /etc/apparmor.d/rein", rein)
}

// Probe reads the host, really makes the namespaces once, and asks the runtime
// its version. It leaves nothing behind.
func (p *Provider) Probe(ctx context.Context) (sandbox.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	plan := planCgroup(lookAtCgroups())
	if p.missing != nil {
		return sandbox.Report{Provider: p.Name(), Runtime: p.runtime.Name, Abilities: p.abilities(plan),
			Problems: []sandbox.Problem{{What: p.missing.Error(), Remedy: sandbox.HintOf(p.missing), Fatal: true}}}, nil
	}
	f := staticFacts()
	f.Keep = p.opts.Keep
	f.Namespaces = p.tryNamespaces(ctx)
	if out, err := exec.CommandContext(ctx, p.runtime.Path, "--version").CombinedOutput(); err != nil {
		f.Runtime = fmt.Errorf("%s --version: %w: %s", p.runtime.Path, err, bytes.TrimSpace(out))
	}
	if err := ctx.Err(); err != nil {
		return sandbox.Report{}, &sandbox.Error{Kind: sandbox.KindTimeout, Op: "probe", Subject: p.Name(), Err: err}
	}
	r := sandbox.Report{Provider: p.Name(), Runtime: p.runtime.Name, Problems: problemsOf(f), Abilities: p.abilities(plan)}
	if plan.Mode == "" {
		r.Problems = append(r.Problems, sandbox.Problem{What: plan.Reason + ": cpu, memory and host-side process limits are enforced by nobody", Remedy: plan.Remedy})
	}
	r.Usable = !slices.ContainsFunc(r.Problems, func(p sandbox.Problem) bool { return p.Fatal })
	return r, nil
}

// tryNamespaces starts rein in the namespaces a sandbox has.
func (p *Provider) tryNamespaces(ctx context.Context) error {
	base := 0
	if os.Geteuid() == 0 {
		base = 0x5fff * idRange // next to those of sandboxes, used by none
	}
	bin, err := os.Open(p.opts.Keep)
	if err != nil {
		return err
	}
	defer bin.Close()
	// By descriptor: the path may lie where the mapped user cannot go.
	cmd := exec.CommandContext(ctx, "/proc/self/fd/3", "try")
	cmd.ExtraFiles = []*os.File{bin}
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.SysProcAttr = nestAttributes(base)
	cmd.SysProcAttr.Pdeathsig = 0 // this thread may end before the program does
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("%w: %s", exit, bytes.TrimSpace(out))
	}
	return err
}

// abilities says of each capability whether this runtime has it on this host,
// and who enforces it.
func (p *Provider) abilities(plan cgroupPlan) []sandbox.Ability {
	gvisor := p.runtime.Kind == kindGVisor
	isolation := "kernel"
	if gvisor {
		isolation = "gvisor"
	}
	yes := func(c sandbox.Capability, by string) sandbox.Ability {
		return sandbox.Ability{Capability: c, Available: true, EnforcedBy: by}
	}
	no := func(c sandbox.Capability, by, reason, remedy string) sandbox.Ability {
		return sandbox.Ability{Capability: c, EnforcedBy: by, Reason: reason, Remedy: remedy}
	}
	as := []sandbox.Ability{
		yes(sandbox.CapExec, "execd"), yes(sandbox.CapProcesses, isolation), yes(sandbox.CapFiles, "execd"),
		yes(sandbox.CapBackground, "execd"), yes(sandbox.CapCallIDs, "execd"), yes(sandbox.CapCaps, "execd"),
		yes(sandbox.CapSpill, "execd"), yes(sandbox.CapPipeStatus, "execd"),
	}
	switch {
	case gvisor:
		remedy := "--runtime runc"
		if !slices.Contains(plan.Controllers, "memory") { // runc does not have it here, either
			remedy = ""
		}
		as = append(as, no(sandbox.CapOOMFlag, "", "gVisor's processes share one memory: the whole sandbox is lost, with reason oom", remedy))
	case !slices.Contains(plan.Controllers, "memory"):
		as = append(as, no(sandbox.CapOOMFlag, "", "no memory limit can be set: "+plan.Reason, plan.Remedy))
	default:
		as = append(as, yes(sandbox.CapOOMFlag, "execd"))
	}
	as = append(as,
		yes(sandbox.CapLabels, "keeper"), yes(sandbox.CapRenew, "keeper"),
		yes(sandbox.CapPause, "execd"),
		yes(sandbox.CapMounts, isolation), yes(sandbox.CapNetworkDeny, "keeper"), yes(sandbox.CapNetworkRecord, "keeper"))
	if p.sameUser() {
		as = append(as, no(sandbox.CapSeparation, "execd", "reduced: one id is mapped, so user code runs under execd's; it is confined in a nested pid namespace", "--runtime gvisor, or run rein as root"))
	} else {
		as = append(as, yes(sandbox.CapSeparation, isolation))
	}
	if gvisor {
		as = append(as, yes(sandbox.CapKernel, "gvisor"))
	} else {
		as = append(as, no(sandbox.CapKernel, "", "user code calls the host's kernel, behind namespaces and seccomp", "--runtime gvisor"))
	}
	for _, l := range []struct {
		c          sandbox.Capability
		controller string
	}{{sandbox.CapLimitCPU, "cpu"}, {sandbox.CapLimitMemory, "memory"}} {
		if slices.Contains(plan.Controllers, l.controller) {
			as = append(as, yes(l.c, "cgroup "+plan.Mode))
		} else {
			as = append(as, no(l.c, nobody, plan.Reason, plan.Remedy))
		}
	}
	return append(as, yes(sandbox.CapLimitPIDs, p.runtime.pidsEnforcer()), yes(sandbox.CapLimitDisk, "tmpfs"),
		yes(sandbox.CapConfine, "execd"), yes(sandbox.CapStderrInSessions, "execd"),
		yes(sandbox.CapSessions, "execd"), yes(sandbox.CapPTY, "execd"),
		yes(sandbox.CapNetworkRefuse, "keeper"), yes(sandbox.CapExecdGuard, "execd"),
		yes(sandbox.CapTreeEnd, "execd"), yes(sandbox.CapUnprivileged, "execd"),
		yes(sandbox.CapNetworkAllow, "keeper"), yes(sandbox.CapNetworkAsk, "keeper"), yes(sandbox.CapNetworkLive, "keeper"),
		yes(sandbox.CapModels, "keeper"))
}
