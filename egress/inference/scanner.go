package inference

// What a scanner keeps of a JSON text at most: lists and objects in one another,
// names on the way to a value, and the bytes of a name or a value. What is longer
// is none that is looked for.
const (
	scanDepth = 1024
	scanPath  = 8
	scanToken = 64
)

// scanner reads a JSON text as it comes, in pieces, and tells the simple values in
// it. It is lenient: what is no JSON has no values, or others. The zero scanner with
// tell set is at a text's beginning.
type scanner struct {
	// tell is told of a number, a literal or a string: where it is, such as
	// choices.[].index, its first byte, and its text, a string's as it is written.
	// It keeps neither.
	tell func(path []byte, kind byte, text []byte)
	// closed is told of the end of a list or an object, in so many others.
	closed func(depth int)

	state  scanState
	kind   byte // of the token
	wants  bool // a string is next that is a member's name
	broken bool // too deep: the rest is not read
	depth  int
	in     [scanDepth]byte // { or [
	names  [scanPath]token
	token
	path [scanPath * (scanToken + 1)]byte // of value, while tell has it
}

// token is the beginning of a name or a value.
type token struct {
	text [scanToken]byte
	n    int // scanToken+1: it is longer
}

func (t *token) add(p []byte) {
	if n := copy(t.text[min(t.n, scanToken):], p); n < len(p) {
		t.n = scanToken + 1
	} else {
		t.n += n
	}
}

func (t *token) bytes() []byte {
	if t.n > scanToken {
		return nil
	}
	return t.text[:t.n]
}

type scanState byte

const (
	scanBetween scanState = iota
	scanString
	scanEscape
	scanWord // a number or a literal
)

// reset begins another text.
func (s *scanner) reset() {
	s.state, s.wants, s.broken, s.depth = scanBetween, false, false, 0
}

// feed takes the next bytes of the text.
func (s *scanner) feed(p []byte) {
	for i := 0; i < len(p) && !s.broken; {
		switch s.state {
		case scanString:
			start := i
			for i < len(p) && p[i] != '"' && p[i] != '\\' {
				i++
			}
			s.add(p[start:i])
			if i == len(p) {
				return
			}
			if p[i] == '\\' {
				s.add(p[i : i+1])
				s.state = scanEscape
			} else {
				s.state = scanBetween
				s.string()
			}
			i++
		case scanEscape:
			s.add(p[i : i+1])
			s.state = scanString
			i++
		case scanWord:
			if isWord(p[i]) {
				s.add(p[i : i+1])
				i++
				continue
			}
			s.end()
		default:
			s.between(p[i])
			i++
		}
	}
}

// end ends a number or a literal, after which nothing need come.
func (s *scanner) end() {
	if s.state == scanWord {
		s.state = scanBetween
		s.value()
	}
}

func isWord(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '-' || c == '+' || c == '.'
}

func (s *scanner) between(c byte) {
	switch {
	case c == '{' || c == '[':
		if s.depth == scanDepth {
			s.broken = true
			return
		}
		s.in[s.depth] = c
		s.setName(nil)
		s.depth++
		s.wants = c == '{'
	case c == '}' || c == ']':
		if s.depth > 0 {
			s.depth--
			s.wants = false
			s.closed(s.depth)
		}
	case c == ',':
		s.wants = s.depth > 0 && s.in[s.depth-1] == '{'
	case c == '"':
		s.kind, s.n, s.state = c, 0, scanString
	case isWord(c):
		s.kind, s.n, s.state = c, 0, scanWord
		s.add([]byte{c})
	}
}

// setName keeps a member's name of the innermost object; nil: of the one that
// begins, which has none yet.
func (s *scanner) setName(t *token) {
	at := s.depth
	if t != nil {
		at--
	}
	switch {
	case at < 0 || at >= scanPath:
	case t == nil:
		s.names[at].n = 0
	default:
		s.names[at] = *t
	}
}

// string ends one: a name, or a value.
func (s *scanner) string() {
	if s.wants {
		s.wants = false
		s.setName(&s.token)
		return
	}
	s.value()
}

func (s *scanner) value() {
	text := s.bytes()
	if s.n > scanToken || s.depth > scanPath {
		return
	}
	path := s.path[:0]
	for i := range s.depth {
		if i > 0 {
			path = append(path, '.')
		}
		if s.in[i] == '[' {
			path = append(path, "[]"...)
		} else {
			path = append(path, s.names[i].bytes()...)
		}
	}
	s.tell(path, s.kind, text)
}
