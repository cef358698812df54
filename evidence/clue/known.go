package clue

// known reads lines, and remembers some of them by their text: programs say the
// same again and again, but for the numbers, and about half of all lines need
// not be read.
type known struct {
	text  text
	lines [1 << knownBits]knownLine
	texts [knownBytes]byte // of those lines; the oldest are written over
	wrote int              // how many bytes of texts were written, in all
}

const (
	knownBits  = 9
	knownBytes = 32 << 10
)

type knownLine struct {
	reading
	exact bool   // all of it must be the same, not the text only
	size  uint16 // of its text; 0 if none is remembered here
	at    int    // what wrote was before it
}

// read judges the line that the text was made of, and that has such a hash.
func (k *known) read(line []byte, hash uint64) reading {
	l := &k.lines[hash>>(64-knownBits)]
	if size := k.text.size; int(l.size) == size && size > 0 && k.wrote-l.at <= knownBytes &&
		string(k.texts[l.at%knownBytes:][:size]) == string(k.same(line, l.exact)) {
		return l.reading
	}
	found, exact := k.text.read(line)
	k.remember(l, found, line, exact)
	return found
}

// same is what must be the same in two lines for them to be judged alike.
func (k *known) same(line []byte, exact bool) []byte {
	if exact {
		return line[:k.text.size]
	}
	return k.text.bytes[:k.text.size]
}

// remember remembers what was found in the line that was read last.
func (k *known) remember(l *knownLine, found reading, line []byte, exact bool) {
	size := k.text.size
	if left := knownBytes - k.wrote%knownBytes; left < size {
		k.wrote += left
	}
	*l = knownLine{reading: found, exact: exact, size: uint16(size), at: k.wrote}
	copy(k.texts[k.wrote%knownBytes:], k.same(line, exact))
	k.wrote += size
}
