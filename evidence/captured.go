package evidence

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rein-sh/rein/evidence/clue"
	"github.com/rein-sh/rein/secret"
)

// captured is a Stream made ready to be cut: the pieces of it that are there,
// in order, and the lines in them that are worth most.
type captured struct {
	bytes, lines int64
	pieces       []piece
	gaps         bool // something is missing between or around the pieces
	binary       bool
	tight        bool        // the preview is small
	last         int         // lines that are shown at most, of the end; 0: no such bound
	best         []clue.Line // by score, best first
	spillLines   [][2]int64
}

// piece is a part of a stream that is there.
type piece struct {
	text
	at   int64 // where raw begins in the stream
	line int64 // the number of the line that raw begins in
}

// text is captured bytes, and the parts of them that are shown as a mark, or not
// at all when the mark is empty.
type text struct {
	raw   []byte
	spans []secret.Span
}

// indexed bounds the lines that are weighed against each other, in bytes.
const indexed = 128 << 10

func capture(s Stream, o Options) captured {
	c := captured{bytes: max(s.Bytes, int64(len(s.Head)+len(s.Tail))), lines: s.Lines, last: o.Last, tight: o.Bytes > 0 && o.Bytes < tightBytes}
	if ordered(s.SpillLines) {
		c.spillLines = s.SpillLines
	}
	c.binary = bytes.IndexByte(s.Head, 0) >= 0 || bytes.IndexByte(s.Tail, 0) >= 0
	o.AsIs = o.AsIs || c.binary
	if int64(len(s.Head)+len(s.Tail)) == c.bytes {
		all := s.Head
		if len(s.Tail) > 0 {
			all = append(append(make([]byte, 0, c.bytes), s.Head...), s.Tail...)
		}
		c.lines = lines(all)
		c.pieces = []piece{{text{all, marks(all, o.Masker, o.AsIs)}, 0, 1}}
		return c
	}
	c.gaps = true
	c.add(piece{text{raw: s.Head}, 0, 1}, o)
	end, newlines := int64(len(s.Head)), int64(bytes.Count(s.Head, newline))
	start := c.bytes - int64(len(s.Tail))
	total := c.lines
	if n := len(s.Tail); n > 0 && s.Tail[n-1] != '\n' {
		total--
	}
	last := max(newlines, total-int64(bytes.Count(s.Tail, newline)))
	for _, k := range s.Kept {
		n := int64(bytes.Count(k.Data, newline))
		if k.Offset < end || k.Offset > start-int64(len(k.Data)) || k.Line <= newlines || k.Line+n > last+1 || len(k.Data) == 0 {
			continue
		}
		c.add(piece{text{raw: k.Data}, k.Offset, k.Line}, o)
		end, newlines = k.Offset+int64(len(k.Data)), k.Line-1+n
	}
	c.add(piece{text{raw: s.Tail}, start, last + 1}, o)
	c.lines = max(c.lines, last+lines(s.Tail))
	return c
}

var newline = []byte("\n")

// ordered reports whether lines of a stream can be where marks says in a spill:
// in order, with ever more lines of another stream before them.
func ordered(marks [][2]int64) bool {
	line, before := int64(0), int64(0)
	for _, m := range marks {
		if m[0] <= line || m[1]-m[0] < before || m[1] > maxLines {
			return false
		}
		line, before = m[0], m[1]-m[0]
	}
	return true
}

// maxLines is more than any output has.
const maxLines = 1 << 50

// add takes a piece that something is missing before or after, without the part
// of a value or a character that may have been cut there.
func (c *captured) add(p piece, o Options) {
	raw := p.raw
	p.spans = marks(raw, o.Masker, o.AsIs)
	from, to := 0, len(raw)
	if p.at > 0 {
		start, _ := o.Masker.Partial(raw)
		from = start + brokenRune(raw[start:])
	}
	if p.at+int64(len(raw)) < c.bytes {
		_, end := o.Masker.Partial(raw)
		to = wholeRunes(raw[:len(raw)-end])
	}
	p.keepUntil(max(from, to))
	p.keepFrom(from)
	c.pieces = append(c.pieces, p)
}

