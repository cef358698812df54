package secret

import (
	"maps"
	"slices"
)

// matcher finds the patterns in a text. It is Wu and Manber's algorithm: a
// window of the length of the shortest pattern moves over the text, and a table
// over the window's last two bytes says how far it may move without passing the
// start of any pattern. Most of the text is never looked at. A matcher is
// immutable.
type matcher struct {
	patterns []pattern
	window   int // bytes of the window, at most maxWindow
	longest  int // bytes of the longest occurrence

	// shift is how far the window may move, by its last two bytes. Where it is
	// 0 candidates lists the patterns that may begin with the window.
	shift      [1 << 16]uint8
	candidates map[uint16][]int32

	shapes *shapes // nil: no key is known by its shape alone

	begins [256][]int32 // patterns by their first byte
	last   [256][]int32 // and by their last
}

// maxWindow bounds the window: more would not be faster, and a window must not
// hold more than one line break of a wrapped pattern (see minWidth).
const maxWindow = minWidth

// newMatcher returns the matcher of patterns and shapes; nil when there are none.
func newMatcher(patterns []pattern, shapes *shapes) *matcher {
	if len(patterns) == 0 && shapes == nil {
		return nil
	}
	m := &matcher{shapes: shapes, window: maxWindow, candidates: map[uint16][]int32{}}
	for _, p := range patterns {
		m.window = min(m.window, len(p.text))
	}
	for i := range m.shift {
		m.shift[i] = uint8(m.window - 1)
	}
	m.enter(patterns)
	return m
}

// extended returns the matcher of patterns, of which m has the first ones. Of m it
// may be called once: what m lists is added to in place, beyond what m looks at.
func (m *matcher) extended(patterns []pattern) *matcher {
	if m == nil {
		return newMatcher(patterns, nil)
	}
	if slices.ContainsFunc(patterns[len(m.patterns):], func(p pattern) bool { return len(p.text) < m.window }) {
		return newMatcher(patterns, m.shapes)
	}
	next := *m
	next.candidates = maps.Clone(m.candidates)
	next.enter(patterns)
	return &next
}

// enter enters the patterns after those that m has.
func (m *matcher) enter(patterns []pattern) {
	first := len(m.patterns)
	m.patterns = patterns
	for i := first; i < len(patterns); i++ {
		p := &patterns[i]
		m.longest = max(m.longest, p.longest())
		m.begins[p.text[0]] = append(m.begins[p.text[0]], int32(i))
		end := p.text[len(p.text)-1]
		m.last[end] = append(m.last[end], int32(i))
		m.index(p.text[:m.window], int32(i))
		if p.breaks == 0 {
			continue
		}
		for at := 1; at < m.window; at++ {
			m.index((p.text[:at] + "\n" + p.text[at:])[:m.window], int32(i))
			m.index((p.text[:at] + "\r\n" + p.text[at:])[:m.window], int32(i))
		}
	}
}

// index enters one way in which pattern i may begin.
func (m *matcher) index(begin string, i int32) {
	end := m.window - 2
	for at := 0; at <= end; at++ {
		block := uint16(begin[at]) | uint16(begin[at+1])<<8
		m.shift[block] = min(m.shift[block], uint8(end-at))
	}
	block := uint16(begin[end]) | uint16(begin[end+1])<<8
	list := m.candidates[block]
	if len(list) == 0 || list[len(list)-1] != i {
		m.candidates[block] = append(list, i)
	}
}

// scan calls hit with the longest occurrence at every place of b where a
// pattern begins, in order of their starts. It returns how far it came: len(b),
// or, unless b is final, the first place where b may end within an occurrence.
func (m *matcher) scan(b []byte, final bool, hit func(start, end int, mark string)) int {
	return m.search(b, final, true, hit)
}

// across is scan of a text whose strings were scanned one by one: what lies between
// the first line of a key in PEM and its last is not of one string.
func (m *matcher) across(b []byte, final bool, hit func(start, end int, mark string)) int {
	return m.search(b, final, false, hit)
}

