package local

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
)

// buildBundle writes the OCI bundle (runtime-spec 1.2) and returns its
// directory.
func buildBundle(cfg *nestConfig, sourceFDs []int) (string, error) {
	var binds []string
	var err error
	if cfg.Image != nil {
		err = buildFromImage(cfg)
	} else {
		binds, err = buildRootfs(cfg)
	}
	if err != nil {
		return "", err
	}
	sources, err := bindSources(sourceFDs, cfg.closed)
	if err != nil {
		return "", err
	}
	spec, err := bundleSpec(cfg, binds, sources)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return "", err
	}
	return nestRoot, os.WriteFile(filepath.Join(nestRoot, "config.json"), b, 0o600)
}

// bundleSpec is the whole isolation of a sandbox as the OCI runtime is asked
// for it. The user and network namespaces are the nest's own.
func bundleSpec(cfg *nestConfig, binds, sources []string) (*specs.Spec, error) {
	caps := execdCaps(cfg.SameUser)
	spec := &specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: rootfsPath},
		Process: &specs.Process{
			Args:            []string{execdPath},
			Cwd:             "/",
			Env:             []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			NoNewPrivileges: true,
			Capabilities:    &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			Rlimits:         rlimits(),
		},
		Hostname: "sandbox",
		Mounts:   systemMounts(cfg),
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
				{Type: specs.NetworkNamespace, Path: "/proc/1/ns/net"},
			},
			MaskedPaths: []string{"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
				"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
	for _, dir := range binds {
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: dir, Source: dir, Type: "bind", Options: []string{"rbind", "ro", "nosuid", "nodev"}})
	}
	for _, name := range cfg.covered {
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: name, Source: filepath.Join(rootfsPath, trustStorePath), Type: "bind", Options: []string{"bind", "ro", "nosuid", "nodev"}})
	}
	for i, m := range cfg.Mounts {
		opts := []string{"rbind", "ro", "nosuid", "nodev"}
		if m.Writable {
			opts[1] = "rw"
		}
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: m.Target, Source: sources[i], Type: "bind", Options: opts})
	}
	if cfg.Runtime.Kind == kindRunc {
		// So that /proc/self/cgroup does not tell the host's names.
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.CgroupNamespace})
		profile, err := callFilter(spec)
		if err != nil {
			return nil, err
		}
		spec.Linux.Seccomp = profile
	}
	return spec, nil
}

// execdCaps are the capabilities of execd inside the sandbox's user namespace:
// to run commands as the user, bound and end them, and look after their files.
// User code has none. With a single mapped id commands are confined in a nested
// pid namespace instead, which takes CAP_SYS_ADMIN to make.
func execdCaps(sameUser bool) []string {
	caps := []string{"CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE"}
	if sameUser {
		caps = append(caps, "CAP_SYS_ADMIN")
	}
	return caps
}

// maxOpenFiles is the limit of descriptors of each process inside, or the
// nest's own hard limit where that is lower.
const maxOpenFiles = 65536

func rlimits() []specs.POSIXRlimit {
	files := uint64(maxOpenFiles)
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err == nil && own.Max < files {
		files = own.Max
	}
	return []specs.POSIXRlimit{
		{Type: "RLIMIT_NOFILE", Soft: files, Hard: files},
		{Type: "RLIMIT_CORE"},
	}
}

// insideCgroup is where gVisor shows the sandbox its own cgroup. RLIMIT_NPROC
// it does not enforce.
const insideCgroup = "/sys/fs/cgroup"

// shmSize bounds /dev/shm, devSize /dev, both in bytes.
const (
	shmSize = 64 << 20
	devSize = 64 << 20
)

// spillSlack is what /run/rein holds besides the spills: execd's stored
// results and scripts.
const spillSlack = 64 << 20

func systemMounts(cfg *nestConfig) []specs.Mount {
	// A tmpfs of gVisor's knows no other bound than its size.
	limits := func(size int64) []string { return []string{"size=" + strconv.FormatInt(size, 10)} }
	if cfg.Runtime.Kind == kindRunc {
		limits = func(size int64) []string { return strings.Split(tmpfsLimits(size), ",") }
	}
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: append(limits(devSize), "nosuid", "strictatime", "mode=755")},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: append(limits(shmSize), "nosuid", "noexec", "nodev", "mode=1777")},
		{Destination: "/run/rein", Type: "tmpfs", Source: "tmpfs", Options: append(limits(execd.DefaultSpillBudget+spillSlack), "nosuid", "nodev", "noexec", "mode=755")},
	}
	if cfg.Runtime.Kind == kindRunc {
		mounts = append(mounts, specs.Mount{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}})
	}
	mounts = append(mounts, specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}})
	if cfg.Runtime.Kind == kindGVisor {
		// Version 2: with the hierarchies of version 1, this gVisor charges a new
		// process to a random one of them, and the limit is no limit.
		mounts = append(mounts, specs.Mount{Destination: insideCgroup, Type: "cgroup2", Source: "cgroup2", Options: []string{"nosuid", "noexec", "nodev"}})
	}
	return mounts
}
