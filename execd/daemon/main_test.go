package daemon_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/rein-sh/rein/execd/daemon"
)

// TestMain makes the test binary usable as the program of wardens, and as one
// that does not stand still.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "warden" {
		if err := daemon.RunWarden(); !errors.Is(err, io.EOF) {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	if len(os.Args) == 4 && os.Args[1] == "waker" {
		wake(os.Args[2], os.Args[3])
	}
	goleak.VerifyTestMain(m)
}

var wardenArgs = []string{"/proc/self/exe", "warden"}

// missing skips a test for want of something of the machine, which CI must have.
func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
