// Command rein-runsc is the gVisor OCI runtime, built from the module that
// go.mod pins, so that a machine needs nothing but rein's own binaries. It
// differs from runsc in one thing: programs inside cannot make user namespaces.
//
// It must be linked statically: the runtime re-executes itself inside an
// empty root directory, where no dynamic loader exists.
package main

import (
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
	"gvisor.dev/gvisor/runsc/cli/maincli"
)

func main() {
	for _, t := range []*kernel.SyscallTable{linux.AMD64, linux.ARM64} {
		refuseUserNamespaces(t)
	}
	maincli.Main()
}
