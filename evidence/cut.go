package evidence

import (
	"bytes"
	"fmt"
	"strings"
)

// room is an amount of bytes and lines.
type room struct{ bytes, lines int }

func (r room) within(most room) bool { return r.bytes <= most.bytes && r.lines <= most.lines }

func (r room) less(s room) room { return room{r.bytes - s.bytes, r.lines - s.lines} }

func (r room) plus(s room) room { return room{r.bytes + s.bytes, r.lines + s.lines} }

// least is the smaller of both in each.
func (r room) least(s room) room { return room{min(r.bytes, s.bytes), min(r.lines, s.lines)} }

// part is that share of r.
func (r room) part(percent int) room { return room{r.bytes * percent / 100, r.lines * percent / 100} }

// cut is a decision: show these parts, with a marker wherever something is left
// out, unless there is no room for markers.
type cut struct {
	of     *captured
	parts  []part
	whole  bool
	marked bool
	took   room
}

// part is pieces[piece].raw[from:to].
type part struct{ piece, from, to int }

// Shares of what a stream may show, in percent: what decisive lines may take
// with those around them, what of it those may take that are around them or only
// unlike the others, and what the beginning and the end keep beside them. What
// is not taken goes to the beginning and the end.
const (
	decisiveShare = 62
	unlikeShare   = 16
	headShare     = 6
	tailShare     = 18
)

// In a preview of less than tightBytes there is no room for much more than what
// decides, and what decides does not get less: markers take a good part of it.
const (
	tightBytes         = 8 << 10
	tightDecisiveShare = 90
	tightHeadShare     = 2
	tightTailShare     = 5
)

// shares are those of decisive lines, the beginning and the end.
func (c *captured) shares() (decisive, head, tail int) {
	if c.tight {
		return tightDecisiveShare, tightHeadShare, tightTailShare
	}
	return decisiveShare, headShare, tailShare
}

// cut decides what to show of c in so much room.
func (c *captured) cut(most room) cut {
	if c.last > 0 {
		most.lines = min(most.lines, c.last+1) // and the marker
	}
	if !c.gaps && (c.last == 0 || c.lines <= int64(c.last)) {
		if end, took := c.pieces[0].prefix(most); end == len(c.pieces[0].raw) {
			d := cut{of: c, parts: []part{{0, 0, end}}, whole: true, took: took}
			if text := c.invisible(); took.bytes == 0 && end > 0 && len(text) <= most.bytes {
				d.took = room{len(text), 1}
			}
			return d
		}
	}
	mark := room{c.markerSize(), 1}
	if !mark.within(most) {
		last := len(c.pieces) - 1
		start, took := c.ending(0, most)
		return cut{of: c, parts: []part{{last, start, len(c.pieces[last].raw)}}, took: took}
	}
	if c.last > 0 {
		last := len(c.pieces) - 1
		start, took := c.ending(0, most.less(mark))
		return cut{of: c, parts: []part{{last, start, len(c.pieces[last].raw)}}, marked: true, took: took.plus(mark)}
	}
	chosen := c.decisive(most.less(mark), mark)
	d := cut{of: c, marked: true}
	// What was chosen may turn out to lie in the beginning or the end, and so
	// leave room to either.
	ends := most.less(c.size(chosen, mark))
	for range 4 {
		parts := c.around(chosen, ends)
		took := c.size(parts, mark)
		if !took.within(most) {
			break
		}
		d.parts, d.took = parts, took
		spare := most.less(took)
		if spare.bytes < max(1, most.bytes/32) || spare.lines < max(1, most.lines/32) {
			break
		}
		ends = ends.plus(spare)
	}
	return d
}

// around returns the parts to show: a beginning and an end that take so much
// room together, and between them what of chosen they do not have.
func (c *captured) around(chosen []part, most room) []part {
	last := len(c.pieces) - 1
	end, head := c.beginning(most.part(20))
	start, tail := c.ending(end, most.less(head))
	if c.gaps { // the end may have been captured short
		end, _ = c.beginning(most.less(tail))
	}
	parts := []part{{0, 0, end}}
	for _, p := range chosen {
		if p.piece == 0 {
			p.from = max(p.from, end)
		}
		if p.piece == last {
			p.to = min(p.to, start)
		}
		parts = c.join(parts, p)
	}
	return c.join(parts, part{last, start, len(c.pieces[last].raw)})
}

// join adds a part to those before it, and with it what lies between when that
// is no longer than a marker.
func (c *captured) join(parts []part, p part) []part {
	if p.from >= p.to {
		return parts
	}
	n := len(parts)
	if n == 0 {
		return append(parts, p)
	}
	last := &parts[n-1]
	switch {
	case last.from == last.to:
		*last = p
		return parts
	case last.piece == p.piece && p.from <= last.to:
		last.to = max(last.to, p.to)
		return parts
	case last.piece == p.piece && p.from-last.to <= shortGap:
		between := c.pieces[p.piece].size(last.to, p.from)
		if between.bytes <= shortGap && between.lines <= 1 {
			last.to = p.to
			return parts
		}
	}
	return append(parts, p)
}

