package sandbox

import (
	"errors"
	"strings"
)

// Kind classifies an Error. Kinds are append-only: their names are recorded
// and cross the wire.
type Kind string

// The kinds of errors of providers and sandboxes.
const (
	KindInvalid     Kind = "invalid"      // the request makes no sense; changing it may help
	KindUnsupported Kind = "unsupported"  // this provider or host cannot honour it
	KindNotFound    Kind = "not_found"    // no such sandbox, command or file
	KindConflict    Kind = "conflict"     // not in a state that allows it
	KindDenied      Kind = "denied"       // a path rule, allow-list or permission forbids it
	KindTooLarge    Kind = "too_large"    // over a size limit
	KindUnavailable Kind = "unavailable"  // it may work later
	KindLost        Kind = "sandbox_lost" // the sandbox ended under the operation
	KindTimeout     Kind = "timeout"      // we stopped waiting; what became of it is not known
	KindHost        Kind = "host"         // the host lacks or refuses something; Hint is the remedy
	KindInternal    Kind = "internal"     // a defect
)

// Error is what providers and sandboxes return. A program's own failure is
// never an Error: it is an exit code.
type Error struct {
	Kind    Kind
	Op      string // what was being done: "create", "run", "read"
	Subject string // to what: a sandbox id, a path, a command id
	Err     error  // the cause
	Hint    string // what the reader can do, pasteable where possible; may be empty
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Subject != "" {
		b.WriteString(" " + e.Subject)
	}
	b.WriteString(": ")
	if e.Err != nil {
		b.WriteString(e.Err.Error())
	} else {
		b.WriteString(string(e.Kind))
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrUnsent is in the chain of an error before which nothing was sent: what was
// to change is as it was.
var ErrUnsent = errors.New("nothing was sent")

// also joins the errors that are not nil to err.
func also(err error, more ...error) error {
	for _, m := range more {
		switch {
		case err == nil:
			err = m
		case m != nil:
			err = errors.Join(err, m)
		}
	}
	return err
}

// KindOf returns the kind of the first *Error in err's chain, or "" when there
// is none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}

// HintOf returns the first hint in err's chain.
func HintOf(err error) string {
	for err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}