// weigh finds the lines that are worth most.
func (c *captured) weigh() {
	scan := clue.Index(indexed)
	var end, number int64 = 0, 1
	for i := range c.pieces {
		p := &c.pieces[i]
		if p.at > end {
			begin := int64(0)
			if i == len(c.pieces)-1 { // in the middle of a line, for all that is known
				begin = int64(bytes.IndexByte(p.raw, '\n') + 1)
			}
			scan.Skip(p.at+begin-end, max(0, p.line+min(begin, 1)-number))
			scan.Write(p.raw[begin:])
		} else {
			scan.Write(p.raw)
		}
		if i < len(c.pieces)-1 {
			end, number = p.at+int64(len(p.raw)), p.line+int64(bytes.Count(p.raw, newline))
		}
	}
	c.best = scan.Lines()
	slices.SortStableFunc(c.best, func(a, b clue.Line) int { return b.Score - a.Score })
}

// keepUntil leaves out what follows end, and the mark that end falls into.
func (t *piece) keepUntil(end int) {
	for n := len(t.spans); n > 0 && t.spans[n-1].End > end; n-- {
		end = min(end, t.spans[n-1].Start)
		t.spans = t.spans[:n-1]
	}
	t.raw = t.raw[:end]
}

// keepFrom leaves out what is before start, and the mark that start falls into.
func (t *piece) keepFrom(start int) {
	for len(t.spans) > 0 && t.spans[0].Start < start {
		start = max(start, t.spans[0].End)
		t.spans = t.spans[1:]
	}
	start = min(start, len(t.raw))
	t.at += int64(start)
	t.line += int64(bytes.Count(t.raw[:start], newline))
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

// stride is how many bytes are taken at once where that can be done.
const stride = 8

// even reports whether the stride that b begins with is of characters of one
// byte that are shown as they are, with no control but newlines among them. Of
// newlines, the highest bits of those bytes are set that are one.
func even(b []byte) (newlines uint64, ok bool) {
	const (
		each = 0x0101010101010101 // 1 for each byte
		tops = each << 7
	)
	w := binary.LittleEndian.Uint64(b)
	other := w ^ each*'\n'
	newlines = ^(other&^tops + (tops - each) | other) & tops
	w |= newlines >> 2                          // which are no controls then
	return newlines, (w|(w-each*' '))&tops == 0 // a smaller byte borrows
}

// prefix returns the length of the longest beginning of t that can be shown in
// so much room, and the room it takes.
func (t text) prefix(most room) (length int, took room) {
	spans := t.spans
	fresh := true // at the start of a line
	for i := 0; i < len(t.raw); {
		var size, shown int
		newline := false
		end := len(t.raw)
		if len(spans) > 0 { // a value need not begin between characters
			end = min(end, spans[0].Start)
		}
		for i+stride <= end && took.plus(room{stride, stride}).within(most) {
			newlines, ok := even(t.raw[i:])
			if !ok {
				break
			}
			took.bytes += stride
			took.lines += bits.OnesCount64(newlines << 8) // the last begins none yet
			if fresh {
				took.lines++
			}
			fresh = newlines>>63 != 0
			i += stride
		}
		if i == len(t.raw) {
			break
		}
		if len(spans) > 0 && spans[0].Start == i {
			size, shown, spans = spans[0].End-i, len(spans[0].Mark), spans[1:]
		} else if c := t.raw[i]; c < utf8.RuneSelf && c != 0 {
			size, shown, newline = 1, 1, c == '\n'
		} else {
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
		n, begin := len(spans), from
		if n > 0 { // a value need not end between characters
			begin = max(begin, spans[n-1].End)
		}
		for i-stride >= begin && took.plus(room{stride, stride}).within(most) {
			newlines, ok := even(t.raw[i-stride:])
			if !ok {
				break
			}
			if took.lines == 0 && newlines>>63 == 0 { // the last line has no newline
				took.lines++
			}
			took.bytes += stride
			took.lines += bits.OnesCount64(newlines)
			i -= stride
		}
		if i == from {
			break
		}
		if n > 0 && spans[n-1].End == i {
			size, shown, spans = i-spans[n-1].Start, len(spans[n-1].Mark), spans[:n-1]
		} else if c := t.raw[i-1]; c < utf8.RuneSelf && c != 0 {
			size, shown, newline = 1, 1, c == '\n'
		} else {
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

// render appends what is shown of t.raw[from:to] and returns how many bytes of
// it were replaced, and how many were stripped. from and to are not inside a
// character or mark.
func (t text) render(b *strings.Builder, from, to int) (replaced, stripped int64) {
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
		if s.Mark == "" {
			stripped += int64(s.End - s.Start)
		}
		from = s.End
	}
	plain(t.raw[from:to])
	return replaced, stripped
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
