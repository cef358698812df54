package tool

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// Sessions bound what a model may do with sessions. The zero value gives it no
// session tools.
type Sessions struct {
	Max   int           // open at once; 0: no session tools
	Calls int           // commands in each; 0: DefaultSessionCalls
	Age   time.Duration // from its creation; 0: DefaultSessionAge
}

// What Sessions take for what is left open.
const (
	DefaultSessionCalls = 50
	DefaultSessionAge   = 30 * time.Minute
)

// Session is the session a call was about. Its JSON is what the model reads.
type Session struct {
	ID string `json:"id"`
	// Cwd is where its next command starts.
	Cwd string `json:"cwd,omitempty"`
	// Lost says why the command's directory and variables were not kept; those
	// of before are in force.
	Lost string `json:"state_not_kept,omitempty"`
	// CallsLeft and SecondsLeft are its bounds.
	CallsLeft   int   `json:"calls_left"`
	SecondsLeft int64 `json:"seconds_left"`
}

// openSession is one session of a run. It is guarded by builtin.mu.
type openSession struct {
	calls int
	until time.Time
	cwd   string // where its next command starts; empty: not known
}

func (b *builtin) sessionTools() []Tool {
	id := property{"session_id", fmt.Sprintf(`{"type":"string","minLength":1,"description":"what %s returned"}`, SessionCreate)}
	return []Tool{
		{Definition: Definition{
			Name: SessionCreate,
			Description: fmt.Sprintf("Open a shell session in the sandbox and get its session_id. Commands run in it with %s keep the working directory and the exported variables of the one before; "+
				"functions, aliases and shell options are not kept. Use it only where that matters: otherwise %s is simpler. "+
				"At most %d at once; each ends after %d commands or %d s. All are closed when the task ends.",
				SessionRun, RunCommand, b.Sessions.Max, b.Sessions.Calls, whole(b.Sessions.Age)),
			Schema: objectSchema(nil, property{"cwd", `{"type":"string","minLength":1,"description":"directory to start in; default is the workspace"}`}),
		}, Run: b.openSession},
		{Definition: Definition{
			Name: SessionRun,
			Description: fmt.Sprintf("Run one shell command in a session and wait for its end, as %s does, with the same limits on time and output and the same result. "+
				"session in the result says where the next command starts. A command that is killed, or replaces its shell with exec, leaves the session as it was before; state_not_kept then says so. "+
				"exit ends the command, not the session. Nothing runs in the background, and one command at a time.", RunCommand),
			Schema: objectSchema([]string{"session_id", "command"}, id,
				property{"command", `{"type":"string","minLength":1,"description":"one shell command"}`},
				property{"timeout_seconds", fmt.Sprintf(`{"type":"integer","minimum":1,"description":"default %d, at most %d"}`, whole(b.began.CallTimeout), whole(b.began.MaxCallTimeout))}),
		}, Run: b.runInSession},
		{Definition: Definition{
			Name: SessionClose, Description: "Close a session that is not needed any more. Files stay; its variables are gone.",
			Schema: objectSchema([]string{"session_id"}, id),
		}, Run: b.closeSession},
	}
}

func (b *builtin) openSession(ctx context.Context, c Call) Result {
	args, err := decode[struct {
		Cwd string `json:"cwd"`
	}](c)
	if err != nil {
		return Fail(OpArguments, CodeInvalidArguments, err.Error(), "")
	}
	if c.Begun && c.Opened != "" {
		return b.opened(c.Opened, args.Cwd)
	}
	if full := b.reserveSession(ctx); full != nil {
		return *full
	}
	id, err := b.Sandbox.OpenSession(ctx, sandbox.SessionOptions{Cwd: args.Cwd}, sandbox.Access{CallID: c.ID, Tool: SessionCreate})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opening--
	if sandbox.KindOf(err) == sandbox.KindUnsupported {
		return Fail(OpRun, CodeSessionLimit, "this sandbox has no sessions", "use "+RunCommand)
	}
	if err != nil {
		return b.explain(OpRun, err)
	}
	s := &openSession{until: time.Now().Add(b.Sessions.Age), cwd: args.Cwd}
	if !path.IsAbs(s.cwd) {
		s.cwd = path.Join(b.cwd, s.cwd)
	}
	b.sessions[id] = s
	return Result{OK: true, Stdout: id + "\n", Session: b.describe(id, s)}
}

