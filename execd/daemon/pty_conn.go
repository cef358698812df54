package daemon

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
)

// Times of a terminal's socket.
const (
	ptyPing     = 30 * time.Second
	ptyPongWait = 30 * time.Second
)

// maxPTYInput bounds one frame of input.
const maxPTYInput = 1 << 20

// maxAnswers is how many answers to frames wait for a client to read them. What
// more there is is not said.
const maxAnswers = 64

// frameCost is about what keeping a frame takes besides its bytes.
const frameCost = 64

// frame is what waits to be written to a socket.
type frame struct {
	text bool
	data []byte
}

// ptyConn is one socket attached to a terminal.
type ptyConn struct {
	p     *pty
	ws    *websocket.Conn
	ready chan struct{}

	// apart asks for kept output in frames that say of which stream it is.
	apart bool

	// busy is odd while input waits for the program, which keeps us from hearing
	// the answer to a ping.
	busy atomic.Int64

	kicked chan struct{} // closed when another is attached now

	mu      sync.Mutex
	queue   []frame
	bytes   int  // what the queue takes
	answers int  // of the queue
	final   bool // the last frame is in the queue
}

// servePTY answers GET /pty/{id}/ws.
func (s *Server) servePTY(w http.ResponseWriter, r *http.Request) {
	p, err := s.ptys.get(r.PathValue("id"))
	if err != nil {
		fail(w, err)
		return
	}
	q := r.URL.Query()
	size, since, err := attachQuery(q)
	if err != nil {
		fail(w, err)
		return
	}
	takeover := q.Get("takeover") == "1"
	p.mu.Lock()
	taken := p.conn != nil && !takeover && !isClosed(p.ended)
	p.mu.Unlock()
	if taken {
		fail(w, alreadyConnected())
		return
	}
	if !s.begin() {
		fail(w, errClosed)
		return
	}
	defer s.running.Done()
	// The origin says nothing: every request has the token, which no page has.
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return // it has answered
	}
	defer ws.CloseNow()
	ws.SetReadLimit(maxPTYInput)
	c := &ptyConn{p: p, ws: ws, ready: make(chan struct{}, 1), kicked: make(chan struct{}), apart: q.Get("apart") == "1"}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	p.mu.Lock() // over both, so that nothing is printed before somebody is there
	err = p.beginLocked(q.Get("pty") == "0", size)
	if err == nil {
		err = p.attachLocked(c, since, takeover)
	}
	p.mu.Unlock()
	if err != nil {
		e := asError(err)
		code := execd.CodeStartFailed
		if e.Code == execd.CodeSessionGone || e.Code == execd.CodeAlreadyConnected {
			code = e.Code
		}
		c.message(execd.TerminalMessage{Type: "error", Code: code, Error: e.Message, Status: e.Status})
		c.last()
		c.write(ctx)
		return
	}
	defer p.detach(c)
	c.serve(ctx, cancel)
}

func alreadyConnected() *execd.Error {
	return refuse(http.StatusConflict, execd.CodeAlreadyConnected, "somebody is attached to the terminal: takeover=1 takes it over")
}

func attachQuery(q url.Values) (size Size, since int64, err error) {
	size, since = Size{80, 24}, -1
	bad := func(name string) (Size, int64, error) {
		return size, since, refuse(http.StatusBadRequest, execd.CodeInvalidQuery, "%s is no number that makes sense: %q", name, q.Get(name))
	}
	if q.Has("since") {
		if since, err = strconv.ParseInt(q.Get("since"), 10, 64); err != nil || since < 0 {
			return bad("since")
		}
	}
	if q.Has("cols") || q.Has("rows") {
		cols, err := strconv.Atoi(q.Get("cols"))
		if err != nil || !sound(cols) {
			return bad("cols")
		}
		rows, err := strconv.Atoi(q.Get("rows"))
		if err != nil || !sound(rows) {
			return bad("rows")
		}
		size = Size{uint16(cols), uint16(rows)}
	}
	return size, since, nil
}

// sound reports whether n may be a number of columns or rows.
func sound(n int) bool { return n > 0 && n <= 10_000 }

// attachLocked makes c the one that is attached, and queues what it has missed.
func (p *pty) attachLocked(c *ptyConn, since int64, takeover bool) error {
	if old := p.conn; old != nil && !isClosed(p.ended) {
		if !takeover {
			return alreadyConnected()
		}
		old.kick()
	}
	if since >= 0 {
		for _, k := range p.ring.since(since, c.apart) {
			kind := byte(execd.FrameReplay)
			if k.stream != 0 {
				kind = execd.FrameReplayStderr
			}
			head := binary.BigEndian.AppendUint64([]byte{kind}, uint64(k.from))
			c.add(frame{data: append(head, k.data...)})
		}
	}
	mode := "pty"
	if p.pipe {
		mode = "pipe"
	}
	c.message(execd.TerminalMessage{Type: "connected", ID: p.id, Mode: mode})
	p.conn = c
	signalTo(p.room)
	if isClosed(p.ended) {
		c.finish(p.code)
	}
	return nil
}

func (p *pty) detach(c *ptyConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used = time.Now()
	if p.conn == c {
		p.conn = nil
	}
	signalTo(p.room)
}

func (c *ptyConn) queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

func (c *ptyConn) add(f frame) {
	c.mu.Lock()
	if !c.final {
		c.queue, c.bytes = append(c.queue, f), c.bytes+len(f.data)+frameCost
	}
	c.mu.Unlock()
	signalTo(c.ready)
}

