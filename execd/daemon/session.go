package daemon

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/execd"
)

// A session is a directory and variables that one command leaves to the next.
// No shell lives on between commands: each is started as any other command is,
// through its own warden, so that limits, caps and the end of the whole tree
// hold for it, and a command that wrecks its shell, fills its pipes or is killed
// leaves the session as it was. The state is what the shell had when it exited.
type session struct {
	id string

	// Guarded by sessions.mu.
	dir  string
	env  map[string]string
	run  *entry // the command that runs now, nil when none does
	used time.Time
}

// sessions are those of a server. The zero value has none.
type sessions struct {
	mu   sync.Mutex
	byID map[string]*session
}

// createSession answers POST /session.
func (s *Server) createSession(w http.ResponseWriter, r *http.Request) {
	var req execd.SessionRequest
	if r.ContentLength != 0 {
		if err := decode(w, r, &req); err != nil {
			fail(w, err)
			return
		}
	}
	in, err := s.newSession(req)
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, execd.SessionID{ID: in.id})
}

func (s *Server) hasSessions() bool {
	k, ok := s.cfg.Machine.(StateKeeper)
	return ok && k.KeepsState()
}

func (s *Server) newSession(req execd.SessionRequest) (*session, error) {
	if !s.hasSessions() {
		return nil, refuse(http.StatusNotImplemented, execd.CodeNotFound, "this machine has no sessions")
	}
	dir := s.cfg.Cwd
	if req.Cwd != "" {
		var err error
		if dir, err = s.expand(req.Cwd, s.cfg.Cwd); err != nil {
			return nil, inBody("cwd", err)
		}
		sc := scope{place: s.files, srv: s}
		if err := sc.makeDirectory(dir, execd.Permission{}); err != nil {
			return nil, inBody("cwd", at(dir, err))
		}
	}
	env := make(map[string]string, len(s.env)+len(req.Envs))
	for _, m := range []map[string]string{s.env, req.Envs} {
		for k, v := range m {
			if err := checkVariable(k, v); err != nil {
				return nil, inBody("envs", err)
			}
			env[k] = v
		}
	}
	in := &session{id: randomID(), dir: dir, env: env, used: time.Now()}
	return in, s.sessions.add(in)
}

func (l *sessions) add(in *session) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireLocked()
	if len(l.byID) >= execd.MaxSessions {
		return refuse(http.StatusTooManyRequests, execd.CodeTooMany, "there are %d sessions already: delete one first", len(l.byID))
	}
	if l.byID == nil {
		l.byID = make(map[string]*session)
	}
	l.byID[in.id] = in
	return nil
}

// expireLocked forgets the sessions that nothing was run in for long.
func (l *sessions) expireLocked() {
	for id, in := range l.byID {
		if in.run == nil && time.Since(in.used) > execd.SessionIdle {
			delete(l.byID, id)
		}
	}
}

func noSession(id string) error {
	return refuse(http.StatusNotFound, execd.CodeSessionNotFound,
		"no session has the id %q: it was never there, was deleted, or was not used for %v", id, execd.SessionIdle)
}

// begin takes a session for the command e and returns what it starts with.
func (l *sessions) begin(id string, e *entry) (in *session, dir string, env map[string]string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireLocked()
	in = l.byID[id]
	switch {
	case in == nil:
		return nil, "", nil, noSession(id)
	case in.run != nil:
		return nil, "", nil, refuse(http.StatusConflict, execd.CodeConflict, "command %s still runs in session %s", in.run.id, id)
	}
	in.run = e
	return in, in.dir, in.env, nil
}

// leave gives a session free; dir is where its next command starts.
func (l *sessions) leave(in *session, dir string, env map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in.run, in.used, in.dir, in.env = nil, time.Now(), dir, env
}

