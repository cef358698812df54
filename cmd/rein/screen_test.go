package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestScreen(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain ü 漢 👩‍💻\r\n\t\b\a", "plain ü 漢 👩‍💻\r\n\t\b\a"},
		{"\x1b[1;31mred\x1b[0m\x1b[38;2;1;2;3mx\x1b[4:3m", "\x1b[1;31mred\x1b[0m\x1b[38;2;1;2;3mx\x1b[4:3m"},
		{"\x1b[H\x1b[2J\x1b[3;5H\x1b[K\x1b[?25l\x1b[5;10r\x1b7\x1b8\x1bM\x1b[2 q", "\x1b[H\x1b[2J\x1b[3;5H\x1b[K\x1b[?25l\x1b[5;10r\x1b7\x1b8\x1bM\x1b[2 q"},
		{"\x1b[?1049;1000;25h", "\x1b[?1049h\x1b[?25h"}, // mouse reports are not asked for
		{"\x1b[?1006h\x1b[?1004h\x1b[?2004h", "\x1b[?2004h"},
		{"a\x1b[cb\x1b[0cc\x1b[>cd\x1b[=c\x1b[6n\x1b[5n\x1b[?6n\x1b[xe\x1bZ\x05", "abcde"},          // answered
		{"a\x1b[21t\x1b[8;50;100t\x1b[4i\x1b[?4i\x1b[?1$p\x1b[4$p\x1b[>4;2m\x1b[?4m\x1b[>qb", "ab"}, // title, size, printer, modes, keys
		{"a\x1b]52;c;aGk=\ab\x1b]52;c;?\x1b\\c\x1b]0;title\x07d\u009d2;x\u009ce", "abcde"},
		{"a\x1bP$q\"p\x1b\\b\x1b_x\x1b\\c\x1b^x\x1b\\d\x1bXx\x1b\\e", "abcde"},
		{"a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"},
		{"\u009b31mred \u0090x\u009cy", "\x1b[31mred y"}, // C1 of Unicode
		{"\x9b6n\x90", "\ufffd6n\ufffd"},                 // and of eight bits
		{"a\x1b]never ended \x18b\x1b[12\x1ac", "abc"},
		{"a\x1b[3\n1mb", "a\n\x1b[31mb"},
		{"a\x1b[999999999bb\x1b[1;2;3Tc", "abc"},
		{"a\x1b(0q\x1b(Bb\x1b(1c\x1b#8d\x1bce", "a\x1b(0q\x1b(Bbcde"},
		{"a\u202eb\u2066c\ufeffd\U000e0041e\u2028f", "abcdef"},
		{"a\x11b\x13c\x7fd\x00e", "abcde"},
	} {
		var s screen
		if got := string(s.filter([]byte(c.in))); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

func TestScreenReset(t *testing.T) {
	var s screen
	s.filter([]byte("\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?7h\x1b[2;3r\x1b[31m\x1b[5 q\x1b[?2004h\x1b[?2004l"))
	want := "\x1b7\x1b[r\x1b8\x1b[m\x1b[4l\x1b>\x1b(B\x1b)B\x0f\x1b[0 q\x1b[?25h\x1b[?1049l"
	if got := s.reset(); got != want {
		t.Errorf("reset %q, want %q", got, want)
	}
	if got := s.reset(); got != "" {
		t.Errorf("again: %q", got)
	}
	s.filter([]byte("text, and \x1b]52;c;aGk=\a"))
	if got := s.reset(); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

// shownSequence is all that may come out of a screen behind an escape.
var shownSequence = regexp.MustCompile(`\x1b(\[[0-9;:]*m|\[[0-9;]*[ABCDEFGHIJKLMPSTXZ@` + "`" + `abdefgr]|\[[su]|\[4[hl]|\[[0-9;]* q|\[\?[0-9;]*[JK]|\[\?(1|5|6|7|12|25|47|1047|1048|1049|2004)[hl]|[78DEHM=>]|[()][0AB])`)

func FuzzScreen(f *testing.F) {
	for _, s := range []string{
		"\x1b[31mred\x1b[0m", "\x1b]52;c;aGk=\a", "\x1b]52;c;?\x1b\\", "\x1bP$qm\x1b\\", "\x1b[6n", "\x1b[c", "\x9b6n", "\u009b6n", "\u009d52;c;?\a",
		"\x1b[?1000;1049h", "\x1b[?25$p", "\x1b\x1b[6n", "\x1b[\x1b[6n", "\x1b[6\x1bn", "\x1b[ 6n", "\xc2\x1b[6n", "\xe2\x80\x1b]2;x\a", "\x1b[1;\n5n",
	} {
		for _, cut := range []int{0, 1, 3} {
			f.Add([]byte(s), cut)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		var whole, pieces screen
		want := string(whole.filter(data))
		var got bytes.Buffer
		for rest, n := data, max(1, cut%7); len(rest) > 0; {
			n = min(n, len(rest))
			got.Write(pieces.filter(rest[:n]))
			rest = rest[n:]
		}
		if got.String() != want {
			t.Fatalf("in pieces %q, at once %q", got.String(), want)
		}
		if !utf8.ValidString(want) {
			t.Fatalf("%q is no UTF-8", want)
		}
		text := shownSequence.ReplaceAllString(want, "")
		if i := strings.IndexFunc(text, func(r rune) bool {
			return r < 0x20 && !strings.ContainsRune("\a\b\t\n\v\f\r\x0e\x0f", r) || r >= 0x7f && r < 0xa0
		}); i >= 0 {
			t.Fatalf("%q shows %q at %d", data, want, i)
		}
	})
}

func TestDetachable(t *testing.T) {
	for _, c := range []struct {
		keys   []string
		sent   string
		detach bool
	}{
		{[]string{"abc"}, "abc", false},
		{[]string{"a\x10\x11b"}, "a", true},
		{[]string{"a\x10", "\x11"}, "a", true},
		{[]string{"\x10", "", "\x11"}, "\x10\x11", false}, // too late
		{[]string{"\x10x", "\x10\x10\x11"}, "\x10x\x10", true},
		{[]string{"\x11\x10", ""}, "\x11\x10", false},
	} {
		var held, detach bool
		var sent []byte
		for _, k := range c.keys {
			var more []byte
			more, detach = detachable([]byte(k), &held)
			sent = append(sent, more...)
		}
		if string(sent) != c.sent || detach != c.detach {
			t.Errorf("%q: sent %q, detach %v", c.keys, sent, detach)
		}
	}
}
