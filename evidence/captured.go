package evidence

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/rein-sh/rein/secret"
)

// captured is a Stream made ready to be cut: head is its beginning and tail its
// end, with something missing in between when gap is set. Without a gap all of
// it is in head.
type captured struct {
	bytes, lines int64
	head, tail   text
	gap          bool
	binary       bool
}

// text is captured bytes, and the parts of them that are shown as a mark.
type text struct {
	raw   []byte
	spans []secret.Span
}

func capture(s Stream, m *secret.Masker) captured {
	c := captured{bytes: max(s.Bytes, int64(len(s.Head)+len(s.Tail))), lines: s.Lines}
	c.binary = bytes.IndexByte(s.Head, 0) >= 0 || bytes.IndexByte(s.Tail, 0) >= 0
	c.gap = int64(len(s.Head)+len(s.Tail)) < c.bytes
	if !c.gap {
		all := s.Head
		if len(s.Tail) > 0 {
			all = append(append(make([]byte, 0, c.bytes), s.Head...), s.Tail...)
		}
		c.lines = lines(all)
		c.head = text{all, m.Find(all)}
		return c
	}
	c.head, c.tail = text{s.Head, m.Find(s.Head)}, text{s.Tail, m.Find(s.Tail)}
	_, end := m.Partial(s.Head)
	start, _ := m.Partial(s.Tail)
	c.head.keepUntil(wholeRunes(s.Head[:len(s.Head)-end]))
	c.tail.keepFrom(start + brokenRune(s.Tail[start:]))
	return c
}

// keepUntil leaves out what follows end, and the mark that end falls into.
func (t *text) keepUntil(end int) {
	for n := len(t.spans); n > 0 && t.spans[n-1].End > end; n-- {
		end = min(end, t.spans[n-1].Start)
		t.spans = t.spans[:n-1]
	}
	t.raw = t.raw[:end]
}

// keepFrom leaves out what is before start, and the mark that start falls into.
func (t *text) keepFrom(start int) {
	for len(t.spans) > 0 && t.spans[0].Start < start {
		start = max(start, t.spans[0].End)
		t.spans = t.spans[1:]
	}
	t.raw = t.raw[start:]
	for i := range t.spans {
		t.spans[i].Start -= start
		t.spans[i].End -= start
	}
}

// wholeRunes is the length of b without a character at its end that is not
// all there.
func wholeRunes(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if c := b[len(b)-n:]; utf8.RuneStart(c[0]) {
			if !utf8.FullRune(c) {
				return len(b) - n
			}
			break
		}
	}
	return len(b)
}

// brokenRune is how many bytes at the start of b belong to a character that
// began before it.
func brokenRune(b []byte) int {
	n := 0
	for n < len(b) && n < utf8.UTFMax-1 && !utf8.RuneStart(b[n]) {
		n++
	}
	return n
}

// lines counts newlines, plus one for a last line without newline. A cut piece
// has part of so many lines.
func lines(b []byte) int64 {
	n := int64(bytes.Count(b, []byte("\n")))
	if len(b) > 0 && b[len(b)-1] != '\n' {
		n++
	}
	return n
}

const replacement = string(utf8.RuneError)

// width is how many bytes are shown of a character that was decoded from size
// bytes: itself, or the replacement of a byte that cannot be shown.
func width(r rune, size int) int {
	if r == 0 || r == utf8.RuneError && size == 1 {
		return len(replacement)
	}
	return size
}

// prefix returns the length of the longest beginning of t that can be shown in
// so much room, and the room it takes.
func (t text) prefix(most room) (length int, took room) {
	spans := t.spans
	fresh := true // at the start of a line
	for i := 0; i < len(t.raw); {
		var size, shown int
		newline := false
		if len(spans) > 0 && spans[0].Start == i {
			size, shown, spans = spans[0].End-i, len(spans[0].Mark), spans[1:]
		} else {
			end := len(t.raw)
			if len(spans) > 0 { // a value need not begin between characters
				end = min(end, spans[0].Start)
			}
			var r rune
			r, size = utf8.DecodeRune(t.raw[i:end])
			shown, newline = width(r, size), r == '\n'
		}
		next := room{took.bytes + shown, took.lines}
		if fresh {
			next.lines++
		}
		if !next.within(most) {
			return i, took
		}
		took, fresh = next, newline
		i += size
	}
	return len(t.raw), took
}

// suffix returns where the longest end of t[from:] begins that can be shown in
// so much room, and the room it takes. from is not inside a character or mark.
func (t text) suffix(from int, most room) (start int, took room) {
	spans := t.spans
	for i := len(t.raw); i > from; {
		var size, shown int
		newline := false
		if n := len(spans); n > 0 && spans[n-1].End == i {
			size, shown, spans = i-spans[n-1].Start, len(spans[n-1].Mark), spans[:n-1]
		} else {
			begin := from
			if n > 0 { // a value need not end between characters
				begin = max(begin, spans[n-1].End)
			}
			var r rune
			r, size = utf8.DecodeLastRune(t.raw[begin:i])
			shown, newline = width(r, size), r == '\n'
		}
		next := room{took.bytes + shown, took.lines}
		if newline || took.lines == 0 {
			next.lines++
		}
		if !next.within(most) {
			return i, took
		}
		took = next
		i -= size
	}
	return from, took
}

// newlineIn returns the first newline in t.raw[from:to] that is shown as one, or
// the last; -1 when there is none.
func (t text) newlineIn(from, to int, last bool) int {
	spans := t.spans
	for from < to {
		i := bytes.IndexByte(t.raw[from:to], '\n')
		if last {
			i = bytes.LastIndexByte(t.raw[from:to], '\n')
		}
		if i < 0 {
			return -1
		}
		i += from
		hidden := false
		for _, s := range spans {
			if s.Start <= i && i < s.End {
				from, to, hidden = pick(last, from, s.End), pick(last, s.Start, to), true
				break
			}
		}
		if !hidden {
			return i
		}
	}
	return -1
}

func pick(first bool, a, b int) int {
	if first {
		return a
	}
	return b
}

// render returns what is shown of t.raw[from:to], and how many bytes of it were
// replaced. from and to are not inside a character or mark.
func (t text) render(from, to int) (shown string, replaced int64) {
	var b strings.Builder
	plain := func(raw []byte) {
		for len(raw) > 0 {
			n := plainLength(raw)
			b.Write(raw[:n])
			if raw = raw[n:]; len(raw) > 0 {
				b.WriteString(replacement)
				raw = raw[1:]
				replaced++
			}
		}
	}
	for _, s := range t.spans {
		if s.Start < from || s.End > to {
			continue
		}
		plain(t.raw[from:s.Start])
		b.WriteString(s.Mark)
		from = s.End
	}
	plain(t.raw[from:to])
	return b.String(), replaced
}

// plainLength is the length of the start of b that is shown as it is.
func plainLength(b []byte) int {
	if utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 {
		return len(b)
	}
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == 0 || r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(b)
}
