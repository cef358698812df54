package clue

import (
	"bytes"
	"cmp"
	"math/bits"
	"slices"
)

// Scanner judges the lines of a stream, each by itself, by what stands beside
// it, and by how many are like it. It keeps those that are worth most.
type Scanner struct {
	limit int  // bytes of kept lines
	copy  bool // it keeps what is in them

	offset int64 // of what comes next
	number int64 // of the line that comes next, or that is open
	open   []byte
	opened int64 // where the open line began
	long   bool  // the open line is longer than what is kept of it

	counts  []uint32 // lines of each shape; shapes are few, and some share a count
	bare    uint32   // lines of nothing but names and words
	lines   int      // judged
	shapes  int      // different ones
	kept    []line
	bytes   int
	floor   int            // what a line must be worth, since worse ones were dropped
	follow  int            // how many lines are still kept for the one before them
	before  [held + 2]line // those that were not kept, and the one that is judged
	nBefore uint           // how many were not kept
	heading line           // the name of a file under which indented lines stand; none if its number is 0
	headed  bool           // it is kept
	// The last line, and what was read in it: borrowed from what is being written,
	// or in last.
	same, last []byte
	borrowed   bool
	hash       uint64 // of its text
	reading    reading
	known      known
}

type line struct {
	start, end int64
	number     int64
	own        int16
	nth        uint16 // of its shape, when it came
	shape      uint16
	good       bool
	empty      bool
	bare       bool
	under      int64 // the number of its heading, if it has one
	text       []byte
}

const (
	shapeBits = 12
	maxKept   = 4096 // lines
	usual     = 256  // lines that are kept of most streams
	lineCost  = 32   // bytes that a kept line counts besides its text
	// following is how many lines after one that states a failure belong to it.
	following = 10
	// leading is how many before it do.
	leading = 4
	held    = 2  // lines that are held for the one after them
	anchor  = 40 // what a line must be worth for others to belong to it
	least   = 12 // what a line is kept for
	short   = 10 // bytes of a line that is unlike others for no reason
)

// New returns a Scanner that keeps at most limit bytes of lines, and a copy of
// them.
func New(limit int) *Scanner {
	s := Index(limit)
	s.copy = true
	return s
}

// Index returns a Scanner that keeps no text, only where the lines are.
func Index(limit int) *Scanner {
	return &Scanner{limit: limit, number: 1, counts: make([]uint32, 1<<shapeBits), kept: make([]line, 0, usual)}
}

// Write takes the stream's next bytes. It does not keep p.
func (s *Scanner) Write(p []byte) {
	defer s.own()
	for len(p) > 0 {
		if len(s.open) > 0 {
			i := bytes.IndexByte(p, '\n')
			if i < 0 {
				s.hold(p)
				return
			}
			s.hold(p[:i+1])
			s.end()
			s.number++
			p = p[i+1:]
			continue
		}
		n, hash := s.known.text.next(p)
		if hash == s.hash {
			if n := s.skip(p); n > 0 {
				p = p[n:]
				continue
			}
		}
		if p[n-1] != '\n' {
			s.hold(p)
			return
		}
		s.opened = s.offset
		s.take(p[:min(n, MaxLine)], hash)
		s.offset += int64(n)
		s.number++
		p = p[n:]
	}
}

// own copies the last line, when it is a part of what was written.
func (s *Scanner) own() {
	if s.borrowed {
		s.last = append(s.last[:0], s.same...)
		s.same, s.borrowed = s.last, false
	}
}

// skip takes what only repeats the last line, and returns its length.
func (s *Scanner) skip(p []byte) (n int) {
	size := len(s.same)
	if !bytes.HasPrefix(p, s.same) || size == 0 || size == MaxLine || s.same[size-1] != '\n' {
		return 0
	}
	block := max(1, 4096/size) * size // compared at once with itself, one line on
	for bytes.HasPrefix(p[n:], s.same) {
		for len(p)-n >= size+block && bytes.Equal(p[n:][:block], p[n+size:][:block]) {
			n += block
		}
		n += size
	}
	times := n / size
	s.offset += int64(n)
	s.number += int64(times)
	s.repeat(times)
	return n
}

