package sandbox

import (
	"context"
	"errors"
	"net/http"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/execd"
)

// SessionOptions are what a session starts with.
type SessionOptions struct {
	Cwd string            // empty: the sandbox's working directory; created when missing
	Env map[string]string // added to the sandbox's environment
}

// OpenSession makes a session and returns its id: commands run in it
// (Command.Session) find the working directory and the exported variables that
// the one before left, one at a time. It costs nothing while none runs, is
// forgotten when it was not used for execd.SessionIdle, and ends with the
// sandbox. KindUnsupported where there are none, KindUnavailable when there are
// execd.MaxSessions. Under an execd that is not rein's (no
// CapStderrInSessions) both streams of a command arrive as stdout.
func (s *Sandbox) OpenSession(ctx context.Context, o SessionOptions, a Access) (string, error) {
	in := SessionRecord{Op: "open", Cwd: o.Cwd, Env: names(o.Env)}
	cwd := o.Cwd
	if cwd == "" && !s.features.Sessions {
		cwd = s.Info().Cwd
	}
	err := s.session(ctx, a, &in, func(ctx context.Context) (err error) {
		in.Session, err = s.client.CreateSession(ctx, execd.SessionRequest{Cwd: cwd, Envs: o.Env})
		return absentRoute(err, execd.CodeNotFound)
	})
	return in.Session, err
}

// CloseSession ends a session, and the command that runs in it. One that is gone
// already is KindNotFound.
func (s *Sandbox) CloseSession(ctx context.Context, id string, a Access) error {
	in := SessionRecord{Op: "close", Session: id}
	return s.session(ctx, a, &in, func(ctx context.Context) error { return s.client.DeleteSession(ctx, id) })
}

// session does one recorded operation on a session.
func (s *Sandbox) session(ctx context.Context, a Access, r *SessionRecord, act func(context.Context) error) error {
	op := r.Op + " session"
	if err := s.reachable(ctx, op); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx, DefaultOpTimeout)
	defer cancel()
	if r.Tool = a.Tool; r.Tool == "" {
		r.Tool = "host"
	}
	if err := s.append(audit.KindSessionIntent, a.CallID, r); err != nil {
		return err
	}
	start := s.opt.Now()
	err := s.fault(ctx, op, r.Session, act(ctx))
	r.OK, r.DurationMS, r.Failure = err == nil, s.since(start), failure(err)
	return also(err, s.append(audit.KindSessionOutcome, a.CallID, r))
}

// absentRoute makes an answer with one of these codes, or without any, that of a
// daemon which lacks what was asked for.
func absentRoute(err error, codes ...string) error {
	e, ok := errors.AsType[*execd.Error](err)
	if !ok || e.Status != http.StatusNotFound && e.Status != http.StatusMethodNotAllowed && e.Status != http.StatusNotImplemented {
		return err
	}
	for _, c := range append(codes, "") {
		if e.Code == c {
			return &execd.Error{Status: http.StatusNotImplemented, Code: e.Code, Message: "this sandbox's execd has no such thing: " + e.Message}
		}
	}
	return err
}
