package clue

import "bytes"

// maxString bounds a control string of a terminal; what looks like a longer one
// is text.
const maxString = 4 << 10

// Escape returns the length of the terminal's control sequence at the beginning
// of b, which begins with ESC: at least 1. A sequence that is not all there ends
// with b, or before a newline.
func Escape(b []byte) int {
	if len(b) < 2 {
		return len(b)
	}
	switch c := b[1]; {
	case c == '[':
		for i := 2; i < len(b); i++ {
			switch {
			case b[i] >= 0x40 && b[i] <= 0x7e:
				return i + 1
			case b[i] < 0x20 || b[i] > 0x3f:
				return i
			}
		}
		return len(b)
	case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_':
		return controlString(b)
	case c >= 0x20 && c <= 0x2f:
		i := 2
		for i < len(b) && b[i] >= 0x20 && b[i] <= 0x2f {
			i++
		}
		if i < len(b) && b[i] >= 0x30 && b[i] <= 0x7e {
			i++
		}
		return i
	case c >= 0x30 && c <= 0x7e:
		return 2
	}
	return 1
}

// controlString is the length of one that ends with BEL or ST; of its
// introducer alone where it does not end within its line.
func controlString(b []byte) int {
	b = b[:min(len(b), maxString)]
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		b = b[:i]
	}
	for i := 2; i < len(b); i++ {
		switch {
		case b[i] == 0x07:
			return i + 1
		case b[i] == 0x1b && i+1 < len(b) && b[i+1] == '\\':
			return i + 2
		}
	}
	return 2
}
