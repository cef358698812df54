package evidence

import (
	"strings"
	"unicode"
)

// Visible returns s without what could move a terminal's cursor, or hide,
// reorder or fake a text: control characters but newline and tab, bidirectional
// controls, and characters that have no shape. Bytes that are no UTF-8 become
// U+FFFD.
func Visible(s string) string {
	return strings.Map(func(r rune) rune {
		if Hidden(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, replacement))
}

// Hidden says which characters Visible leaves out. The classes are Unicode's: Cc,
// Cf (bidi, zero width, tags), Zl, Zp, Co, Cs, and variation selectors; then
// fillers.
func Hidden(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case 0x034f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x2800, 0x3164, 0xffa0:
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs, unicode.Variation_Selector)
}
