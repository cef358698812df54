package opensandboxtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rein-sh/rein/execd"
)

// Sessions and terminals as the original has them: controller/codeinterpreting.go
// and pty_controller.go, runtime/bash_session.go of its components/execd. Not
// played: it runs several commands of one session at once, where rein's daemon
// refuses the second, and it does not know a terminal's message "eof".

// createSession takes a directory alone, and has one answer for all that is
// wrong with it.
func (e Execd) createSession(w http.ResponseWriter, r *http.Request) {
	var req struct{ Cwd string }
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil && err != io.EOF {
		fail(w, http.StatusBadRequest, execd.CodeInvalidBody, "error parsing request. "+err.Error())
		return
	}
	rec := e.daemon(r, body(map[string]any{"cwd": req.Cwd}))
	if rec.status >= 400 && rec.status != http.StatusNotImplemented {
		fail(w, http.StatusInternalServerError, execd.CodeRuntime, "error creating session. "+rec.message())
		return
	}
	rec.send(w, nil)
}

// runInSession streams a command. It ends with its client, and a session that
// there is not is an error inside the server.
func (e Execd) runInSession(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Command string
		Cwd     string
		Timeout int64
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		fail(w, http.StatusBadRequest, execd.CodeInvalidBody, "error parsing request. "+err.Error())
		return
	}
	r2 := r.Clone(r.Context())
	r2.Body, r2.ContentLength = body(map[string]any{"command": req.Command, "cwd": req.Cwd, "timeout": req.Timeout}), -1
	s := &sessionStream{w: w, timeout: time.Duration(req.Timeout) * time.Millisecond}
	e.Daemon.ServeHTTP(s, r2)
	switch {
	case s.status == http.StatusNotFound:
		fail(w, http.StatusInternalServerError, execd.CodeRuntime, "error running in session. context not found")
	case s.status >= 400:
		rec := recorded{header: s.Header(), status: s.status}
		rec.body.Write(s.rest.Bytes())
		rec.header.Del("Content-Length")
		rec.send(w, nil)
	}
}

// sessionStream makes the events of a session's command of rein's.
type sessionStream struct {
	w       http.ResponseWriter
	timeout time.Duration
	status  int
	rest    bytes.Buffer // what is no whole line yet, or the body of an error
}

func (s *sessionStream) Header() http.Header { return s.w.Header() }

func (s *sessionStream) WriteHeader(status int) {
	if s.status = status; status < 400 {
		s.w.WriteHeader(status)
	}
}

func (s *sessionStream) Flush() {
	if s.status < 400 { // else nothing is sent yet
		_ = http.NewResponseController(s.w).Flush()
	}
}

func (s *sessionStream) Write(b []byte) (int, error) {
	s.rest.Write(b)
	for s.status < 400 {
		line, err := s.rest.ReadBytes('\n')
		if err != nil {
			s.rest.Write(line)
			break
		}
		if out := s.event(line); out != nil {
			if _, err := s.w.Write(append(out, '\n', '\n')); err != nil {
				return 0, err
			}
		}
	}
	return len(b), nil
}

// event is an event as the original sends it: no blank lines of output, and of a
// command that took too long an object without a type.
func (s *sessionStream) event(line []byte) []byte {
	var ev execd.Event
	if json.Unmarshal(line, &ev) != nil || ev.Type == "" {
		return nil
	}
	ev.Rein = nil
	switch {
	case ev.Type == execd.EventStdout && ev.Text == "\n":
		return nil
	case ev.Error != nil && strings.Contains(strings.Join(ev.Error.Traceback, ""), "(timeout after "):
		return encode(map[string]string{"code": execd.CodeRuntime, "message": fmt.Sprintf("error running in session. timeout after %v", s.timeout)})
	case ev.Error != nil:
		for i, line := range ev.Error.Traceback {
			ev.Error.Traceback[i], _, _ = strings.Cut(line, " (") // why, which the original does not say
		}
	}
	return encode(ev)
}

// createTerminal takes a directory and a command.
func (e Execd) createTerminal(w http.ResponseWriter, r *http.Request) {
	var req struct{ Cwd, Command string }
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil && err != io.EOF {
		fail(w, http.StatusBadRequest, execd.CodeInvalidBody, "error parsing request: "+err.Error())
		return
	}
	e.daemon(r, body(map[string]any{"cwd": req.Cwd, "command": req.Command})).send(w, nil)
}

// terminal is the status of one, which does not tell its exit code, its end, or
// its socket, on which all that is kept is sent to who does not say from where.
func (e Execd) terminal(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/ws") {
		r2 := r.Clone(r.Context())
		q := r.URL.Query()
		q.Del("cols")
		q.Del("rows")
		if !q.Has("since") {
			q.Set("since", "0")
		}
		r2.URL.RawQuery = q.Encode()
		e.Daemon.ServeHTTP(w, r2)
		return
	}
	rec := e.daemon(r, nil)
	var st map[string]any
	if rec.status == http.StatusOK && json.Unmarshal(rec.body.Bytes(), &st) == nil {
		delete(st, "exit_code")
		rec.body.Reset()
		rec.body.Write(encode(st))
		rec.header.Del("Content-Length")
	}
	rec.send(w, nil)
}

// message is what an error of the daemon says.
func (r *recorded) message() string {
	var e execd.Error
	_ = json.Unmarshal(r.body.Bytes(), &e) // else it says nothing
	return e.Message
}

func body(v any) io.ReadCloser { return io.NopCloser(bytes.NewReader(encode(v))) }

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain strings and numbers
	}
	return b
}
