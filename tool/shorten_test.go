package tool_test

import (
	"strings"
	"testing"

	"github.com/rein-sh/rein/tool"
)

// A result that was read from a record shows less of what it shows.
func TestShortenedFromARecord(t *testing.T) {
	kept := &tool.Spill{Path: "/run/rein/out/c", Bytes: 5000, Lines: 500}
	res := tool.Result{Stdout: strings.Repeat("a line\n", 700), Stderr: "error: no\n", Kept: kept}
	less := res.Shortened(2000)
	if n := len(less.Stdout) + len(less.Stderr); n > 2000 || n < 1000 || less.Stderr != res.Stderr {
		t.Errorf("%d bytes, stderr %q", n, less.Stderr)
	}
	if !less.Truncated || less.Spill != kept || !strings.Contains(less.Stdout, "left out") {
		t.Errorf("it does not say what is left out: %+v", less)
	}
	if same := res.Shortened(1 << 20); same.Stdout != res.Stdout || same.Truncated {
		t.Error("a result that is short enough was changed")
	}
}
