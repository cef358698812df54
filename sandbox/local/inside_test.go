package local_test

import (
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// A user namespace would give any program every capability inside it, and with
// them file systems without a limit.
func TestNoUserNamespaces(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			box, err := sandbox.Create(t.Context(), provider(t, runtime), sandbox.Spec{TTL: 2 * time.Minute}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			r, err := box.Run(t.Context(), sandbox.Command{Shell: "unshare --help >/dev/null && LC_ALL=C unshare --user true"})
			if err != nil {
				t.Fatal(err)
			}
			said := string(r.Stderr.Head)
			// EPERM; where a count of zero forbids it, ENOSPC (namespaces(7)).
			if !strings.Contains(said, "Operation not permitted") && !strings.Contains(said, "No space left on device") {
				t.Errorf("unshare --user: %q", said)
			}
		})
	}
}

// Where the limit of processes is one that a command may raise, it is none.
func TestProcessLimitStays(t *testing.T) {
	box, err := sandbox.Create(t.Context(), provider(t, "runc"), sandbox.Spec{TTL: 2 * time.Minute, Resources: sandbox.Resources{PIDs: 64}},
		sandbox.Options{Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		r, err := box.Run(t.Context(), sandbox.Command{Shell: "ulimit -Su $(ulimit -Hu); [ $(ulimit -Su) -le 192 ]"})
		if err != nil {
			t.Fatal(err)
		}
		if r.ExitCode == nil || *r.ExitCode != 0 {
			t.Fatalf("it raised its own limit: %q %q", r.Stdout.Head, r.Stderr.Head)
		}
	}
}

// Empty files take memory that no size counts.
func TestFilesAreBounded(t *testing.T) {
	box, err := sandbox.Create(t.Context(), provider(t, "runc"), sandbox.Spec{TTL: 2 * time.Minute, Resources: sandbox.Resources{Disk: 64 << 20}},
		sandbox.Options{Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	r, err := box.Run(t.Context(), sandbox.Command{Shell: "df --output=itotal / /dev/shm /run/rein /dev | tail -n +2"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"16384", "16384", "147456", "16384"}
	if got := strings.Fields(string(r.Stdout.Head)); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("files: %v, not %v", got, want)
	}
}

// exit32 is an x86 program in the ELF format of 32 bits: exit(7) by int 0x80.
var exit32 = []byte("\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x02\x00\x03\x00\x01\x00\x00\x00\x54\x80\x04\x08\x34\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x34\x00\x20\x00\x01\x00\x00\x00\x00\x00\x00\x00" +
	"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x80\x04\x08\x00\x80\x04\x08\x64\x00\x00\x00\x64\x00\x00\x00\x05\x00\x00\x00\x00\x10\x00\x00" +
	"\xb8\x01\x00\x00\x00\xbb\x07\x00\x00\x00\xcd\x80\x00\x00\x00\x00")

// The kernel's entry for 32-bit programs is closed in both runtimes.
func TestNo32BitPrograms(t *testing.T) {
	if goruntime.GOARCH != "amd64" {
		t.Skip("the program is for x86")
	}
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			box, err := sandbox.Create(t.Context(), provider(t, runtime), sandbox.Spec{TTL: 2 * time.Minute}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := box.WriteFile(t.Context(), "/tmp/exit32", exit32, sandbox.WriteOptions{Mode: 0o755}); err != nil {
				t.Fatal(err)
			}
			r, err := box.Run(t.Context(), sandbox.Command{Shell: "/tmp/exit32"})
			if err != nil {
				t.Fatal(err)
			}
			refused := r.Signal == "SIGSYS" || r.ExitCode != nil && (*r.ExitCode == 126 || *r.ExitCode == 128+int(syscall.SIGSYS))
			if !refused {
				t.Errorf("it ran: %+v %q", r.Outcome, r.Stderr.Head)
			}
		})
	}
}
