package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rein-sh/rein/execd"
)

// usable returns why nothing can be done to the sandbox any more, or nil.
func (s *Sandbox) usable(op string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.ended; e != nil {
		return &Error{Kind: e.Kind, Op: op, Subject: s.id, Err: e.Err}
	}
	return nil
}

// reachable is usable for what execd is asked. A sandbox that was paused when we
// last looked is looked at again: on an open connection a question would wait
// for the end of the pause.
func (s *Sandbox) reachable(ctx context.Context, op string) error {
	if err := s.usable(op); err != nil {
		return err
	}
	if s.Info().State != StatePaused {
		return nil
	}
	info, err := s.Refresh(ctx)
	if err == nil && info.State == StatePaused {
		err = s.isPaused(op)
	}
	return err
}

func (s *Sandbox) isPaused(op string) error {
	return &Error{Kind: KindConflict, Op: op, Subject: s.id, Err: errors.New("the sandbox is paused"), Hint: "rein sandbox resume " + s.id}
}

// setState notes a transition of our own.
func (s *Sandbox) setState(state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.State = state
}

// end notes once why the sandbox has ended.
func (s *Sandbox) end(e *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = e
	}
}

// asError makes a provider's error an *Error, if it is none.
func asError(op, subject string, err error) error {
	switch {
	case err == nil:
		return nil
	case KindOf(err) != "":
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &Error{Kind: KindTimeout, Op: op, Subject: subject, Err: err}
	}
	return &Error{Kind: KindInternal, Op: op, Subject: subject, Err: err}
}

// fault makes an *Error of what the client of execd returned. After a failure
// of the connection it finds out whether the sandbox has ended.
func (s *Sandbox) fault(ctx context.Context, op, subject string, err error) error {
	if err == nil || KindOf(err) != "" {
		return err
	}
	if e, ok := errors.AsType[*execd.Error](err); ok && !undecided(e) {
		return &Error{Kind: kindOfStatus(e), Op: op, Subject: subject, Err: err, Hint: hintOf(e)}
	}
	if ctx.Err() != nil {
		return &Error{Kind: KindTimeout, Op: op, Subject: subject, Err: context.Cause(ctx)}
	}
	if lost := s.lost(ctx, op); lost != nil {
		return lost
	}
	return &Error{Kind: KindUnavailable, Op: op, Subject: subject, Err: err}
}

func kindOfStatus(e *execd.Error) Kind {
	switch e.Status {
	case http.StatusBadRequest, http.StatusRequestedRangeNotSatisfiable, http.StatusUnprocessableEntity:
		return KindInvalid
	case http.StatusForbidden, http.StatusUnauthorized:
		return KindDenied
	case http.StatusNotFound:
		return KindNotFound
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return KindUnsupported
	case http.StatusConflict, http.StatusPreconditionFailed:
		return KindConflict
	case http.StatusRequestEntityTooLarge, http.StatusInsufficientStorage:
		return KindTooLarge
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		return KindUnavailable
	}
	return kindInWords(e)
}

func hintOf(e *execd.Error) string {
	switch e.Code {
	case execd.CodeNoSpace:
		return "the sandbox's disk is full: remove files, or give it more disk"
	case execd.CodeUnauthorized:
		return "the sandbox's token has changed: attach again"
	}
	return ""
}

// lost finds out whether the sandbox has ended, and returns the error that says
// why, or nil when it has not. A sandbox on its way out answers neither its
// provider's question nor ours for a moment, so it asks until one of them does,
// for VerifyTimeout, and not beyond ctx unless that has ended already.
func (s *Sandbox) lost(ctx context.Context, op string) error {
	if err := s.usable(op); err != nil {
		return err
	}
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, VerifyTimeout)
	defer cancel()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		info, err := s.provider.Get(ctx, s.id)
		var why error
		switch {
		case KindOf(err) == KindNotFound && !s.opt.Now().Before(s.Info().ExpiresAt):
			why = errors.New("expired: its time to live is over")
		case KindOf(err) == KindNotFound:
			why = errors.New("gone: somebody else ended it")
		case err == nil && info.State == StateLost:
			why = fmt.Errorf("lost: %s", info.Reason)
		case err == nil && info.State == StatePaused:
			return s.isPaused(op)
		}
		if why != nil {
			s.end(&Error{Kind: KindLost, Op: op, Subject: s.id, Err: why})
			return s.usable(op)
		}
		if err == nil && s.client != nil && s.client.Ping(ctx) == nil {
			return nil
		}
		if err := s.usable(op); err != nil { // killed meanwhile
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// failure is an error as it is recorded.
func failure(err error) *Failure {
	if err == nil {
		return nil
	}
	return &Failure{Kind: KindOf(err), Message: err.Error(), Hint: HintOf(err)}
}
