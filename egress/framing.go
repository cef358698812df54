package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	maxHead     = 64 << 10         // a request line and its fields
	maxLine     = 32 << 10         // one of them
	maxTrailers = 4000             // net/http takes what fits its buffer
	maxChunk    = 8                // digits of a chunk's size
	headTimeout = 10 * time.Second // from the first byte of a head to its last
)

// framed is a client's connection that yields HTTP/1.1 and nothing else: what
// net/http would read leniently, or in another way than a server behind it, is
// a fault. A fault in a head is answered in its turn, because requests may be
// sent before earlier ones were answered: Read yields a request that stands for
// it, see stands. A fault in a body is an error of Read. Nothing is read after
// a fault.
//
// After a head that asks for a tunnel (CONNECT, or an upgrade to WebSocket)
// everything is passed as it is. Whoever answers such a request without one
// must close the connection.
type framed struct {
	net.Conn
	in    *bufio.Reader
	fault func(error)  // is told of a fault once, from Read
	cause func() error // why the connection is reset; nil while it is not, or may not be

	// Of the goroutine that reads.
	ready []byte // checked, and not yet read
	taken []byte // of a head: its lines
	part  []byte // of a line
	next  func(*framed, []byte) (int, error)
	left  int64 // of a body or a chunk
	size  int   // of the trailers so far
	end   error // of everything

	mu       sync.Mutex
	heads    int       // that were yielded
	bad      error     // the last of them stands for this
	cut      error     // the last of them has this in its body
	deadline time.Time // that was set
	head     time.Time // when the head that is being read must be complete
}

func newFramed(c net.Conn, fault func(error)) *framed {
	return &framed{Conn: c, in: bufio.NewReaderSize(c, maxLine), fault: fault, next: (*framed).readHead}
}

func (f *framed) Read(p []byte) (int, error) {
	for len(f.ready) == 0 {
		if f.end != nil {
			return 0, f.end
		}
		if n, err := f.next(f, p); n > 0 || err != nil {
			return n, err
		}
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

// stand is the request in whose place a fault is answered.
const stand = "GET / HTTP/1.1\r\nHost: fault.invalid\r\nConnection: close\r\n\r\n"

// stands returns the fault that the nth request, from 1, stands for.
func (f *framed) stands(n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bad != nil && n == f.heads {
		return f.bad
	}
	return nil
}

// inBody returns the fault in the body of the last request.
func (f *framed) inBody() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cut
}

// readHead checks a head as a whole before anything of it is yielded.
func (f *framed) readHead([]byte) (int, error) {
	if _, err := f.in.Peek(1); err != nil && len(f.taken)+len(f.part) == 0 {
		return f.broken(err)
	}
	f.begin()
	err := f.takeHead()
	var bad *framingError
	if err != nil && !errors.As(err, &bad) {
		return f.broken(err)
	}
	var h frame
	head := f.taken
	f.taken = nil
	if err == nil {
		h, err = parseFrame(head)
	}
	f.mu.Lock()
	f.heads++
	f.bad, f.head = err, time.Time{}
	_ = f.apply() // a connection that takes no deadline is closed, and the next read says so
	f.mu.Unlock()
	if err != nil {
		f.fault(err)
		f.ready, f.end = []byte(stand), io.EOF
		return 0, nil
	}
	f.ready, f.left = head, h.length
	switch {
	case h.tunnel:
		f.next = (*framed).readRaw
	case h.chunked:
		f.next = (*framed).readChunkSize
	case h.length > 0:
		f.next = (*framed).readBody
	}
	return 0, nil
}

// begin gives a head its time.
func (f *framed) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.head.IsZero() {
		f.head = time.Now().Add(headTimeout)
		_ = f.apply() // as above
	}
}

// takeHead reads the lines of a head. After a deadline it goes on where it was.
func (f *framed) takeHead() error {
	if first, err := f.in.Peek(1); err == nil && len(f.taken)+len(f.part) == 0 && !isToken(string(first)) {
		return faulty("what was sent is not HTTP")
	}
	for {
		line, err := f.line()
		switch {
		case err != nil && isTimeout(err) && f.late():
			return faulty("the head of a request was not complete after %v", headTimeout)
		case err != nil:
			return err
		case len(f.taken)+len(line) > maxHead:
			return faulty("the head of a request has more than %d bytes", maxHead)
		}
		if len(f.taken) == 0 { // who speaks another protocol may be waiting for an answer
			if _, err := parseRequestLine(line); err != nil {
				return err
			}
		}
		if f.taken = append(f.taken, line...); len(line) == 2 {
			return nil
		}
	}
}

