package local_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
)

// The timers of a keeper may be late. Those of commands are as Linux has them by
// default, whether the host's kernel keeps them or gVisor does.
func TestTimerSlack(t *testing.T) {
	const late, usual = "1000000", "50000"
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			var state string
			p := providerWith(t, runtime, func(o *local.Options) { state = o.StateDir })
			box, err := sandbox.Create(t.Context(), p, sandbox.Spec{TTL: 5 * time.Minute}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			defer box.Kill(t.Context())
			if runtime != "gvisor" { // which does not tell
				r, err := box.Run(t.Context(), sandbox.Command{Shell: "cat /proc/self/timerslack_ns"})
				if got := strings.TrimSpace(string(r.Stdout.Head)); err != nil || got != usual {
					t.Errorf("a command has %q ns, want %s: %+v, %v", got, usual, r.Outcome, err)
				}
			}
			if os.Geteuid() != 0 {
				return // only root may see that of others
			}
			for i, proc := range processes(state) {
				b, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", proc.pid))
				if err != nil {
					continue // it has ended
				}
				got, want := strings.TrimSpace(string(b)), late
				if i > 0 && runtime == "gvisor" {
					want = usual
				} else if i > 1 {
					continue // execd, and wardens, which are as commands
				}
				if got != want {
					t.Errorf("%s (pid %d) has %s ns, want %s", proc.what, proc.pid, got, want)
				}
			}
		})
	}
}
