package clue

const (
	hashStart = 2166136261
	hashPrime = 16777619
)

// shaper makes one number of a line's form: what kind of indent, its
// punctuation, its first and last words where they are short, and that there are
// names between them. Lines of the same program for other files, tests and
// numbers have the same.
type shaper struct {
	hash  uint32
	last  uint32 // of a short word that may be the last
	run   bool   // in a run of names
	first bool   // the first run is over
	told  bool   // there is punctuation, a mark, or a first word that means something
	n     int
}

// mark gives a line its own form that is like others but for a mark of failure,
// or a word of it in capitals.
func (s *shaper) mark() {
	s.add(601)
	s.told = true
}

// bare reports whether the line has nothing but names and words.
func (s *shaper) bare() bool { return !s.told }

func (s *shaper) add(v uint32) {
	if s.n < 24 {
		s.hash = (s.hash ^ v) * hashPrime
		s.n++
	}
}

func (s *shaper) indent(n int, tab bool) {
	s.hash = hashStart
	switch {
	case n == 0:
	case tab:
		s.add(301)
	default:
		s.add(302 + uint32(min(n, 8)/2))
	}
}

func (s *shaper) punct(c byte) {
	s.add(uint32(c))
	s.told = true
	s.run = false
	s.last = 0
}

// join takes a part of a name.
func (s *shaper) join() {
	if !s.run {
		s.add(400)
		s.run = true
	}
	s.first = true
	s.last = 0
}

// shortWord is how long the words are that count as words of the program.
const shortWord = 9

func (s *shaper) word(h uint32, length int, glued bool) {
	switch {
	case glued || length > shortWord:
		s.join()
	case !s.first:
		s.add(h)
	default:
		if !s.run {
			s.add(400)
			s.run = true
		}
		s.last = h
	}
	s.first = true
}

func (s *shaper) sum() uint32 {
	h := (s.hash ^ s.last) * hashPrime
	return h ^ h>>15
}
