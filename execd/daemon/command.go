package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"net/http"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/execd"
)

// runCommand answers POST /command.
//
// A foreground command outlives its connection, with an id or without, until
// its own timeout, an interrupt or the sandbox's end: what runs is never ended
// by a network failure.
func (s *Server) runCommand(w http.ResponseWriter, r *http.Request) {
	var req execd.RunRequest
	if err := decode(w, r, &req); err != nil {
		fail(w, err)
		return
	}
	spec, err := s.check(&req)
	if err != nil {
		fail(w, err)
		return
	}
	e, mine := s.commands.claim(spec.ID)
	if !mine {
		s.follow(w, r, e, req)
		return
	}
	j, err := s.start(e, req, spec, nil)
	if err != nil {
		fail(w, err)
		return
	}
	if req.Background {
		s.serveStarted(w, r, j.id, false)
		return
	}
	j.stream.serve(r.Context(), w, s.cfg.StallLimit)
}

// serveStarted answers a background request: it has started, no more.
func (s *Server) serveStarted(w http.ResponseWriter, r *http.Request, id string, known bool) {
	st := newStream(false)
	st.greet(id, known)
	st.end(execd.Event{Type: execd.EventComplete})
	st.serve(r.Context(), w, s.cfg.StallLimit)
}

// follow answers a request whose id is known: nothing is run. A running
// command is waited for; then the stored result is sent, with as much of the
// output as was kept.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, e *entry, req execd.RunRequest) {
	select {
	case <-e.started:
	case <-r.Context().Done():
		return
	}
	if e.startErr != nil {
		fail(w, e.startErr)
		return
	}
	if req.Background {
		s.serveStarted(w, r, e.id, true)
		return
	}
	st := newStream(req.Rein != nil && req.Rein.Raw)
	st.greet(e.id, true)
	ctx, cancel := context.WithCancel(r.Context())
	var feeding sync.WaitGroup
	defer feeding.Wait()
	defer cancel()
	feeding.Go(func() { s.replay(ctx, st, e, req) })
	st.serve(ctx, w, s.cfg.StallLimit)
}

// replay sends the result of a command that has run or still runs.
func (s *Server) replay(ctx context.Context, st *stream, e *entry, req execd.RunRequest) {
	var o execd.Outcome
	if j, _ := s.commands.state(e); j != nil {
		select {
		case <-j.finished:
			o = j.outcome
		case <-ctx.Done():
			return
		}
	} else {
		rec, err := s.commands.read(e)
		if err != nil {
			st.end(execd.Event{Type: execd.EventError, Error: &execd.ErrorValue{
				Name: execd.CodeRuntime, Value: "-1", Traceback: []string{"the stored result cannot be read: " + err.Error()}}})
			return
		}
		o = rec.Outcome
	}
	captured := req.Rein != nil && req.Rein.Capture > 0
	if !captured {
		for i, out := range []execd.Output{o.Stdout, o.Stderr} {
			st.output(i, out.Head)
			st.output(i, out.Tail)
		}
	}
	st.end(terminal(&o, req.Rein, captured))
}

// check validates a request and makes the machine's order of it.
func (s *Server) check(req *execd.RunRequest) (Spec, error) {
	spec, err := checkCommand(req)
	if err != nil {
		return Spec{}, err
	}
	if len(spec.Argv) > 0 && !s.cfg.Machine.Traits().Argv {
		return Spec{}, refuse(http.StatusNotImplemented, execd.CodeInvalidBody, "rein.argv: this machine starts commands with its shell only")
	}
	if spec.Dir, err = s.workingDirectory(req.Cwd, req.Rein != nil); err != nil {
		return Spec{}, inBody("cwd", err)
	}
	if spec.Env, err = s.environment(s.env, req.Envs); err != nil {
		return Spec{}, inBody("envs", err)
	}
	return spec, nil
}

// inBody is err as that of a member of the request's body.
func inBody(member string, err error) error {
	return refuse(http.StatusBadRequest, execd.CodeInvalidBody, "%s: %s", member, asError(err).Message)
}

