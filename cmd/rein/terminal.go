package main

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/rein-sh/rein/evidence"
)

// Manners at the terminal: results go to stdout, everything else to stderr;
// messages begin with "rein: ", what the reader can do with "hint: ". Whatever
// came from a model, a sandbox or a file passes through clean first, so that
// it can neither move the cursor nor hide, reorder or fake a line.

// clean is evidence.Visible.
func clean(s string) string {
	if isPlain(s) {
		return s
	}
	return evidence.Visible(s)
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
