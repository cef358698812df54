package secret

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"
)

// FoundError is the error of a Guard that has found a value.
type FoundError struct{ Mark string } // what stands for it

func (e *FoundError) Error() string { return "it holds " + e.Mark }

// Reader returns a reader of what r yields, masked as by Writer. It yields what
// is certain as soon as it has read it, and when r pauses also up to three
// characters that may be the beginning of a value, which whoever waits for the
// rest could not do without. One goroutine at a time may use it. When that stops
// before the end it has to make r's Read return, by closing r.
func (m *Masker) Reader(r io.Reader) io.Reader {
	if m == nil {
		return r
	}
	w := &writer{masker: m}
	s := &sieve{src: r, sink: w}
	w.w = &s.out
	return s
}

// Guard returns a reader of what r yields that ends with a *FoundError before an
// occurrence: before its first byte, or, where r has paused within it, before what
// came after the pause. It yields what is certain as soon as it has read it, and
// when r pauses also what may be the beginning of a value. It is used as Reader is.
func (m *Masker) Guard(r io.Reader) io.Reader {
	if m == nil {
		return r
	}
	s := &sieve{src: r}
	s.sink = &guard{masker: m, out: &s.out}
	return s
}

// pause is how long a source says nothing until it is taken to wait for an answer
// to what it has said.
const pause = 25 * time.Millisecond

// sieve reads through a sink that holds back what is not certain.
type sieve struct {
	src  io.Reader
	sink interface {
		io.WriteCloser      // writes to out
		uncertain() (n int) // how many bytes are held back that could be yielded
		yield()             // writes those to out
	}
	out bytes.Buffer
	buf *[pieceSize]byte // nil before the first read and after the last
	err error

	reading chan said // of a read of src that goes on; it fills buf
}

// pieces are the buffers of sieves: most texts are shorter than one.
var pieces = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// said is what a source has read.
type said struct {
	n   int
	err error
}

func (s *sieve) Read(p []byte) (int, error) {
	for s.out.Len() == 0 {
		if s.err != nil {
			return 0, s.err
		}
		got, ok := s.next()
		if !ok {
			s.sink.yield()
			continue
		}
		_, werr := s.sink.Write(s.buf[:got.n])
		if errors.Is(got.err, io.EOF) && werr == nil {
			werr = s.sink.Close()
		}
		if s.err = werr; werr == nil {
			s.err = got.err
		}
		if s.err != nil {
			pieces.Put(s.buf)
			s.buf = nil
		}
	}
	return s.out.Read(p)
}

// next reads from the source. It is not ok when that pauses while something is
// held back: the read goes on.
func (s *sieve) next() (got said, ok bool) {
	if s.buf == nil {
		s.buf = pieces.Get().(*[pieceSize]byte)
	}
	waits := s.sink.uncertain() > 0
	if s.reading == nil && !waits {
		n, err := s.src.Read(s.buf[:])
		return said{n, err}, true
	}
	if s.reading == nil {
		reading := make(chan said, 1)
		go func() {
			n, err := s.src.Read(s.buf[:])
			reading <- said{n, err}
		}()
		s.reading = reading
	}
	var paused <-chan time.Time
	if waits {
		t := time.NewTimer(pause)
		defer t.Stop()
		paused = t.C
	}
	select {
	case got = <-s.reading:
		s.reading = nil
		return got, true
	case <-paused:
		return said{}, false
	}
}

// guard passes on what has no value in it.
type guard struct {
	masker *Masker
	out    *bytes.Buffer
	held   []byte // read, and not certain
	shown  int    // how many bytes of held have been passed on all the same
}

func (g *guard) Write(p []byte) (int, error) { return len(p), g.pass(p, false) }

func (g *guard) Close() error { return g.pass(nil, true) }

// uncertain leaves out what has a value in it that may turn out to be a part of a
// longer one.
func (g *guard) uncertain() int {
	if g.masker.matcher().first(g.held) < len(g.held) {
		return 0
	}
	return len(g.held) - g.shown
}

func (g *guard) yield() {
	g.out.Write(g.held[g.shown:])
	g.shown = len(g.held)
}

func (g *guard) pass(p []byte, final bool) error {
	b := p
	if len(g.held) > 0 {
		g.held = append(g.held, p...)
		b = g.held
	}
	passed, at := len(b), len(b)
	var found *FoundError
	if m := g.masker.matcher(); m != nil {
		passed = m.scan(b, final, func(start, _ int, mark string) {
			if found == nil {
				found, at = &FoundError{mark}, start
			}
		})
	}
	if at = min(at, passed); at > g.shown {
		g.out.Write(b[g.shown:at])
	}
	if found != nil {
		return found
	}
	g.shown = max(0, g.shown-passed)
	g.held = append(g.held[:0], b[passed:]...)
	return nil
}
