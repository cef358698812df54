package sandbox

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/rein-sh/rein/execd"
)

// Where execd is another's, or is reached through gateways, an answer can be
// less than one.

// undecided reports whether an answer leaves open what became of the request:
// an error inside a stream that had begun, or a gateway's word that it lost the
// daemon on the way, or knows of none. An execd's own errors have a code; those
// of the server that passes requests on have one such as
// DOCKER::SANDBOX_NOT_FOUND.
func undecided(e *execd.Error) bool {
	switch e.Status {
	case 0, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	case http.StatusServiceUnavailable, http.StatusNotFound, http.StatusGone:
		return e.Code == "" || strings.Contains(e.Code, "::")
	}
	return false
}

// unknownCommand reports whether an execd itself says that it knows no such
// command: rein's, or OpenSandbox's, whose code for it is that of a bad request
// (controller/command.go). Any other 404 says nothing of commands.
func unknownCommand(err error) bool {
	e, ok := errors.AsType[*execd.Error](err)
	return ok && e.Status == http.StatusNotFound && (e.Code == execd.CodeCommandNotFound || e.Code == execd.CodeInvalidBody)
}

// isAbsent reports whether an execd itself says that a file is not there.
func isAbsent(err error) bool {
	e, ok := errors.AsType[*execd.Error](err)
	return ok && execd.IsNotFound(err) && !undecided(e)
}

// nameless reports whether the command cannot be named to its execd: it is one in
// a session of another's, which knows it by the session's id alone, interrupts
// nothing by that, and ends it with its connection (bash_session.go of
// OpenSandbox).
func (c *call) nameless() bool {
	return c.command.Session != "" && !c.sandbox.features.CallIDs
}

// unasked is what helps when another's execd cannot say what became of a call.
func (c *call) unasked() string {
	if c.nameless() {
		return "this sandbox's execd cannot be asked about a call, and of one in a session may have ended its shell alone: look at its effects"
	}
	return "this sandbox's execd cannot be asked about a call: look at its effects"
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
	if isAbsent(err) {
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