// opened is the result of a call that had opened a session when rein was ended.
func (b *builtin) opened(id, cwd string) Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.adoptLocked(id, cwd, time.Now().Add(b.Sessions.Age))
	if s == nil {
		return sessionGone(b.ended[id])
	}
	return Result{OK: true, Stdout: id + "\n", Session: b.describe(id, s)}
}

// reserveSession makes room for one more session, which b.opening counts until
// it is there, or says that there is none.
func (b *builtin) reserveSession(ctx context.Context) *Result {
	b.expireSessions(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.sessions) + b.opening; n >= b.Sessions.Max {
		r := Fail(OpRun, CodeSessionLimit, fmt.Sprintf("%d sessions are open, and no more may be", n), SessionClose+" closes one")
		return &r
	}
	b.opening++
	return nil
}

// describe is a session as the model is told of it.
func (b *builtin) describe(id string, s *openSession) *Session {
	return &Session{ID: id, CallsLeft: max(0, b.Sessions.Calls-s.calls), SecondsLeft: int64(max(0, time.Until(s.until)) / time.Second)}
}

// expireSessions closes those whose time is over.
func (b *builtin) expireSessions(ctx context.Context) {
	b.endSessions(ctx, SessionClose, func(s *openSession) string {
		if time.Now().After(s.until) {
			return fmt.Sprintf("its %d s are over", whole(b.Sessions.Age))
		}
		return ""
	})
}

// endSessions closes those for which why gives a reason. What cannot be closed
// ends with the sandbox. The lock is not held while execd is asked.
func (b *builtin) endSessions(ctx context.Context, tool string, why func(*openSession) string) {
	var over []string
	b.mu.Lock()
	for id, s := range b.sessions {
		if reason := why(s); reason != "" {
			delete(b.sessions, id)
			b.ended[id] = reason
			over = append(over, id)
		}
	}
	b.mu.Unlock()
	for _, id := range over {
		_ = b.Sandbox.CloseSession(ctx, id, sandbox.Access{Tool: tool}) // recorded; it may have ended by itself
	}
}

