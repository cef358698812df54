package run

import (
	"context"
	"errors"
	"time"

	"github.com/rein-sh/rein/audit"
)

// lastTurnTime is how long a last turn may take of a worker that was told to
// stop. It ends before workerGrace does.
const lastTurnTime = 20 * time.Second

// LastTurn returns a context for the last turn of a worker whose ctx has ended
// because the sandbox gets no more time: it lasts lastTurnTime, or a third of
// what is left to save the outputs, and ends when the run is interrupted. ok is
// false when ctx ended for another reason, or has not.
func (s *Session) LastTurn(ctx context.Context) (_ context.Context, _ context.CancelFunc, ok bool) {
	r, cause := s.r, context.Cause(ctx)
	h := haltOf(cause)
	if h == nil {
		return ctx, func() {}, false
	}
	last, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if r.past.Binding() {
		return last, cancel, true
	}
	if err := r.record(audit.KindHalt, "", h); err != nil {
		r.warn("%v", err)
	}
	timer := time.AfterFunc(max(0, min(lastTurnTime, time.Until(r.renewer.current().End)/3)), cancel)
	stop := func() bool { return true }
	if r.outside != nil {
		stop = context.AfterFunc(r.outside, cancel)
	}
	return last, func() { timer.Stop(); stop(); cancel() }, true
}

// halt is the data of audit.KindHalt: the sandbox gets no more time.
type halt struct {
	Reason Reason `json:"reason"`
	// End and Error are those of a renewal that failed.
	End   *time.Time `json:"end,omitempty"`
	Error string     `json:"error,omitempty"`
}

// haltOf is what is recorded of a cause; nil when it is another.
func haltOf(cause error) *halt {
	if errors.Is(cause, errNoProgress) {
		return &halt{Reason: NoProgress}
	}
	if e, ok := errors.AsType[*renewError](cause); ok {
		return &halt{Reason: Failed, End: &e.end, Error: e.err.Error()}
	}
	return nil
}

// cause is the cause that was recorded.
func (h *halt) cause() error {
	if h.End != nil {
		return &renewError{end: *h.End, err: errors.New(h.Error)}
	}
	return errNoProgress
}
