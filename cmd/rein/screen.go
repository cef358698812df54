package main

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// screen lets through, of what a program in a sandbox sends to the user's
// terminal, what draws: text, colours, moving the cursor, erasing, scrolling, the
// other screen. Everything else is dropped, above all what a terminal answers (it
// would type the answer for the user), what sets or reads the clipboard, the
// title, keys or colours (OSC, DCS, APC, PM, SOS), what prints, and mouse and
// focus reports. It is a list of what is known to be harmless: what it does not
// know does not pass. Sequences go out whole or not at all, in one form, whatever
// pieces they came in.
//
// The states are those of a DEC terminal (ECMA-48; Paul Williams' parser,
// vt100.net/emu/dec_ansi_parser).
type screen struct {
	state  int
	seq    []byte // parameters and intermediates of a sequence
	length int    // of a string that is being dropped
	rest   []byte // an incomplete character

	modes  map[int]bool // private modes that are not as they were
	region bool         // a scroll region was set
	styled bool         // colours, character sets, insert mode, keypad may be set
	cursor bool         // the cursor's shape may be changed
	out    []byte
}

const (
	screenText = iota
	screenEscape
	screenEscapeMore // intermediates have come
	screenControl    // CSI
	screenString     // OSC, DCS, APC, PM, SOS
)

// Bounds of what is dropped before text is taken for text again.
const (
	maxSequence = 256
	maxString   = 1 << 20
)

const esc = 0x1b

// filter returns what may be shown of p; it is valid until the next call.
func (s *screen) filter(p []byte) []byte {
	s.out = s.out[:0]
	data := append(s.rest, p...)
	for len(data) > 0 {
		if !utf8.FullRune(data) {
			break
		}
		r, n := utf8.DecodeRune(data)
		s.take(r)
		data = data[n:]
	}
	s.rest = append([]byte(nil), data...)
	return s.out
}

// take takes one character. Bytes that are no UTF-8 are U+FFFD, so that no
// control character has eight bits; those of Unicode are taken as what they mean.
func (s *screen) take(r rune) {
	switch {
	case r == esc:
		s.state, s.seq = screenEscape, s.seq[:0]
		return
	case r == 0x18 || r == 0x1a: // CAN, SUB
		s.state = screenText
		return
	case r >= 0x80 && r < 0xa0:
		s.state, s.seq = screenEscape, s.seq[:0]
		r -= 0x40
		if r == '\\' {
			s.state = screenText
			return
		}
		s.escape(r)
		return
	}
	switch s.state {
	case screenText:
		s.text(r)
	case screenString:
		if s.length++; r == '\a' || s.length > maxString {
			s.state = screenText
		}
	default:
		if r < 0x20 || r == 0x7f { // carried out in the middle of a sequence
			s.text(r)
			return
		}
		s.sequence(r)
	}
}

func (s *screen) text(r rune) {
	switch {
	case r >= 0x20 && r < 0x7f:
	case r == '\a' || r == '\b' || r == '\t' || r == '\n' || r == '\v' || r == '\f' || r == '\r':
	case r == 0x0e || r == 0x0f: // SO, SI
		s.styled = true
	case r < 0x20 || r == 0x7f:
		return
	case r == 0x200c || r == 0x200d: // joiners, of scripts and emoji
	case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs):
		return
	}
	s.out = utf8.AppendRune(s.out, r)
}

func (s *screen) sequence(r rune) {
	if r > 0x7e || len(s.seq) >= maxSequence {
		s.state = screenText
		return
	}
	switch {
	case s.state == screenControl && r < 0x40, s.state != screenControl && r < 0x30:
		s.seq = append(s.seq, byte(r))
		if s.state == screenEscape {
			s.state = screenEscapeMore
		}
	case s.state == screenControl:
		s.state = screenText
		s.control(byte(r))
	default:
		s.escape(r)
	}
}

// escape ends an escape sequence.
func (s *screen) escape(r rune) {
	between := string(s.seq)
	s.state = screenText
	switch {
	case between == "" && r == '[':
		s.state = screenControl
	case between == "" && strings.ContainsRune("]PX^_", r):
		s.state, s.length = screenString, 0
	case between == "" && strings.ContainsRune("78DEHM=>", r),
		(between == "(" || between == ")") && strings.ContainsRune("0AB", r):
		s.styled = true
		s.out = append(append(append(s.out, esc), between...), byte(r))
	}
}

// control ends a control sequence.
func (s *screen) control(final byte) {
	params, ok := parameters(s.seq)
	if !ok {
		return
	}
	private := len(s.seq) > 0 && s.seq[0] == '?'
	plain := string(s.seq)
	switch {
	case private:
		if final == 'h' || final == 'l' {
			s.mode(params, final)
			return
		}
		if final != 'J' && final != 'K' { // selective erase
			return
		}
	case final == 'q' && strings.HasSuffix(plain, " "): // the cursor's shape
		s.cursor = true
	case strings.Trim(plain, "0123456789;:") != "":
		return
	case final == 'm':
		s.styled = true
	case strings.Contains(plain, ":"):
		return
	case strings.IndexByte("ABCDEFGHIJKLMPSXZ@`abdefg", final) >= 0:
	case final == 'T' && len(params) <= 1:
	case final == 'r':
		s.region = true
	case (final == 's' || final == 'u') && plain == "":
	case (final == 'h' || final == 'l') && plain == "4": // insert
		s.styled = true
	default:
		return
	}
	s.out = append(append(append(s.out, esc, '['), plain...), final)
}

// parameters reads the numbers of a sequence. One that no screen has is none.
func parameters(seq []byte) ([]int, bool) {
	text := strings.TrimRight(strings.TrimPrefix(string(seq), "?"), " ")
	if text == "" {
		return nil, true
	}
	var list []int
	for f := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' || r == ':' }) {
		n, err := strconv.Atoi(f)
		if err != nil || n < 0 || n > 99_999 {
			return nil, false
		}
		list = append(list, n)
	}
	return list, true
}

// screenModes are the private modes that may be changed, and how they were:
// cursor keys, reverse, origin, wrap, blinking, cursor, the other screen in its
// forms, bracketed paste.
var screenModes = map[int]bool{1: false, 5: false, 6: false, 7: true, 12: false, 25: true, 47: false, 1047: false, 1048: false, 1049: false, 2004: false}

func (s *screen) mode(params []int, final byte) {
	for _, n := range params {
		was, known := screenModes[n]
		if !known {
			continue
		}
		if s.modes == nil {
			s.modes = map[int]bool{}
		}
		if on := final == 'h'; on == was {
			delete(s.modes, n)
		} else {
			s.modes[n] = on
		}
		s.out = append(s.out, "\x1b[?"+strconv.Itoa(n)+string(final)...)
	}
}

// reset returns what makes the terminal again what it was.
func (s *screen) reset() string {
	var b strings.Builder
	if s.region {
		b.WriteString("\x1b7\x1b[r\x1b8") // it would move the cursor
	}
	if s.styled {
		b.WriteString("\x1b[m\x1b[4l\x1b>\x1b(B\x1b)B\x0f")
	}
	if s.cursor {
		b.WriteString("\x1b[0 q")
	}
	var modes []int
	for n := range s.modes {
		if n != 1048 { // it is a cursor that was saved
			modes = append(modes, n)
		}
	}
	slices.Sort(modes)
	for _, n := range modes {
		final := "h"
		if s.modes[n] {
			final = "l"
		}
		b.WriteString("\x1b[?" + strconv.Itoa(n) + final)
	}
	*s = screen{}
	return b.String()
}
