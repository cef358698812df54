package sandboxtest_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Harness{
		New: func(t *testing.T) sandbox.Provider {
			return sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
		},
		Must: []sandbox.Capability{
			sandbox.CapExec, sandbox.CapFiles, sandbox.CapBackground, sandbox.CapCallIDs, sandbox.CapCaps,
			sandbox.CapSpill, sandbox.CapLabels, sandbox.CapRenew, sandbox.CapConfine,
		},
		Summary: sandboxtest.SaveSummary(t, os.Getenv("REIN_VERIFIED"), "memory", ""),
	})
}
