package budget

import (
	"bytes"
	"strings"
)

// Normalize returns text with what changes by itself between two runs of the
// same thing made equal: every number is "#", also one with a fraction, with
// separators or with a unit of time (3, 1,024, 0.5s, 1m30s); names of months
// and days are "#" where they stand in a date; and so is the width of spaces.
// It takes time proportional to the text.
func Normalize(text []byte) []byte {
	out := make([]byte, 0, len(text))
	inDate := false // nothing but separators since a number or a name in a date
	for i := 0; i < len(text); {
		rest := text[i:]
		switch c := rest[0]; {
		case isDigit(c):
			i += number(rest)
			out, inDate = append(out, '#'), true
		case isLetter(c):
			n := word(rest)
			if inDate && isHalfDay(rest[:n]) || isDateName(rest[:n]) && (inDate || beginsDate(rest[n:])) {
				out, inDate = append(out, '#'), true
			} else {
				out, inDate = append(out, rest[:n]...), false
			}
			i += n
		case isBlank(c):
			i += blanks(rest)
			out = append(out, ' ')
		default:
			inDate = inDate && isSeparator(c)
			out = append(out, c)
			i++
		}
	}
	return out
}

// blanks is how many spaces and tabs s begins with.
func blanks(s []byte) (n int) {
	for n < len(s) && isBlank(s[n]) {
		n++
	}
	return n
}

func isBlank(c byte) bool     { return c == ' ' || c == '\t' }
func isDigit(c byte) bool     { return '0' <= c && c <= '9' }
func isLetter(c byte) bool    { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isSeparator(c byte) bool { return c == ',' || c == '-' || c == '/' || c == '.' || c == ':' }

// word is the length of the letters s begins with.
func word(s []byte) int {
	n := 0
	for n < len(s) && isLetter(s[n]) {
		n++
	}
	return n
}

// number is the length of the number s begins with, its unit of time and
// further parts of a duration (1m30.5s) included.
func number(s []byte) int {
	n := 0
	for {
		for n < len(s) && (isDigit(s[n]) || (s[n] == '.' || s[n] == ',') && n+1 < len(s) && isDigit(s[n+1])) {
			n++
		}
		unit := timeUnit(s[n:])
		if unit == 0 || n+unit == len(s) || !isDigit(s[n+unit]) {
			return n + unit
		}
		n += unit
	}
}

// timeUnit is the length of the unit of time s begins with, 0 when there is none.
func timeUnit(s []byte) int {
	if bytes.HasPrefix(s, []byte("µs")) || bytes.HasPrefix(s, []byte("μs")) {
		return len("µs")
	}
	n := word(s)
	switch string(s[:n]) {
	case "ns", "us", "ms", "s", "m", "h", "min", "sec":
		return n
	}
	return 0
}

// beginsDate reports whether what follows a name continues a date: a number or
// another name.
func beginsDate(s []byte) bool {
	n := 0
	for n < len(s) && n < 3 && (s[n] == ' ' || isSeparator(s[n])) {
		n++
	}
	s = s[n:]
	return n > 0 && len(s) > 0 && (isDigit(s[0]) || isDateName(s[:word(s)]))
}

func isHalfDay(w []byte) bool {
	return len(w) == 2 && (w[0]|0x20 == 'a' || w[0]|0x20 == 'p') && w[1]|0x20 == 'm'
}

func isDateName(w []byte) bool {
	if len(w) < 3 || len(w) > len("September") {
		return false
	}
	switch strings.ToLower(string(w)) {
	case "jan", "january", "feb", "february", "mar", "march", "apr", "april", "may", "jun", "june", "jul", "july",
		"aug", "august", "sep", "sept", "september", "oct", "october", "nov", "november", "dec", "december",
		"mon", "monday", "tue", "tues", "tuesday", "wed", "wednesday", "thu", "thur", "thurs", "thursday",
		"fri", "friday", "sat", "saturday", "sun", "sunday":
		return true
	}
	return false
}
