// Package sandboxtest is the suite that every sandbox.Provider passes, and
// Memory, a provider that passes it without a machine: its sandboxes run a
// shell interpreter over a temporary directory, served by the real execd
// daemon, on an injectable clock.
package sandboxtest

import (
	"testing"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// Harness is one provider under test.
type Harness struct {
	// New returns the provider. It is called once for a run of the suite, which
	// calls Close (when the provider has it) at the end.
	New func(t *testing.T) sandbox.Provider
	// Must lists the capabilities that have to be there. A case is skipped only
	// for the lack of one that is not in this list, so that a provider cannot
	// lose one silently.
	Must []sandbox.Capability
	// Resources of the sandboxes; zero fields are the provider's defaults.
	Resources sandbox.Resources
	// Factor stretches the times that the suite allows the provider; 0 is 1.
	Factor float64
	// Sleep waits; nil is a real timer. A provider on a simulated clock
	// advances it here.
	Sleep func(d time.Duration)
}
