package daemon

import (
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rein-sh/rein/execd"
)

// pty is one terminal: a program that is typed to, which starts when it is first
// attached to and goes on without anybody attached.
type pty struct {
	srv *Server
	id  string
	req execd.TerminalRequest

	waiting [2]atomic.Int64 // since when each reader of output waits, or 0

	mu    sync.Mutex
	used  time.Time
	begun bool
	pipe  bool
	proc  InteractiveProcess
	ring  ring
	conn  *ptyConn // who is attached
	room  chan struct{}
	code  int           // valid when ended is closed
	ended chan struct{} // closed when the program has ended and all its output is here
}

// ptys are the terminals of a server. The zero value has none.
type ptys struct {
	mu   sync.Mutex
	byID map[string]*pty
}

// createPTY answers POST /pty.
func (s *Server) createPTY(w http.ResponseWriter, r *http.Request) {
	var req execd.TerminalRequest
	if r.ContentLength != 0 {
		if err := decode(w, r, &req); err != nil {
			fail(w, err)
			return
		}
	}
	p, err := s.newPTY(req)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, `{"session_id":"`+p.id+"\"}\n")
}

func (s *Server) newPTY(req execd.TerminalRequest) (*pty, error) {
	if _, ok := s.cfg.Machine.(Interactive); !ok {
		return nil, refuse(http.StatusNotImplemented, "NOT_SUPPORTED", "this machine has no terminals")
	}
	var err error
	if req.Cwd, err = s.workingDirectory(req.Cwd, false); err != nil {
		return nil, inBody("cwd", err)
	}
	if _, err := s.environment(s.env, req.Envs); err != nil {
		return nil, inBody("envs", err)
	}
	for i := range len(req.Command) {
		if req.Command[i] == 0 {
			return nil, refuse(http.StatusBadRequest, execd.CodeInvalidBody, "command has a NUL byte at offset %d", i)
		}
	}
	p := &pty{srv: s, id: randomID(), req: req, used: time.Now(), ring: ring{max: execd.TerminalReplay},
		room: make(chan struct{}, 1), ended: make(chan struct{})}
	l := &s.ptys
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.byID, func(_ string, p *pty) bool { return p.stale() })
	if len(l.byID) >= execd.MaxTerminals {
		return nil, refuse(http.StatusTooManyRequests, execd.CodeTooMany, "there are %d terminals already: delete one first", len(l.byID))
	}
	if l.byID == nil {
		l.byID = make(map[string]*pty)
	}
	l.byID[p.id] = p
	return p, nil
}

// stale reports whether a terminal can be forgotten: nothing runs in it, and
// nobody has looked at it for long.
func (p *pty) stale() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn == nil && (!p.begun || isClosed(p.ended)) && time.Since(p.used) > execd.TerminalIdle
}

// pty returns a terminal by id.
func (s *Server) pty(id string) (*pty, error) {
	s.ptys.mu.Lock()
	defer s.ptys.mu.Unlock()
	if p := s.ptys.byID[id]; p != nil {
		return p, nil
	}
	return nil, refuse(http.StatusNotFound, execd.CodeSessionNotFound, "no terminal has the id %q", id)
}

// ptyStatus answers GET /pty/{id}.
func (s *Server) ptyStatus(w http.ResponseWriter, r *http.Request) {
	p, err := s.pty(r.PathValue("id"))
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, p.status())
}

func (p *pty) status() execd.TerminalStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used = time.Now()
	st := execd.TerminalStatus{ID: p.id, Running: p.proc != nil && !isClosed(p.ended), Offset: p.ring.total}
	if isClosed(p.ended) {
		st.ExitCode = &p.code
	}
	return st
}

// deletePTY answers DELETE /pty/{id} when nothing of it runs any more.
func (s *Server) deletePTY(w http.ResponseWriter, r *http.Request) {
	p, err := s.pty(r.PathValue("id"))
	if err != nil {
		fail(w, err)
		return
	}
	s.ptys.mu.Lock()
	delete(s.ptys.byID, p.id)
	s.ptys.mu.Unlock()
	p.mu.Lock()
	proc := p.proc
	p.begun = true // it never will
	p.mu.Unlock()
	if proc != nil {
		// What a terminal that goes away says; a stopped job hears it when it goes on.
		if proc.Signal(syscall.SIGHUP) != nil || proc.Signal(syscall.SIGCONT) != nil || !waitFor(proc.Gone(), timeoutGrace) {
			proc.Kill()
		}
		waitFor(p.ended, 2*killWait)
	}
	done(w)
}

