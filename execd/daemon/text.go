package daemon

import "unicode/utf8"

const hexDigits = "0123456789abcdef"

// appendJSONText appends p as the inside of a JSON string and returns how much
// of p it used: all of it, unless the encoding reached limit bytes. Control
// characters (C0, DEL and C1) and the line separators U+2028 and U+2029 are
// escaped, because line-based readers break at them; a byte that is not UTF-8
// becomes U+FFFD.
func appendJSONText(dst, p []byte, limit int) ([]byte, int) {
	start, end := 0, len(dst)+limit
	i := 0
	for i < len(p) && len(dst)+i-start < end {
		c := p[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(p[i:])
			if !(r == utf8.RuneError && size == 1) && r > 0x9f && r != 0x2028 && r != 0x2029 {
				i += size
				continue
			}
			dst = append(dst, p[start:i]...)
			dst = appendEscape(dst, r)
			i += size
			start = i
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' && c != 0x7f {
			i++
			continue
		}
		dst = append(dst, p[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = appendEscape(dst, rune(c))
		}
		i++
		start = i
	}
	return append(dst, p[start:i]...), i
}

func appendEscape(dst []byte, r rune) []byte {
	return append(dst, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
