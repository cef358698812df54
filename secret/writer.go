package secret

import (
	"bytes"
	"io"
)

// pieceSize is how much of a large Write is masked at a time, so that memory
// stays bounded whatever is written.
const pieceSize = 32 << 10

// writer masks a stream. held are the bytes read but not passed on: the
// beginning of what may be an occurrence, shorter than the longest one.
type writer struct {
	masker *Masker
	w      io.Writer
	held   []byte
	shown  int // how many bytes of held have been written all the same
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
	m, passed, clean := w.masker.matcher(), len(b), true
	if m != nil {
		w.out, passed, clean = w.sweep.replace(m.scan, b, final, w.out[:0])
	}
	if clean {
		w.write(b[min(w.shown, passed):passed])
	} else if w.shown > 0 {
		w.write(w.out[min(w.shown, m.first(b)):])
	} else {
		w.write(w.out)
	}
	w.shown = max(0, w.shown-passed)
	// b may be held itself: the rest moves to its front.
	w.held = append(w.held[:0], b[passed:]...)
}

// maxShown is how many characters of what may be the beginning of a value are
// shown when nothing comes after them.
const maxShown = 3

// uncertain is how many bytes of what is held yield would write.
func (w *writer) uncertain() int {
	characters := len(w.held) - bytes.Count(w.held, []byte("\n")) - bytes.Count(w.held, []byte("\r"))
	if characters > maxShown || w.sweep.covered > 0 || w.masker.matcher().first(w.held) < len(w.held) {
		return 0
	}
	return len(w.held) - w.shown
}

// yield writes what is held, and goes on to look for what begins there.
func (w *writer) yield() {
	w.write(w.held[w.shown:])
	w.shown = len(w.held)
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
