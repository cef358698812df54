package daemon

import (
	"bytes"

	"github.com/rein-sh/rein/evidence/clue"
	"github.com/rein-sh/rein/execd"
)

// capture counts one output stream exactly and keeps its beginning and end in
// bounded memory, and of what it drops between them the lines that say how the
// command went. It does no work per line but counting them until it drops some.
type capture struct {
	bytes, newlines int64
	last            byte

	head, tail         []byte
	headLimit, tailMax int
	at                 int // where the oldest byte of a full tail is

	keptLimit int           // bytes of lines; 0 keeps none
	dropped   *clue.Scanner // of all before tail; nil while nothing was dropped

	spillLines [][2]int64 // see execd.Output
}

// newCapture keeps at most limit bytes: a fifth of them from the beginning.
func newCapture(limit int) capture {
	return capture{headLimit: limit / 5, tailMax: limit - limit/5, keptLimit: min(limit/8, maxKept)}
}

// maxKept bounds the lines kept of one stream, in bytes.
const maxKept = 64 << 10

func (c *capture) add(p []byte) {
	if len(p) == 0 {
		return
	}
	c.bytes += int64(len(p))
	c.newlines += int64(bytes.Count(p, newline))
	c.last = p[len(p)-1]
	if n := min(c.headLimit-len(c.head), len(p)); n > 0 {
		c.head = append(c.head, p[:n]...)
		p = p[n:]
	}
	c.addTail(p)
}

var newline = []byte{'\n'}

func (c *capture) addTail(p []byte) {
	if c.tailMax == 0 {
		return
	}
	if len(p) >= c.tailMax {
		c.drop(c.tail[c.at:], c.tail[:c.at], p[:len(p)-c.tailMax])
		c.tail, c.at = append(c.tail[:0], p[len(p)-c.tailMax:]...), 0
		return
	}
	if n := min(c.tailMax-len(c.tail), len(p)); n > 0 {
		c.tail = append(c.tail, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		c.drop(c.tail[c.at:][:min(len(p), len(c.tail)-c.at)])
		n := copy(c.tail[c.at:], p)
		c.at = (c.at + n) % c.tailMax
		p = p[n:]
	}
}

func (c *capture) lines() int64 {
	if c.bytes > 0 && c.last != '\n' {
		return c.newlines + 1
	}
	return c.newlines
}

// drop looks for lines to keep in what is about to be forgotten, in order.
func (c *capture) drop(parts ...[]byte) {
	if c.keptLimit == 0 {
		return
	}
	for _, p := range parts {
		if len(p) > 0 && c.dropped == nil { // what is unlike the rest is seen from the beginning
			c.dropped = clue.New(c.keptLimit)
			c.dropped.Write(c.head)
		}
		if len(p) > 0 {
			c.dropped.Write(p)
		}
	}
}

// output returns the counts and at most share bytes of what was kept. It is
// called once, when the command has ended.
func (c *capture) output(share int) execd.Output {
	o := execd.Output{Bytes: c.bytes, Lines: c.lines(), SpillLines: c.spillLines}
	tail := append(bytes.Clone(c.tail[c.at:]), c.tail[:c.at]...)
	whole := int64(len(c.head)+len(tail)) == c.bytes
	o.Head, o.Tail = bytes.Clone(c.head), tail
	if !whole || len(c.head)+len(tail) > share {
		if whole { // nothing is missing yet: all may be either
			o.Head = append(o.Head, tail...)
		}
		o.Head = o.Head[:min(share/5, len(o.Head))]
		if whole && len(o.Head) < len(c.head) {
			tail = append(c.head[len(o.Head):len(c.head):len(c.head)], tail...)
		} else if whole {
			tail = tail[len(o.Head)-len(c.head):]
		}
		o.Kept, o.Tail = c.keep(o.Head, tail, share-len(o.Head), whole)
	}
	o.HeadLines = int64(bytes.Count(o.Head, newline))
	if len(o.Head) == 0 {
		o.Head = nil
	}
	if len(o.Tail) == 0 {
		o.Tail = nil
	}
	return o
}

// keep returns, in at most room bytes, the lines to keep of what is between head
// and the end of tail that is returned, too. What is before tail is head when
// nothing is missing, else what was dropped.
func (c *capture) keep(head, tail []byte, room int, whole bool) ([]clue.Piece, []byte) {
	most := min(c.keptLimit, room/8)
	fits := min(len(tail), room-most)
	if most > 0 && (c.dropped != nil || fits < len(tail)) {
		if c.dropped == nil {
			c.dropped = clue.New(c.keptLimit)
			c.dropped.Write(head)
			if !whole {
				c.dropped.Write(c.head[len(head):])
			}
		}
		c.dropped.Write(tail[:len(tail)-fits])
	}
	if c.dropped == nil {
		return nil, tail[len(tail)-min(len(tail), room):]
	}
	kept := c.dropped.Pieces(int64(len(head)), c.bytes-int64(fits), most)
	for _, k := range kept {
		room -= len(k.Data)
	}
	// What they leave is the tail's; those that are in it then are not needed.
	fits = min(len(tail), room)
	start := c.bytes - int64(fits)
	for n := len(kept); n > 0 && kept[n-1].Offset+int64(len(kept[n-1].Data)) > start; n-- {
		kept = kept[:n-1]
	}
	return kept, tail[len(tail)-fits:]
}

// outputs divides total bytes between the two streams: stderr is sure of a
// quarter, and what one does not need the other gets.
func outputs(stdout, stderr *capture, total int) (execd.Output, execd.Output) {
	have := func(c *capture) int { return len(c.head) + len(c.tail) }
	share := min(have(stderr), max(total/4, total-have(stdout)))
	return stdout.output(total - share), stderr.output(share)
}

// place notes that output of this stream follows output of the other in the
// spill, which has so many newlines before it.
func (c *capture) place(newlines int64) {
	line, there := c.newlines+1, newlines+1
	if c.bytes > 0 && c.last != '\n' { // its line began before
		line, there = line+1, there+1
	}
	n := len(c.spillLines)
	if n == 0 && line == there || n > 0 && c.spillLines[n-1][1]-c.spillLines[n-1][0] == there-line {
		return
	}
	if n == execd.MaxSpillLines {
		for i := range n / 2 {
			c.spillLines[i] = c.spillLines[2*i]
		}
		c.spillLines = c.spillLines[:n/2]
	}
	c.spillLines = append(c.spillLines, [2]int64{line, there})
}