// sessionPlace is the state that the session of a call is in; nil for a call
// that is about none. The Result is that there is no such session.
func (b *builtin) sessionPlace(ctx context.Context, c Call) (*Place, *Result) {
	args, err := decode[struct {
		ID string `json:"session_id"`
	}](c)
	if err != nil || c.Name != SessionRun {
		return nil, nil
	}
	b.expireSessions(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[args.ID]
	if s == nil {
		return nil, b.noSessionLocked(args.ID)
	}
	return &Place{Cwd: s.cwd, Commands: s.calls}, nil
}

// use counts a call to a session, or says why there is no such session. A call
// that had begun when rein died is known by its session, whose time was not over.
func (b *builtin) use(ctx context.Context, id string, begun bool) (*openSession, *Result) {
	if !begun {
		b.expireSessions(ctx)
	}
	b.mu.Lock()
	s := b.sessions[id]
	if s == nil && begun {
		s = &openSession{until: time.Now().Add(b.Sessions.Age)}
		b.sessions[id] = s
	}
	if s != nil && s.calls < b.Sessions.Calls {
		s.calls++
		b.mu.Unlock()
		return s, nil
	}
	b.mu.Unlock()
	b.endSessions(ctx, SessionClose, func(o *openSession) string {
		if o == s {
			return fmt.Sprintf("it has run the %d commands that it may", b.Sessions.Calls)
		}
		return ""
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	return nil, b.noSessionLocked(id)
}

func (b *builtin) noSessionLocked(id string) *Result {
	r := Fail(OpRun, CodeSessionGone, "this task has no such session", SessionCreate+" opens one")
	if why := b.ended[id]; why != "" {
		r = sessionGone(why)
	}
	return &r
}

func sessionGone(why string) Result {
	return Fail(OpRun, CodeSessionGone, "the session has ended: "+why, "its variables are gone, files are not; "+SessionCreate+" opens another")
}

func (b *builtin) runInSession(ctx context.Context, c Call) Result {
	args, err := decode[struct {
		ID      string  `json:"session_id"`
		Command string  `json:"command"`
		Timeout float64 `json:"timeout_seconds"`
	}](c)
	if err != nil {
		return Fail(OpArguments, CodeInvalidArguments, err.Error(), "")
	}
	timeout, fault := b.timeout(c, runArgs{Timeout: args.Timeout})
	if fault != nil {
		return *fault
	}
	s, fault := b.use(ctx, args.ID, c.Begun)
	if fault != nil {
		return *fault
	}
	r, err := b.Sandbox.Run(ctx, sandbox.Command{
		CallID: c.ID, Tool: SessionRun, Session: args.ID, Shell: args.Command, Timeout: timeout,
		Progress: c.Progress, Capture: max(minCapture, 4*c.limits.OutputBytes),
	})
	res := b.result(c, r)
	if st := r.Session; st != nil {
		res.Diagnosis = b.diagnose(ctx, &res, st.Cwd)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if sandbox.KindOf(err) == sandbox.KindNotFound {
		delete(b.sessions, args.ID)
		b.ended[args.ID] = "it is not there any more"
		return sessionGone(b.ended[args.ID])
	}
	if err != nil {
		res.Err = Explain(OpRun, b.Sandbox.ID(), err)
	}
	res.Session = b.describe(args.ID, s)
	s.cwd = ""
	if st := r.Session; st != nil {
		s.cwd = st.Cwd
		res.Session.Cwd, res.Session.Lost = b.Masker.String(st.Cwd), st.Reason
	}
	return res
}

func (b *builtin) closeSession(ctx context.Context, c Call) Result {
	args, err := decode[struct {
		ID string `json:"session_id"`
	}](c)
	if err != nil {
		return Fail(OpArguments, CodeInvalidArguments, err.Error(), "")
	}
	if gone := b.forget(args.ID); gone != nil {
		return *gone
	}
	err = b.Sandbox.CloseSession(ctx, args.ID, sandbox.Access{CallID: c.ID, Tool: SessionClose})
	if err != nil && sandbox.KindOf(err) != sandbox.KindNotFound {
		return b.explain(OpRun, err)
	}
	return Result{OK: true, Stdout: "closed\n"}
}

// forget takes a session out of use, or answers for one that is not in use.
func (b *builtin) forget(id string) *Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[id] != nil {
		delete(b.sessions, id)
		b.ended[id] = "it was closed"
		return nil
	}
	r := Fail(OpRun, CodeSessionGone, "this task has no such session", "")
	if b.ended[id] != "" {
		r = Result{OK: true, Stdout: "it was closed already\n"}
	}
	return &r
}

// closeSessions closes all, at the end of the work.
func (b *builtin) closeSessions(ctx context.Context) {
	b.endSessions(ctx, SandboxKill, func(*openSession) string { return "the work is finished" })
}

// check fills in the defaults and refuses what makes no sense.
func (s *Sessions) check() error {
	if s.Max < 0 || s.Calls < 0 || s.Age < 0 {
		return errors.New("tool: a bound of sessions is negative")
	}
	if s.Calls == 0 {
		s.Calls = DefaultSessionCalls
	}
	if s.Age == 0 {
		s.Age = DefaultSessionAge
	}
	return nil
}
