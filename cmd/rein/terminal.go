package main

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Manners at the terminal: results go to stdout, everything else to stderr;
// messages begin with "rein: ", what the reader can do with "hint: ". Whatever
// came from a model, a sandbox or a file passes through clean first, so that
// it can neither move the cursor nor hide, reorder or fake a line.

// clean removes control characters but newline and tab, bidirectional
// controls, and characters that cannot be seen. Bytes that are no UTF-8 become
// U+FFFD.
func clean(s string) string {
	if isPlain(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if hiddenRune(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// cleanLine is clean for text that must stay on one line.
func cleanLine(s string) string {
	return strings.TrimSpace(strings.NewReplacer("\n", " ", "\t", " ").Replace(clean(s)))
}

func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= 0x7f || c < 0x20 && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// hiddenRune reports whether r must not reach a terminal. The classes are
// Unicode's: Cc, Cf (bidi, zero width, tags), Zl, Zp, Co, surrogates, the
// variation selectors and fillers that have no shape of their own.
func hiddenRune(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs, unicode.Variation_Selector):
		return true
	case r == 0x034f || r == 0x115f || r == 0x1160 || r == 0x17b4 || r == 0x17b5 || r == 0x3164 || r == 0xffa0 || r == 0x2800:
		return true
	}
	return false
}

// cleaner cleans a stream whose characters may be split over writes.
type cleaner struct {
	w    io.Writer
	rest []byte // an incomplete character
}

// Write cleans p. It reports len(p) whatever was left out.
func (c *cleaner) Write(p []byte) (int, error) {
	data := append(c.rest, p...)
	keep := len(data)
	for i := 1; i <= min(utf8.UTFMax-1, len(data)); i++ {
		if b := data[len(data)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(data[len(data)-i:]) {
				keep -= i
			}
			break
		}
	}
	c.rest = append([]byte(nil), data[keep:]...)
	if _, err := io.WriteString(c.w, clean(string(data[:keep]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes what is left of an incomplete character.
func (c *cleaner) Flush() error {
	rest := clean(string(c.rest))
	c.rest = nil
	_, err := io.WriteString(c.w, rest)
	return err
}

// raw is a writer for bytes of a sandbox: cleaned when a person looks at it,
// exact when a program reads it. The returned function must be called last.
func (o *output) raw() (io.Writer, func() error) {
	if !o.terminal {
		return o.Writer, func() error { return nil }
	}
	c := &cleaner{w: o.Writer}
	return c, c.Flush
}
