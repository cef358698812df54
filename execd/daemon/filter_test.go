package daemon

import (
	"encoding/binary"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/bpf"
)

// numbers are the system calls of the profile that may be in adminCalls. One
// that is missing here is reported by name. umount is not a call of any machine
// that rein knows.
var numbers = map[string]uint32{
	"bpf": unix.SYS_BPF, "clone": unix.SYS_CLONE, "clone3": unix.SYS_CLONE3, "fanotify_init": unix.SYS_FANOTIFY_INIT,
	"fsconfig": unix.SYS_FSCONFIG, "fsmount": unix.SYS_FSMOUNT, "fsopen": unix.SYS_FSOPEN, "fspick": unix.SYS_FSPICK,
	"lookup_dcookie": unix.SYS_LOOKUP_DCOOKIE, "lsm_get_self_attr": unix.SYS_LSM_GET_SELF_ATTR,
	"lsm_list_modules": unix.SYS_LSM_LIST_MODULES, "lsm_set_self_attr": unix.SYS_LSM_SET_SELF_ATTR, "mount": unix.SYS_MOUNT,
	"mount_setattr": unix.SYS_MOUNT_SETATTR, "move_mount": unix.SYS_MOVE_MOUNT, "open_tree": unix.SYS_OPEN_TREE,
	"perf_event_open": unix.SYS_PERF_EVENT_OPEN, "quotactl": unix.SYS_QUOTACTL, "quotactl_fd": unix.SYS_QUOTACTL_FD,
	"setdomainname": unix.SYS_SETDOMAINNAME, "sethostname": unix.SYS_SETHOSTNAME, "setns": unix.SYS_SETNS,
	"syslog": unix.SYS_SYSLOG, "umount2": unix.SYS_UMOUNT2, "unshare": unix.SYS_UNSHARE,
}

// profile is the default profile for a process with these capabilities: what it
// allows whatever the arguments, and the mask that clone's flags must not meet.
func profile(t *testing.T, caps ...string) (allowed map[string]bool, cloneMask uint64) {
	t.Helper()
	p, err := seccomp.GetDefaultProfile(&specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: caps}}})
	if err != nil {
		t.Fatal(err)
	}
	allowed = map[string]bool{}
	for _, rule := range p.Syscalls {
		switch {
		case rule.Action == specs.ActAllow && len(rule.Args) == 0:
			for _, name := range rule.Names {
				allowed[name] = true
			}
		case slices.Contains(rule.Names, "clone"):
			if a := rule.Args[0]; len(rule.Args) != 1 || a.Index != 0 || a.Op != specs.OpMaskedEqual || a.ValueTwo != 0 {
				t.Fatalf("the profile decides about clone in a new way: %+v", rule)
			}
			cloneMask = rule.Args[0].Value
		case slices.Contains(rule.Names, "clone3"):
			if rule.ErrnoRet == nil || *rule.ErrnoRet != uint(unix.ENOSYS) {
				t.Fatalf("the profile decides about clone3 in a new way: %+v", rule)
			}
		}
	}
	return allowed, cloneMask
}

// The filter refuses exactly what the default profile refuses without
// CAP_SYS_ADMIN and allows with it.
func TestAdminFilter(t *testing.T) {
	p := adminFilter()
	if p == nil {
		t.Fatalf("nested sandboxes do not work on %s", runtime.GOARCH)
	}
	ins := make([]bpf.Instruction, len(p))
	for i, f := range p {
		ins[i] = bpf.RawInstruction(f.Code, f.Jt, f.Jf, f.K)
	}
	program, err := bpf.Compile(ins, false)
	if err != nil {
		t.Fatal(err)
	}
	arch := p[1].K
	answer := func(arch, nr uint32, arg0 uint64) uint32 {
		t.Helper()
		data := make([]byte, 64) // struct seccomp_data
		binary.NativeEndian.PutUint32(data[0:], nr)
		binary.NativeEndian.PutUint32(data[4:], arch)
		binary.NativeEndian.PutUint64(data[16:], arg0)
		v, err := bpf.Exec[bpf.NativeEndian](program, bpf.Input(data))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	const perm, nosys = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM), unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)

	with, _ := profile(t, "CAP_SYS_ADMIN")
	without, mask := profile(t)
	want := map[uint32]uint32{}
	for _, name := range slices.Sorted(maps.Keys(with)) {
		nr, known := numbers[name]
		switch {
		case without[name] || name == "umount" || name == "clone":
		case !known:
			t.Errorf("the profile refuses %s without CAP_SYS_ADMIN; the filter does not know it", name)
		case name == "clone3":
			want[nr] = nosys
		default:
			want[nr] = perm
		}
	}
	if len(want) < 20 {
		t.Fatalf("only %d calls were found in the profile", len(want))
	}
	for nr := range uint32(2048) {
		expected, ok := want[nr]
		if !ok {
			expected = unix.SECCOMP_RET_ALLOW
		}
		if got := answer(arch, nr, 0); got != expected {
			t.Errorf("system call %d: %#x, want %#x", nr, got, expected)
		}
	}
	for bit := range 64 {
		expected := uint32(unix.SECCOMP_RET_ALLOW)
		if mask&(1<<bit) != 0 {
			expected = perm
		}
		if got := answer(arch, unix.SYS_CLONE, 1<<bit); got != expected {
			t.Errorf("clone with flag %#x: %#x, want %#x", uint64(1)<<bit, got, expected)
		}
	}
	for _, other := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, 0} {
		if got := answer(other, unix.SYS_GETPID, 0); got != unix.SECCOMP_RET_KILL_PROCESS {
			t.Errorf("a call of architecture %#x: %#x", other, got)
		}
	}
	for _, nr := range []uint32{0x40000000 + unix.SYS_UNSHARE, 1<<32 - 1} {
		if got := answer(arch, nr, 0); got != nosys {
			t.Errorf("system call %#x: %#x", nr, got)
		}
	}
}