// begin starts the program, once.
func (p *pty) begin(pipe bool, size Size) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun {
		if p.proc == nil {
			return refuse(0, execd.CodeSessionGone, "the terminal has been deleted, or its program could not be started")
		}
		return nil
	}
	if !p.srv.begin() {
		return errClosed
	}
	p.begun = true
	base := maps.Clone(p.srv.env)
	if !pipe { // for people, not for programs that read
		for _, k := range []string{"NO_COLOR", "CI", "PAGER", "GIT_PAGER", "GIT_TERMINAL_PROMPT", "DEBIAN_FRONTEND"} {
			if base[k] == cleanEnv[k] {
				delete(base, k)
			}
		}
		base["TERM"] = "xterm-256color"
	}
	env, err := p.srv.environment(base, p.req.Envs)
	if err == nil {
		spec := Spec{ID: p.id, Command: p.req.Command, Dir: p.req.Cwd, Env: env}
		var terminal *Size
		if !pipe {
			terminal = &size
		}
		p.proc, err = p.srv.cfg.Machine.(Interactive).StartInteractive(spec, terminal)
	}
	if err != nil {
		p.proc = nil
		p.srv.running.Done()
		return err
	}
	p.pipe = pipe
	go p.supervise(p.proc)
	return nil
}

// supervise sees the program to its end.
func (p *pty) supervise(proc InteractiveProcess) {
	defer p.srv.running.Done()
	eof := make(chan struct{})
	var readers sync.WaitGroup
	for i, out := range []io.ReadCloser{proc.Stdout(), proc.Stderr()} {
		if out != nil {
			readers.Go(func() { p.read(i, out) })
		}
	}
	go func() { readers.Wait(); close(eof) }()
	<-proc.Done()
	// What it leaves has lost its terminal, and is ended as what a command leaves.
	if !waitFor(proc.Gone(), drainGrace) {
		if proc.Signal(syscall.SIGHUP) != nil || !waitFor(proc.Gone(), leftoverGrace) {
			proc.Kill()
		}
	}
	waitFor(proc.Gone(), killWait)
	for !waitFor(eof, drainGrace/3) {
		if p.starved() {
			break // held open from outside
		}
	}
	for _, out := range []io.Closer{proc.Stdout(), proc.Stderr(), proc.Input()} {
		if out != nil {
			out.Close()
		}
	}
	<-eof
	e := proc.Exit()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.Err != nil:
		p.code = -1
	case e.Signal != 0:
		p.code = 128 + int(e.Signal)
	default:
		p.code = e.Code
	}
	p.used = time.Now()
	close(p.ended)
	if p.conn != nil {
		p.conn.finish(p.code)
	}
}

// starved reports whether every reader has waited for a while for output that
// nobody is left to write.
func (p *pty) starved() bool {
	now := time.Now().UnixNano()
	for i := range p.waiting {
		if since := p.waiting[i].Load(); since != 0 && time.Duration(now-since) >= drainGrace {
			return true
		}
	}
	return false
}

// read takes one stream of the program to its end.
func (p *pty) read(which int, r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		p.waiting[which].Store(time.Now().UnixNano())
		n, err := r.Read(buf)
		p.waiting[which].Store(0)
		if n > 0 {
			p.put(which, buf[:n])
		}
		if err != nil {
			return // of a terminal it is EIO when nobody has it open
		}
	}
}

// put keeps output and hands it to who is attached. When too much waits there,
// the program waits.
func (p *pty) put(which int, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.conn != nil && p.conn.queued() >= execd.TerminalStall {
		p.mu.Unlock()
		<-p.room
		p.mu.Lock()
	}
	signalTo(p.room) // for the other stream's reader
	p.ring.add(b)
	if p.conn != nil {
		p.conn.output(which, b)
	}
}