func (m *matcher) search(b []byte, final, keys bool, hit func(start, end int, mark string)) int {
	if m.shapes == nil {
		return m.values(b, final, hit)
	}
	found, passed := m.shapes.find(b, final, keys)
	before := func(at int) {
		for len(found) > 0 && found[0].start < at {
			hit(found[0].start, found[0].end, found[0].mark)
			found = found[1:]
		}
	}
	passed = min(passed, m.values(b[:passed], final && passed == len(b), func(start, end int, mark string) {
		before(start)
		hit(start, end, mark)
	}))
	before(passed)
	return passed
}

// values is scan of the patterns alone.
func (m *matcher) values(b []byte, final bool, hit func(start, end int, mark string)) int {
	i, w := 0, m.window
	for i+w <= len(b) {
		block := uint16(b[i+w-2]) | uint16(b[i+w-1])<<8
		if s := m.shift[block]; s > 0 {
			i += int(s)
			continue
		}
		found, length, open := m.longestOf(m.candidates[block], b[i:])
		if open && !final {
			return i
		}
		if found != nil {
			hit(i, i+length, found.mark)
		}
		i++
	}
	if !final {
		for ; i < len(b); i++ {
			if _, _, open := m.longestOf(m.begins[b[i]], b[i:]); open {
				return i
			}
		}
	}
	return len(b)
}

// first returns where in b the first occurrence begins, len(b) when there is none. A
// nil matcher finds none.
func (m *matcher) first(b []byte) int {
	at := len(b)
	if m != nil {
		m.scan(b, true, func(start, _ int, _ string) { at = min(at, start) })
	}
	return at
}

// longestOf returns the longest of the patterns that s begins with, and whether
// s ends within one of them.
func (m *matcher) longestOf(list []int32, s []byte) (found *pattern, length int, open bool) {
	for _, i := range list {
		p := &m.patterns[i]
		n, more := p.match(s)
		if n > length {
			found, length = p, n
		}
		open = open || more
	}
	return found, length, open
}

// match returns how many bytes at the start of s are the pattern, 0 when they
// are not; open says that s ends before that can be told.
func (p *pattern) match(s []byte) (n int, open bool) {
	if p.breaks == 0 {
		if len(s) < len(p.text) {
			return 0, string(s) == p.text[:len(s)]
		}
		if string(s[:len(p.text)]) == p.text {
			return len(p.text), false
		}
		return 0, false
	}
	breaks := p.breaks
	for at := 0; at < len(p.text); {
		switch {
		case n == len(s):
			return 0, true
		case s[n] == p.text[at]:
			n++
			at++
		case at == 0 || breaks == 0:
			return 0, false
		case s[n] == '\n':
			n++
			breaks--
		case s[n] == '\r' && n+1 == len(s):
			return 0, true
		case s[n] == '\r' && s[n+1] == '\n':
			n += 2
			breaks--
		default:
			return 0, false
		}
	}
	return n, false
}

// partialStart returns the length of the longest start of b that is the end of
// an occurrence cut off before b.
func (m *matcher) partialStart(b []byte) int {
	for n := min(len(b), m.longest-1); n > 0; n-- {
		for _, i := range m.last[b[n-1]] {
			if m.patterns[i].endsWith(b[:n]) {
				return n
			}
		}
	}
	return 0
}

// endsWith reports whether s is the end of an occurrence, but not all of it.
func (p *pattern) endsWith(s []byte) bool {
	at, n, breaks := len(p.text), len(s), p.breaks
	for n > 0 {
		switch {
		case at == 0:
			return false
		case s[n-1] == p.text[at-1]:
			n--
			at--
		case breaks > 0 && at < len(p.text) && s[n-1] == '\n':
			n--
			breaks--
			if n > 0 && s[n-1] == '\r' {
				n--
			}
		default:
			return false
		}
	}
	return at > 0
}
