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
// daemon on the way, or knows of none. An execd's own errors have a code.
func undecided(e *execd.Error) bool {
	switch e.Status {
	case 0, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	case http.StatusServiceUnavailable, http.StatusNotFound, http.StatusGone:
		return e.Code == ""
	}
	return false
}

// kindInWords is the kind of an error of a daemon that has one status for all
// that goes wrong.
func kindInWords(e *execd.Error) Kind {
	says := func(text string) bool { return strings.Contains(strings.ToLower(e.Message), text) }
	switch {
	case e.Status != http.StatusInternalServerError:
	case says("context not found"): // a command in a session that there is not: bash_session.go of OpenSandbox
		return KindNotFound
	case says("exist") && !says("not exist"), says("not a directory"), says("is a directory"):
		return KindConflict
	case says("invalid pattern"):
		return KindInvalid
	}
	return KindInternal
}

// uploadMode is the mode that a file is written with, in execd's notation. Ours
// takes 0 for what WriteOptions.Mode says; another takes it for its own default,
// or leaves what is there.
func (s *Sandbox) uploadMode(ctx context.Context, o WriteOptions, path string) (int, error) {
	if o.Mode != 0 || s.ours() {
		return octal(o.Mode), nil
	}
	_, err := s.stat(ctx, o.Access, s.abs(path))
	if execd.IsNotFound(err) {
		return 644, nil
	}
	return 0, err
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
