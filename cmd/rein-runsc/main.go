// Command rein-runsc is the gVisor OCI runtime, built from the module that
// go.mod pins, so that a machine needs nothing but rein's own binaries. It
// differs from runsc in three things: programs inside can make neither user
// namespaces nor sockets of ICMP, and the daemon can ask who made a connection.
//
// It must be linked statically: the runtime re-executes itself inside an
// empty root directory, where no dynamic loader exists.
package main

import (
	"os"

	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
	"gvisor.dev/gvisor/runsc/cli/maincli"

	"github.com/rein-sh/rein/internal/sockdiag"
)

func main() {
	made := sockdiag.NewMakers()
	tellMakers(made)
	for _, t := range []*kernel.SyscallTable{linux.AMD64, linux.ARM64} {
		refuseUserNamespaces(t)
		refusePingSockets(t)
		rememberMakers(t, made)
	}
	holdRoom()
	maincli.Main()
}

// holdRoom keeps a descriptor open that lies above those to which the sentry
// moves its standard streams, so that the processes this one starts have a
// table of descriptors large enough from the beginning: to enlarge it later
// takes the sentry several milliseconds. It is not passed on. Only the process
// that package local starts has such a table itself.
func holdRoom() {
	if os.Args[0] == "runsc" {
		_ = unix.Dup3(2, 300, unix.O_CLOEXEC) // without it the sentry starts later, no more
	}
}
