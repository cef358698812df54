package daemon

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// confine prepares a warden's only forking thread so that commands started
// from it have no privileges and cannot gain any, and reports what holds.
func (w *wardenProc) confine() (int, error) {
	// Read before the process becomes non-dumpable, which takes its /proc files
	// away from an ordinary user.
	w.openOOM()
	if err := SealDescriptors(); err != nil {
		return 0, err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("PR_SET_DUMPABLE: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return 0, fmt.Errorf("PR_SET_PDEATHSIG: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("PR_SET_CHILD_SUBREAPER: %w", err)
	}
	if w.setup.Cgroup != "" {
		fd, err := unix.Open(w.setup.Cgroup, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, fmt.Errorf("the commands' cgroup: %w", err)
		}
		w.cgroup = fd
	}
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("/dev/null: %w", err)
	}
	w.null = uintptr(null)
	unix.Umask(0o022)
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return 0, fmt.Errorf("RLIMIT_CORE: %w", err)
	}
	if w.setup.NProc > 0 {
		if err := capNProc(w.setup.NProc + nprocSlack); err != nil {
			return 0, fmt.Errorf("RLIMIT_NPROC: %w", err)
		}
	}
	if w.setup.Nested {
		if err := remountProc(); err == nil {
			w.holds |= holdsProc
		}
	}
	if dropGroups() {
		w.holds |= holdsGroups
	}
	if err := w.dropPrivileges(); err != nil {
		return 0, err
	}
	if w.setup.NProc > 0 && (!w.setup.Switch || hasCapability(unix.CAP_SYS_RESOURCE)) {
		w.holds |= holdsNProc
	}
	return w.holds, nil
}

// expectedHolds is what wardens must hold, by the rights of this process, which
// they inherit. Whether a nested one gets a /proc of its own only it can tell.
func expectedHolds(opts OSOptions) int {
	bounding, err := inBounding()
	if err != nil {
		return holdsNoPrivs
	}
	holds := holdsNoPrivs
	if bounding == 0 || passesOn(unix.CAP_SETPCAP, bounding) {
		holds |= holdsBounding
	}
	if opts.MaxProcesses > 0 && (opts.User == nil || passesOn(unix.CAP_SYS_RESOURCE, bounding)) {
		holds |= holdsNProc
	}
	if opts.User != nil && (!inGroups() || passesOn(unix.CAP_SETGID, bounding) && !setgroupsDenied()) {
		holds |= holdsGroups
	}
	return holds
}

// passesOn reports whether this process has a capability that programs it
// starts have too (capabilities(7), "Transformation of capabilities during
// execve()").
func passesOn(c uint, bounding uint64) bool {
	if !hasCapability(c) {
		return false
	}
	if set, err := unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, uintptr(c), 0, 0); err == nil && set == 1 {
		return true
	}
	const noRoot = 1 << 0
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	return unix.Geteuid() == 0 && err == nil && bits&noRoot == 0 && bounding&(1<<c) != 0
}

// setgroupsDenied reports whether this user namespace forbids setgroups(2), see
// user_namespaces(7). gVisor, which has no such setting, allows it.
func setgroupsDenied() bool {
	setting, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && strings.TrimSpace(string(setting)) == "deny"
}

// nprocSlack is how many processes a warden may see more than its commands may
// make: where they share a user, the daemon and the wardens count too, and the
// Go runtime cannot go on when it gets no thread.
const nprocSlack = 128

// capNProc lowers the limit that children inherit as the highest they may set.
func capNProc(n int) error {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &old); err != nil {
		return err
	}
	n64 := min(uint64(n), old.Max)
	return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: n64, Max: n64})
}

func (w *wardenProc) openOOM() {
	w.oomAdj = -1
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return
	}
	own, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return
	}
	if fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		w.oomAdj, w.ownAdj = fd, own
	}
}

