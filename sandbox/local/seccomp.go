package local

import (
	"slices"

	"github.com/moby/profiles/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// callFilter is the seccomp profile of runc's sandboxes: moby's default, and less.
func callFilter(spec *specs.Spec) (*specs.LinuxSeccomp, error) {
	profile, err := seccomp.GetDefaultProfile(spec)
	if err != nil {
		return nil, err
	}
	// The native system calls only: the kernel's 32-bit entry points are its
	// least tested, gVisor has none either, and runc takes a quarter of its
	// start to compile the filter for them.
	profile.Architectures = profile.Architectures[:min(1, len(profile.Architectures))]
	var calls []specs.LinuxSyscall
	for _, c := range profile.Syscalls {
		c.Names = slices.DeleteFunc(slices.Clone(c.Names), func(name string) bool { return name == "socket" || name == "ioctl" })
		if len(c.Names) > 0 {
			calls = append(calls, c)
		}
	}
	for _, arg := range append(families(), except(1, closedRequests)...) {
		name := "ioctl"
		if arg.Index == 0 {
			name = "socket"
		}
		calls = append(calls, specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{arg}})
	}
	profile.Syscalls = calls
	return profile, nil
}

// families are what there is a use for where the only way out is one link: of the
// others the kernel loads modules when they are asked for (socket(2)).
func families() (args []specs.LinuxSeccompArg) {
	for _, f := range []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK} {
		args = append(args, specs.LinuxSeccompArg{Index: 0, Value: f, Op: specs.OpEqualTo})
	}
	return args
}

// closedRequests put characters into the input of a terminal, as if its user had
// typed them (TIOCSTI; TIOCLINUX by pasting).
var closedRequests = []uint32{unix.TIOCSTI, unix.TIOCLINUX}

// except allows every value of an argument but those, by masks: the kernel reads
// the lower 32 bits of a request, so that nothing else may be compared. A mask is
// of the upper bits, down to the first in which a value differs from all of them.
func except(index uint, values []uint32) (args []specs.LinuxSeccompArg) {
	var below func(bit int, prefix uint32, under []uint32)
	below = func(bit int, prefix uint32, under []uint32) {
		if len(under) == 0 {
			mask := ^uint32(0) << bit
			args = append(args, specs.LinuxSeccompArg{Index: index, Value: uint64(mask), ValueTwo: uint64(prefix), Op: specs.OpMaskedEqual})
			return
		}
		if bit == 0 {
			return
		}
		for _, prefix := range []uint32{prefix, prefix | 1<<(bit-1)} {
			below(bit-1, prefix, slices.DeleteFunc(slices.Clone(under), func(v uint32) bool { return v>>(bit-1) != prefix>>(bit-1) }))
		}
	}
	below(32, 0, values)
	return args
}
