package daemon

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"syscall"

	"github.com/rein-sh/rein/execd"
)

// askCommand answers GET /command/status/{id} and GET /command/{id}/logs.
func (s *Server) askCommand(w http.ResponseWriter, r *http.Request) {
	a, b := r.PathValue("a"), r.PathValue("b")
	switch {
	case a == "status":
		s.status(w, r, b)
	case b == "logs":
		s.logs(w, r, a)
	default:
		fail(w, refuse(http.StatusNotFound, execd.CodeNotFound, "no such route: %s", r.URL.Path))
	}
}

// command returns a started command by id. One that is being started is waited
// for: that it is not known would mean that it never runs.
func (s *Server) command(ctx context.Context, id string) (*entry, error) {
	if e := s.commands.get(id); e != nil {
		select {
		case <-e.started:
			if e.startErr == nil {
				return e, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, refuse(http.StatusNotFound, execd.CodeCommandNotFound, "no command has the id %q", id)
}

func (s *Server) status(w http.ResponseWriter, r *http.Request, id string) {
	e, err := s.command(r.Context(), id)
	if err != nil {
		fail(w, err)
		return
	}
	st, err := s.statusOf(e)
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, st)
}

func (s *Server) statusOf(e *entry) (execd.Status, error) {
	var rec record
	j, _ := s.commands.state(e)
	switch {
	case j != nil && !isClosed(j.finished):
		st := execd.Status{ID: e.id, Content: j.req.Command, Running: true, StartedAt: j.started.UTC(), Rein: &execd.StatusExtra{}}
		st.Rein.Bytes, st.Rein.Lines = j.counts()
		if j.req.Background {
			st.Rein.LogPath = j.spill.path
		}
		return st, nil
	case j != nil:
		rec = recordOf(j)
	default:
		var err error
		if rec, err = s.commands.read(e); err != nil {
			return execd.Status{}, err
		}
	}
	o := rec.Outcome
	ended := rec.EndedAt.UTC()
	st := execd.Status{ID: e.id, Content: rec.Content, StartedAt: o.StartedAt, FinishedAt: &ended, Rein: &execd.StatusExtra{
		Outcome: &o, LogPath: rec.LogPath, Bytes: o.Stdout.Bytes + o.Stderr.Bytes, Lines: o.Stdout.Lines + o.Stderr.Lines}}
	if value, trace := failure(&o); value != "0" {
		st.Error = trace
	}
	st.ExitCode = o.ExitCode
	if st.ExitCode == nil {
		unknown := -1
		st.ExitCode = &unknown
	}
	return st, nil
}

// logs answers with the bytes of a command's log from the byte cursor on, at
// most limit of them.
func (s *Server) logs(w http.ResponseWriter, r *http.Request, id string) {
	e, err := s.command(r.Context(), id)
	if err != nil {
		fail(w, err)
		return
	}
	cursor, _ := strconv.ParseInt(r.URL.Query().Get("cursor"), 10, 64) // what is no number is 0
	limit, _ := strconv.ParseInt(r.URL.Query().Get("limit"), 10, 64)
	if cursor < 0 || limit < 0 {
		fail(w, refuse(http.StatusBadRequest, execd.CodeInvalidQuery, "cursor and limit cannot be negative"))
		return
	}
	name, err := s.logFile(e)
	if err != nil {
		fail(w, err)
		return
	}
	var size int64
	f, err := openPlain(name)
	switch {
	case errors.Is(err, os.ErrNotExist): // nothing has been printed yet
	case err != nil:
		fail(w, err)
		return
	default:
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			fail(w, err)
			return
		}
		size = info.Size()
	}
	n := max(0, size-cursor)
	if limit > 0 {
		n = min(n, limit)
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.FormatInt(n, 10))
	h.Set(execd.CursorHeader, strconv.FormatInt(cursor+n, 10))
	if n > 0 {
		io.Copy(w, io.NewSectionReader(f, cursor, n))
	}
}

// logFile is the OS path of the file with a command's output.
func (s *Server) logFile(e *entry) (string, error) {
	var p string
	if j, _ := s.commands.state(e); j != nil {
		if j.spill != nil {
			p = j.spill.path
		}
	} else if rec, err := s.commands.read(e); err != nil {
		return "", err
	} else if p = rec.LogPath; p == "" && rec.Outcome.Spill != nil {
		p = rec.Outcome.Spill.Path
	}
	if p == "" {
		return "", refuse(http.StatusConflict, execd.CodeConflict, "command %s has no log: it was not started in the background", e.id)
	}
	return s.osPath(p), nil
}

// interruptCommand answers DELETE /command?id=X once the command has ended.
func (s *Server) interruptCommand(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("id")
	if id == "" {
		fail(w, refuse(http.StatusBadRequest, execd.CodeMissingQuery, "id is missing"))
		return
	}
	e, err := s.command(r.Context(), id)
	if err != nil {
		fail(w, err)
		return
	}
	j, p := s.commands.state(e)
	switch {
	case j != nil && !isClosed(j.finished):
		j.interrupt(execd.KilledByInterrupt)
		select {
		case <-j.finished:
		case <-r.Context().Done():
			return
		}
	case p != nil && !isClosed(p.Gone()):
		endLeftovers(p)
	default:
		fail(w, refuse(http.StatusConflict, execd.CodeConflict, "command %s has ended already", id))
		return
	}
	done(w)
}

// endLeftovers ends what a finished background command left running.
func endLeftovers(p Process) {
	if p.Signal(syscall.SIGTERM) == nil && waitFor(p.Gone(), interruptGrace) {
		return
	}
	p.Kill()
	waitFor(p.Gone(), killWait)
}

// features answers GET /rein/features.
func (s *Server) features(w http.ResponseWriter, _ *http.Request) {
	t := s.cfg.Machine.Traits()
	_, ports := s.cfg.Machine.(PortOwner)
	_, interactive := s.cfg.Machine.(Interactive)
	var reduced []string
	if m, ok := s.cfg.Machine.(Reducer); ok {
		reduced = m.Reduced()
	}
	reply(w, execd.Features{
		Version: s.cfg.Version, CallIDs: true, Spill: true, Capture: true,
		PipeStatus: t.PipeStatus, OOMFlag: t.OOMFlag, Argv: t.Argv, PortOwner: ports, Sessions: s.hasSessions(), PTY: interactive, Clear: true,
		Separation: t.Separation, User: t.User, Reduced: reduced,
	})
}