// repeat counts lines that are the same as the one before: one of them is
// enough.
func (s *Scanner) repeat(times int) {
	s.counts[s.reading.shape>>(32-shapeBits)] += uint32(times)
	s.lines += times
	s.follow = max(0, s.follow-times)
}

// hold keeps the beginning of a line that is not all there.
func (s *Scanner) hold(p []byte) {
	if len(s.open) == 0 && !s.long {
		s.opened = s.offset
	}
	s.offset += int64(len(p))
	n := min(MaxLine-len(s.open), len(p))
	s.open = append(s.open, p[:n]...)
	s.long = s.long || n < len(p)
}

// end judges a line that came in pieces.
func (s *Scanner) end() {
	if len(s.open) > 0 {
		_, hash := s.known.text.next(s.open)
		if len(s.open) < MaxLine && bytes.Equal(s.open, s.same) {
			s.repeat(1)
		} else {
			s.take(s.open, hash)
			s.own()
		}
	}
	s.open, s.long = s.open[:0], false
}

// Skip says that so many bytes with so many newlines are not there: the rest of
// the line that is open, which is judged only if that is more than would be
// looked at, and more. What follows begins a line and is no neighbour.
func (s *Scanner) Skip(size, newlines int64) {
	if len(s.open) < MaxLine {
		s.open = s.open[:0]
	}
	s.end()
	s.offset += size
	s.number += newlines
	s.follow, s.nBefore, s.heading.number = 0, 0, 0
}

// take judges the line that the text was made of: l is all of it, or its first
// MaxLine bytes.
func (s *Scanner) take(l []byte, hash uint64) {
	r := s.known.read(l, hash)
	s.same, s.borrowed, s.hash, s.reading = l, true, hash, r
	shape := r.shape >> (32 - shapeBits)
	count := s.counts[shape] + 1
	s.counts[shape] = count
	if count == 1 {
		s.shapes++
	}
	s.lines++
	now := &s.before[s.nBefore%uint(len(s.before))]
	now.start, now.end, now.number = s.opened, s.opened+int64(len(l)), s.number
	now.own, now.shape, now.nth, now.under = r.score, uint16(shape), uint16(min(count, 1<<16-1)), 0
	now.good, now.empty, now.bare = r.good, r.empty, r.bare
	if r.bare {
		s.bare++
	}
	indented := l[0] == ' ' || l[0] == '\t'
	if indented {
		now.under = s.heading.number
	} else if !r.empty {
		s.heading.number = 0
	}
	worth := s.worth(now)
	keep := s.follow > 0 || worth >= max(least, s.floor) || count <= 2 && s.floor < least
	if worth >= anchor && worth >= s.floor {
		for i := s.nBefore - min(held, s.nBefore); i < s.nBefore; i++ {
			if b := &s.before[i%uint(len(s.before))]; b.number >= now.number-leading {
				s.keep(*b, nil)
				s.headed = s.headed || b.number == s.heading.number
			}
		}
		if now.under > 0 && !s.headed {
			s.keep(s.heading, nil)
			s.headed = true
		}
		s.nBefore = 0
		s.follow = following + 1
	}
	if s.follow > 0 {
		s.follow--
	}
	if r.name && !indented {
		s.head(*now, l, keep)
	}
	switch {
	case keep:
		s.keep(*now, l)
	case s.copy:
		now.text = append(now.text[:0], l...)
		fallthrough
	default:
		s.nBefore++
	}
}

// head holds on to a line that may be the heading of those that follow.
func (s *Scanner) head(l line, text []byte, kept bool) {
	old := s.heading.text
	s.heading, s.headed = l, kept
	if s.copy {
		s.heading.text = append(old[:0], text...)
	}
}

func (s *Scanner) keep(l line, text []byte) {
	if s.copy {
		if text == nil {
			text = l.text
		}
		l.text = bytes.Clone(text)
	}
	s.kept = append(s.kept, l)
	s.bytes += int(l.end-l.start) + lineCost
	if s.bytes > 2*s.limit || len(s.kept) > 2*maxKept {
		s.prune()
	}
}

