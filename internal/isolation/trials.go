package isolation

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Trials are all that is tried, in the order in which it is documented.
func Trials() []Trial {
	return slices.Concat(namespaces(), mounts(), processes(), host(), files(), kernel(), network())
}

// Shorthands of what most trials expect.
var (
	perm  = Want{Runc: "EPERM", GVisor: "EPERM"}
	nosys = Want{Runc: "EPERM", GVisor: "ENOSYS"}
	empty = Want{Runc: "nothing", GVisor: "nothing"}
)

func namespaces() []Trial {
	list := []Trial{
		{Name: "a user namespace, by clone", Want: perm, Control: Own, do: newNamespace(unix.CLONE_NEWUSER, 0)},
		{Name: "a user namespace, by clone3", Want: Want{Runc: "ENOSYS", GVisor: "EPERM"}, Control: Own, Works: []string{"EINVAL"}, do: clone3},
	}
	for _, n := range []struct {
		name string
		flag uintptr
	}{
		{"a user", unix.CLONE_NEWUSER}, {"a mount", unix.CLONE_NEWNS}, {"a pid", unix.CLONE_NEWPID}, {"a network", unix.CLONE_NEWNET},
		{"an ipc", unix.CLONE_NEWIPC}, {"a uts", unix.CLONE_NEWUTS}, {"a cgroup", unix.CLONE_NEWCGROUP},
	} {
		list = append(list, Trial{Name: n.name + " namespace, by unshare", Want: perm, Control: Own, do: newNamespace(0, n.flag)})
	}
	list = append(list,
		Trial{Name: "setns into its own network namespace", Want: perm, Control: Own, do: enter("/proc/self/ns/net")},
		Trial{Name: "setns into the first process's", Want: Want{Runc: "EACCES", GVisor: "EPERM"}, Control: Own, do: enter("/proc/1/ns/net")},
		Trial{Name: "chroot", Want: perm, Control: Own, do: path(unix.SYS_CHROOT, nil, "/")},
		Trial{Name: "pivot_root", Want: perm, Control: Own, Works: []string{"EBUSY", "EINVAL"}, do: pivotRoot},
		Trial{Name: "another host name", Want: perm, Control: Own, Works: []string{"EINVAL"}, do: call(unix.SYS_SETHOSTNAME, 0, none)},
		Trial{Name: "another domain name", Want: perm, Control: Own, Works: []string{"EINVAL"}, do: call(unix.SYS_SETDOMAINNAME, 0, none)},
	)
	return in("Namespaces", list)
}

func mounts() []Trial {
	return in("Mounts", []Trial{
		{Name: "mount a tmpfs", Want: perm, Control: Own, do: mount("none", "/tmp", "tmpfs", 0)},
		{Name: "mount another /proc", Want: perm, Control: Own, do: mount("none", "/tmp", "proc", 0)},
		{Name: "bind a directory", Want: perm, Control: Own, do: mount("/usr", "/tmp", "", unix.MS_BIND)},
		{Name: "make the root writable", Want: perm, Control: Own, do: mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND)},
		{Name: "unmount /sys", Want: perm, Control: Own, Works: []string{"EINVAL"}, do: path(unix.SYS_UMOUNT2, nil, "/sys", unix.MNT_DETACH)},
		{Name: "open_tree", Want: perm, Control: Own, do: path(unix.SYS_OPEN_TREE, []uintptr{0}, "/usr", unix.OPEN_TREE_CLONE)},
		{Name: "fsopen", Want: perm, Control: Own, do: path(unix.SYS_FSOPEN, nil, "tmpfs", 0)},
		{Name: "move_mount", Want: Want{Runc: "EPERM", GVisor: "EINVAL"}, Control: Own, Works: []string{"EINVAL"}, do: call(unix.SYS_MOVE_MOUNT, none, 0, none, 0, none)},
		{Name: "mount_setattr", Want: nosys, Control: Own, Works: []string{"EINVAL"}, do: call(unix.SYS_MOUNT_SETATTR, none, 0, none)},
		{Name: "open_by_handle_at", Want: Want{Runc: "EPERM", GVisor: "ENOTSUP"}, Control: Root, Works: []string{"EFAULT", "EBADF"}, do: call(unix.SYS_OPEN_BY_HANDLE_AT, none, 0, 0)},
	})
}

