package daemon

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rein-sh/rein/execd"
)

// Bounds of an event stream.
const (
	streamBuffer  = 1 << 20 // encoded bytes that wait for the reader before the command is held up
	streamWrite   = 64 << 10
	maxLine       = 1 << 20 // a longer line is split over events
	maxEventText  = 3 << 20 // and one whose encoding is longer
	pingEvery     = 3 * time.Second
	greetingDelay = 5 * time.Millisecond // how long the first events wait to go with the next
	defaultStall  = 10 * time.Second
	outputInitial = 4 << 10
	outputPiece   = 16 << 10 // appended at once: empty lines become sixty times as long
)

// stream carries the events of one command to one connection. Events are
// encoded where the output is read and written in batches by the connection's
// own goroutine. When the reader is slow the command is held up by its full
// pipe; a reader that takes less than streamWrite bytes within the stall limit
// is dropped, and the command goes on without it.
type stream struct {
	raw bool

	mu      sync.Mutex
	buf     []byte
	partial [2][]byte // unterminated lines of stdout and stderr
	cr      [2]byte   // what a CR as the last byte has done, see below
	dropped bool
	ended   bool
	ready   chan struct{} // something for the connection
	room    chan struct{} // something for the readers
}

func newStream(raw bool) *stream {
	return &stream{raw: raw, buf: make([]byte, 0, outputInitial), ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func signalTo(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// event appends one event.
func (s *stream) event(e execd.Event) {
	if e.Timestamp == 0 {
		e.Timestamp = time.Now().UnixMilli()
	}
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // plain strings and numbers
	}
	s.mu.Lock()
	s.buf = append(append(s.buf, b...), '\n', '\n')
	s.mu.Unlock()
	signalTo(s.ready)
}

// greet appends what every stream begins with.
func (s *stream) greet(id string, known bool) {
	e := execd.Event{Type: execd.EventInit, Text: id}
	if known {
		e.Rein = &execd.EventExtra{Known: true}
	}
	s.event(e)
	s.event(execd.Event{Type: execd.EventPing, Text: "pong"})
	<-s.ready // serve waits a moment for more
}

// end appends what is left of unterminated lines and the terminal event.
func (s *stream) end(terminal execd.Event) {
	s.mu.Lock()
	for i := range s.partial {
		if len(s.partial[i]) > 0 {
			s.appendText(i, s.partial[i])
			s.partial[i] = nil
		}
	}
	s.mu.Unlock()
	s.event(terminal)
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	signalTo(s.ready)
}

// output appends the events of a chunk of stdout (0) or stderr (1), waiting
// while too much waits for the reader.
func (s *stream) output(which int, p []byte) {
	for len(p) > 0 {
		n := min(len(p), outputPiece)
		s.put(which, p[:n])
		p = p[n:]
	}
}

func (s *stream) put(which int, p []byte) {
	s.mu.Lock()
	for len(s.buf) >= streamBuffer && !s.dropped {
		s.mu.Unlock()
		<-s.room
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if s.dropped {
		signalTo(s.room) // for the other stream's reader
		return
	}
	if s.raw {
		s.appendRaw(which, p)
	} else {
		s.appendLines(which, p)
	}
	signalTo(s.ready)
}

// What a carriage return at the end of what was read has done: it has ended a
// line, so that a newline after it is not another; and if that line was empty
// it is sent only when the newline comes.
const (
	crEnded = 1
	crEmpty = 2
)

// appendLines splits p into lines as OpenSandbox does: a newline, a carriage
// return, or both together end a line; an empty line is sent as "\n".
func (s *stream) appendLines(which int, p []byte) {
	for len(p) > 0 {
		if cr := s.cr[which]; cr != 0 {
			s.cr[which] = 0
			if p[0] == '\n' {
				if cr == crEmpty {
					s.appendText(which, newline)
				}
				p = p[1:]
				continue
			}
		}
		i := lineEnd(p)
		if i < 0 {
			s.hold(which, p)
			return
		}
		line, end := p[:i], p[i]
		p = p[i+1:]
		if len(s.partial[which]) > 0 {
			s.hold(which, line)
			line = s.partial[which]
			s.partial[which] = line[:0]
		}
		switch {
		case end == '\r' && len(line) == 0:
			s.cr[which] = crEmpty
			continue
		case end == '\r':
			s.cr[which] = crEnded
		case len(line) == 0:
			line = newline
		}
		s.appendText(which, line)
	}
}

func lineEnd(p []byte) int {
	n := bytes.IndexByte(p, '\n')
	before := p
	if n >= 0 {
		before = p[:n]
	}
	if r := bytes.IndexByte(before, '\r'); r >= 0 {
		return r
	}
	return n
}

// hold keeps the beginning of a line, sending whole pieces of one that is
// longer than an event may be.
func (s *stream) hold(which int, p []byte) {
	for len(s.partial[which])+len(p) > maxLine {
		n := maxLine - len(s.partial[which])
		piece := append(s.partial[which], p[:n]...)
		cut := len(piece) - incompleteSuffix(piece)
		s.appendText(which, piece[:cut])
		s.partial[which] = append(piece[:0], piece[cut:]...)
		p = p[n:]
	}
	s.partial[which] = append(s.partial[which], p...)
}

// incompleteSuffix is how many bytes at the end may be the beginning of a
// character whose rest has not come yet.
func incompleteSuffix(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		c := p[len(p)-n]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(p[len(p)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

var outputPrefix = [2]string{`{"type":"stdout","timestamp":`, `{"type":"stderr","timestamp":`}

// appendText appends the event of one line, or more when its encoding is long.
func (s *stream) appendText(which int, line []byte) {
	for {
		s.buf = append(s.buf, outputPrefix[which]...)
		s.buf = strconv.AppendInt(s.buf, time.Now().UnixMilli(), 10)
		s.buf = append(s.buf, `,"text":"`...)
		var n int
		s.buf, n = appendJSONText(s.buf, line, maxEventText)
		s.buf = append(s.buf, "\"}\n\n"...)
		if line = line[n:]; len(line) == 0 {
			return
		}
	}
}

func (s *stream) appendRaw(which int, p []byte) {
	s.buf = append(s.buf, outputPrefix[which]...)
	s.buf = strconv.AppendInt(s.buf, time.Now().UnixMilli(), 10)
	s.buf = append(s.buf, `,"rein":{"data":"`...)
	s.buf = base64.StdEncoding.AppendEncode(s.buf, p)
	s.buf = append(s.buf, "\"}}\n\n"...)
}

// take returns what waits for the connection, giving back the last batch.
func (s *stream) take(last []byte) (batch []byte, ended bool) {
	s.mu.Lock()
	batch, ended = s.buf, s.ended
	s.buf = last[:0]
	s.mu.Unlock()
	signalTo(s.room)
	return batch, ended
}

// drop lets the command go on without a reader.
func (s *stream) drop() {
	s.mu.Lock()
	s.dropped, s.buf = true, nil
	s.mu.Unlock()
	signalTo(s.room)
}

// serve writes events to the connection until the stream has ended or the
// reader is gone or stalled. The headers go with the first event.
func (s *stream) serve(ctx context.Context, w http.ResponseWriter, stall time.Duration) {
	defer s.drop()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("Connection", "keep-alive")
	h.Set("X-Accel-Buffering", "no")
	ctl := http.NewResponseController(w)
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	// Most commands are over in a few milliseconds, and then all goes at once.
	select {
	case <-s.ready:
	case <-time.After(greetingDelay):
	}
	var batch []byte
	for {
		var ended bool
		batch, ended = s.take(batch)
		for rest := batch; len(rest) > 0; {
			n := min(len(rest), streamWrite)
			// Not every writer has deadlines; a test's recorder never stalls.
			ctl.SetWriteDeadline(time.Now().Add(stall))
			if _, err := w.Write(rest[:n]); err != nil {
				panic(http.ErrAbortHandler)
			}
			rest = rest[n:]
		}
		if len(batch) > 0 {
			if err := ctl.Flush(); err != nil {
				panic(http.ErrAbortHandler)
			}
		}
		if ended {
			ctl.SetWriteDeadline(time.Time{})
			return
		}
		select {
		case <-s.ready:
		case <-ping.C:
			s.event(execd.Event{Type: execd.EventPing, Text: "pong"})
		case <-ctx.Done():
			return
		}
	}
}
