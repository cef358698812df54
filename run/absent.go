package run

import (
	"strings"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// warnAbsent says what this sandbox lacks of what rein's own have, so that the
// report is not read for more than it is.
func (r *runner) warnAbsent(f execd.Features, info sandbox.Info) {
	var lacks []string
	for _, l := range []struct {
		has  bool
		what string
	}{
		{f.CallIDs, "call_ids: what became of a call whose connection broke stays unknown"},
		{f.Capture, "caps: output is not bounded where it is made, and its bytes are not exact"},
		{f.Spill, "spill: output that is cut is kept nowhere"},
	} {
		if !l.has {
			lacks = append(lacks, l.what)
		}
	}
	if len(lacks) > 0 {
		r.warn("the sandbox's execd is not rein's, and lacks %s", strings.Join(lacks, "; "))
	}
	if info.Network == "dns" {
		r.warn("the network policy stops names only: programs can connect to any address")
	}
}
