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
	last  int  // where a short word begins that may be the last
	size  int  // of that word; 0 if there is none
	run   bool // in a run of names
	first bool // the first run is over
	told  bool // there is punctuation, a mark, or a first word that means something
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
	s.size = 0
}

// join takes a part of a name.
func (s *shaper) join() {
	if !s.run {
		s.add(400)
		s.run = true
	}
	s.first = true
	s.size = 0
}

// shortWord is how long the words are that count as words of the program.
const shortWord = 9

// word takes the word line[from:end].
func (s *shaper) word(line []byte, from, end int, glued bool) {
	switch {
	case glued || end-from > shortWord:
		s.join()
	case !s.first:
		s.add(hashOf(line[from:end]))
	default:
		if !s.run {
			s.add(400)
			s.run = true
		}
		s.last, s.size = from, end-from
	}
	s.first = true
}

func (s *shaper) sum(line []byte) uint32 {
	h := s.hash
	if s.size > 0 {
		h ^= hashOf(line[s.last:][:s.size])
	}
	h *= hashPrime
	return h ^ h>>15
}
