package clue

// Score says what a line is worth by itself, without its surroundings: 0 to Top.
func Score(line []byte) int {
	var t text
	t.next(line)
	found, _ := t.read(line)
	return int(found.score)
}

// reading is what one pass over a line finds.
type reading struct {
	score int16
	shape uint32 // the same for lines that differ in names and numbers only
	good  bool   // it reports success
	empty bool
	bare  bool // names and plain words, and nothing that states or divides
	name  bool // the name of a file, alone
}

// reader is the state of that pass.
type reader struct {
	*text
	line  []byte // as it was before
	at    int
	exact bool // of a number more mattered than whether it is 0

	best, more     int  // the strongest sign, and the sum of the others
	letters        bool // a letter has been seen: the line's beginning is over
	words          int
	begin          int  // where the text begins, after its indent
	colon          bool // what came last besides blanks opens a statement: ":", "]", "|"
	tokenStart     int  // where the run of bytes without blanks began
	tokenPath      bool // it has a letter and a "." or "/"
	place          int8 // 1: names a place in a file, 2: begins with it
	frame          bool // a line of a stack trace
	level          int  // the first level named: 1 mild, 2 quiet; 0 none or failure
	good           bool
	lastWord       kind
	lastEnd        int
	undo, undoMore int  // best and more before the last word of failure
	loud           bool // a word of failure in capitals
	stated         bool // the last word of failure began a statement
	failedEnd      int  // where that ended
	void           bool // what the line states is that there is none
	number         int  // the last number: -1 none, else whether it is not 0
	numberEnd      int
	single         byte // the line begins with a single capital letter

	shape shaper
}

// read judges the line that t was made of. exact says that others with the same
// text may have to be judged otherwise.
func (t *text) read(line []byte) (found reading, exact bool) {
	r := reader{text: t, line: line[:t.size], number: -1}
	r.start()
	l := r.bytes[:r.size]
	for at := r.at; at < len(l); {
		switch c := l[at]; classes[c] {
		case letter:
			at = r.word(at)
		case digit:
			at = r.digits(at)
		case blank:
			at++
			for r.bytes[at] == ' ' {
				at++
			}
			r.tokenStart, r.tokenPath = at, false
		case escape:
			from := at
			at = r.colour(from)
			if r.tokenStart == from {
				r.tokenStart = at
			}
		case high:
			r.mark(at)
			at++
		case joins:
			r.shape.join()
			at++
		case slash:
			r.shape.join()
			r.tokenPath = true
			at++
		case dot:
			r.shape.join()
			r.tokenPath, r.colon = true, false
			at++
		case bang:
			if r.tokenStart == at && r.bytes[at+1] == '=' && (r.bytes[at+2] == ' ' || r.bytes[at+2] == '=' && r.bytes[at+3] == ' ') {
				r.sign(30) // two that should be equal
			}
			fallthrough
		case other:
			r.punct(c, at)
			at++
		}
	}
	return r.verdict(), r.exact
}

// punct reads a mark of punctuation.
func (r *reader) punct(c byte, at int) {
	r.shape.punct(c)
	p := puncts[c]
	r.colon = p&opening != 0 || r.colon && p&quoting != 0 || r.place == 2 && c == ')'
	if p&beginning != 0 {
		r.tokenStart, r.tokenPath = at+1, false
	}
}

// start takes the signs of the very beginning.
func (r *reader) start() {
	l := r.bytes[:r.size]
	indent := 0
	for r.at < len(l) && (classes[l[r.at]] == blank || classes[l[r.at]] == escape) {
		if classes[l[r.at]] == escape {
			r.at = r.colour(r.at)
			continue
		}
		indent++
		r.at++
	}
	r.begin, r.tokenStart = r.at, r.at
	r.shape.indent(indent, indent > 0 && l[r.at-1] == '\t')
	l = l[r.at:]
	if len(l) < 3 {
		return
	}
	switch c := l[0]; {
	case classes[c] == letter:
		if c <= 'Z' && (l[1] == ':' || l[1] == ' ') && l[2] == ' ' {
			r.single = c
		}
	case classes[c] == digit:
		if numbering(l) > 0 {
			r.sign(36)
		}
	case len(l) == 3:
	case c == '>' && len(l) > 4 && l[1] == ' ' && l[2] == ' ' && l[3] == ' ':
		r.sign(45) // the line that failed, quoted
	case (c == '-' || c == '+') && l[1] == ' ' && l[2] == ' ' && l[3] != '-':
		r.sign(30) // one side of a difference
	case (c == '*' && l[1] == '*' && l[2] == '*' || c == '!' && l[1] == '!') && l[3] != '*':
		r.sign(25)
	}
}

// numbering is the length of "12) " at the beginning of l.
func numbering(l []byte) int {
	n := 0
	for n < len(l) && n < 4 && classes[l[n]] == digit {
		n++
	}
	if n > 0 && n+2 < len(l) && l[n] == ')' && l[n+1] == ' ' {
		return n + 2
	}
	return 0
}

func (r *reader) sign(n int) {
	if n > r.best {
		n, r.best = r.best, n
	}
	r.more += n
}