// line reads to the next line feed, and checks that no carriage return is
// anywhere but before it. The bytes hold until the next read.
func (f *framed) line() ([]byte, error) {
	line, err := f.in.ReadSlice('\n')
	if len(f.part) > 0 || err != nil {
		f.part = append(f.part, line...)
		line = f.part
	}
	switch {
	case errors.Is(err, bufio.ErrBufferFull), len(line) > maxLine:
		return nil, faulty("a line has more than %d bytes", maxLine)
	case err == io.EOF:
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	}
	f.part = nil
	if len(line) < 2 || bytes.IndexByte(line, '\r') != len(line)-2 {
		return nil, faulty("a line does not end in CR LF, or has a CR elsewhere")
	}
	return line, nil
}

// broken returns an error of reading, which is the end of everything unless it
// is a deadline.
func (f *framed) broken(err error) (int, error) {
	var bad *framingError
	if errors.As(err, &bad) {
		f.mu.Lock()
		f.cut = bad
		f.mu.Unlock()
		f.fault(bad)
	}
	if !isTimeout(err) {
		f.end = err
	}
	return 0, err
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func (f *framed) readRaw(p []byte) (int, error) { return f.in.Read(p) }

func (f *framed) readBody(p []byte) (int, error) { return f.pass(p, (*framed).readHead) }

func (f *framed) readChunk(p []byte) (int, error) { return f.pass(p, (*framed).readChunkEnd) }

// pass yields what is left, and then goes on with next.
func (f *framed) pass(p []byte, next func(*framed, []byte) (int, error)) (int, error) {
	n, err := f.in.Read(p[:min(int64(len(p)), f.left)])
	if f.left -= int64(n); f.left == 0 {
		f.next = next
		return n, nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		_, err = f.broken(err)
	}
	return n, err
}

func (f *framed) readChunkSize([]byte) (int, error) {
	line, err := f.line()
	if err != nil {
		return f.broken(err)
	}
	// Nobody sends extensions, and readers differ about them.
	digits := string(line[:len(line)-2])
	size, err := strconv.ParseUint(digits, 16, 63)
	if err != nil || len(digits) > maxChunk || !isHex(digits) {
		return f.broken(faulty("the size of a chunk is malformed"))
	}
	f.ready, f.left, f.next = bytes.Clone(line), int64(size), (*framed).readChunk
	if size == 0 {
		f.size, f.next = 0, (*framed).readTrailer
	}
	return 0, nil
}

func (f *framed) readChunkEnd([]byte) (int, error) {
	line, err := f.line()
	if err == nil && len(line) != 2 {
		err = faulty("a chunk is longer than it says")
	}
	if err != nil {
		return f.broken(err)
	}
	f.ready, f.next = bytes.Clone(line), (*framed).readChunkSize
	return 0, nil
}

func (f *framed) readTrailer([]byte) (int, error) {
	line, err := f.line()
	if err == nil {
		if f.size += len(line); f.size > maxTrailers {
			err = faulty("the trailers of a request have more than %d bytes", maxTrailers)
		}
	}
	if err == nil && len(line) > 2 {
		var name string
		name, _, err = parseField(line)
		switch textproto.CanonicalMIMEHeaderKey(name) {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Te", "Connection", "Upgrade", "Expect", "Authorization":
			err = faulty("a trailer is named %s", name)
		}
	}
	if err != nil {
		return f.broken(err)
	}
	if len(line) == 2 {
		f.next = (*framed).readHead
	}
	f.ready = bytes.Clone(line)
	return 0, nil
}

// SetReadDeadline sets the time after which reads fail. A head that has begun
// has one of its own besides.
func (f *framed) SetReadDeadline(t time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deadline = t
	return f.apply()
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (f *framed) SetDeadline(t time.Time) error {
	return errors.Join(f.SetReadDeadline(t), f.SetWriteDeadline(t))
}

func (f *framed) late() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.head.IsZero() && !time.Now().Before(f.head)
}

func (f *framed) apply() error {
	t := f.deadline
	if !f.head.IsZero() && (t.IsZero() || f.head.Before(t)) {
		t = f.head
	}
	return f.Conn.SetReadDeadline(t)
}

// CloseWrite ends what is sent to the client. What is reset has no end: half an
// answer would look like a whole one.
func (f *framed) CloseWrite() error {
	if f.cause != nil && f.cause() != nil {
		return nil
	}
	if c, ok := f.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// framingError says what is wrong with a client's HTTP.
type framingError struct{ text string }

func (e *framingError) Error() string { return e.text }

func faulty(format string, args ...any) *framingError {
	return &framingError{clip(fmt.Sprintf(format, args...))}
}

// clip bounds a reason, in which something of the client's may stand.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
