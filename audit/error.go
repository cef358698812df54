package audit

import (
	"errors"
	"strings"
)

// ErrorKind classifies an Error; append-only.
type ErrorKind string

// The kinds of errors.
const (
	ErrorExists   ErrorKind = "exists"    // Create: there is a file already
	ErrorNotFound ErrorKind = "not_found" // Open: there is none
	ErrorLocked   ErrorKind = "locked"    // another writer has it
	ErrorTorn     ErrorKind = "torn"      // the last line is incomplete
	ErrorAltered  ErrorKind = "altered"   // the chain is broken, or a line is no record
	ErrorInvalid  ErrorKind = "invalid"   // an entry that cannot be encoded, or a path that is no log
	ErrorTooLarge ErrorKind = "too_large" // a record longer than MaxLine
	ErrorClosed   ErrorKind = "closed"    // the Log was closed
	ErrorIO       ErrorKind = "io"        // reading or writing failed
)

// Error is what this package returns.
type Error struct {
	Kind    ErrorKind
	Op      string // create, open, append, close, read
	Subject string // the path, or the kind of record
	Err     error  // the cause
	Hint    string // what the reader can do; may be empty
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("audit: " + e.Op)
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

// ErrorKindOf returns the kind of the first *Error in err's chain, or "".
func ErrorKindOf(err error) ErrorKind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}