// mark reads a character beyond ASCII: ticks and crosses.
func (r *reader) mark(at int) {
	l := r.bytes[at:r.size]
	r.shape.join()
	if len(l) < 3 || r.letters {
		return
	}
	switch {
	case l[0] == 0xe2 && l[1] == 0x9c && (l[2] >= 0x95 && l[2] <= 0x98), // ✕✖✗✘
		l[0] == 0xe2 && l[1] == 0x9d && l[2] == 0x8c, // ❌
		l[0] == 0xe2 && l[1] == 0xa8 && l[2] == 0xaf, // ⨯
		l[0] == 0xc3 && l[1] == 0x97 && l[2] == ' ',  // ×
		l[0] == 0xe2 && l[1] == 0x97 && l[2] == 0x8f: // ●
		r.sign(60)
		r.colon = true
		r.shape.mark()
	case l[0] == 0xe2 && l[1] == 0x9c && (l[2] == 0x93 || l[2] == 0x94 || l[2] == 0x85), // ✓✔✅
		l[0] == 0xe2 && l[1] == 0x88 && l[2] == 0x9a: // √
		r.good = true
	}
}

// colour passes over a control sequence of the terminal. What follows in red is
// bad news. It returns where to read on.
func (r *reader) colour(at int) (end int) {
	n := Escape(r.line[at:])
	s := r.line[at : at+n]
	r.exact = true
	if n >= 5 && s[n-1] == 'm' && s[n-2] == '1' && (s[n-3] == '3' || s[n-3] == '9') && (s[n-4] == '[' || s[n-4] == ';') {
		if r.letters {
			r.sign(8)
		} else {
			r.sign(40)
		}
	}
	return at + n
}

// digits reads a number, and what it says with the word before it. It returns
// where to read on.
func (r *reader) digits(from int) (end int) {
	l, zero := r.bytes[:], true
	for end = from; classes[l[end]] == digit; end++ {
		zero = zero && l[end] == '0'
	}
	r.at = end
	r.shape.join()
	next := l[end]
	if next == '.' && classes[l[end+1]] == digit || classes[next] == letter {
		r.number = -1
		return end
	}
	before := byte(0)
	if from > 0 {
		before = l[from-1]
	}
	if r.tokenPath && (before == ':' || before == '(') {
		r.placed(next)
	}
	r.number, r.numberEnd = 1, end
	if zero {
		r.number = 0
	}
	if zero && r.failedEnd > 0 && from-r.failedEnd <= 5 && (string(l[r.failedEnd:from]) == " are " || string(l[r.failedEnd:from]) == " is ") {
		r.retract() // errors are 0
		return end
	}
	if gap := from - r.lastEnd; gap > 4 || gap < 1 || !separates(l[r.lastEnd:from]) {
		return end
	}
	switch {
	case r.lastWord == severe && zero:
		r.retract()
	case r.lastWord == severe && (r.stated || from != r.lastEnd+1 || l[r.lastEnd] != ' '):
		r.sign(55) // and not the name of something that is numbered
	case r.lastWord == exits && !zero:
		r.sign(50)
	case r.lastWord == located && r.place == 0:
		r.place = 1
		if l[r.size-1] == ':' { // it heads what is said of that place
			r.place = 2
		}
	}
	return end
}

// separates reports whether only ":", "=", "(" and blanks are in b.
func separates(b []byte) bool {
	for _, c := range b {
		if c != ' ' && c != ':' && c != '=' && c != '(' && c != '\t' {
			return false
		}
	}
	return true
}

// retract takes back what the last word of failure gave: there were none.
func (r *reader) retract() {
	r.best, r.more, r.loud = r.undo, r.undoMore, false
	r.lastWord = plain
}

// placed notes a place in a file: a path before a number.
func (r *reader) placed(next byte) {
	first := firstToken(r.bytes[:r.tokenStart])
	if next == ':' || next == ')' || next == ',' || next == 0 || next == ' ' || next == ']' || next == '"' {
		if first {
			r.place = 2
			r.colon = true
		} else if r.place == 0 {
			r.place = 1
		}
	}
	if next == ' ' && r.peek(1) == '+' && r.peek(2) == '0' {
		r.frame = true
	}
}

// firstToken reports whether b, what stands before a path, is no statement:
// nothing, marks, or "at".
func firstToken(b []byte) bool {
	n := 0
	for _, c := range b {
		if classes[c] == letter {
			if n++; n > 4 {
				return false
			}
		}
	}
	return true
}

// peek returns a byte a few further on; 0 behind the end.
func (r *reader) peek(n int) byte { return r.bytes[r.at+n] }

// verdict adds up.
func (r *reader) verdict() reading {
	if r.single == 'E' {
		r.sign(62)
	}
	s := r.best + min(r.more/4, 20)
	switch {
	case r.frame:
		s = min(s, 14)
	case r.level == 2 && r.loud:
		s = min(s, 52)
	case r.level == 2:
		s = min(s/2, 14)
	case r.level == 1:
		s = min(s, 30)
	case r.place == 2 && s > 0:
		s += 24
	case r.place == 2:
		s = 32
	case r.place == 1 && s > 0:
		s += 8
	}
	if r.void || r.good && r.best < 60 {
		s = min(s, 4)
	}
	return reading{score: int16(min(s, Top)), shape: r.shape.sum(r.bytes[:]), good: r.good && r.best < 60, empty: !r.letters && r.best == 0 && r.place == 0,
		bare: r.shape.bare(), name: r.tokenPath && r.letters && r.tokenStart == r.begin && r.place == 0}
}
