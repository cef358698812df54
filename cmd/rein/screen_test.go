package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rein-sh/rein/evidence"
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
		{"a\x1b[3gb\x1bHc\x1b[gd\x1b[?5We", "abcde"}, // tab stops
		{"a\x1b[1;;;;Tb\x1b[;;;;Tc\x1b[;Td\x1b[3T\x1b[T", "abcd\x1b[3T\x1b[T"},
		{"a\x1b[?5;6 Kb\x1b[?5;6Kc\x1b[65535;99999 qd\x1b[7 qe\x1b[6  qf\x1b[ q\x1b[?1K", "abcdef\x1b[ q\x1b[?1K"},
		{"\x1b[007;0000001H\x1b[;5H\x1b[38:2::01:2:3m\x1b[;m", "\x1b[7;1H\x1b[;5H\x1b[38:2::1:2:3m\x1b[;m"},
		{"a\x1b[1:2Hb\x1b[?25:1hc\x1b[1?2md\x1b[1 2me\x1b[4 hf\x1b[04hg", "abcdef\x1b[4hg"},
		{"\u2764\ufe0f a\U000e0101b\u3164c\u115fd\u034fe\u180bf\ufe00g\u17b4h", "\u2764\ufe0f abcdefgh"},
		{"\u28ff\u2800\u28ff", "\u28ff \u28ff"},
	} {
		var s screen
		if got := string(s.filter([]byte(c.in))); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

func TestScreenReset(t *testing.T) {
	const styles = "\x1b[m\x1b[4l\x1b>\x1b(B\x1b)B\x0f"
	for _, c := range []struct{ in, want string }{
		{"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2;3r\x1b[31m\x1b[5 q", "\x1b[?1049l\x1b7\x1b[r\x1b8\x1b[?7h\x1b[?25h" + styles + "\x1b[0 q"},
		// What is saved with the other screen comes back with it.
		{"\x1b[31;41m\x1b[?1049h\x1b[m\x1b[3gbye", "\x1b[?1049l" + styles},
		{"\x1b[?7l\x1b[?1049h\x1b[?7h", "\x1b[?1049l\x1b[?7h"},
		{"\x1b[?7l\x1b7\x1b[?7h\x1b8", "\x1b[?7h" + styles},
		{"\x1b[?6h\x1b[3;5r", "\x1b7\x1b[r\x1b8\x1b[?6l\x1b[999B"},
		// Leaving the other screen twice would move the cursor.
		{"\x1b[?1049h\x1b[?1049l\x1b[?1048h\x1b[?47h", "\x1b[?47l"},
		{"\x1b[?25h\x1b[?7h\x1b[?6l", ""},
		{"text, and \x1b]52;c;aGk=\a", ""},
	} {
		var s screen
		s.filter([]byte(c.in))
		if got := s.reset(); got != c.want {
			t.Errorf("%q: reset %q, want %q", c.in, got, c.want)
		}
		if got := s.reset(); got != "" {
			t.Errorf("%q: again: %q", c.in, got)
		}
	}
}

// shownSequence is all that may come out of a screen behind an escape.
var shownSequence = regexp.MustCompile(`\x1b(\[[0-9;:]*m|\[[0-9;]*[ABCDEFGHIJKLMPSXZ@` + "`" + `abdefr]|\[[0-9]*T|\[[su]|\[4[hl]|\[[0-6]? q|\[\?[0-9]*[JK]|\[\?(1|5|6|7|12|25|47|1047|1048|1049|2004)[hl]|[78DEM=>]|[()][0AB])`)

func FuzzScreen(f *testing.F) {
	for _, s := range []string{
		"\x1b[31mred\x1b[0m", "\x1b]52;c;aGk=\a", "\x1b]52;c;?\x1b\\", "\x1bP$qm\x1b\\", "\x1b[6n", "\x1b[c", "\x9b6n", "\u009b6n", "\u009d52;c;?\a",
		"\x1b[1;;;;T", "\x1b[?5;6 K", "\x1b[65535;99999 q", "\x1b[3g", "\u3164\u115f\ufe0f\U000e0101",
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
			return !strings.ContainsRune("\a\b\t\n\v\f\r\x0e\x0f\u200c\u200d\ufe0f", r) && evidence.Hidden(r)
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
