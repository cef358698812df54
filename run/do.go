package run

import (
	"context"
	"errors"
)

// Do makes a sandbox, lets w work in it, judges and saves what it did, and
// destroys the sandbox, whatever happens: w's success or failure, a panic, a
// limit, the end of ctx. Saving and destroying go on after ctx has ended, for
// a bounded time.
//
// The report is returned and written whenever the run's directory could be
// made, also beside an error. An error means that the machinery failed; a run
// that failed, was stopped or was not accepted is a report with its Reason.
func Do(ctx context.Context, o Options, w Worker) (*Report, error) {
	return nil, errors.ErrUnsupported
}

// Session is a run in progress, as its Worker sees it.
type Session struct{}
