package sandbox

import (
	"context"
	"net/http"
	"strings"

	"github.com/rein-sh/rein/execd"
)

// Where execd is another's, or is reached through gateways, an answer can be
// less than one.

// undecided reports whether an answer leaves open what became of the request:
// an error inside a stream that had begun, or a gateway's word that it lost the
// daemon on the way.
func undecided(e *execd.Error) bool {
	switch e.Status {
	case 0, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	case http.StatusServiceUnavailable:
		return e.Code == "" // execd's own has one
	}
	return false
}

// inTheWay reports whether a daemon that has one status for all that goes wrong
// says that something exists already.
func inTheWay(e *execd.Error) bool {
	return e.Status == http.StatusInternalServerError && strings.Contains(strings.ToLower(e.Message), "exist") &&
		!strings.Contains(strings.ToLower(e.Message), "not exist")
}

// blame says of a command that was ended by our interrupt that it was, where
// execd does not: it gives no exit code then, or the shell's for a signal.
func (c *call) blame(ctx context.Context, r *Result) {
	if c.sandbox.features.CallIDs || !c.interrupted || ctx.Err() == nil || r.KilledBy != "" {
		return
	}
	if r.ExitCode == nil || *r.ExitCode > 128 {
		r.ExitCode, r.KilledBy = nil, execd.KilledByInterrupt
	}
}