// worth is what a line is worth for itself: less the more there are like it, and
// something when there is none.
func (s *Scanner) worth(l *line) int {
	w, n := int(l.own), s.counts[l.shape]
	if w == 0 && n > 4 {
		return 0
	}
	if w > 0 {
		w -= min(24, 2*bits.Len16(l.nth)-2)
		if n > 16 {
			w -= min(18, 3*bits.Len32(n/16)-3)
		}
		if l.bare && s.bare > 16 {
			w -= min(18, 3*bits.Len32(s.bare/16)-3)
		}
		if l.own >= anchor {
			w = max(w, least)
		}
	}
	if !l.good && !l.empty && l.end-l.start > short && s.lines >= 100 && s.shapes*4 < s.lines {
		switch {
		case n == 1:
			w += 20
		case n == 2:
			w += 12
		case n <= 4:
			w += 6
		}
	}
	return min(max(w, 0), Top)
}

// shares is what part of a line's worth its neighbours have: of those after it,
// and of those before.
var (
	after  = [following]int{62, 54, 48, 43, 39, 36, 33, 30, 27, 24}
	ahead  = [leading]int{40, 34, 30, 20}
	above  = 60 // for its heading
	lesser = 8  // for lines that report success
)

// scores is what each kept line is worth among its neighbours.
func (s *Scanner) scores() []int {
	// Lines before another were kept after it.
	slices.SortFunc(s.kept, func(a, b line) int { return cmp.Compare(a.start, b.start) })
	w := make([]int, len(s.kept))
	own := make([]int, len(s.kept))
	for i := range s.kept {
		own[i] = s.worth(&s.kept[i])
		w[i] = own[i]
	}
	lend := func(from, to, share int) {
		if to < 0 || to >= len(w) {
			return
		}
		if s.kept[to].good {
			share /= lesser
		}
		w[to] = max(w[to], own[from]*share/100)
	}
	for i, heading := 0, 0; i < len(s.kept); i++ {
		if own[i] < anchor {
			continue
		}
		if under := s.kept[i].under; under > 0 {
			for heading < i && s.kept[heading].number < under {
				heading++
			}
			if s.kept[heading].number == under {
				lend(i, heading, above)
			}
		}
		for d := range following {
			if j := i + 1 + d; j < len(w) && s.kept[j].number == s.kept[i].number+int64(d)+1 {
				lend(i, j, after[d])
			}
		}
		for d := range ahead {
			if j := i - 1 - d; j >= 0 && s.kept[j].number == s.kept[i].number-int64(d)-1 {
				lend(i, j, ahead[d])
			}
		}
	}
	return w
}

// prune drops what is worth least, down to the limit.
func (s *Scanner) prune() {
	w := s.scores()
	order := make([]int, len(w))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return w[b] - w[a] })
	size, n := 0, 0
	for n < len(order) && n < maxKept {
		l := &s.kept[order[n]]
		if size += int(l.end-l.start) + lineCost; size > s.limit {
			break
		}
		n++
	}
	if n < len(order) {
		s.floor = max(s.floor, w[order[n]])
	}
	order = order[:n]
	slices.Sort(order) // as in the stream
	s.bytes = 0
	for i, at := range order {
		s.kept[i] = s.kept[at]
		s.bytes += int(s.kept[i].end-s.kept[i].start) + lineCost
	}
	clear(s.kept[n:])
	s.kept = s.kept[:n]
}

// Lines ends the stream and returns the lines that were kept, in order.
func (s *Scanner) Lines() []Line {
	s.end()
	if s.bytes > s.limit {
		s.prune()
	}
	w := s.scores()
	out := make([]Line, len(s.kept))
	for i, w := range w {
		l := &s.kept[i]
		out[i] = Line{Start: l.start, End: l.end, Number: l.number, Score: w}
	}
	return out
}

// Pieces ends the stream and returns the best of what was kept of its part
// [from, to), at most so many bytes: in order, lines that follow one another in
// one piece.
func (s *Scanner) Pieces(from, to int64, most int) []Piece {
	s.end()
	s.kept = slices.DeleteFunc(s.kept, func(l line) bool { return l.start < from || l.end > to })
	s.limit = min(s.limit, most)
	s.prune()
	var out []Piece
	var end int64
	for i := range s.kept {
		l := &s.kept[i]
		if n := len(out); n > 0 && l.start == end {
			out[n-1].Data = append(out[n-1].Data, l.text...)
		} else {
			out = append(out, Piece{Offset: l.start, Line: l.number, Data: bytes.Clone(l.text)})
		}
		end = l.end
	}
	return out
}
