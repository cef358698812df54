package image

import (
	"errors"
	"strings"
)

// Kind classifies an Error.
type Kind string

// The kinds of errors.
const (
	KindInvalid      Kind = "invalid"      // a reference, a pattern or an option makes no sense
	KindDenied       Kind = "denied"       // the allow-list does not have it
	KindUnauthorized Kind = "unauthorized" // the registry wants other credentials
	KindNotFound     Kind = "not_found"    // no such image, or none for this platform
	KindUnavailable  Kind = "unavailable"  // the registry did not answer, or not in time; it may later
	KindUnsupported  Kind = "unsupported"  // a kind of image, layer or entry that is not read
	KindTooLarge     Kind = "too_large"    // over a limit
	KindCorrupt      Kind = "corrupt"      // not what its digest says, or no image at all
	KindRefused      Kind = "refused"      // an entry that would leave the tree or do harm
	KindInUse        Kind = "in_use"       // somebody holds its lock
	KindHost         Kind = "host"         // this host lacks or refuses something, such as disk space
)

// Error is what this package returns, besides the errors of contexts.
type Error struct {
	Kind    Kind
	Op      string // what was being done: "parse", "pull", "unpack", "remove"
	Subject string // to what: a reference, a digest, a directory
	Err     error
	Hint    string // what the reader can do; may be empty
}

func (e *Error) Error() string {
	parts := make([]string, 0, 3)
	if e.Op != "" {
		parts = append(parts, e.Op)
	}
	if e.Subject != "" {
		parts = append(parts, e.Subject)
	}
	text := strings.Join(parts, " ")
	if e.Err == nil {
		return text + ": " + string(e.Kind)
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the first *Error in err's tree, or "".
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}

// fault is an error that knows its kind, and gets its operation and subject
// from whoever returns it to a caller.
type fault struct {
	kind Kind
	err  error
	hint string
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// failed makes the *Error of err, which is a *fault or anything else; what is
// unknown is of kind other.
func failed(op, subject string, other Kind, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := &Error{Kind: other, Op: op, Subject: subject, Err: err}
	if f, ok := errors.AsType[*fault](err); ok {
		e.Kind, e.Hint = f.kind, f.hint
	}
	return e
}