// shortGap is what a marker takes at least, in bytes.
const shortGap = 48

// size is the room that parts take, with a marker wherever something is missing.
func (c *captured) size(parts []part, mark room) (took room) {
	at := int64(0)
	for _, p := range parts {
		if p.from == p.to {
			continue
		}
		piece := &c.pieces[p.piece]
		took = took.plus(piece.size(p.from, p.to))
		if piece.at+int64(p.from) > at {
			took = took.plus(mark)
		}
		at = piece.at + int64(p.to)
	}
	if at < c.bytes {
		took = took.plus(mark)
	}
	return took
}

// beginning returns where the part shown at the beginning ends: between lines
// when that costs less than half of it.
func (c *captured) beginning(most room) (end int, took room) {
	first := c.pieces[0]
	end, took = first.prefix(most)
	if end == 0 || end == len(first.raw) && !c.gaps {
		return end, took
	}
	if i := first.newlineIn(0, end, true); i >= 0 && end-(i+1) < end/2 {
		return text{first.raw[:i+1], first.spans}.prefix(most)
	}
	return end, took
}

// ending returns where in the last piece the part shown at the end starts; after
// is where the beginning ended.
func (c *captured) ending(after int, most room) (start int, took room) {
	t, from := c.pieces[len(c.pieces)-1], after
	if c.gaps {
		from = 0
	}
	start, took = t.suffix(from, most)
	size := len(t.raw) - start
	if size == 0 || start > 0 && t.raw[start-1] == '\n' {
		return start, took
	}
	if i := t.newlineIn(start, len(t.raw), false); i >= 0 && i+1 < len(t.raw) && i+1-start < size/2 {
		return t.suffix(i+1, most)
	}
	return start, took
}

// shown carries the decision out.
func (d cut) shown() Shown {
	c := d.of
	s := Shown{Binary: c.binary}
	var all strings.Builder
	all.Grow(d.took.bytes)
	at, line, fresh := int64(0), int64(1), true // where the text has come to; fresh: the line is new
	before := part{piece: -1}
	gap := func(to, toLine int64) {
		if to == at {
			return
		}
		o := Omitted{Bytes: to - at, Lines: toLine - line}
		if !fresh {
			o.Lines--
		}
		o.Lines = max(0, o.Lines)
		s.Omitted.Bytes += o.Bytes
		s.Omitted.Lines += o.Lines
		from := c.spillLine(line)
		if s.NextLine == 0 {
			s.NextLine = from
		}
		if d.marked {
			if all.Len() > 0 && !strings.HasSuffix(all.String(), "\n") {
				all.WriteByte('\n')
			}
			all.WriteString(marker(o, from))
		}
	}
	for _, p := range d.parts {
		if p.from == p.to {
			continue
		}
		piece := &c.pieces[p.piece]
		from := piece.at + int64(p.from)
		start, known := piece.line, 0
		if before.piece == p.piece {
			start, known = line, before.to
		}
		start += int64(bytes.Count(piece.raw[known:p.from], newline))
		gap(from, start)
		begin := all.Len()
		replaced, stripped := piece.render(&all, p.from, p.to)
		s.Replaced += replaced
		s.Stripped += stripped
		switch {
		case from == 0:
			s.Head = all.String()
		case piece.at+int64(p.to) == c.bytes:
			s.Tail = all.String()[begin:]
		}
		at, line, before = piece.at+int64(p.to), start+int64(bytes.Count(piece.raw[p.from:p.to], newline)), p
		fresh = piece.raw[p.to-1] == '\n'
	}
	gap(c.bytes, c.lines+1)
	s.Text = all.String()
	if d.whole && s.Text == "" && d.took.bytes > 0 {
		s.Text = c.invisible()
	}
	return s
}

// invisible says that there was output, all of which is stripped.
func (c *captured) invisible() string {
	return fmt.Sprintf("[%d bytes that only control a terminal]\n", c.bytes)
}

// spillLine is the number that a line of the stream has in the spill.
func (c *captured) spillLine(line int64) int64 {
	for i := len(c.spillLines) - 1; i >= 0; i-- {
		if m := c.spillLines[i]; m[0] <= line {
			return m[1] + line - m[0]
		}
	}
	return line
}

// marker is the line that says what was left out, and from which line on.
func marker(o Omitted, from int64) string {
	if o.Lines == 0 {
		return fmt.Sprintf("[... %d bytes left out, from line %d ...]\n", o.Bytes, from)
	}
	return fmt.Sprintf("[... %d bytes, %d lines left out, from line %d ...]\n", o.Bytes, o.Lines, from)
}

// markerSize is the most a marker of c can take, with the newline that may have
// to go before it.
func (c *captured) markerSize() int {
	most := c.spillLine(max(c.lines, 1) + 1) // of any line number
	return len(marker(Omitted{Bytes: c.bytes, Lines: max(c.lines, 1)}, most)) + len("\n")
}
