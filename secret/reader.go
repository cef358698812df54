package secret

import (
	"bytes"
	"errors"
	"io"
)

// FoundError is the error of a Guard that has found a value.
type FoundError struct{ Mark string } // what stands for it

func (e *FoundError) Error() string { return "it holds " + e.Mark }

// Reader returns a reader of what r yields, masked as by Writer. It yields what
// is certain as soon as it has read it. One goroutine at a time may use it.
func (m *Masker) Reader(r io.Reader) io.Reader {
	if m == nil {
		return r
	}
	s := &sieve{src: r}
	s.sink = m.Writer(&s.out)
	return s
}

// Guard returns a reader of what r yields that ends with a *FoundError before the
// first byte of an occurrence. It yields what is certain as soon as it has read
// it. One goroutine at a time may use it.
func (m *Masker) Guard(r io.Reader) io.Reader {
	if m == nil {
		return r
	}
	s := &sieve{src: r}
	s.sink = &guard{masker: m, out: &s.out}
	return s
}

// sieve reads through a writer that holds back what is not certain.
type sieve struct {
	src  io.Reader
	sink io.WriteCloser // writes to out
	out  bytes.Buffer
	buf  [pieceSize]byte
	err  error
}

func (s *sieve) Read(p []byte) (int, error) {
	for s.out.Len() == 0 {
		if s.err != nil {
			return 0, s.err
		}
		n, err := s.src.Read(s.buf[:])
		_, werr := s.sink.Write(s.buf[:n])
		if errors.Is(err, io.EOF) && werr == nil {
			werr = s.sink.Close()
		}
		if s.err = werr; werr == nil {
			s.err = err
		}
	}
	return s.out.Read(p)
}

// guard passes on what has no value in it.
type guard struct {
	masker *Masker
	out    *bytes.Buffer
	held   []byte // read, and not certain
}

func (g *guard) Write(p []byte) (int, error) { return len(p), g.pass(p, false) }

func (g *guard) Close() error { return g.pass(nil, true) }

func (g *guard) pass(p []byte, final bool) error {
	b := p
	if len(g.held) > 0 {
		g.held = append(g.held, p...)
		b = g.held
	}
	m := g.masker.matcher()
	if m == nil {
		g.out.Write(b)
		return nil
	}
	var found *FoundError
	at := len(b)
	passed := m.scan(b, final, func(start, _ int, mark string) {
		if found == nil {
			found, at = &FoundError{mark}, start
		}
	})
	if found != nil {
		g.out.Write(b[:at])
		return found
	}
	g.out.Write(b[:passed])
	g.held = append(g.held[:0], b[passed:]...)
	return nil
}
