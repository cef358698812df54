package inference

import (
	"bytes"
	"unicode/utf8"
)

// What a request may be made of at most. A conversation that fills a context of a
// million tokens has some tens of thousands of values. While it is judged, each
// takes about 80 bytes.
const (
	maxDepth  = 200
	maxValues = 1 << 17
	maxBody   = 1 << 30 // offsets are int32
)

// document is where the values of a JSON text are: in the order of the text, each
// before those in it. The first is the whole.
type document struct {
	text   []byte
	values []value
}

type value struct {
	start, end int32 // of the value; a string's with its quotes
	key        int32 // start of the member's name, after its quote; 0: not a member
	keyEnd     int32
	next       int32 // the first value that is not in this one
	less       int32 // of a string: how many bytes it has less without its escapes
	wide       int32 // of a string: how many of its escapes' bytes are not ASCII
	kind       byte  // { [ " 0 t f n
	escaped    bool  // the string has escapes
	keyEscaped bool
}

// parse accepts RFC 8259 as encoding/json does, but for these: no byte order mark,
// nothing after the value, valid UTF-8, and no object has a name twice.
func parse(text []byte) (*document, string) {
	if len(text) > maxBody {
		return nil, "the body is too long"
	}
	if !utf8.Valid(text) {
		return nil, "the body is not UTF-8"
	}
	p := parser{document: document{text: text, values: make([]value, 0, 64+len(text)/128)}}
	p.space()
	if !p.value(0, 0, false, 0) {
		return nil, p.problem()
	}
	if p.space(); p.at != len(text) {
		return nil, "something follows the body's JSON"
	}
	return &p.document, ""
}

type parser struct {
	document
	at         int
	less, wide int32 // of the string that was read last
	why        string
}

func (p *parser) problem() string {
	if p.why != "" {
		return p.why
	}
	return "the body is not valid JSON"
}

func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

func (p *parser) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

// take reports whether c is next, and goes over it.
func (p *parser) take(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.at++
	return true
}

func (p *parser) value(key, keyEnd int, keyEscaped bool, depth int) (ok bool) {
	if depth > maxDepth || len(p.values) == maxValues {
		p.why = "the body has too many values, or too deep in one another"
		return false
	}
	i := len(p.values)
	v := value{start: int32(p.at), key: int32(key), keyEnd: int32(keyEnd), kind: p.peek(), keyEscaped: keyEscaped}
	p.values = append(p.values, v)
	switch v.kind {
	case '{':
		p.at++
		ok = p.object(i, depth)
	case '[':
		p.at++
		ok = p.array(depth)
	case '"':
		p.at++
		p.less, p.wide = 0, 0
		_, _, p.values[i].escaped, ok = p.str()
		p.values[i].less, p.values[i].wide = p.less, p.wide
	case 't':
		ok = p.literal("true")
	case 'f':
		ok = p.literal("false")
	case 'n':
		ok = p.literal("null")
	default:
		p.values[i].kind = '0'
		ok = p.number()
	}
	p.values[i].end, p.values[i].next = int32(p.at), int32(len(p.values))
	return ok
}

func (p *parser) object(i, depth int) bool {
	if p.space(); p.take('}') {
		return true
	}
	for n := 1; ; n++ {
		if p.space(); !p.take('"') {
			return false
		}
		key, end, escaped, ok := p.str()
		if !ok {
			return false
		}
		if p.space(); !p.take(':') {
			return false
		}
		p.space()
		if !p.value(key, end, escaped, depth+1) {
			return false
		}
		if p.space(); p.take(',') {
			continue
		}
		return p.take('}') && p.distinct(i, n)
	}
}

func (p *parser) array(depth int) bool {
	if p.space(); p.take(']') {
		return true
	}
	for {
		p.space()
		if !p.value(0, 0, false, depth+1) {
			return false
		}
		if p.space(); p.take(',') {
			continue
		}
		return p.take(']')
	}
}

// distinct reports whether no two of an object's n names are the same. Its values
// are the last that were read.
func (p *parser) distinct(object, n int) bool {
	first, end := object+1, len(p.values)
	if n > 16 {
		seen := make(map[string]bool, n)
		for i := first; i < end; i = int(p.values[i].next) {
			name := string(p.name(i))
			if seen[name] {
				p.why = "the body says " + quoted(p.name(i)) + " twice"
				return false
			}
			seen[name] = true
		}
		return true
	}
	for i := first; i < end; i = int(p.values[i].next) {
		for j := first; j < i; j = int(p.values[j].next) {
			if bytes.Equal(p.name(i), p.name(j)) {
				p.why = "the body says " + quoted(p.name(i)) + " twice"
				return false
			}
		}
	}
	return true
}

// plain are the bytes that a string may have as they are; all that is not ASCII
// is, since the text is UTF-8.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 0x20 && c != '"' && c != '\\'
	}
	return t
}()

// str goes over a string whose first quote was taken.
func (p *parser) str() (start, end int, escaped, ok bool) {
	text, at := p.text, p.at
	start = at
	for {
		for at < len(text) && plain[text[at]] {
			at++
		}
		if at >= len(text) || text[at] < 0x20 {
			return 0, 0, false, false
		}
		if text[at] == '"' {
			p.at = at + 1
			return start, at, escaped, true
		}
		escaped = true
		if at+1 >= len(text) {
			return 0, 0, false, false
		}
		switch text[at+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			at += 2
			p.less++
		case 'u':
			if at+6 > len(text) {
				return 0, 0, false, false
			}
			r, ok := hex4(text[at+2 : at+6])
			if !ok {
				return 0, 0, false, false
			}
			p.decoded(r)
			at += 6
		default:
			return 0, 0, false, false
		}
	}
}

// decoded counts what an escape of six bytes is without it. Each half of a pair
// of surrogates counts three bytes, of which it has two.
func (p *parser) decoded(r rune) {
	switch {
	case r < 0x80:
		p.less += 5
	case r < 0x800:
		p.less += 4
		p.wide += 2
	default:
		p.less += 3
		p.wide += 3
	}
}

func (p *parser) literal(s string) bool {
	if len(p.text)-p.at < len(s) || string(p.text[p.at:p.at+len(s)]) != s {
		return false
	}
	p.at += len(s)
	return true
}

func (p *parser) number() bool {
	p.take('-')
	if !p.take('0') && !p.digits() {
		return false
	}
	if p.take('.') && !p.digits() {
		return false
	}
	if p.take('e') || p.take('E') {
		if !p.take('+') {
			p.take('-')
		}
		return p.digits()
	}
	return true
}

func (p *parser) digits() bool {
	start := p.at
	for p.at < len(p.text) && p.text[p.at]-'0' <= 9 {
		p.at++
	}
	return p.at > start
}

func hex4(s []byte) (r rune, ok bool) {
	for _, c := range s {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
