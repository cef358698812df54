package evidence

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/rein-sh/rein/evidence/clue"
	"github.com/rein-sh/rein/secret"
)

// marks returns the parts of raw that are not shown as they are: what m masks,
// with its mark, and unless asIs what only moves a terminal's cursor or was
// overwritten there, with none. A value is found with and without what is
// stripped from between its bytes.
func marks(raw []byte, m *secret.Masker, asIs bool) []secret.Span {
	masked := m.Find(raw)
	if asIs || !controls(raw) {
		return masked
	}
	s := stripper{raw: raw}
	s.strip()
	if m != nil {
		masked = union(masked, s.find(m))
	}
	return around(masked, s.gone())
}

// controls reports whether raw has anything to strip. It looks for one after the
// other in what fits into the processor's nearest memory.
func controls(raw []byte) bool {
	for near := range slices.Chunk(raw, 8<<10) {
		for _, c := range []byte{0x1b, '\r', '\b', 0x07, 0x0e, 0x0f} {
			if bytes.IndexByte(near, c) >= 0 {
				return true
			}
		}
	}
	return false
}

// extent is raw[from:to].
type extent struct{ from, to int }

// stripper follows what a terminal would show of a text, line by line.
type stripper struct {
	raw  []byte
	kept []extent
	// The line that is being read: its text begins at kept[line], and what
	// follows its last carriage return at kept[chunk]. seen says that something
	// visible is in there, shown that something visible is before it.
	line, chunk int
	seen, shown bool
}

// stops are the bytes that end a run of text that is shown as it is.
var stops = [256]bool{'\n': true, '\r': true, 0x1b: true, '\b': true, 0x07: true, 0x0e: true, 0x0f: true}

func (s *stripper) strip() {
	for i := 0; i < len(s.raw); {
		from := i
		for i < len(s.raw) && !stops[s.raw[i]] {
			i++
			for i+stride <= len(s.raw) {
				if newlines, ok := even(s.raw[i:]); !ok || newlines != 0 {
					break
				}
				i += stride
			}
		}
		s.keep(from, i)
		if i == len(s.raw) {
			break
		}
		switch s.raw[i] {
		case '\n':
			s.endLine(i, i+1)
			i++
		case '\r':
			end := i
			for end < len(s.raw) && s.raw[end] == '\r' {
				end++
			}
			if end < len(s.raw) && s.raw[end] == '\n' { // an end of line as some systems write it
				s.endLine(i, end+1)
				end++
			} else {
				s.overwrite()
			}
			i = end
		case 0x1b:
			i += clue.Escape(s.raw[i:])
		case '\b':
			s.erase()
			i++
		default:
			i++
		}
	}
	s.overwrite()
}

// keep takes text that is shown.
func (s *stripper) keep(from, to int) {
	if from == to {
		return
	}
	s.seen = s.seen || len(bytes.TrimSpace(s.raw[from:to])) > 0
	if n := len(s.kept); n > s.chunk && s.kept[n-1].to == from {
		s.kept[n-1].to = to
		return
	}
	s.kept = append(s.kept, extent{from, to})
}

// overwrite is a carriage return: what is before it goes, when something visible
// has come in its place.
func (s *stripper) overwrite() {
	switch {
	case !s.seen: // nothing was written over it
		s.kept = s.kept[:s.chunk]
	case s.shown:
		s.kept = slices.Delete(s.kept, s.line, s.chunk)
	}
	s.shown = s.shown || s.seen
	s.chunk, s.seen = len(s.kept), false
}

func (s *stripper) endLine(from, to int) {
	if s.shown { // else there was no carriage return
		s.overwrite()
	}
	s.kept = append(s.kept, extent{from, to})
	s.join()
	s.line, s.chunk, s.seen, s.shown = len(s.kept), len(s.kept), false, false
}

// join makes one extent of those that follow one another, up to the end of the
// line: nothing of it will go any more.
func (s *stripper) join() {
	last := max(s.line-1, 0)
	for _, k := range s.kept[last+1:] {
		if s.kept[last].to == k.from {
			s.kept[last].to = k.to
		} else {
			last++
			s.kept[last] = k
		}
	}
	s.kept = s.kept[:last+1]
}

// erase is a backspace.
func (s *stripper) erase() {
	n := len(s.kept)
	if n == s.chunk {
		return
	}
	last := &s.kept[n-1]
	_, size := utf8.DecodeLastRune(s.raw[last.from:last.to])
	if last.to -= size; last.to == last.from {
		s.kept = s.kept[:n-1]
	}
}

// gone is what is not kept.
func (s *stripper) gone() []secret.Span {
	out := make([]secret.Span, 0, len(s.kept)+1)
	at := 0
	for _, k := range s.kept {
		if k.from > at {
			out = append(out, secret.Span{Start: at, End: k.from})
		}
		at = k.to
	}
	if at < len(s.raw) {
		out = append(out, secret.Span{Start: at, End: len(s.raw)})
	}
	return out
}

// find finds values in the text that is kept, and returns where they are in raw.
func (s *stripper) find(m *secret.Masker) []secret.Span {
	var text []byte
	for _, k := range s.kept {
		text = append(text, s.raw[k.from:k.to]...)
	}
	spans := m.Find(text)
	i, passed := 0, 0
	place := func(at int) int { // of a byte of text in raw
		for at-passed >= s.kept[i].to-s.kept[i].from {
			passed += s.kept[i].to - s.kept[i].from
			i++
		}
		return s.kept[i].from + at - passed
	}
	for n := range spans {
		spans[n].Start = place(spans[n].Start)
		spans[n].End = place(spans[n].End-1) + 1
	}
	return spans
}

// union joins spans of two kinds of search. Where they overlap, the marks of
// both stand for all of it; the same mark is not repeated.
func union(a, b []secret.Span) []secret.Span {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(x, y secret.Span) int { return x.Start - y.Start })
	out := all[:0]
	for _, s := range all {
		if n := len(out); n > 0 && s.Start < out[n-1].End {
			last := &out[n-1]
			last.End = max(last.End, s.End)
			if last.Mark != s.Mark {
				last.Mark += s.Mark
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// around adds to masked what of gone lies outside of it.
func around(masked, gone []secret.Span) []secret.Span {
	if len(masked) == 0 {
		return gone
	}
	out := make([]secret.Span, 0, len(masked)+len(gone))
	for _, m := range masked {
		for len(gone) > 0 && gone[0].Start < m.End {
			if g := gone[0]; g.Start < m.Start {
				out = append(out, secret.Span{Start: g.Start, End: min(g.End, m.Start)})
			}
			if gone[0].End <= m.End {
				gone = gone[1:]
				continue
			}
			gone[0].Start = m.End
			break
		}
		out = append(out, m)
	}
	return append(out, gone...)
}
