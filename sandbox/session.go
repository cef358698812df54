package sandbox

import (
	"cmp"
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
// CapStderrInSessions) both streams of a command arrive as stdout, and Env is
// KindUnsupported.
func (s *Sandbox) OpenSession(ctx context.Context, o SessionOptions, a Access) (string, error) {
	in := SessionRecord{Op: "open", Cwd: o.Cwd, Env: names(o.Env)}
	cwd := o.Cwd
	if !s.features.Sessions {
		if len(o.Env) > 0 { // it would be left out without a word
			return "", &Error{Kind: KindUnsupported, Op: "open session", Err: errors.New("this sandbox's execd takes no variables for a session"),
				Hint: "export them in its first command"}
		}
		cwd = cmp.Or(cwd, s.Info().Cwd)
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

func (s *Sandbox) session(ctx context.Context, a Access, r *SessionRecord, act func(context.Context) error) error {
	r.Tool = a.tool()
	return s.recorded(ctx, a, recording{op: r.Op + " session", subject: &r.Session, ending: &r.Ending, data: r,
		intent: audit.KindSessionIntent, outcome: audit.KindSessionOutcome}, act)
}

// recording is an operation whose record says both what is meant and how it
// ended.
type recording struct {
	op              string
	subject         *string // of errors; act may set it
	ending          *Ending // of data
	data            any
	intent, outcome audit.Kind
}

// recorded does one short operation between its two records.
func (s *Sandbox) recorded(ctx context.Context, a Access, r recording, act func(context.Context) error) error {
	if err := s.reachable(ctx, r.op); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx, DefaultOpTimeout)
	defer cancel()
	if err := s.append(r.intent, a.CallID, r.data); err != nil {
		return err
	}
	start := s.opt.Now()
	err := act(ctx)
	err = s.fault(ctx, r.op, *r.subject, err)
	*r.ending = Ending{OK: err == nil, DurationMS: s.since(start), Failure: failure(err)}
	return also(err, s.append(r.outcome, a.CallID, r.data))
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
