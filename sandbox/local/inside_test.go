package local_test

import (
	"strings"
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
