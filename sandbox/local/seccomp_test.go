package local

import (
	"math/rand/v2"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Every request passes but the closed ones, whatever the bits above say that the
// kernel does not read.
func TestExcept(t *testing.T) {
	args := except(1, closedRequests)
	passes := func(v uint64) bool {
		for _, a := range args {
			if a.Op != specs.OpMaskedEqual || a.Index != 1 {
				t.Fatalf("%+v", a)
			}
			if v&a.Value == a.ValueTwo {
				return true
			}
		}
		return false
	}
	for _, closed := range closedRequests {
		for _, high := range []uint64{0, 1 << 32, 1 << 63, 0xffffffff << 32} {
			if passes(high | uint64(closed)) {
				t.Errorf("%#x passes", high|uint64(closed))
			}
		}
		for bit := range 32 {
			if v := closed ^ 1<<bit; !passes(uint64(v)) && v != unix.TIOCSTI && v != unix.TIOCLINUX {
				t.Errorf("%#x is closed", v)
			}
		}
	}
	for range 100_000 {
		v := rand.Uint64()
		if closed := uint32(v) == unix.TIOCSTI || uint32(v) == unix.TIOCLINUX; passes(v) == closed {
			t.Errorf("%#x: passes is %v", v, !closed)
		}
	}
	if len(args) > 40 {
		t.Errorf("%d rules for %d values", len(args), len(closedRequests))
	}
}
