package evidence

import (
	"bytes"
	"slices"
	"sort"

	"github.com/rein-sh/rein/evidence/clue"
)

// unlike is the score of a line that is only rare among its kind.
const unlike = 15

// decisive chooses the lines that are shown wherever they stand, of a stream
// that may take so much room: in order, adjacent ones joined.
func (c *captured) decisive(most, mark room) []part {
	if c.best == nil {
		c.weigh()
	}
	decide, ahead, behind := c.shares()
	end, _ := c.beginning(most.part(ahead))
	start, _ := c.ending(end, most.part(behind))
	strong, weak := most.part(decide), most.part(unlikeShare)
	ch := newChooser(c, mark, strong)
	last := len(c.pieces) - 1
	budget, lesser := strong, false
	for _, l := range c.order(strong) {
		if l.Score < clue.Decisive && !lesser {
			lesser, budget = true, ch.used.plus(weak).least(strong)
		}
		if l.Score < unlike {
			break
		}
		p, ok := c.place(l)
		if !ok || p.piece == 0 && p.to <= end || p.piece == last && p.from >= start {
			continue
		}
		ch.take(l, p, budget)
	}
	slices.SortFunc(ch.parts, func(a, b part) int {
		if a.piece != b.piece {
			return a.piece - b.piece
		}
		return a.from - b.from
	})
	var joined []part
	for _, p := range ch.parts {
		joined = c.join(joined, p)
	}
	return joined
}

// order is in which order lines are chosen: best first, but where there is
// little room what a line takes of it counts against it.
func (c *captured) order(strong room) []clue.Line {
	const most = 20
	if !c.tight || strong.bytes == 0 {
		return c.best
	}
	all := slices.Clone(c.best)
	for i := range all {
		l := &all[i]
		least := min(l.Score, clue.Decisive)
		l.Score = max(least, l.Score-min(most, int(l.End-l.Start)*100/strong.bytes))
	}
	slices.SortStableFunc(all, func(a, b clue.Line) int { return b.Score - a.Score })
	return all
}

// wants is the room in which a stream can show all of its decisive lines, at
// most what of most they may take.
func (c *captured) wants(most room) room {
	if c.best == nil {
		c.weigh()
	}
	decide, _, _ := c.shares()
	strong := most.part(decide)
	ch := newChooser(c, room{c.markerSize(), 1}, strong)
	for _, l := range c.best {
		if l.Score < clue.Decisive {
			break
		}
		if p, ok := c.place(l); ok {
			ch.take(l, p, strong)
		}
	}
	return room{ch.used.bytes * 100 / decide, ch.used.lines * 100 / decide}
}

// chooser takes lines while there is room.
type chooser struct {
	c     *captured
	mark  room
	long  int // bytes from which a line is long
	parts []part
	taken map[int64]bool // by the offset of a line, and that of the line after it
	same  map[string]int // how often a text was taken
	used  room
}

// copies is how often the same line is shown for its own sake: what a program
// says again and again says little the third time.
const copies = 2

// A line that takes more than a longPart-th of all the room, and more than
// longBytes, must be worth longScore: several short ones say more.
const (
	longPart  = 8
	longBytes = 256
	longScore = 60
)

func newChooser(c *captured, mark, strong room) chooser {
	return chooser{c: c, mark: mark, long: max(longBytes, strong.bytes/longPart), taken: map[int64]bool{}, same: map[string]int{}}
}

// take takes a line when its text, and the marker that it may need, fit.
func (ch *chooser) take(l clue.Line, p part, most room) {
	cost := ch.c.pieces[p.piece].size(p.from, p.to)
	if cost.bytes == 0 { // stripped
		return
	}
	if !ch.taken[-l.Start-1] && !ch.taken[l.End] {
		cost = cost.plus(ch.mark)
	}
	if l.Score < longScore && cost.bytes > ch.long {
		return
	}
	next := ch.used.plus(cost)
	if !next.within(most) {
		return
	}
	line := ch.c.pieces[p.piece].raw[p.from:p.to]
	if ch.same[string(line)] >= copies {
		return
	}
	ch.used = next
	ch.same[string(line)]++
	ch.taken[l.Start], ch.taken[-l.End-1] = true, true
	ch.parts = append(ch.parts, p)
}

// place finds where a line is: whole marks and characters only.
func (c *captured) place(l clue.Line) (part, bool) {
	i := sort.Search(len(c.pieces), func(i int) bool { return c.pieces[i].at > l.Start }) - 1
	if i < 0 {
		return part{}, false
	}
	piece := &c.pieces[i]
	from, to := int(l.Start-piece.at), int(l.End-piece.at)
	if to > len(piece.raw) {
		return part{}, false
	}
	if to > 0 && to < len(piece.raw) && piece.raw[to-1] != '\n' && piece.raw[to-1] != '\r' {
		to = from + wholeRunes(piece.raw[from:to])
	}
	spans := piece.spans
	at := sort.Search(len(spans), func(i int) bool { return spans[i].End > from })
	if at < len(spans) && spans[at].Start < from {
		from = spans[at].Start
	}
	at = sort.Search(len(spans), func(i int) bool { return spans[i].End >= to })
	if at < len(spans) && spans[at].Start < to {
		to = spans[at].End
	}
	return part{i, from, to}, from < to
}

// size is the room that t.raw[from:to] takes. from and to are not inside a
// character or mark.
func (t text) size(from, to int) (took room) {
	spans := t.spans
	open := false // something is shown since the last newline
	plain := func(raw []byte) {
		took.bytes += shownLength(raw)
		took.lines += bytes.Count(raw, newline)
		if i := bytes.LastIndexByte(raw, '\n'); i >= 0 {
			raw, open = raw[i+1:], false
		}
		open = open || len(raw) > 0
	}
	for _, s := range spans[sort.Search(len(spans), func(i int) bool { return spans[i].Start >= from }):] {
		if s.End > to {
			break
		}
		plain(t.raw[from:s.Start])
		took.bytes += len(s.Mark)
		open = open || s.Mark != ""
		from = s.End
	}
	plain(t.raw[from:to])
	if open {
		took.lines++
	}
	return took
}

// shownLength is how many bytes are shown of raw.
func shownLength(raw []byte) (n int) {
	for {
		k := plainLength(raw)
		n += k
		if k == len(raw) {
			return n
		}
		n += len(replacement)
		raw = raw[k+1:]
	}
}
