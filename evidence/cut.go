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

// cut is a decision: show head.raw[:end] and tail.raw[start:], with the marker
// between them unless nothing is left out or there is no room for it.
//
// A decision may come to hold more than two pieces (decisive lines of the part
// left out): they would be further pieces between the two, each with a marker.
type cut struct {
	of         *captured
	end, start int
	whole      bool
	marked     bool
	took       room
}

// cut decides what to show of c in so much room.
func (c *captured) cut(most room) cut {
	if !c.gap {
		if end, took := c.head.prefix(most); end == len(c.head.raw) {
			return cut{of: c, end: end, whole: true, took: took}
		}
	}
	mark := room{c.markerSize(), 1}
	d := cut{of: c, marked: mark.within(most)}
	left := most
	if d.marked {
		left = most.less(mark)
	}
	var head, tail room
	if d.marked {
		d.end, head = c.beginning(room{left.bytes / 5, left.lines / 5})
	}
	d.start, tail = c.ending(d.end, left.less(head))
	if c.gap && d.marked { // the end may have been captured short
		d.end, head = c.beginning(left.less(tail))
	}
	d.took = room{head.bytes + tail.bytes, head.lines + tail.lines}
	if d.marked {
		d.took.bytes += mark.bytes
		d.took.lines += mark.lines
	}
	return d
}

// beginning returns where the part shown at the beginning ends: between lines
// when that costs less than half of it.
func (c *captured) beginning(most room) (end int, took room) {
	end, took = c.head.prefix(most)
	if end == 0 || end == len(c.head.raw) && !c.gap {
		return end, took
	}
	if i := c.head.newlineIn(0, end, true); i >= 0 && end-(i+1) < end/2 {
		return text{c.head.raw[:i+1], c.head.spans}.prefix(most)
	}
	return end, took
}

// ending returns where in the last piece the part shown at the end starts;
// after is where the beginning ended.
func (c *captured) ending(after int, most room) (start int, took room) {
	t, from := c.last(), after
	if c.gap {
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

// last is the text that the end is cut from.
func (c *captured) last() text {
	if c.gap {
		return c.tail
	}
	return c.head
}

// shown carries the decision out.
func (d cut) shown() Shown {
	c := d.of
	s := Shown{Binary: c.binary}
	s.Head, s.Replaced = c.head.render(0, d.end)
	if d.whole {
		s.Text = s.Head
		return s
	}
	last := c.last()
	var replaced int64
	s.Tail, replaced = last.render(d.start, len(last.raw))
	s.Replaced += replaced
	head, tail := c.head.raw[:d.end], last.raw[d.start:]
	s.Omitted.Bytes = c.bytes - int64(len(head)+len(tail))
	s.Omitted.Lines = max(0, c.lines-lines(head)-lines(tail))
	s.NextLine = int64(bytes.Count(head, []byte("\n"))) + 1
	s.Text = s.Tail
	if d.marked {
		joint := ""
		if s.Head != "" && !strings.HasSuffix(s.Head, "\n") {
			joint = "\n"
		}
		s.Text = s.Head + joint + marker(s.Omitted, s.NextLine) + s.Tail
	}
	return s
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
	most := max(c.lines, c.bytes) + 1 // of any line number
	return len(marker(Omitted{Bytes: c.bytes, Lines: max(c.lines, 1)}, most)) + len("\n")
}