func processes() []Trial {
	list := []Trial{
		{Name: "trace the first process", Want: perm, Control: Beside, do: func(Host) error { return seize(first) }, twin: func(Host) error { return withChild(seize) }},
		{Name: "read its memory", Want: perm, Control: Beside, do: func(Host) error { return readMemory(first) }, twin: func(Host) error { return withChild(readMemory) }},
		{Name: "take its descriptors", Want: perm, Control: Beside, do: func(Host) error { return takeDescriptor(first) }, twin: func(Host) error { return withChild(takeDescriptor) }},
	}
	for _, f := range []struct {
		what, file string
		flags      int
	}{
		{"its memory as a file", "mem", os.O_RDWR}, {"its environment", "environ", os.O_RDONLY}, {"its memory map", "maps", os.O_RDONLY},
		{"a descriptor as a file", "fd/1", os.O_WRONLY}, {"its root directory", "root", os.O_RDONLY}, {"its working directory", "cwd", os.O_RDONLY},
	} {
		list = append(list, Trial{Name: f.what, Want: Want{Runc: "EACCES", GVisor: "EACCES"}, Control: Beside, do: open("/proc/1/"+f.file, f.flags), twin: open("/proc/self/"+f.file, f.flags)})
	}
	return in("Processes", append(list,
		Trial{Name: "write to its program", Want: Want{Runc: "EACCES", GVisor: "EACCES"}, Control: Beside, do: open("/proc/1/exe", os.O_RDWR), twin: open(self, os.O_RDONLY)},
		Trial{Name: "become another user", Want: Want{Runc: "EPERM", OneID: "EINVAL", GVisor: "EPERM"}, Control: Root, do: becomeAnother},
		Trial{Name: "take capabilities", Want: perm, Control: Own, do: takeCapabilities},
		Trial{Name: "run a program from memory", Want: Want{Runc: "no rights", GVisor: "no rights"}, Control: Own, do: runInMemory},
		Trial{Name: "a descriptor left open", Want: Want{Runc: "none", GVisor: "none"}, Control: Outside, do: descriptors},
		Trial{Name: "a directory above the root", Want: Want{Runc: "the root", GVisor: "the root"}, Control: Own, do: climb},
		Trial{Name: "the same by /proc/self/cwd", Want: Want{Runc: "the root", GVisor: "the root"}, Control: Beside, do: follow("/proc/self/cwd"), twin: open("/proc/self/cwd", os.O_RDONLY)},
		Trial{Name: "the same by /proc/1/cwd", Want: Want{Runc: "EACCES", GVisor: "EACCES"}, Control: Beside, do: follow("/proc/1/cwd"), twin: open("/proc/self/cwd", os.O_RDONLY)},
		Trial{Name: "type into a terminal (TIOCSTI)", Want: Want{Runc: "EPERM", GVisor: "ENOTTY"}, Control: Outside, Works: []string{Possible, "EIO"}, do: typeInto(0)},
		Trial{Name: "the same with higher bits set", Want: Want{Runc: "EPERM", GVisor: "ENOTTY"}, Control: Outside, Works: []string{Possible, "EIO"}, do: typeInto(1 << 32)},
	))
}

