package daemon

import (
	"bytes"

	"github.com/rein-sh/rein/execd"
)

// capture counts one output stream exactly and keeps its beginning and end in
// bounded memory. It does no work per line but counting them.
type capture struct {
	bytes, newlines int64
	last            byte

	head, tail         []byte
	headLimit, tailMax int
	at                 int // where the oldest byte of a full tail is
}

// newCapture keeps at most limit bytes: a fifth of them from the beginning.
func newCapture(limit int) capture {
	return capture{headLimit: limit / 5, tailMax: limit - limit/5}
}

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
		c.tail, c.at = append(c.tail[:0], p[len(p)-c.tailMax:]...), 0
		return
	}
	if n := min(c.tailMax-len(c.tail), len(p)); n > 0 {
		c.tail = append(c.tail, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
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

// output returns the counts and at most share bytes of what was kept.
func (c *capture) output(share int) execd.Output {
	o := execd.Output{Bytes: c.bytes, Lines: c.lines()}
	head := bytes.Clone(c.head)
	tail := append(bytes.Clone(c.tail[c.at:]), c.tail[:c.at]...)
	if len(head)+len(tail) > share {
		if int64(len(head)+len(tail)) == c.bytes { // nothing is missing yet: all may be either
			head = append(head, tail...)
			tail = head
		}
		head = head[:min(share/5, len(head))]
		tail = tail[len(tail)-min(share-len(head), len(tail)):]
	}
	if len(head) == 0 {
		head = nil
	}
	if len(tail) == 0 {
		tail = nil
	}
	o.Head, o.Tail, o.HeadLines = head, tail, int64(bytes.Count(head, newline))
	return o
}

// outputs divides total bytes between the two streams: stderr is sure of a
// quarter, and what one does not need the other gets.
func outputs(stdout, stderr *capture, total int) (execd.Output, execd.Output) {
	have := func(c *capture) int { return len(c.head) + len(c.tail) }
	share := min(have(stderr), max(total/4, total-have(stdout)))
	return stdout.output(total - share), stderr.output(share)
}
