package local

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rein-sh/rein/sandbox"
)

// ImageHost is the image made of the host's own read-only /usr.
const ImageHost = "host"

// complete fills in the defaults and refuses what cannot be honoured here.
func (p *Provider) complete(s sandbox.Spec, plan cgroupPlan) (sandbox.Spec, error) {
	refuse := func(kind sandbox.Kind, subject, format string, args ...any) (sandbox.Spec, error) {
		return s, &sandbox.Error{Kind: kind, Op: "create", Subject: subject, Err: fmt.Errorf(format, args...)}
	}
	if err := s.Check(); err != nil {
		return s, err
	}
	if s.Image == "" {
		s.Image = ImageHost
	}
	inside := hostReserved
	switch {
	case s.Image == ImageHost && s.Cwd == "":
		s.Cwd = defaultCwd
	case s.Image != ImageHost && p.opts.Images == nil:
		return refuse(sandbox.KindUnsupported, "image "+s.Image, "this provider was made without a store of images: it knows the image %q only", ImageHost)
	case s.Image != ImageHost:
		inside = imageReserved
	}
	if s.Cwd != "" {
		if err := checkInside(s.Cwd, inside); err != nil {
			return refuse(sandbox.KindInvalid, "cwd "+s.Cwd, "%w", err)
		}
	}
	for _, m := range s.Mounts {
		if err := checkMount(m, inside); err != nil {
			return refuse(sandbox.KindInvalid, "mount "+m.Target, "%w", err)
		}
	}
	explicit := s.Resources
	s.Resources = withDefaults(s.Resources, p.opts.Resources)
	if err := s.Resources.Check(); err != nil { // the defaults are an option, too
		return s, err
	}
	if r := s.Resources; r.Disk > r.Memory/2 {
		return s, &sandbox.Error{Kind: sandbox.KindInvalid, Op: "create", Subject: "resources",
			Err:  fmt.Errorf("what is written to a disk of %d bytes is held in memory, and must leave half of its %d bytes", r.Disk, r.Memory),
			Hint: fmt.Sprintf("set the target's resources.memory to %d or more, or resources.disk to %d or less", 2*r.Disk, r.Memory/2)}
	}
	if err := p.checkRequired(s.Require, explicit, plan); err != nil {
		return s, err
	}
	return s, nil
}

// defaultCwd is where commands run when neither Spec nor image says.
const defaultCwd = "/workspace"

// The directories inside that the sandbox itself is made of.
var (
	imageReserved = []string{"/proc", "/sys", "/dev", "/etc", "/run", "/.rein"}
	hostReserved  = append([]string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}, imageReserved...)
)

func checkInside(p string, reserved []string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" {
		return fmt.Errorf("%q is not a clean absolute path below /", p)
	}
	if strings.ContainsAny(p, "\x00\n") {
		return fmt.Errorf("%q holds a control character", p)
	}
	for _, r := range reserved {
		if p == r || strings.HasPrefix(p, r+"/") {
			return fmt.Errorf("%s is part of the sandbox itself", r)
		}
	}
	return nil
}

func checkMount(m sandbox.Mount, reserved []string) error {
	if !path.IsAbs(m.Source) || path.Clean(m.Source) != m.Source {
		return fmt.Errorf("the source %q is not a clean absolute path", m.Source)
	}
	if _, err := os.Stat(m.Source); err != nil {
		return err
	}
	return checkInside(m.Target, reserved)
}

// checkRequired refuses a sandbox that needs what this host cannot do. A limit
// that was asked for and that nobody can enforce is such a need.
func (p *Provider) checkRequired(require []sandbox.Capability, explicit sandbox.Resources, plan cgroupPlan) error {
	if err := sandbox.CheckCapabilities(require); err != nil {
		return err
	}
	if explicit.CPU > 0 {
		require = append(slices.Clip(require), sandbox.CapLimitCPU)
	}
	if explicit.Memory > 0 {
		require = append(slices.Clip(require), sandbox.CapLimitMemory)
	}
	for _, a := range p.abilities(plan) {
		if !a.Available && slices.Contains(require, a.Capability) {
			return &sandbox.Error{Kind: sandbox.KindUnsupported, Op: "create", Subject: "capability " + string(a.Capability),
				Err: fmt.Errorf("runtime %s cannot do it on this host: %s", p.runtime.Name, a.Reason), Hint: a.Remedy}
		}
	}
	return nil
}

// limits says who enforces each limit of a sandbox.
func (r ociRuntime) limits(res sandbox.Resources, plan cgroupPlan) []sandbox.Limit {
	by := func(controller string) string {
		if slices.Contains(plan.Controllers, controller) {
			return "cgroup " + plan.Mode
		}
		return nobody
	}
	return []sandbox.Limit{
		{Resource: "cpu", Value: strconv.FormatFloat(res.CPU, 'g', -1, 64), EnforcedBy: by("cpu")},
		{Resource: "memory", Value: strconv.FormatInt(res.Memory, 10), EnforcedBy: by("memory")},
		{Resource: "pids", Value: strconv.Itoa(res.PIDs), EnforcedBy: r.pidsEnforcer()},
		{Resource: "disk", Value: strconv.FormatInt(res.Disk, 10), EnforcedBy: "tmpfs"},
	}
}

// pidsEnforcer is who bounds the user's processes inside. The host's own limit
// around the whole sandbox, where there is one, has headroom and is not meant
// to be met.
func (r ociRuntime) pidsEnforcer() string {
	if r.Kind == kindGVisor {
		return "gvisor"
	}
	return "rlimit"
}

// nobody is who enforces a limit that is not enforced.
const nobody = "nobody"

// sameUser reports whether commands must run under execd's own id: as an
// ordinary user only one id is mapped, and only gVisor has ids of its own.
func (p *Provider) sameUser() bool { return os.Geteuid() != 0 && p.runtime.Kind != kindGVisor }

func (p *Provider) separation() string {
	if p.sameUser() {
		return "reduced"
	}
	return "full"
}