// checkCommand is check without the working directory and the environment.
func checkCommand(req *execd.RunRequest) (Spec, error) {
	bad := func(format string, args ...any) (Spec, error) {
		return Spec{}, refuse(http.StatusBadRequest, execd.CodeInvalidBody, format, args...)
	}
	spec := Spec{Command: req.Command, UID: req.UID, GID: req.GID}
	switch {
	case strings.TrimSpace(req.Command) == "":
		return bad("command is empty")
	case strings.IndexByte(req.Command, 0) >= 0:
		return bad("command has a NUL byte at offset %d; no shell can run it", strings.IndexByte(req.Command, 0))
	case req.Timeout < 0:
		return bad("timeout is negative: %d", req.Timeout)
	case req.GID != nil && req.UID == nil:
		return bad("gid needs uid")
	}
	if o := req.Rein; o != nil {
		switch {
		case o.ID != "" && !execd.ValidID(o.ID):
			return bad("rein.id must be 1 to 64 letters, digits, '-' or '_'")
		case o.Capture < 0 || o.Capture > execd.MaxCapture:
			return bad("rein.capture must be from 0 to %d", execd.MaxCapture)
		case o.Spill && o.ID == "":
			return bad("rein.spill needs rein.id")
		case o.SpillLimit < 0:
			return bad("rein.spill_limit is negative")
		case len(o.Argv) > 0 && o.Argv[0] == "":
			return bad("rein.argv has no program")
		case slices.ContainsFunc(o.Argv, func(a string) bool { return strings.IndexByte(a, 0) >= 0 }):
			return bad("rein.argv has a NUL byte")
		case o.Fixed && len(o.Argv) == 0:
			return bad("rein.fixed needs rein.argv")
		}
		spec.ID, spec.Argv, spec.Fixed = o.ID, o.Argv, o.Fixed
	}
	if spec.ID == "" {
		spec.ID = randomID()
	}
	return spec, nil
}

// randomID is what OpenSandbox's ids look like: 32 hexadecimal digits.
func randomID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// cleanEnv is the environment every command starts from.
var cleanEnv = merge(quietEnv, map[string]string{
	"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"LANG": "C.UTF-8", "TERM": "dumb",
})

// quietEnv is what of it is for people: at a terminal it is left out.
var quietEnv = execd.QuietEnv()

func merge(all ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, m := range all {
		maps.Copy(merged, m)
	}
	return merged
}

// environment is the whole environment of a command, sorted: base and extra.
func (s *Server) environment(base, extra map[string]string) ([]string, error) {
	merged := make(map[string]string, len(base)+len(extra))
	for k, v := range base {
		merged[k] = v
	}
	for k, v := range extra {
		if err := checkVariable(k, v); err != nil {
			return nil, err
		}
		merged[k] = v
	}
	list := make([]string, 0, len(merged))
	for k, v := range merged {
		list = append(list, k+"="+v)
	}
	sort.Strings(list)
	return list, nil
}

func checkVariable(k, v string) error {
	if k == "" || strings.ContainsAny(k, "=\x00") {
		return refuse(http.StatusBadRequest, execd.CodeInvalidBody, "%q cannot be the name of a variable", k)
	}
	if strings.IndexByte(v, 0) >= 0 {
		return refuse(http.StatusBadRequest, execd.CodeInvalidBody, "the value of %s has a NUL byte", k)
	}
	return nil
}

// start starts a claimed command, in a session or in none (nil), and the
// goroutine that sees it to its end.
func (s *Server) start(e *entry, req execd.RunRequest, spec Spec, in *session) (*job, error) {
	j := &job{srv: s, id: spec.ID, req: req, session: in, stop: make(chan string, 1), finished: make(chan struct{})}
	keep := j.keep()
	j.stdout, j.stderr = newCapture(keep), newCapture(keep)
	if !j.captured() && req.Rein != nil {
		j.stdout, j.stderr = capture{tailMax: keep}, capture{tailMax: keep}
	}
	if req.Background || req.Rein != nil && req.Rein.Spill {
		j.spill = s.newSpill(spec.ID, req.Rein)
	}
	if !req.Background {
		j.stream = newStream(req.Rein != nil && req.Rein.Raw)
		name := j.id
		if in != nil && req.Rein == nil {
			name = in.id // as OpenSandbox has it
		}
		j.stream.greet(name, false)
	}
	if !s.begin() {
		s.commands.fail(e, errClosed)
		return nil, errClosed
	}
	j.started = time.Now()
	p, err := s.cfg.Machine.Start(spec)
	if err != nil {
		s.commands.fail(e, err)
		s.running.Done()
		return nil, err
	}
	j.proc = p
	s.commands.running(e, j)
	go func() {
		defer s.running.Done()
		defer func() { <-p.Gone(); s.commands.gone(e) }()
		j.supervise(func() { s.commands.store(e, j) })
	}()
	return j, nil
}

func (s *Server) newSpill(id string, o *execd.RunOptions) *spill {
	limit := int64(execd.DefaultSpillLimit)
	if o != nil && o.SpillLimit > 0 {
		limit = o.SpillLimit
	}
	p := path.Join(s.cfg.StateDir, "out", id)
	return &spill{path: p, osPath: s.osPath(p), limit: limit, budget: &s.spillLeft}
}