func host() []Trial {
	inMount := func(name string) func(Host) string { return func(h Host) string { return h.Mount + "/" + name } }
	return in("What is the host's", []Trial{
		{Name: "an abstract socket", Want: Want{Runc: "ECONNREFUSED", GVisor: "ECONNREFUSED"}, Control: Outside, do: dialUnix(func(h Host) string { return "@" + h.Abstract })},
		{Name: "an abstract socket of its own", Want: Want{Runc: Possible, GVisor: Possible}, Control: Outside, do: ownAbstract},
		{Name: "the keeper's socket", Want: Want{Runc: "ENOENT", GVisor: "ENOENT"}, Control: Outside, do: dialUnix(func(h Host) string { return h.Keeper })},
		{Name: "a socket in a read-only mount", Want: Want{Runc: "EACCES", OneID: Possible, GVisor: "ECONNREFUSED"}, Control: Outside, do: dialUnix(inMount("socket"))},
		{Name: "a FIFO in a read-only mount", Want: Want{Runc: "EACCES", OneID: Possible, GVisor: "EPERM"}, Control: Outside, do: func(h Host) error { return openFile(inMount("fifo")(h), os.O_WRONLY|unix.O_NONBLOCK) }},
		{Name: "write to a file in a read-only mount", Want: Want{Runc: "EACCES", OneID: "EROFS", GVisor: "EROFS"}, Control: Outside, do: func(h Host) error { return openFile(inMount("file")(h), os.O_WRONLY) }},
		{Name: "read a file in a read-only mount", Want: Want{Runc: Possible, GVisor: Possible}, Control: Outside, do: func(h Host) error { return openFile(inMount("file")(h), os.O_RDONLY) }},
		{Name: "a file", Want: Want{Runc: "ENOENT", GVisor: "ENOENT"}, Control: Outside, do: func(h Host) error { return openFile(h.File, os.O_RDONLY) }},
		{Name: "System V shared memory", Want: Want{Runc: "ENOENT", GVisor: "ENOENT"}, Control: Outside, do: sharedMemory},
		{Name: "shared memory of its own", Want: Want{Runc: Possible, GVisor: Possible}, Control: Outside, do: ownSharedMemory},
		{Name: "POSIX shared memory", Want: Want{Runc: "ENOENT", GVisor: "ENOENT"}, Control: Outside, do: func(h Host) error { return openFile(h.SharedMemory, os.O_RDWR) }},
		{Name: "a POSIX message queue", Want: Want{Runc: "ENOENT", GVisor: "ENOENT"}, Control: Outside, do: queue},
		{Name: "a key of the user's keyring", Want: nosys, Control: Outside, do: userKey},
		{Name: "a process, by its environment", Want: Want{Runc: "not there", GVisor: "not there"}, Control: Outside, do: hostProcess},
		{Name: "a device", Want: Want{Runc: "none", GVisor: "/dev/fuse /dev/net/tun"},
			Note: "gVisor's own kernel has these two; using them takes capabilities that nobody inside has", Control: Outside, do: devices},
		{Name: "make a device", Want: perm, Control: Beside, do: makeDevice, twin: makeFIFO},
	})
}