// runInSession answers POST /session/{id}/run.
func (s *Server) runInSession(w http.ResponseWriter, r *http.Request) {
	var req execd.RunRequest
	if err := decode(w, r, &req); err != nil {
		fail(w, err)
		return
	}
	spec, err := checkCommand(&req)
	if err == nil && len(spec.Argv) > 0 {
		err = refuse(http.StatusBadRequest, execd.CodeInvalidBody, "rein.argv: a session runs commands in its shell")
	}
	switch {
	case err != nil:
	case req.Background:
		err = refuse(http.StatusBadRequest, execd.CodeInvalidBody, "a session runs nothing in the background")
	case req.UID != nil:
		err = refuse(http.StatusBadRequest, execd.CodeInvalidBody, "a session has one user")
	}
	if err != nil {
		fail(w, err)
		return
	}
	if req.Timeout == 0 {
		req.Timeout = execd.DefaultSessionTimeout.Milliseconds()
	}
	e, mine := s.commands.claim(spec.ID)
	if !mine {
		s.follow(w, r, e, req)
		return
	}
	j, err := s.startInSession(r.PathValue("id"), e, req, spec)
	if err != nil {
		fail(w, err)
		return
	}
	if req.Rein == nil || req.Rein.ID == "" {
		// Nobody could ask for its outcome, and it would keep the session. Also
		// when serve panics; of one that has ended there is nothing to interrupt.
		defer j.interrupt(execd.KilledByInterrupt)
	}
	j.stream.serve(r.Context(), w, s.cfg.StallLimit)
}

func (s *Server) startInSession(id string, e *entry, req execd.RunRequest, spec Spec) (*job, error) {
	in, dir, env, err := s.sessions.begin(id, e)
	if err != nil {
		s.commands.fail(e, err)
		return nil, err
	}
	refused := func(err error) (*job, error) {
		s.sessions.leave(in, dir, env)
		s.commands.fail(e, err)
		return nil, err
	}
	if spec.Dir, err = s.directoryFrom(dir, req.Cwd, req.Rein != nil); err != nil {
		return refused(inBody("cwd", err))
	}
	if spec.Env, err = s.environment(env, req.Envs); err != nil {
		return refused(inBody("envs", err))
	}
	spec.KeepState = true
	spec.MergeStderr = req.Rein == nil // as OpenSandbox's sessions have it
	in.dir = spec.Dir                  // it stays, also when the command is killed; nobody else has the session now
	j, err := s.start(e, req, spec, in)
	if err != nil { // the id is free again already
		s.sessions.leave(in, dir, env)
	}
	return j, err
}

// ran gives a session free after a command that ended by itself, or did not,
// and says what it left.
func (l *sessions) ran(in *session, p Process, itself bool) *execd.SessionState {
	st := execd.SessionState{Cwd: in.dir, Reason: "the command was ended from outside"}
	env := in.env
	if itself {
		var err error
		if st.Cwd, env, err = stateOf(p); err != nil {
			st.Cwd, env, st.Reason = in.dir, in.env, err.Error()
		} else {
			st.Kept, st.Reason = true, ""
		}
	}
	l.leave(in, st.Cwd, env)
	return &st
}

var errStateUnknown = errors.New("its shell did not say: it was replaced (exec), or has a trap of its own on EXIT")

// stateOf reads what the shell of a process left. It is written by user code:
// it is held to what a request could have asked for.
func stateOf(p Process) (dir string, env map[string]string, err error) {
	m, ok := p.(Stateful)
	if !ok {
		return "", nil, errStateUnknown
	}
	dir, list, err := m.State()
	if err != nil {
		return "", nil, err
	}
	if !strings.HasPrefix(dir, "/") {
		return "", nil, errStateUnknown
	}
	env = make(map[string]string, len(list))
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || checkVariable(k, v) != nil || k == "_" || k == "SHLVL" {
			continue
		}
		env[k] = v
	}
	return dir, env, nil
}

// deleteSession answers DELETE /session/{id}. A command that runs in it is
// ended first.
func (s *Server) deleteSession(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	s.sessions.mu.Lock()
	s.sessions.expireLocked()
	in := s.sessions.byID[id]
	delete(s.sessions.byID, id)
	var running *entry
	if in != nil {
		running = in.run
	}
	s.sessions.mu.Unlock()
	if in == nil {
		fail(w, noSession(id))
		return
	}
	if running != nil {
		<-running.started // or it is not: also when the caller waits no longer, its command must end
		if j, _ := s.commands.state(running); j != nil {
			j.interrupt(execd.KilledByInterrupt)
			select {
			case <-j.finished:
			case <-r.Context().Done():
				return
			}
		}
	}
	done(w)
}
