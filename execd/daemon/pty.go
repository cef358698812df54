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
	reading [2]atomic.Bool  // it has not come to its end

	typed typed // waits for the program

	mu      sync.Mutex
	used    time.Time
	deleted bool
	pipe    bool
	proc    InteractiveProcess // nil until it has started
	ring    ring
	conn    *ptyConn // who is attached
	room    chan struct{}
	code    int           // valid when ended is closed
	ended   chan struct{} // closed when the program has ended and all its output is here
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
		typed: newTyped(), room: make(chan struct{}, 1), ended: make(chan struct{})}
	return p, s.ptys.add(p)
}

func (l *ptys) add(p *pty) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireLocked()
	if len(l.byID) >= execd.MaxTerminals {
		return refuse(http.StatusTooManyRequests, execd.CodeTooMany, "there are %d terminals already: delete one first", len(l.byID))
	}
	if l.byID == nil {
		l.byID = make(map[string]*pty)
	}
	l.byID[p.id] = p
	return nil
}

// expireLocked forgets the terminals in which nothing runs, and that nobody has
// looked at for long.
func (l *ptys) expireLocked() {
	maps.DeleteFunc(l.byID, func(_ string, p *pty) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.conn == nil && (p.proc == nil || isClosed(p.ended)) && time.Since(p.used) > execd.TerminalIdle
	})
}

// get returns a terminal by id: somebody looks at it.
func (l *ptys) get(id string) (*pty, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireLocked()
	p := l.byID[id]
	if p == nil {
		return nil, refuse(http.StatusNotFound, execd.CodeSessionNotFound,
			"no terminal has the id %q: it was never there, was deleted, or nothing has run in it for %v", id, execd.TerminalIdle)
	}
	p.mu.Lock()
	p.used = time.Now()
	p.mu.Unlock()
	return p, nil
}

// ptyStatus answers GET /pty/{id}.
func (s *Server) ptyStatus(w http.ResponseWriter, r *http.Request) {
	p, err := s.ptys.get(r.PathValue("id"))
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, p.status())
}

func (p *pty) status() execd.TerminalStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := execd.TerminalStatus{ID: p.id, Running: p.proc != nil && !isClosed(p.ended), Offset: p.ring.total}
	if isClosed(p.ended) {
		st.ExitCode = &p.code
	}
	return st
}

// deletePTY answers DELETE /pty/{id} when nothing of it runs any more.
func (s *Server) deletePTY(w http.ResponseWriter, r *http.Request) {
	p, err := s.ptys.get(r.PathValue("id"))
	if err != nil {
		fail(w, err)
		return
	}
	s.ptys.mu.Lock()
	delete(s.ptys.byID, p.id)
	s.ptys.mu.Unlock()
	p.mu.Lock()
	proc := p.proc
	p.deleted = true
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

// beginLocked starts the program, once. Who attaches when that has failed has it
// tried again.
func (p *pty) beginLocked(pipe bool, size Size) error {
	switch {
	case p.deleted:
		return refuse(0, execd.CodeSessionGone, "the terminal has been deleted")
	case p.proc != nil:
		return nil
	case !p.srv.begin():
		return errClosed
	}
	base := maps.Clone(p.srv.env)
	if !pipe { // for people, not for programs that read
		maps.DeleteFunc(base, func(k, v string) bool { return quietEnv[k] != "" && quietEnv[k] == v })
		base["TERM"] = "xterm-256color"
	}
	env, err := p.srv.environment(base, p.req.Envs)
	var proc InteractiveProcess
	if err == nil {
		spec := Spec{ID: p.id, Command: p.req.Command, Dir: p.req.Cwd, Env: env}
		var terminal *Size
		if !pipe {
			terminal = &size
		}
		proc, err = p.srv.cfg.Machine.(Interactive).StartInteractive(spec, terminal)
	}
	if err != nil {
		p.srv.running.Done()
		return err
	}
	p.proc, p.pipe = proc, pipe
	go p.supervise(proc)
	return nil
}

// supervise sees the program to its end.
func (p *pty) supervise(proc InteractiveProcess) {
	defer p.srv.running.Done()
	eof, hungUp := make(chan struct{}), make(chan struct{})
	var readers, typing sync.WaitGroup
	typing.Go(func() { p.feed(proc.Input(), hungUp) })
	for i, out := range []io.ReadCloser{proc.Stdout(), proc.Stderr()} {
		if out != nil {
			p.reading[i].Store(true)
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
		if p.starved(proc) {
			break // held open from outside
		}
	}
	close(hungUp)
	for _, out := range []io.Closer{proc.Stdout(), proc.Stderr(), proc.Input()} {
		if out != nil {
			out.Close()
		}
	}
	<-eof
	typing.Wait()
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

// starved reports whether every stream that has not ended is waited for since a
// while, and has nothing.
func (p *pty) starved(proc InteractiveProcess) bool {
	now := time.Now().UnixNano()
	for i, stream := range []io.ReadCloser{proc.Stdout(), proc.Stderr()} {
		since := p.waiting[i].Load()
		if p.reading[i].Load() && (since == 0 || time.Duration(now-since) < drainGrace || !idle(stream)) {
			return false
		}
	}
	return true
}

// read takes one stream of the program to its end.
func (p *pty) read(which int, r io.Reader) {
	defer p.reading[which].Store(false)
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
	p.ring.add(which, b)
	if p.conn != nil {
		p.conn.output(which, b)
	}
}