func files() []Trial {
	return in("/proc and /sys", []Trial{
		{Name: "read masked files of /proc", Want: empty, Control: Outside, do: readable("/proc/kcore", "/proc/keys", "/proc/interrupts", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats", "/proc/acpi", "/proc/scsi")},
		{Name: "read masked parts of /sys", Want: empty, Control: Outside, do: readable("/sys/firmware", "/sys/devices/virtual/powercap")},
		{Name: "the kernel's log", Want: Want{Runc: "EACCES", GVisor: "ENOENT"}, Control: Root, do: open("/proc/kmsg", os.O_RDONLY|unix.O_NONBLOCK)},
		{Name: "the kernel's memory map", Want: Want{Runc: "EACCES", GVisor: "ENOENT"}, Control: Root, do: open("/proc/vmallocinfo", os.O_RDONLY)},
		{Name: "write /proc/sys/kernel/core_pattern", Want: Want{Runc: "EACCES", GVisor: "ENOENT"}, Control: Root, do: write("/proc/sys/kernel/core_pattern")},
		{Name: "write /proc/sys/net", Want: Want{Runc: "EACCES", GVisor: "EACCES"}, Control: Own, do: write("/proc/sys/net/ipv4/ip_forward")},
		{Name: "make a cgroup", Want: Want{Runc: "ENOENT", GVisor: "EACCES"}, Control: Root, Works: []string{Possible, "EROFS", "EPERM"}, do: makeDir("/sys/fs/cgroup/rein-isolation")},
		{Name: "write to /sys", Want: Want{Runc: "EROFS", GVisor: "ENOENT"}, Control: Root, do: write("/sys/kernel/mm/transparent_hugepage/enabled")},
	})
}

func kernel() []Trial {
	list := []Trial{
		{Name: "io_uring", Want: nosys, Control: Outside, Works: []string{"EFAULT"}, do: call(unix.SYS_IO_URING_SETUP, 1, 0)},
		{Name: "bpf", Want: perm, Control: Root, Works: []string{"EINVAL", "E2BIG", "EFAULT"}, do: call(unix.SYS_BPF, none, 0, 0)},
		{Name: "perf_event_open", Want: Want{Runc: "EPERM", GVisor: "ENODEV"}, Control: Outside, Works: []string{"EFAULT"}, do: call(unix.SYS_PERF_EVENT_OPEN, 0, 0, none, none, 0)},
		{Name: "userfaultfd", Want: nosys, Control: Root, Works: []string{"EINVAL"}, do: call(unix.SYS_USERFAULTFD, none)},
		{Name: "fanotify_init", Want: nosys, Control: Root, Works: []string{"EINVAL"}, do: call(unix.SYS_FANOTIFY_INIT, none, 0)},
		{Name: "add_key", Want: Want{Runc: "EPERM", GVisor: "EACCES"}, Control: Outside, Works: []string{"EFAULT"}, do: call(unix.SYS_ADD_KEY, 0, 0, 0, 0, 0)},
		{Name: "request_key", Want: Want{Runc: "EPERM", GVisor: "EACCES"}, Control: Outside, Works: []string{"EFAULT"}, do: call(unix.SYS_REQUEST_KEY, 0, 0, 0, 0)},
		{Name: "keyctl", Want: Want{Runc: "EPERM", GVisor: "ENOSYS"}, Control: Outside, Works: []string{"ENOTSUP"}, do: call(unix.SYS_KEYCTL, none)},
	}
	for _, c := range []struct {
		name  string
		do    func(Host) error
		works []string
	}{
		{"load a module", call(unix.SYS_INIT_MODULE, 0, 0, 0), []string{"ENOEXEC", "EFAULT", "ENOSYS"}},
		{"load a module from a file", call(unix.SYS_FINIT_MODULE, none, 0, none), []string{"EINVAL", "EBADF", "ENOSYS"}},
		{"unload a module", call(unix.SYS_DELETE_MODULE, 0, 0), []string{"EFAULT", "ENOSYS"}},
		{"kexec_load", call(unix.SYS_KEXEC_LOAD, 0, 0, 0, none), []string{"EINVAL", "ENOSYS"}},
		{"reboot", call(unix.SYS_REBOOT, 0, 0, 0, 0), []string{"EINVAL"}},
		{"swapon", call(unix.SYS_SWAPON, 0, none), []string{"EINVAL"}},
		{"swapoff", call(unix.SYS_SWAPOFF, 0), []string{"EFAULT"}},
		{"process accounting", call(unix.SYS_ACCT, 1), []string{"EFAULT", "ENOSYS"}},
		{"set the clock", call(unix.SYS_CLOCK_SETTIME, unix.CLOCK_MONOTONIC, 0), []string{"EINVAL"}},
		{"set the time of day", call(unix.SYS_SETTIMEOFDAY, 1, 0), []string{"EFAULT"}},
		{"adjust the clock", adjust, []string{"EINVAL"}},
		{"quotas", call(unix.SYS_QUOTACTL, none, 0, 0, 0), []string{"EINVAL", "ENODEV", "ENOTBLK", "EFAULT", "ENOSYS"}},
	} {
		list = append(list, Trial{Name: c.name, Want: perm, Control: Root, Works: c.works, do: c.do})
	}
	// No control asks the host's kernel for another: kexec_load has shown it.
	list = append(list, Trial{Name: "kexec_file_load", Want: perm, Control: Beside, do: call(unix.SYS_KEXEC_FILE_LOAD, none, none, 0, 0, none), twin: call(unix.SYS_GETPID)})
	list = append(list, Trial{Name: "the kernel's log by syslog", Want: Want{Runc: "EPERM", GVisor: Possible}, Note: "gVisor shows a log of its own, of which nothing is the host's",
		Control: Root, do: call(unix.SYS_SYSLOG, 10, 0, 0)})
	return in("The kernel", append(list, native()...))
}

func network() []Trial {
	list := []Trial{}
	for _, s := range []struct {
		name                string
		family, kind, proto int
		works               []string
		gvisor              string
	}{
		{"a raw socket", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, nil, "EPERM"},
		{"a raw IPv6 socket", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6, nil, "EPERM"},
		{"a packet socket", unix.AF_PACKET, unix.SOCK_RAW, 0, nil, "EPERM"},
		{"a socket to the hypervisor (vsock)", unix.AF_VSOCK, unix.SOCK_STREAM, 0, []string{Possible, "EAFNOSUPPORT", "ENODEV"}, "EAFNOSUPPORT"},
		{"the kernel's cryptography (AF_ALG)", unix.AF_ALG, unix.SOCK_SEQPACKET, 0, []string{Possible, "EAFNOSUPPORT"}, "EAFNOSUPPORT"},
		{"AF_KEY", unix.AF_KEY, unix.SOCK_RAW, 2, []string{Possible, "EAFNOSUPPORT"}, "EAFNOSUPPORT"},
		{"Bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1, []string{Possible, "EAFNOSUPPORT", "EPROTONOSUPPORT"}, "EAFNOSUPPORT"},
		{"TIPC", unix.AF_TIPC, unix.SOCK_RDM, 0, []string{Possible, "EAFNOSUPPORT"}, "EAFNOSUPPORT"},
		{"CAN", unix.AF_CAN, unix.SOCK_RAW, 1, []string{Possible, "EAFNOSUPPORT", "EPROTONOSUPPORT"}, "EAFNOSUPPORT"},
		{"XDP", unix.AF_XDP, unix.SOCK_RAW, 0, []string{Possible, "EAFNOSUPPORT"}, "EAFNOSUPPORT"},
	} {
		list = append(list, Trial{Name: s.name, Want: Want{Runc: "EPERM", GVisor: s.gvisor}, Control: Own, Works: s.works, do: socket(s.family, s.kind, s.proto)})
	}
	for _, s := range []struct {
		name          string
		family, proto int
	}{{"a ping socket", unix.AF_INET, unix.IPPROTO_ICMP}, {"a ping socket, IPv6", unix.AF_INET6, unix.IPPROTO_ICMPV6}} {
		list = append(list, Trial{Name: s.name, Want: Want{Runc: "EACCES", GVisor: "EACCES"}, Control: Own, do: pingSocket(s.family, s.proto)})
	}
	return in("The network", append(list,
		Trial{Name: "another address, by netlink", Want: perm, Control: Own, do: addAddress},
		Trial{Name: "mark packets", Want: perm, Control: Own, do: markPackets},
	))
}

func in(area string, list []Trial) []Trial {
	for i := range list {
		list[i].Area = area
		if list[i].Works == nil {
			list[i].Works = []string{Possible}
		}
		if list[i].Want.OneID == "" {
			list[i].Want.OneID = list[i].Want.Runc
		}
	}
	return list
}

func adjust(Host) error {
	_, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_TICK, Tick: 1})
	return err
}
