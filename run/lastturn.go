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
		go r.boundAtEnd(last, cancel)
		return last, cancel, true
	}
	if err := r.record(audit.KindHalt, "", h); err != nil {
		r.warn("%v", err)
	}
	stop := r.bound(cancel)
	return last, func() { stop(); cancel() }, true
}

// bound has a last turn end in time, until it is stopped.
func (r *runner) bound(cancel func()) (stop func()) {
	timer := time.AfterFunc(max(0, min(lastTurnTime, time.Until(r.renewer.current().End)/3)), cancel)
	outside := func() bool { return true }
	if r.outside != nil {
		outside = context.AfterFunc(r.outside, cancel)
	}
	return func() { timer.Stop(); outside() }
}

// boundAtEnd does so once the record, by which the last turn began, is at its end: what
// is done again takes no time, and what is new does.
func (r *runner) boundAtEnd(last context.Context, cancel func()) {
	select {
	case <-last.Done():
		return
	case <-r.past.live:
	}
	if r.past.Binding() {
		return
	}
	defer r.bound(cancel)()
	<-last.Done()
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
