package main

import (
	"errors"
	"testing"

	abi "gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// The table that the runtime uses refuses; clone3, whose arguments lie in a
// program's memory, is tested in package local.
func TestRefuseUserNamespaces(t *testing.T) {
	for _, table := range []*kernel.SyscallTable{linux.AMD64, linux.ARM64} {
		refuseUserNamespaces(table)
		for _, name := range []string{"clone", "unshare"} {
			no, err := table.LookupNo(name)
			if err != nil {
				t.Fatal(err)
			}
			args := arch.SyscallArguments{{Value: abi.CLONE_NEWUSER | abi.CLONE_NEWNS}}
			if _, _, err := table.Lookup(no)(nil, no, args); !errors.Is(err, linuxerr.EPERM) {
				t.Errorf("%v: %s: %v", table.Arch, name, err)
			}
		}
	}
}
