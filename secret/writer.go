package secret

import "io"

// pieceSize is how much of a large Write is masked at a time, so that memory
// stays bounded whatever is written.
const pieceSize = 32 << 10

// writer masks a stream. held are the bytes read but not passed on: the
// beginning of what may be an occurrence, shorter than the longest one.
type writer struct {
	masker *Masker
	w      io.Writer
	held   []byte
	out    []byte
	sweep  sweep
	err    error
}

func (w *writer) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		if w.err != nil {
			return n, w.err
		}
		piece := p[n:min(n+pieceSize, len(p))]
		w.pass(piece, false)
		n += len(piece)
	}
	return len(p), w.err
}

func (w *writer) Close() error {
	if w.err == nil {
		w.pass(nil, true)
	}
	return w.err
}

// pass masks what is held and then p, and writes what is decided.
func (w *writer) pass(p []byte, final bool) {
	b := p
	if len(w.held) > 0 {
		w.held = append(w.held, p...)
		b = w.held
	}
	var passed int
	var clean bool
	if m := w.masker.matcher(); m == nil {
		passed, clean = len(b), true
	} else if w.out, passed, clean = w.sweep.replace(m, b, final, w.out[:0]); !clean {
		w.write(w.out)
	}
	if clean {
		w.write(b[:passed])
	}
	// b may be held itself: the rest moves to its front.
	w.held = append(w.held[:0], b[passed:]...)
}

func (w *writer) write(b []byte) {
	if w.err == nil && len(b) > 0 {
		var n int
		if n, w.err = w.w.Write(b); w.err == nil && n < len(b) {
			w.err = io.ErrShortWrite
		}
	}
}

// through is the writer of a nil Masker.
type through struct{ io.Writer }

func (through) Close() error { return nil }