// output queues output, together with what waits of the same stream.
func (c *ptyConn) output(which int, b []byte) {
	channel := byte(execd.FrameStdout + which)
	c.mu.Lock()
	if n := len(c.queue); n > 0 && !c.final && !c.queue[n-1].text && c.queue[n-1].data[0] == channel && len(c.queue[n-1].data) < 64<<10 {
		c.queue[n-1].data = append(c.queue[n-1].data, b...)
		c.bytes += len(b)
		c.mu.Unlock()
		signalTo(c.ready)
		return
	}
	c.mu.Unlock()
	c.add(frame{data: append([]byte{channel}, b...)})
}

func (c *ptyConn) message(m execd.TerminalMessage) {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // plain strings and numbers
	}
	c.add(frame{text: true, data: b})
}

// answer queues an answer to a frame, or what became of one.
func (c *ptyConn) answer(m execd.TerminalMessage) {
	c.mu.Lock()
	c.answers++
	most := c.answers > maxAnswers
	c.mu.Unlock()
	if !most {
		c.message(m)
	}
}

// finish queues the end.
func (c *ptyConn) finish(code int) {
	c.message(execd.TerminalMessage{Type: "exit", ExitCode: &code})
	c.last()
}

func (c *ptyConn) last() {
	c.mu.Lock()
	c.final = true
	c.mu.Unlock()
	signalTo(c.ready)
}

// kick ends a connection for another that takes its place. It is called once, by
// the one who attaches the other.
func (c *ptyConn) kick() {
	c.mu.Lock()
	c.queue, c.final = nil, true
	c.mu.Unlock()
	close(c.kicked)
	signalTo(c.ready)
}

// serve moves what there is in both directions until the socket or the server
// ends.
func (c *ptyConn) serve(ctx context.Context, cancel context.CancelFunc) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	tasks.Go(func() { defer cancel(); c.write(ctx) })
	tasks.Go(func() { c.ping(ctx, cancel) })
	tasks.Go(func() {
		told := killWait // in which the end is still told
		select {
		case <-c.p.srv.closing:
			waitFor(c.p.ended, killWait)
			told = killWait / 4
		case <-c.kicked:
		case <-ctx.Done():
			return
		}
		t := time.NewTimer(told)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		cancel() // first: a close that waits for its answer holds up the other
		c.ws.CloseNow()
	})
	for {
		kind, b, err := c.ws.Read(ctx)
		if err != nil {
			return
		}
		if !c.take(ctx, kind == websocket.MessageText, b) {
			return
		}
	}
}

// write writes what is queued until the last frame.
func (c *ptyConn) write(ctx context.Context) {
	for {
		c.mu.Lock()
		queue, final := c.queue, c.final
		c.queue, c.bytes, c.answers = nil, 0, 0
		c.mu.Unlock()
		signalTo(c.p.room)
		for _, f := range queue {
			kind := websocket.MessageBinary
			if f.text {
				kind = websocket.MessageText
			}
			short, cancel := context.WithTimeout(ctx, c.p.srv.cfg.StallLimit)
			err := c.ws.Write(short, kind, f.data)
			cancel()
			if err != nil {
				return
			}
		}
		if isClosed(c.kicked) {
			c.ws.Close(execd.CloseTakenOver, "taken over")
			return
		}
		if final {
			c.ws.Close(websocket.StatusNormalClosure, "process exited")
			return
		}
		select {
		case <-c.ready:
		case <-ctx.Done():
			return
		}
	}
}

func (c *ptyConn) ping(ctx context.Context, lost context.CancelFunc) {
	t := time.NewTicker(ptyPing)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			was := c.busy.Load()
			short, cancel := context.WithTimeout(ctx, ptyPongWait)
			err := c.ws.Ping(short)
			cancel()
			unheard := errors.Is(err, context.DeadlineExceeded) && (was%2 == 1 || c.busy.Load() != was)
			if err != nil && !unheard {
				lost()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// ptySignals are those that can be asked for.
var ptySignals = map[string]bool{"SIGINT": true, "SIGTERM": true, "SIGKILL": true, "SIGQUIT": true, "SIGHUP": true}

// take carries out one frame, and reports whether there can be more.
func (c *ptyConn) take(ctx context.Context, text bool, b []byte) bool {
	if !text {
		if len(b) == 0 || b[0] != execd.FrameInput {
			return c.invalid("a binary frame begins with 0")
		}
		return c.input(ctx, b[1:])
	}
	var m execd.TerminalMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return c.invalid("a text frame is a JSON object")
	}
	proc := c.p.proc // set before we were attached
	var err error
	switch m.Type {
	case "stdin":
		return c.input(ctx, []byte(m.Data))
	case "eof":
		if c.p.pipe {
			c.attached(c.p.typed.end)
		}
	case "resize":
		if !sound(m.Cols) || !sound(m.Rows) {
			return c.invalid("no terminal has this size")
		}
		c.attached(func() { err = proc.Resize(Size{uint16(m.Cols), uint16(m.Rows)}) })
	case "signal":
		if !ptySignals[m.Signal] {
			return c.invalid("no such signal here")
		}
		c.attached(func() { err = proc.SignalForeground(syscall.Signal(unix.SignalNum(m.Signal))) })
	case "ping":
		c.answer(execd.TerminalMessage{Type: "pong"})
	default:
		return c.invalid("no such type of message")
	}
	// A program that has ended, with its terminal, has no use for either.
	if err != nil && !isClosed(proc.Done()) {
		c.answer(execd.TerminalMessage{Type: "error", Code: execd.CodeRuntime, Error: err.Error()})
	}
	return true
}

// attached does something for c, unless another is attached now.
func (c *ptyConn) attached(do func()) bool {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.p.conn != c {
		return false
	}
	do()
	return true
}

func (c *ptyConn) invalid(why string) bool {
	c.answer(execd.TerminalMessage{Type: "error", Code: execd.CodeInvalidFrame, Error: why})
	return true
}
