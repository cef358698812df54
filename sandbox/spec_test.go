package sandbox_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// A limit that no sandbox could start with is refused, with what would do.
func TestResourcesCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		r             sandbox.Resources
		subject, text string
		hint          string
	}{
		{r: sandbox.Resources{}},
		{r: sandbox.Resources{CPU: sandbox.MinCPU, Memory: sandbox.MinMemory, PIDs: sandbox.MinPIDs, Disk: sandbox.MinDisk}},
		{r: sandbox.Resources{CPU: 64, Memory: 1 << 40, PIDs: 1 << 20, Disk: 1 << 40}},
		{sandbox.Resources{Memory: 5}, "resources.memory", "no sandbox can start with 5 bytes", "give at least 32 MiB, or leave it out for the default"},
		{sandbox.Resources{Memory: 31 << 20}, "resources.memory", "no sandbox can start with 31 MiB", "give at least 32 MiB, or leave it out for the default"},
		{sandbox.Resources{Memory: -1}, "resources.memory", "no sandbox can start with -1 bytes", "give at least 32 MiB, or leave it out for the default"},
		{sandbox.Resources{CPU: 0.01}, "resources.cpu", "no sandbox can start with 0.01 cores", "give at least 0.05 cores, or leave it out for the default"},
		{sandbox.Resources{CPU: math.NaN()}, "resources.cpu", "no sandbox can start with NaN cores", "give at least 0.05 cores, or leave it out for the default"},
		{sandbox.Resources{CPU: math.Inf(1)}, "resources.cpu", "no sandbox can start with +Inf cores", "give at least 0.05 cores, or leave it out for the default"},
		{sandbox.Resources{PIDs: 1}, "resources.pids", "no sandbox can start with 1 processes", "give at least 32 processes, or leave it out for the default"},
		{sandbox.Resources{Disk: 4096}, "resources.disk", "no sandbox can start with 4 KiB", "give at least 16 MiB, or leave it out for the default"},
	} {
		err := sandbox.Spec{TTL: time.Minute, Resources: c.r}.Check()
		if c.subject == "" {
			if err != nil {
				t.Errorf("%+v: %v", c.r, err)
			}
			continue
		}
		e, ok := errors.AsType[*sandbox.Error](err)
		if !ok || e.Kind != sandbox.KindInvalid || e.Subject != c.subject || e.Err.Error() != c.text || e.Hint != c.hint {
			t.Errorf("%+v: %v, hint %q", c.r, err, sandbox.HintOf(err))
		}
	}
}
