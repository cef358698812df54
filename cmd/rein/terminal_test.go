package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/run"
	"go.uber.org/goleak"
)

func TestClean(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "a\tb\nc", "a\tb\nc"},
		{"letters of the world", "héllo 日本語 עברית 🙂", "héllo 日本語 עברית 🙂"},
		{"colour", "\x1b[31mred\x1b[0m", "[31mred[0m"},
		{"title and clipboard", "\x1b]0;x\x07\x1b]52;c;aGk=\x1b\\", "]0;x]52;c;aGk=\\"},
		{"eight-bit control", "a\u009b31mb", "a31mb"},
		{"carriage return", "good\rbad", "goodbad"},
		{"backspace and delete", "ab\b\x7f", "ab"},
		{"bidi", "user\u202etxt.exe\u2066\u2069", "usertxt.exe"},
		{"invisible", "a\u200bb\u200d\u2060\ufeff\u00adc", "abc"},
		{"tags", "hi\U000e0041\U000e007f", "hi"},
		{"separators", "a\u2028b\u2029", "ab"},
		{"fillers", "a\u3164\u2800\u115fb", "ab"},
		{"no UTF-8", "a\xffb\xc3", "a\ufffdb\ufffd"},
		{"NUL", "a\x00b", "ab"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := clean(c.in); got != c.want {
				t.Errorf("clean(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
	if got := cleanLine(" a\nb\x1b\tc "); got != "a b c" {
		t.Errorf("cleanLine gives %q", got)
	}
}

func FuzzCleaner(f *testing.F) {
	for _, s := range []string{"", "plain", "日本語", "\x1b[2J", "a\xe6\x97", "\xf0\x9f", "\u202e\u200b", "\xc3\x28"} {
		f.Add([]byte(s), uint8(1))
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		var got bytes.Buffer
		c := &cleaner{w: &got}
		for rest := data; len(rest) > 0; {
			n := min(len(rest), int(step)%7+1)
			if _, err := c.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		if want := clean(string(data)); got.String() != want && utf8.Valid(data) {
			t.Errorf("in pieces %q, at once %q", got.String(), want)
		}
		if !utf8.Valid(got.Bytes()) || strings.IndexFunc(got.String(), evidence.Hidden) >= 0 {
			t.Errorf("%q still has what must not be shown", got.String())
		}
	})
}

func TestQuote(t *testing.T) {
	got := quote([]string{"echo", "a b", "it's", "$HOME", ""})
	if want := `'echo' 'a b' 'it'\''s' '$HOME' ''`; got != want {
		t.Errorf("quote gives %s, want %s", got, want)
	}
}

func TestModeOf(t *testing.T) {
	for digits, want := range map[int]uint32{644: 0o644, 755: 0o755, 4755: 0o755, 0: 0, 600: 0o600} {
		if got := modeOf(digits); uint32(got) != want {
			t.Errorf("modeOf(%d) = %o, want %o", digits, got, want)
		}
	}
}

func TestSplitRemote(t *testing.T) {
	for arg, want := range map[string][2]string{
		"sb-1:/a:b": {"sb-1", "/a:b"}, "sb-1:rel": {"sb-1", "rel"}, "./a:b": {"", "./a:b"}, "/a:b": {"", "/a:b"}, "plain": {"", "plain"}, "x:": {"x", "."},
	} {
		if id, rest := splitRemote(arg); id != want[0] || rest != want[1] {
			t.Errorf("splitRemote(%q) = %q, %q; want %q", arg, id, rest, want)
		}
	}
}

// events is a short run.
func events() []run.Event {
	one := 1
	return []run.Event{
		{Kind: run.EventStart, Text: "01J0"},
		{Kind: run.EventStep, Step: 1},
		{Kind: run.EventText, Step: 1, Text: "let me \x1b[2Jsee"},
		{Kind: run.EventCall, Step: 1, Tokens: 1234, Call: &run.CallEvent{Tool: "run_command", Summary: "sh test.sh"}},
		{Kind: run.EventResult, Step: 1, Call: &run.CallEvent{Tool: "run_command", Summary: "sh \u202etest.sh", ExitCode: &one, Bytes: 2048, DurationMS: 12}},
		{Kind: run.EventBrake, Text: "max_steps: 1 of 1"},
		{Kind: run.EventCleanup, Text: "gone"},
	}
}

// Without a terminal there is a line for each thing that ended, and no
// control character.
func TestProgressPlain(t *testing.T) {
	defer goleak.VerifyNone(t)
	var out bytes.Buffer
	a := &app{err: newOutput(&out)}
	p := a.newProgress()
	for _, e := range events() {
		p.event(e)
	}
	p.end()
	want := "start    01J0\n" +
		"step 1   run_command sh test.sh (exit 1, 12ms, 2.0 KiB)\n" +
		"limit: max_steps: 1 of 1\n" +
		"cleanup  gone\n"
	if got := out.String(); got != want {
		t.Errorf("progress is\n%s\nwant\n%s", got, want)
	}
}

// On a terminal the last line is the status, redrawn in place, never wider
// than the terminal, and gone at the end.
func TestProgressTerminal(t *testing.T) {
	defer goleak.VerifyNone(t)
	var out bytes.Buffer
	a := &app{err: &output{Writer: &out, terminal: true, width: 60}, color: true}
	p := a.newProgress()
	p.begun = time.Now().Add(-62 * time.Second)
	for _, e := range events() {
		p.event(e)
	}
	p.end()
	p.event(run.Event{Kind: run.EventStart, Text: "after the end"})
	got := out.String()
	for _, want := range []string{"step 1 · 1 calls · 1.2k tokens · 1m", "\x1b["} {
		if !strings.Contains(got, want) {
			t.Errorf("the terminal got %q, want it to contain %q", got, want)
		}
	}
	if !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("the status line is still there: %q", got)
	}
	if strings.Contains(got, "after the end") || strings.Contains(got, "[2J") || strings.Contains(got, "\u202e") {
		t.Errorf("the terminal got what it must not: %q", got)
	}
	for part := range strings.SplitSeq(got, "\r\x1b[K") {
		line, _, _ := strings.Cut(part, "\n")
		if n := utf8.RuneCountInString(stripStyles(line)); n > 60 && strings.Contains(line, "·") {
			t.Errorf("the status line has %d columns: %q", n, line)
		}
	}
}

func stripStyles(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		if rest, ok := strings.CutPrefix(s, "\x1b["); ok {
			_, s, _ = strings.Cut(rest, "m")
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		b.WriteRune(r)
		s = s[n:]
	}
	return b.String()
}

// Colour is for terminals only, and not for those who said no.
func TestColor(t *testing.T) {
	if a := (&app{err: newOutput(io.Discard)}); a.style("x", styleError) != "x" {
		t.Error("a file gets colours")
	}
	if a := (&app{err: newOutput(io.Discard), color: true}); a.style("x", styleError) == "x" {
		t.Error("a terminal gets none")
	}
}

// What --json prints does nothing to a terminal, and means the same.
func TestJSONHasNothingHidden(t *testing.T) {
	value := "A\u009b6n\u202e\x1b[m\ttab\nline \U000e0041 \ufe0f ü 漢"
	var got bytes.Buffer
	a := &app{out: newOutput(&got)}
	if err := a.printJSON(map[string]string{"label": value}); err != nil {
		t.Fatal(err)
	}
	if strings.IndexFunc(got.String(), evidence.Hidden) >= 0 || !strings.Contains(got.String(), "ü 漢") {
		t.Errorf("%q", got.String())
	}
	var back map[string]string
	if err := json.Unmarshal(got.Bytes(), &back); err != nil || back["label"] != value {
		t.Errorf("%q, %v", back, err)
	}
}
