package tool

import (
	"path"
	"strings"
	"time"
)

// Recall takes a call as one that was made before rein was ended, with the
// result it had at that time: what this set keeps in memory of it is what it was.
// Nothing is asked or done. Calls are recalled in order, before new ones are made.
func (s *Set) Recall(c Call, r Result, at time.Time) {
	if s.recall != nil {
		s.recall(c, r, at)
	}
}

// recall knows the sessions again that are open. They live in the sandbox, so
// that they are as they were; those of another's execd are not, whose commands
// cannot be asked about.
func (b *builtin) recall(c Call, r Result, at time.Time) {
	args, err := decode[struct {
		ID  string `json:"session_id"`
		Cwd string `json:"cwd"`
	}](c)
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case c.Name == SessionCreate && r.OK && r.Session != nil:
		b.adoptLocked(r.Session.ID, args.Cwd, at.Add(time.Duration(r.Session.SecondsLeft)*time.Second))
	case c.Name == SessionRun && r.Session != nil && b.sessions[args.ID] != nil:
		s := b.sessions[args.ID]
		s.calls = b.Sessions.Calls - r.Session.CallsLeft
		s.cwd = r.Session.Cwd
		if strings.Contains(s.cwd, "[secret:") { // it is not known what was masked
			s.cwd = ""
		}
	case c.Name == SessionRun && r.Err != nil && r.Err.Code == CodeSessionGone && b.sessions[args.ID] != nil:
		delete(b.sessions, args.ID)
		b.ended[args.ID] = "it had ended before this run was resumed"
	case c.Name == SessionClose && r.OK && b.sessions[args.ID] != nil:
		delete(b.sessions, args.ID)
		b.ended[args.ID] = "it was closed"
	}
}

// adoptLocked takes up a session that was opened before rein was ended.
func (b *builtin) adoptLocked(id, cwd string, until time.Time) *openSession {
	if f := b.Sandbox.Features(); !f.CallIDs || !f.Sessions {
		b.ended[id] = "rein was ended since it was opened, and this sandbox's sessions cannot be taken up again"
		return nil
	}
	s := &openSession{until: until, cwd: cwd}
	if !path.IsAbs(s.cwd) {
		s.cwd = path.Join(b.cwd, s.cwd)
	}
	b.sessions[id] = s
	return s
}
