package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rein-sh/rein/evidence"
)

// screen lets through, of what a program in a sandbox sends to the user's
// terminal, what draws: text, colours, moving the cursor, erasing, scrolling, the
// other screen. Everything else is dropped, above all what a terminal answers (it
// would type the answer for the user), what sets or reads the clipboard, the
// title, keys or colours (OSC, DCS, APC, PM, SOS), what prints, and mouse and
// focus reports, and tab stops, which nothing sets back. It is a list of what is
// known to be harmless: what it does not know does not pass. Sequences go out
// whole or not at all, written anew from what was read, whatever pieces they came
// in.
//
// The states are those of a DEC terminal (ECMA-48; Paul Williams' parser,
// vt100.net/emu/dec_ansi_parser).
type screen struct {
	state  int
	seq    []byte // parameters and intermediates of a sequence
	length int    // of a string that is being dropped
	rest   []byte // an incomplete character

	modes  map[int]bool // private modes that may not be as they were
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
	case r == 0x200c || r == 0x200d || r == 0xfe0f: // joiners, of scripts and emoji; emoji in colour
	case r == 0x2800: // Braille without a dot, which graphs keep their columns with
		r = ' '
	case evidence.Hidden(r):
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
	case between == "" && strings.ContainsRune("78DEM=>", r),
		(between == "(" || between == ")") && strings.ContainsRune("0AB", r):
		s.styled = true
		s.out = append(append(append(s.out, esc), between...), byte(r))
	}
}

// control ends a control sequence.
func (s *screen) control(final byte) {
	c, ok := parseControl(s.seq)
	if !ok {
		return
	}
	plain := c.prefix == "" && c.between == ""
	switch {
	case c.prefix == "?" && c.between == "" && !c.colons:
		switch {
		case final == 'h' || final == 'l':
			s.mode(c.params, final)
			return
		case (final != 'J' && final != 'K') || len(c.params) > 1: // selective erase
			return
		}
	case c.prefix == "" && c.between == " " && final == 'q' && !c.colons: // the cursor's shape
		if len(c.params) > 1 || len(c.params) == 1 && c.params[0] > 6 {
			return
		}
		s.cursor = true
	case !plain:
		return
	case final == 'm':
		s.styled = true
	case c.colons:
		return
	case strings.IndexByte("ABCDEFGHIJKLMPSXZ@`abdef", final) >= 0:
	case final == 'T' && len(c.params) <= 1: // with five it tracks the mouse
	case final == 'r':
		s.region = true
	case (final == 's' || final == 'u') && len(c.params) == 0:
	case (final == 'h' || final == 'l') && c.text == "4": // insert
		s.styled = true
	default:
		return
	}
	s.out = append(append(append(s.out, esc, '['), c.prefix+c.text+c.between...), final)
}

// controls are what stands between CSI and the final byte.
type controls struct {
	prefix  string // "" or "?"
	params  []int  // one left out is 0
	text    string // the parameters, written anew
	colons  bool   // some are sub-parameters
	between string // "" or a space
}

// parseControl reads seq. One with a number that no screen has is refused, as
// are forms that nothing that passes has.
func parseControl(seq []byte) (c controls, ok bool) {
	text := string(seq)
	if rest, private := strings.CutPrefix(text, "?"); private {
		c.prefix, text = "?", rest
	}
	if rest, spaced := strings.CutSuffix(text, " "); spaced {
		c.between, text = " ", rest
	}
	if text == "" {
		return c, true
	}
	var b strings.Builder
	for more := true; more; {
		field := text
		separator := strings.IndexAny(text, ";:")
		if more = separator >= 0; more {
			field = text[:separator]
		}
		n := 0
		if field != "" {
			if strings.Trim(field, "0123456789") != "" {
				return c, false
			}
			var err error
			if n, err = strconv.Atoi(field); err != nil || n > 99_999 {
				return c, false
			}
			b.WriteString(strconv.Itoa(n))
		}
		c.params = append(c.params, n)
		if more {
			c.colons = c.colons || text[separator] == ':'
			b.WriteByte(text[separator])
			text = text[separator+1:]
		}
	}
	c.text = b.String()
	return c, true
}

// screenModes are the private modes that may be changed, and how they were:
// cursor keys, reverse, origin, wrap, blinking, cursor, the other screen in its
// forms, bracketed paste.
var screenModes = map[int]bool{1: false, 5: false, 6: false, 7: true, 12: false, 25: true, 47: false, 1047: false, 1048: false, 1049: false, 2004: false}

// otherScreen are the modes of screenModes for the other screen. Leaving it twice
// moves the cursor.
func otherScreen(mode int) bool { return mode == 47 || mode == 1047 || mode == 1049 }

func (s *screen) mode(params []int, final byte) {
	for _, n := range params {
		was, known := screenModes[n]
		if !known {
			continue
		}
		if s.modes == nil {
			s.modes = map[int]bool{}
		}
		if on := final == 'h'; on != was {
			s.modes[n] = on
		} else if otherScreen(n) {
			delete(s.modes, n)
		}
		s.out = append(s.out, "\x1b[?"+strconv.Itoa(n)+string(final)...)
	}
}

// reset returns what makes the terminal again what it was. The other screen is
// left before all else: with it comes what was saved when it was entered, colours
// and modes included. For the same reason a mode that was changed is set back even
// if the program did so.
func (s *screen) reset() string {
	var b strings.Builder
	back := func(n int) {
		final := "l"
		if screenModes[n] {
			final = "h"
		}
		b.WriteString("\x1b[?" + strconv.Itoa(n) + final)
	}
	modes := slices.Sorted(maps.Keys(s.modes))
	for _, n := range modes {
		if otherScreen(n) {
			back(n)
		}
	}
	if s.region {
		b.WriteString("\x1b7\x1b[r\x1b8") // it would move the cursor
	}
	for _, n := range modes {
		if !otherScreen(n) && n != 1048 { // which saves the cursor
			back(n)
		}
		if n == 6 { // which has moved the cursor to the top
			b.WriteString("\x1b[999B")
		}
	}
	if s.styled {
		b.WriteString("\x1b[m\x1b[4l\x1b>\x1b(B\x1b)B\x0f")
	}
	if s.cursor {
		b.WriteString("\x1b[0 q")
	}
	*s = screen{}
	return b.String()
}
