package daemon

import (
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rein-sh/rein/execd"
)

// Graces of ending a command.
const (
	drainGrace     = 150 * time.Millisecond // after the leader ended, for what it left to end by itself
	leftoverGrace  = 50 * time.Millisecond  // after SIGTERM to that
	timeoutGrace   = 500 * time.Millisecond // after SIGTERM at a timeout
	interruptGrace = time.Second            // after SIGTERM at an interrupt
	killWait       = time.Second            // after SIGKILL, before the result is given without proof
)

// storedOutput is what is kept of the output of a command with an id that is
// not captured: the end of it.
const storedOutput = execd.MaxCapture

// job is one command, from its start to its stored result.
type job struct {
	srv     *Server
	id      string
	req     execd.RunRequest
	proc    Process
	session *session // nil: none
	started time.Time
	stop    chan string // a reason to end it; room for one

	mu             sync.Mutex // orders the output of both streams
	stdout, stderr capture
	spill          *spill
	last           int     // the stream whose output came last
	stream         *stream // nil when nobody was to be sent the output
	waiting        [2]atomic.Int64

	finished chan struct{} // closed when outcome is set
	outcome  execd.Outcome
	endedAt  time.Time
}

// keep is how many bytes of output the job holds on to.
func (j *job) keep() int {
	rein := j.req.Rein
	switch {
	case rein == nil:
		return 0
	case rein.Capture > 0:
		return int(rein.Capture)
	case rein.ID != "":
		return storedOutput
	}
	return 0
}

func (j *job) captured() bool { return j.req.Rein != nil && j.req.Rein.Capture > 0 }

// supervise sees the command to its end, sets the outcome and calls store. It
// returns when the output has ended, too.
func (j *job) supervise(store func()) {
	eof := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() { j.read(0, j.proc.Stdout(), &j.stdout) })
	readers.Go(func() { j.read(1, j.proc.Stderr(), &j.stderr) })
	go func() { readers.Wait(); close(eof) }()

	reason := j.awaitLeader()
	held := j.settle(eof, reason)
	j.conclude(reason, held)
	store()
	<-eof
	j.mu.Lock()
	j.spill.close()
	j.mu.Unlock()
}

// awaitLeader waits for the leader's end and, where it has to be ended, ends
// it with everything else. It returns why.
func (j *job) awaitLeader() (reason string) {
	var timeout <-chan time.Time
	if j.req.Timeout > 0 {
		t := time.NewTimer(time.Duration(j.req.Timeout) * time.Millisecond)
		defer t.Stop()
		timeout = t.C
	}
	grace := interruptGrace
	select {
	case <-j.proc.Done():
		return ""
	case <-timeout:
		reason, grace = execd.KilledByTimeout, timeoutGrace
	case reason = <-j.stop:
		if reason == execd.KilledByShutdown {
			grace = 0
		}
	}
	j.end(grace)
	waitFor(j.proc.Done(), killWait)
	return reason
}

// end ends the whole tree: politely within grace, then by force.
func (j *job) end(grace time.Duration) {
	// A group that cannot be signalled has nobody left to be polite to.
	if grace > 0 && j.proc.Signal(syscall.SIGTERM) == nil && waitFor(j.proc.Gone(), grace) {
		return
	}
	j.proc.Kill()
}

// settle waits for what the leader left behind: its output, and in the
// foreground its processes, which are ended. It reports whether one of them
// held the output open.
func (j *job) settle(eof chan struct{}, reason string) (held bool) {
	if reason == "" {
		until := time.Now().Add(drainGrace)
		held = !waitFor(eof, drainGrace) && len(j.starved(0)) > 0
		if j.req.Background {
			return held
		}
		if !waitFor(j.proc.Gone(), time.Until(until)) {
			j.end(leftoverGrace)
		}
	}
	waitFor(j.proc.Gone(), killWait)
	// Whoever could write is gone, or was handed the pipe from outside the
	// command. What is in the pipe is still read, at the pace of the client.
	for !waitFor(eof, drainGrace/3) {
		for _, stream := range j.starved(drainGrace) {
			stream.Close()
		}
	}
	return held
}

// starved are the streams whose readers have waited at least d for output, and of
// which none is there.
func (j *job) starved(d time.Duration) (list []io.Closer) {
	now := time.Now().UnixNano()
	for i, stream := range []io.ReadCloser{j.proc.Stdout(), j.proc.Stderr()} {
		if since := j.waiting[i].Load(); since != 0 && time.Duration(now-since) >= d && idle(stream) {
			list = append(list, stream)
		}
	}
	return list
}

// Sizes of reads: a quiet command costs little memory, a busy one gets a large
// buffer.
const (
	smallRead = 8 << 10
	largeRead = 256 << 10
)

var largeReads = sync.Pool{New: func() any { return new([largeRead]byte) }}

// read takes one stream of the command to its end.
func (j *job) read(which int, r io.ReadCloser, c *capture) {
	defer r.Close()
	buf := make([]byte, smallRead)
	for {
		j.waiting[which].Store(time.Now().UnixNano())
		n, err := r.Read(buf)
		j.waiting[which].Store(0)
		if n > 0 {
			j.take(which, c, buf[:n])
		}
		if err != nil {
			return
		}
		if n == smallRead && len(buf) == smallRead {
			large := largeReads.Get().(*[largeRead]byte)
			defer largeReads.Put(large)
			buf = large[:]
		}
	}
}

func (j *job) take(which int, c *capture, p []byte) {
	j.mu.Lock()
	if j.spill != nil && !j.spill.cut && which != j.last {
		c.place(j.spill.newlines)
		j.last = which
	}
	c.add(p)
	if j.spill != nil {
		j.spill.write(p)
	}
	j.mu.Unlock()
	if j.stream != nil && !j.captured() {
		j.stream.output(which, p)
	}
}

// conclude sets the outcome and sends the terminal event.
func (j *job) conclude(reason string, held bool) {
	j.endedAt = time.Now()
	o := execd.Outcome{KilledBy: reason, HeldOpen: held, StartedAt: j.started.UTC(), DurationMS: j.endedAt.Sub(j.started).Milliseconds()}
	if isClosed(j.proc.Done()) {
		e := j.proc.Exit()
		switch {
		case e.Err != nil:
		case e.Signal != 0:
			o.Signal = signalName(e.Signal)
		default:
			o.ExitCode = &e.Code
		}
		o.PipeStatus, o.OOMKilled = e.PipeStatus, e.OOMKilled
		if reason == "" && e.Woken {
			o.KilledBy = execd.KilledByPause
		}
	}
	if j.session != nil {
		o.Session = j.srv.sessions.ran(j.session, j.proc, reason == "" && o.ExitCode != nil)
	}
	j.mu.Lock()
	o.Stdout, o.Stderr = outputs(&j.stdout, &j.stderr, j.keep())
	o.Spill = j.spill.result()
	j.mu.Unlock()
	j.outcome = o
	close(j.finished)
	if j.stream != nil {
		j.stream.end(terminal(&o, j.req.Rein, j.captured()))
	}
}

// interrupt asks for the command's end; it does not wait.
func (j *job) interrupt(reason string) {
	select {
	case j.stop <- reason:
	default: // it is being ended already
	}
}

// counts returns what has been printed so far.
func (j *job) counts() (bytes, lines int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stdout.bytes + j.stderr.bytes, j.stdout.lines() + j.stderr.lines()
}

// waitFor waits at most d for c to be closed and reports whether it is.
func waitFor(c <-chan struct{}, d time.Duration) bool {
	if isClosed(c) {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return isClosed(c)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
