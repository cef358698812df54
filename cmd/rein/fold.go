package main

import (
	"strings"
	"unicode/utf8"
)

// folded puts first, which is ASCII, before a line and breaks it before the terminal
// would: what the terminal carries over would stand at its edge, like a line of
// rein's. A terminal of unknown width breaks nothing. Whatever is not ASCII may
// take two columns; a tab takes as many as it can.
func folded(first, line string, width int) []string {
	more := strings.Repeat(" ", 2) + strings.Repeat("…", len(first)-2) // no line of rein's looks like it
	room := width - len(first) - 1
	if width <= 0 {
		return []string{first + line}
	}
	room = max(room, 2)
	var out []string
	var b strings.Builder
	used, lead := 0, first
	for _, r := range line {
		cells := 1
		switch {
		case r == '\t':
			cells = min(8, room)
		case r >= utf8.RuneSelf:
			cells = 2
		}
		if used+cells > room {
			out = append(out, lead+b.String())
			b.Reset()
			used, lead = 0, more
		}
		b.WriteRune(r)
		used += cells
	}
	return append(out, lead+b.String())
}
