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

// TestMain makes the test binary usable as the program of wardens.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "warden" {
		if err := daemon.RunWarden(); !errors.Is(err, io.EOF) {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

var wardenArgs = []string{"/proc/self/exe", "warden"}
