package local

import (
	"slices"
	"testing"

	"github.com/rein-sh/rein/sandbox"
)

// The remedy for what gVisor cannot do is a runtime that can do it here.
func TestOOMFlagRemedy(t *testing.T) {
	t.Parallel()
	gvisor := &Provider{runtime: ociRuntime{Kind: kindGVisor}}
	for _, controllers := range [][]string{nil, {"cpu", "memory", "pids"}} {
		plan := cgroupPlan{Controllers: controllers}
		i := slices.IndexFunc(gvisor.abilities(plan), func(a sandbox.Ability) bool { return a.Capability == sandbox.CapOOMFlag })
		a := gvisor.abilities(plan)[i]
		if want := len(controllers) > 0; a.Available || (a.Remedy == "--runtime runc") != want || !want && a.Remedy != "" {
			t.Errorf("with the controllers %q: %+v", controllers, a)
		}
	}
}
