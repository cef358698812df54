package clue

// word reads one word, in both hands: all of it, and its last part where
// capitals divide it, as in NullPointerException. It returns where to read on.
func (r *reader) word(from int) int {
	l := &r.bytes
	end, key, capitals := r.spell(from)
	r.at = end
	k, part, upper := lookUp(key), plain, false
	if capitals {
		upper, part = r.cased(from, end)
	}
	before, after := byte(' '), l[end]
	if from > 0 {
		before = l[from-1]
	}
	glued := beside[before]&gluing|beside[after]&gluingBack != 0 && (glue(before, l[:], from) || glueAfter(after, l[end+1]))
	r.shape.word(l[:], from, end, glued)
	if !r.letters && k == plain && end-from == 2 && l[from] == 'a' && l[from+1] == 't' && after == ' ' {
		r.frame = true
	}
	if k != plain || part != plain || glued && upper { // as few words are
		switch {
		case part == severe:
			r.typeName(from, after)
		case part == mild && r.best < 40 && r.level == 0:
			r.level = 1
		case glued:
			if k == severe {
				r.sign(8)
			} else if r.place == 2 && upper {
				r.code(from)
			}
			k = plain
		case k != plain:
			r.meaning(k, from, before, after, upper)
		}
	}
	if glued && end-from == 1 && classes[before] == digit { // of a time: 2026-11-29T17:43:02Z
		return end
	}
	r.colon, r.letters = false, true
	r.words++
	r.lastWord, r.lastEnd = k, end
	if after == ' ' { // as after most words
		end++
		r.tokenStart, r.tokenPath = end, false
	}
	return end
}

// code gives the lines that a tool marks with the same code, as in
// "a.py:3:1: E0602: …", their own form.
func (r *reader) code(from int) {
	r.exact = true
	letters, n := hashOf(r.bytes[from:r.at]), 0
	for n < 6 && classes[r.peek(n)] == digit {
		letters = letters*31 + uint32(r.line[r.at+n])
		n++
	}
	if c := classes[r.peek(n)]; n >= 3 && n < 6 && c != letter && c != joins && c != slash && c != dot {
		r.shape.add(letters)
	}
}

// What may make a word after it, or before it, a part of a name.
const (
	gluing = 1 << iota
	gluingBack
)

var beside = func() (b [256]uint8) {
	for _, c := range []byte(`-+:._/\@#$%&~0123456789`) {
		b[c] |= gluing
	}
	for _, c := range []byte(`_/\@(:-.0123456789`) {
		b[c] |= gluingBack
	}
	return b
}()

// glue reports whether the byte before a word makes it a part of a name.
func glue(c byte, l []byte, from int) bool {
	switch c {
	case '-', '+': // also a bullet
		return from > 1 && classes[l[from-2]] != blank && l[from-2] != c
	case ':':
		return from > 1 && l[from-2] == ':'
	case '.', '_', '/', '\\', '@', '#', '$', '%', '&', '~':
		return from > 1 && l[from-2] != c || c == '_' && from > 1 && l[from-2] == '_'
	}
	return classes[c] == digit
}

// glueAfter is glue for the bytes that follow.
func glueAfter(c, next byte) bool {
	switch c {
	case '_', '/', '\\', '@', '(':
		return c != '(' || next == ')'
	case ':':
		return next == ':'
	case '-', '.':
		return classes[next] == letter || classes[next] == digit || next == '*'
	}
	return classes[c] == digit
}

// typeName is a name that ends in a word of failure: it heads a statement or is
// a part of one.
func (r *reader) typeName(from int, after byte) {
	switch {
	case after == '/' || after == '_' || after == '\\' || after == '.' && classes[r.peek(1)] == letter && r.peek(1) >= 'a':
		r.sign(8)
	case after == ':' || after == 0 || after == '!' || after == '(' && r.peek(1) != ')' || after == ' ' && r.peek(1) == '[':
		switch {
		case r.words == 0 || r.colon:
			r.sign(82)
		case after == 0:
			r.sign(34)
		default:
			r.sign(60)
		}
	default:
		r.sign(34)
	}
}

// meaning weighs a word that stands by itself.
func (r *reader) meaning(k kind, from int, before, after byte, upper bool) {
	opens := !r.letters || r.colon
	r.shape.told = r.shape.told || upper || !r.letters && (k == severe || k == cause)
	if k == severe && upper && r.letters {
		r.shape.mark()
	}
	switch k {
	case severe:
		r.failure(opens, after, upper && r.at-from > 2)
	case cause:
		switch {
		case opens && after != ':':
			r.sign(46)
		case opens || after == ':':
			r.sign(40)
		default:
			r.sign(32)
		}
		if r.lastWord == negation {
			r.retract()
		}
	case compared:
		switch {
		case opens && (after == ':' || r.at-from > 4 && after == ' '):
			r.sign(50)
		case after == ':' || after == '=':
			r.sign(36)
		case r.at-from > 4 && r.lastWord != compared:
			r.sign(16)
		case r.lastWord == compared:
			r.sign(34)
		}
	case mild, quiet:
		if r.level == 0 && r.best < 40 && (opens || upper || after == ':') {
			r.level = 1
			if k == quiet {
				r.level = 2
			}
		}
	case good:
		r.success(opens, upper)
	case counted:
		if r.number >= 0 && r.at-r.numberEnd < 12 || after == ':' {
			r.sign(20)
		}
	case object:
		if r.lastWord == negation {
			r.sign(38)
		}
	case negation:
		r.void = r.colon && r.letters && r.at == r.size // failures: none
		if after == '\'' || r.lastWord == object {
			r.sign(12)
		}
	}
}

// failure is a word that states one.
func (r *reader) failure(opens bool, after byte, upper bool) {
	statement := after == ':' || after == '[' || after == ']' || after == '!' || after == ')' || after == '|' || after == '>' || after == '*'
	counted := r.number >= 0 && r.at-r.numberEnd < 14 && r.numberEnd > 0 && r.at > r.numberEnd && r.onlyBlank()
	s := 36
	switch {
	case r.lastWord == negation && r.lastEnd+1 < r.at && r.number < 0:
		return
	case counted && r.number == 0:
		return
	case counted:
		s = 62
	case opens && upper && (after == ']' || after == '|'): // a level, and not what went wrong
		s = 70
	case opens && statement:
		s = 86
	case opens:
		s = 68
	case statement:
		s = 66
	case after == 0 || r.words <= 1:
		s = 48
	}
	if upper {
		s = max(s, 58) + 8
		r.loud = true
	}
	r.undo, r.undoMore, r.stated, r.failedEnd = r.best, r.more, opens, r.at
	r.sign(s)
}

// onlyBlank reports whether only one blank is between the last number and the
// word that ends here.
func (r *reader) onlyBlank() bool {
	i := r.numberEnd
	return r.bytes[i] == ' ' && classes[r.bytes[i+1]] == letter
}

// success is a word that states it.
func (r *reader) success(opens, upper bool) {
	switch {
	case r.lastWord == negation:
		r.sign(80) // not ok
	case opens || upper || r.at == r.size || r.number > 0:
		r.good = true
	}
}
