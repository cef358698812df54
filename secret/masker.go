package secret

import (
	"io"
	"sync"
	"sync/atomic"
)

// Masker replaces known values with their marks. It finds a value
//
//   - as it is                                      [secret:NAME]
//   - in base64, both alphabets, at any alignment
//     inside longer encoded data, also broken
//     into lines                                    [secret:NAME base64]
//   - percent-encoded, as Go, JavaScript and forms
//     do it, in either case of the digits           [secret:NAME url]
//   - escaped inside a JSON string, as Go, Python,
//     JavaScript and PHP write it                   [secret:NAME json]
//   - in hexadecimal, either case, also broken
//     into lines                                    [secret:NAME hex]
//
// Every byte of every occurrence is masked: where occurrences overlap, one mark
// for each value involved stands for all of it. At one place the longest wins.
// The characters at either end of a base64 form that also hold bits of the
// neighbouring data stay; they tell at most four bits of the value each.
//
// Values shorter than [MinLength] are never masked. What is masked is the whole
// value: add the parts of a composite one (user and password, lines of a key)
// by themselves if they are secret alone.
//
// All methods may be called concurrently. A nil Masker masks nothing, and the
// zero Masker nothing until Add.
type Masker struct {
	mu     sync.Mutex // serialises Add
	known  catalogue
	shapes *shapes                 // of keys that nobody told of
	m      atomic.Pointer[matcher] // nil: no values
}

// NewMasker returns a Masker of the values that are [Value.Maskable].
func NewMasker(values ...Value) *Masker {
	m := &Masker{}
	for _, v := range values {
		if v.Maskable() {
			m.known.add(v)
		}
	}
	m.m.Store(newMatcher(m.known.patterns, m.shapes))
	return m
}

// Add makes m mask v from now on, also in Writers that exist already. It
// reports whether m masks v: false means that v is too short (or m nil).
func (m *Masker) Add(v Value) bool {
	if m == nil || !v.Maskable() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known.add(v) {
		m.m.Store(m.m.Load().extended(m.known.patterns))
	}
	return true
}

// MaskShapes makes m also mask what has the shape of a key that a vendor
// documents, and private keys in PEM, and what stands where credentials do in a
// header: with the mark [secret:?KIND], such as [secret:?github-token]. They are
// looked for as they are, in no encoding. exempt says which are not masked; nil:
// none. What looks like an example of a document is left.
//
// A shape is known by how it begins: of a text that is cut before its end, the
// rest shows. In a Writer a shape is also found where a word has been cut before it.
func (m *Masker) MaskShapes(exempt func(text []byte) bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shapes = newShapes(exempt)
	m.m.Store(newMatcher(m.known.patterns, m.shapes))
}

// String returns s masked.
func (m *Masker) String(s string) string {
	if found := m.matcher(); found != nil {
		if out, _, clean := new(sweep).replace(found.scan, []byte(s), true, nil); !clean {
			return string(out)
		}
	}
	return s
}

// Bytes returns b masked: b itself when there is nothing to mask. It never
// changes b.
func (m *Masker) Bytes(b []byte) []byte {
	if found := m.matcher(); found != nil {
		if out, _, clean := new(sweep).replace(found.scan, b, true, nil); !clean {
			return out
		}
	}
	return b
}

// matcher returns what finds the values known now; nil when there are none.
func (m *Masker) matcher() *matcher {
	if m == nil {
		return nil
	}
	return m.m.Load()
}

// Span is a part of a text that holds a secret: b[Start:End], and what stands
// for it.
type Span struct {
	Start, End int
	Mark       string
}

// Find returns the parts of b that Bytes would replace, in order and disjoint.
func (m *Masker) Find(b []byte) []Span {
	if found := m.matcher(); found != nil {
		return spans(b, found.scan)
	}
	return nil
}

// FindKnown is Find of the values that m was told of, and of no shapes.
func (m *Masker) FindKnown(b []byte) []Span {
	if found := m.matcher(); found != nil {
		return spans(b, found.values)
	}
	return nil
}

func spans(b []byte, scan scanner) []Span {
	var spans []Span
	var s sweep
	scan(b, true, func(start, end int, mark string) {
		write, fresh := s.take(start, end, mark)
		if fresh {
			spans = append(spans, Span{Start: start})
		}
		if newest := len(spans) - 1; newest >= 0 {
			spans[newest].End = s.covered
			spans[newest].Mark += write
		}
	})
	return spans
}

// Partial reports how many bytes at the start of b may be the end of a value
// cut off before b, and how many at its end may be the beginning of one cut off
// after it. A reader that has only a piece of a text leaves them out. They never
// cut through an occurrence that is there completely: what it covers is masked,
// and so need not be left out.
func (m *Masker) Partial(b []byte) (start, end int) {
	found := m.matcher()
	if found == nil {
		return 0, 0
	}
	covered := 0
	passed := found.scan(b, false, func(_, to int, _ string) { covered = max(covered, to) })
	if start = found.partialStart(b); start > 0 {
		for _, span := range m.Find(b) {
			if span.Start < start && start < span.End {
				start = span.Start
			}
		}
	}
	return start, len(b) - max(passed, covered)
}

// Writer returns a writer that masks what is written to it, also values that
// are split over writes, and passes it on to w. It holds back only bytes that
// may turn out to be a part of a value, at most one less than the longest form
// of a value, or 16 KiB where shapes are masked; Close writes them and does not
// close w. After an error of w every call returns that error. One goroutine at a
// time may use the Writer.
func (m *Masker) Writer(w io.Writer) io.WriteCloser {
	if m == nil {
		return through{w}
	}
	return &writer{masker: m, w: w}
}
