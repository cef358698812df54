package local_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
)

// What one sandbox takes, another of the same state directory cannot; what a
// killed keeper held is free without a sweep.
func TestHostLimits(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			var state string
			p := providerWith(t, runtime, func(o *local.Options) {
				state = o.StateDir
				o.Egress.Resolvers = []netip.AddrPort{names(t)}
				o.Egress.HostLimits = egress.HostLimits{Connections: 1}
			})
			port := echo(t)
			first, second := connected(t, p, to(port, "yes.test"), nil), connected(t, p, to(port, "yes.test"), nil)
			holding, err := first.Run(t.Context(), sandbox.Command{Shell: greet("yes.test", port) + "; sleep 1000", Background: true})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the first connection", func() bool {
				logs, _, err := first.Logs(t.Context(), holding.CallID, 0)
				return err == nil && strings.Contains(string(logs), "hello")
			})
			r := run(t, second, greet("yes.test", port))
			if r.OK() || !refusedBy(r.Network, "limit:host_connections") {
				t.Fatalf("beside another's connection: %+v %q", r.Network, r.Stderr.Head)
			}
			if err := syscall.Kill(keeperOf(t, state, first.ID()), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "what the killed keeper held", func() bool { return run(t, second, greet("yes.test", port)).OK() })
			// Whoever empties the file does not empty what was counted.
			if err := os.Truncate(filepath.Join(state, "network.shared"), 0); err != nil {
				t.Fatal(err)
			}
			if r := run(t, second, greet("yes.test", port)); r.OK() || !refusedBy(r.Network, "limit:host") {
				t.Errorf("with a damaged file: %+v %q", r.Network, r.Stderr.Head)
			}
			_, err = p.Create(t.Context(), sandbox.Spec{TTL: 1e9})
			if err == nil || !strings.Contains(err.Error(), "network.shared: the file is damaged") || !strings.Contains(sandbox.HintOf(err), "remove it") {
				t.Errorf("a sandbox was made with a damaged file: %v", err)
			}
		})
	}
}

func refusedBy(tried []sandbox.NetworkRecord, rule string) bool {
	for _, a := range tried {
		if a.Verdict == "deny" && a.Rule == rule && (rule == "limit:host" || strings.Contains(a.Reason, "all sandboxes of this host share")) {
			return true
		}
	}
	return false
}
