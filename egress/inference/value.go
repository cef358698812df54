package inference

import (
	"iter"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// each are the values in an object or an array.
func (d *document) each(i int) iter.Seq[int] {
	return func(yield func(int) bool) {
		if k := d.values[i].kind; k != '{' && k != '[' {
			return
		}
		for j := i + 1; j < int(d.values[i].next); j = int(d.values[j].next) {
			if !yield(j) {
				return
			}
		}
	}
}

// name is the name of a member, without escapes; of an element it is empty.
func (d *document) name(i int) []byte {
	v := &d.values[i]
	raw := d.text[v.key:v.keyEnd]
	if !v.keyEscaped {
		return raw
	}
	return unescaped(raw)
}

// member is the member of an object with that very name, 0 if it has none.
func (d *document) member(object int, name string) int {
	for i := range d.each(object) {
		if string(d.name(i)) == name && d.values[object].kind == '{' {
			return i
		}
	}
	return 0
}

func (d *document) kind(i int) byte { return d.values[i].kind }

// raw is a value as it is written.
func (d *document) raw(i int) []byte { return d.text[d.values[i].start:d.values[i].end] }

// str is a string without escapes; of every other value it is empty.
func (d *document) str(i int) []byte {
	v := &d.values[i]
	if v.kind != '"' {
		return nil
	}
	raw := d.text[v.start+1 : v.end-1]
	if !v.escaped {
		return raw
	}
	return unescaped(raw)
}

// is reports whether a value is that string.
func (d *document) is(i int, s string) bool {
	return d.kind(i) == '"' && string(d.str(i)) == s
}

// number is a whole number that is not negative.
func (d *document) number(i int) (int64, bool) {
	if d.kind(i) != '0' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(d.raw(i)), 10, 64)
	return n, err == nil && n >= 0
}

// unescaped is the text of a string that parse has accepted. Half a pair of
// surrogates becomes U+FFFD.
func unescaped(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' {
			out = append(out, c)
			i++
			continue
		}
		if raw[i+1] != 'u' {
			out = append(out, single[raw[i+1]])
			i += 2
			continue
		}
		r, _ := hex4(raw[i+2 : i+6])
		i += 6
		if utf16.IsSurrogate(r) {
			low := rune(utf8.RuneError)
			if i+6 <= len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
				low, _ = hex4(raw[i+2 : i+6])
			}
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				i += 6
			}
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}

var single = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// folded is a name as the most lenient reader may take it: without regard to case,
// as Go's encoding/json (which also takes U+017F for s and U+212A for k), nor to
// underscores, as readers of protocol buffers' JSON.
func folded(name []byte) string { return string(fold(nil, name)) }

// fold appends a name as folded has it.
func fold(out, name []byte) []byte {
	for i := 0; i < len(name); {
		c := name[i]
		if c < utf8.RuneSelf {
			if 'A' <= c && c <= 'Z' {
				c |= 0x20
			}
			if c != '_' && c != '-' {
				out = append(out, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(name[i:])
		switch i += n; r {
		case '\u017f':
			r = 's'
		case '\u212a':
			r = 'k'
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}

// quoted is a name from a request as a Refusal may have it.
func quoted[T ~string | ~[]byte](name T) string {
	s := string(name)
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:64], "") + "…"
	}
	return strconv.QuoteToASCII(s)
}