// dropPrivileges works on the calling thread only: the kernel keeps these
// attributes a thread, and children inherit them from the thread that forks.
func (w *wardenProc) dropPrivileges() error {
	if w.setup.Nested {
		// An exec as uid 0 must gain nothing. Locked: children cannot undo it.
		const bits = 1<<0 | 1<<1 | // NOROOT
			1<<2 | 1<<3 | // NO_SETUID_FIXUP
			1<<5 | // KEEP_CAPS_LOCKED
			1<<6 | 1<<7 // NO_CAP_AMBIENT_RAISE
		if err := unix.Prctl(unix.PR_SET_SECUREBITS, bits, 0, 0, 0); err != nil {
			return fmt.Errorf("PR_SET_SECUREBITS: %w (needs CAP_SETPCAP)", err)
		}
	}
	unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if emptyBounding() {
		w.holds |= holdsBounding
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	w.holds |= holdsNoPrivs
	var keep uint64
	if w.setup.Switch {
		keep = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_SYS_RESOURCE
	}
	if err := keepCapabilities(keep); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	if !w.setup.Nested {
		return nil
	}
	if w.holds&holdsBounding == 0 {
		return fmt.Errorf("the capability bounding set could not be emptied")
	}
	return refuseAdminCalls()
}

// inBounding is the capability bounding set of the calling thread.
func inBounding() (uint64, error) {
	var set uint64
	for c := uintptr(0); c < 64; c++ {
		in, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err == unix.EINVAL && c > 0 {
			break // past the kernel's last capability
		}
		if err != nil {
			return 0, err
		}
		set |= uint64(in) << c
	}
	return set, nil
}

// emptyBounding drops every capability from the bounding set and reports
// whether none is left.
func emptyBounding() bool {
	set, err := inBounding()
	for c := uintptr(0); c < 64; c++ {
		if set&(1<<c) != 0 && unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) != nil {
			return false
		}
	}
	if err == nil {
		set, err = inBounding()
	}
	return err == nil && set == 0
}

// keepCapabilities reduces the permitted and effective sets to what is both
// held and in keep, and empties the inheritable set.
func keepCapabilities(keep uint64) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return err
	}
	for i := range data {
		p := data[i].Permitted & uint32(keep>>(32*i))
		data[i] = unix.CapUserData{Permitted: p, Effective: p}
	}
	return unix.Capset(&hdr, &data[0])
}

func hasCapability(c uint) bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return false
	}
	return data[c/32].Effective&(1<<(c%32)) != 0
}

// dropGroups empties the supplementary groups of the calling thread and
// reports whether none is left. A user namespace may forbid the change.
func dropGroups() bool {
	unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
	return !inGroups()
}

// inGroups reports whether this process may have supplementary groups.
func inGroups() bool {
	n, _, errno := unix.RawSyscall(unix.SYS_GETGROUPS, 0, 0, 0)
	return errno != 0 || n > 0
}

// remountProc gives this warden's mount namespace a /proc of its pid
// namespace, with the same paths masked or read-only as the one it replaces.
func remountProc() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", flags, ""); err != nil {
		return err
	}
	for _, m := range procSubmounts(string(info)) {
		if err := maskAgain(m); err != nil {
			unix.Unmount("/proc", unix.MNT_DETACH)
			return fmt.Errorf("%s: %w", m.path, err)
		}
	}
	return nil
}

// procSubmount is a mount beneath /proc: a part of /proc made read-only, or
// something else that hides it.
type procSubmount struct {
	path   string
	isProc bool
}

// procSubmounts reads the text of /proc/self/mountinfo, see proc(5).
func procSubmounts(info string) []procSubmount {
	var list []procSubmount
	for line := range strings.Lines(info) {
		f := strings.Fields(line)
		sep := -1
		for i, s := range f {
			if s == "-" {
				sep = i
				break
			}
		}
		if sep < 5 || sep+1 >= len(f) || !strings.HasPrefix(f[4], "/proc/") {
			continue
		}
		list = append(list, procSubmount{path: f[4], isProc: f[sep+1] == "proc"})
	}
	return list
}

func maskAgain(m procSubmount) error {
	var st unix.Stat_t
	if err := unix.Lstat(m.path, &st); err != nil {
		return nil // not in the new /proc, so nothing to hide
	}
	const remount = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	switch {
	case m.isProc:
		if err := unix.Mount(m.path, m.path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
		return unix.Mount("", m.path, "", remount, "")
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return unix.Mount("tmpfs", m.path, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "size=0")
	default:
		return unix.Mount("/dev/null", m.path, "", unix.MS_BIND, "")
	}
}

// SealDescriptors keeps every descriptor above standard error from being
// inherited by programs that this process starts.
func SealDescriptors() error {
	const cloexec = 1 << 2 // CLOSE_RANGE_CLOEXEC
	err := unix.CloseRange(3, 1<<31-1, cloexec)
	if err == nil {
		return nil
	}
	// Kernels before 5.11.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("seal descriptors: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
