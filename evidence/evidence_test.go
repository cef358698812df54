package evidence_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/evidence/clue"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/secret"
)

// An execd.Output converts to a Stream.
var _ = evidence.Stream(execd.Output{})

func show(stdout, stderr string, o evidence.Options) evidence.Preview {
	return evidence.Show(evidence.Text([]byte(stdout)), evidence.Text([]byte(stderr)), o)
}

func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func TestWhole(t *testing.T) {
	for _, s := range []string{"", "x", "one\ntwo\n", "no newline\nat the end", strings.Repeat("x", 16384), numbered(1, 400), "é€😀\t\r\n"} {
		p := show(s, "", evidence.Options{})
		want := evidence.Preview{Stdout: evidence.Shown{Text: s, Head: s}}
		if diff := cmp.Diff(want, p); diff != "" {
			t.Error(diff)
		}
		if p = show("", s, evidence.Options{}); p.Stderr.Text != s || p.Truncated() {
			t.Errorf("stderr alone: %+v", p)
		}
	}
}

func TestCutBetweenLines(t *testing.T) {
	p := show(numbered(1, 1000), "", evidence.Options{Bytes: 1024, Lines: 100})
	got := p.Stdout
	if got.Head != numbered(1, got64(got.NextLine)-1) {
		t.Errorf("head %q, next line %d", got.Head, got.NextLine)
	}
	first := got.NextLine + got.Omitted.Lines
	if got.Tail != numbered(got64(first), 1000) {
		t.Errorf("tail %q does not begin with line %d", got.Tail, first)
	}
	marker := fmt.Sprintf("[... %d bytes, %d lines left out, from line %d ...]\n", got.Omitted.Bytes, got.Omitted.Lines, got.NextLine)
	if got.Text != got.Head+marker+got.Tail || !p.Truncated() {
		t.Errorf("%q", got.Text)
	}
	if h := len(got.Head); h > len(got.Text)/5 || h < len(got.Text)/8 {
		t.Errorf("the head has %d of %d bytes", h, len(got.Text))
	}
}

func got64(n int64) int { return int(n) }

func TestLineLimit(t *testing.T) {
	p := show(numbered(1, 500), "", evidence.Options{})
	s := p.Stdout
	if n := strings.Count(s.Text, "\n"); n != 400 || s.Omitted.Lines != 101 {
		t.Errorf("%d lines shown, %+v left out", n, s.Omitted)
	}
	if s.NextLine != 80 || !strings.HasPrefix(s.Tail, "line 181\n") {
		t.Errorf("next line %d, tail begins %q", s.NextLine, s.Tail[:9])
	}
}

func TestOneLongLine(t *testing.T) {
	in := strings.Repeat("€", 10_000)
	s := show(in, "", evidence.Options{}).Stdout
	if !utf8.ValidString(s.Text) || s.NextLine != 1 || s.Omitted.Lines != 0 || s.Omitted.Bytes != int64(len(in)-len(s.Head)-len(s.Tail)) {
		t.Errorf("%+v of %d bytes; head %d, tail %d", s.Omitted, len(in), len(s.Head), len(s.Tail))
	}
	if want := fmt.Sprintf("\n[... %d bytes left out, from line 1 ...]\n", s.Omitted.Bytes); !strings.Contains(s.Text, want) {
		t.Errorf("no %q", want)
	}
	if len(s.Text) < 16384-32 {
		t.Errorf("only %d bytes are shown", len(s.Text))
	}
}

// A last line after one that is far too long must not be all that is shown.
func TestAlignmentIsNotBoughtDearly(t *testing.T) {
	in := "start\n" + strings.Repeat("x", 50_000) + "\nend\n"
	s := show(in, "", evidence.Options{}).Stdout
	if len(s.Text) < 16000 || !strings.HasPrefix(s.Head, "start\nxxx") || !strings.HasSuffix(s.Tail, "x\nend\n") || s.NextLine != 2 {
		t.Errorf("%d bytes, head %.20q, next line %d", len(s.Text), s.Head, s.NextLine)
	}
}

func TestShares(t *testing.T) {
	long := func(n int) string { return strings.Repeat("0123456789abcde\n", n/16) }
	for _, tc := range []struct {
		name                     string
		out, err                 int
		minOut, maxOut           int
		minErr, maxErr           int
		outTruncated, errTrucned bool
	}{
		{"both small", 1024, 1024, 1024, 1024, 1024, 1024, false, false},
		{"stdout takes what stderr leaves", 100_000, 1024, 15_000, 15_360, 1024, 1024, true, false},
		{"stderr takes what stdout leaves", 1024, 100_000, 1024, 1024, 15_000, 15_360, false, true},
		{"both large", 100_000, 100_000, 12_000, 12_288, 4_000, 4_384, true, true},
		{"stdout a little too large", 12_800, 6_400, 12_000, 12_288, 4_000, 4_384, true, true},
	} {
		p := show(long(tc.out), long(tc.err), evidence.Options{Lines: 10_000})
		o, e := len(p.Stdout.Text), len(p.Stderr.Text)
		if o < tc.minOut || o > tc.maxOut || e < tc.minErr || e > tc.maxErr || (p.Stdout.Omitted.Bytes > 0) != tc.outTruncated || (p.Stderr.Omitted.Bytes > 0) != tc.errTrucned {
			t.Errorf("%s: %d and %d bytes, left out %+v, %+v", tc.name, o, e, p.Stdout.Omitted, p.Stderr.Omitted)
		}
	}
	// Lines that one stream cannot use for want of bytes go to the other.
	p := show(strings.Repeat(strings.Repeat("x", 1023)+"\n", 300), numbered(1, 300), evidence.Options{})
	if p.Stderr.Omitted.Lines > 0 && strings.Count(p.Stderr.Text, "\n") < 290 {
		t.Errorf("stderr shows %d of 300 lines", strings.Count(p.Stderr.Text, "\n"))
	}
}

// What execd did not capture is accounted for like what is not shown.
func TestGap(t *testing.T) {
	full := numbered(1, 100_000)
	s := evidence.Stream{
		Bytes: int64(len(full)), Lines: 100_000,
		Head: []byte(full[:1003]), Tail: []byte(full[len(full)-1003:]),
	}
	got := evidence.Show(s, evidence.Stream{}, evidence.Options{}).Stdout
	if !strings.HasPrefix(full, got.Head) || !strings.HasSuffix(full, got.Tail) {
		t.Error("not a beginning and an end")
	}
	if got.Omitted.Bytes != int64(len(full)-len(got.Head)-len(got.Tail)) ||
		got.Omitted.Lines != int64(100_000-strings.Count(got.Head, "\n")-strings.Count(got.Tail, "\n")) {
		t.Errorf("%+v", got.Omitted)
	}
	if !strings.HasSuffix(got.Head, "\n") || !strings.HasPrefix(got.Tail, "line ") || len(got.Head) < 990 || len(got.Tail) < 990 {
		t.Errorf("head ends %.20q, tail begins %.20q", got.Head[len(got.Head)-20:], got.Tail)
	}
	// A character cut by the capture is left out, not replaced.
	s = evidence.Stream{Bytes: 100, Lines: 1, Head: []byte("ab€"[:4]), Tail: []byte("€cd"[1:])}
	got = evidence.Show(s, evidence.Stream{}, evidence.Options{}).Stdout
	if got.Head != "ab" || got.Tail != "cd" || got.Omitted.Bytes != 96 || got.Replaced != 0 {
		t.Errorf("%+v", got)
	}
	// Nothing captured is still an account.
	got = evidence.Show(evidence.Stream{Bytes: 7, Lines: 2}, evidence.Stream{}, evidence.Options{}).Stdout
	if got.Text != "[... 7 bytes, 2 lines left out, from line 1 ...]\n" {
		t.Errorf("%q", got.Text)
	}
	// Counts that cannot be are raised to what is there.
	got = evidence.Show(evidence.Stream{Bytes: 1, Head: []byte("ab\nc"), Tail: []byte("d")}, evidence.Stream{}, evidence.Options{}).Stdout
	if got.Text != "ab\ncd" || got.Omitted != (evidence.Omitted{}) {
		t.Errorf("%+v", got)
	}
}

func TestBinary(t *testing.T) {
	s := show("a\x00b\xffc\xe2\x82", "", evidence.Options{}).Stdout
	if want := "a\ufffdb\ufffdc\ufffd\ufffd"; s.Text != want || s.Replaced != 4 || !s.Binary || s.Omitted.Bytes != 0 {
		t.Errorf("%+v, want %q", s, want)
	}
	if s = show("caf\xe9\n", "", evidence.Options{}).Stdout; s.Text != "caf\ufffd\n" || s.Replaced != 1 || s.Binary {
		t.Errorf("%+v", s)
	}
	noise := make([]byte, 100_000)
	rand.NewChaCha8([32]byte{}).Read(noise)
	s = evidence.Show(evidence.Text(noise), evidence.Stream{}, evidence.Options{}).Stdout
	if len(s.Text) > 16384 || !utf8.ValidString(s.Text) || !s.Binary || s.Replaced == 0 {
		t.Errorf("%d bytes, %d replaced", len(s.Text), s.Replaced)
	}
}

func TestMasking(t *testing.T) {
	const key = "hunter2-hunter2"
	m := secret.NewMasker(secret.New("k", key), secret.New("lines", "first\nsecond\nthird"), secret.New("odd", "\xa9abcdef"))
	s := show("a "+key+" b\nfirst\nsecond\nthird!\n", "", evidence.Options{Masker: m}).Stdout
	if s.Text != "a [secret:k] b\n[secret:lines]!\n" || s.Omitted != (evidence.Omitted{}) {
		t.Errorf("%+v", s)
	}
	// A value that begins inside what would be a character.
	if s = show("x\xc3\xa9abcdef", "", evidence.Options{Masker: m}).Stdout; s.Text != "x\ufffd[secret:odd]" {
		t.Errorf("%q", s.Text)
	}
	// Counts are of what was printed; marks are never cut.
	in := strings.Repeat(key+"\n", 5000)
	s = show(in, "", evidence.Options{Masker: m, Lines: 10_000}).Stdout
	marks := strings.Count(s.Text, "[secret:k]\n")
	if s.Omitted.Bytes != int64((5000-marks)*(len(key)+1)) || s.Omitted.Lines != int64(5000-marks) || strings.Contains(s.Text, "hunter") {
		t.Errorf("%d marks, %+v left out", marks, s.Omitted)
	}
	// Pieces of a value at the edges of what was captured are left out.
	for cut := 1; cut < len(key); cut++ {
		g := evidence.Stream{Bytes: 1000, Lines: 1, Head: []byte("begin " + key[:cut]), Tail: []byte(key[cut:] + " end")}
		s = evidence.Show(g, evidence.Stream{}, evidence.Options{Masker: m}).Stdout
		if s.Head != "begin " || s.Tail != " end" || s.Omitted.Bytes != 1000-10 {
			t.Errorf("cut at %d: %+v", cut, s)
		}
	}
	// A value that spans head and tail of a complete stream is found.
	whole := evidence.Stream{Bytes: int64(len(key)), Lines: 1, Head: []byte(key[:4]), Tail: []byte(key[4:])}
	if s = evidence.Show(whole, evidence.Stream{}, evidence.Options{Masker: m}).Stdout; s.Text != "[secret:k]" {
		t.Errorf("%q", s.Text)
	}
}

// randomOutput is text with lines of all lengths, or noise.
func randomOutput(rng *rand.Rand, size int) []byte {
	b := make([]byte, 0, size+100)
	kind, width := rng.IntN(4), 1+rng.IntN(200)
	for len(b) < size {
		switch {
		case kind == 0:
			b = append(b, byte(rng.Uint32()))
		case rng.IntN(width) == 0:
			b = append(b, '\n')
		case kind == 1 && rng.IntN(3) == 0:
			b = utf8.AppendRune(b, []rune("é€😀\u2028")[rng.IntN(4)])
		case kind == 2 && rng.IntN(50) == 0:
			b = append(b, "hunter2-hunter2"[rng.IntN(3):]...)
		default:
			b = append(b, "abc \t"[rng.IntN(5)])
		}
	}
	return b
}

// split makes a Stream of output of which only a part was captured.
func split(rng *rand.Rand, full []byte) evidence.Stream {
	s := evidence.Text(full)
	switch rng.IntN(3) {
	case 0:
		at := rng.IntN(len(full) + 1)
		s.Head, s.Tail = full[:at], full[at:]
	case 1:
		s.Head = full[:rng.IntN(len(full)+1)]
		s.Tail = full[len(s.Head)+rng.IntN(len(full)-len(s.Head)+1):]
	}
	return s
}

// The promises, for any output, capture and limits from the least up.
func TestProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	masker := secret.NewMasker(secret.New("k", "hunter2-hunter2"))
	for range 1000 {
		o := evidence.Options{Bytes: evidence.MinBytes + rng.IntN(6000), Lines: evidence.MinLines + rng.IntN(100), AsIs: true}
		if rng.IntN(2) == 0 {
			o.Masker = masker
		}
		full := [2][]byte{randomOutput(rng, rng.IntN(1+rng.IntN(9000))), randomOutput(rng, rng.IntN(1+rng.IntN(9000)))}
		in := [2]evidence.Stream{split(rng, full[0]), split(rng, full[1])}
		p := evidence.Show(in[0], in[1], o)
		if problem := check(p, full, in, o); problem != "" {
			t.Fatalf("%+v, %d and %d bytes: %s\n%+v", o, len(full[0]), len(full[1]), problem, p)
		}
	}
}

func check(p evidence.Preview, full [2][]byte, in [2]evidence.Stream, o evidence.Options) string {
	bytesShown, linesShown := 0, 0
	for i, s := range []evidence.Shown{p.Stdout, p.Stderr} {
		bytesShown += len(s.Text)
		linesShown += countLines(s.Text)
		switch {
		case !utf8.ValidString(s.Text) || strings.Contains(s.Text, "\x00"):
			return "not valid UTF-8"
		case (s.Text == "") != (len(full[i]) == 0):
			return fmt.Sprintf("%d bytes of output are shown as %q", len(full[i]), s.Text)
		case o.Masker != nil && strings.Contains(s.Text, "hunter2-hunter2"):
			return "a secret shows"
		case (s.Omitted.Bytes > 0) != (s.NextLine > 0), s.Omitted.Bytes == 0 && s.Text != s.Head && s.Stripped == 0:
			return "contradicts itself"
		case s.Omitted.Bytes < int64(len(full[i])-len(in[i].Head)-len(in[i].Tail)):
			return "less is left out than was not captured"
		}
		if problem := checkCounts(s, full[i], o.Masker); problem != "" {
			return problem
		}
	}
	if bytesShown > o.Bytes || linesShown > o.Lines {
		return fmt.Sprintf("%d bytes, %d lines are shown", bytesShown, linesShown)
	}
	return ""
}

// checkCounts follows what is shown through the output, marker by marker.
func checkCounts(s evidence.Shown, full []byte, m *secret.Masker) string {
	if s.Omitted.Bytes == 0 {
		if want := render(full, m); s.Head != want {
			return fmt.Sprintf("whole, but %q is not %q", s.Head, want)
		}
		return ""
	}
	if m != nil && bytes.Contains(full, []byte("hunter2-")) || !utf8.Valid(full) || bytes.IndexByte(full, 0) >= 0 {
		return "" // which bytes a mark stands for cannot be told from outside
	}
	var sum evidence.Omitted
	at, first := 0, int64(0)
	for rest := s.Text; rest != ""; {
		piece, after, marked := cutMarker(rest)
		if marked.Bytes > 0 && !bytes.HasPrefix(full[at:], []byte(piece)) {
			piece = strings.TrimSuffix(piece, "\n") // which the marker needed
		}
		if !bytes.HasPrefix(full[at:], []byte(piece)) {
			return fmt.Sprintf("%q is not what is at byte %d", piece, at)
		}
		at += len(piece)
		if marked.Bytes > 0 {
			if line := int64(bytes.Count(full[:at], []byte("\n"))) + 1; line != marked.from {
				return fmt.Sprintf("line %d is said to be %d", line, marked.from)
			}
			if first == 0 {
				first = marked.from
			}
			gap := full[at:][:marked.Bytes]
			if lines := wholeLines(full[:at], gap, full[at+len(gap):]); lines != marked.Lines {
				return fmt.Sprintf("%d lines are said to be %d", lines, marked.Lines)
			}
			sum.Bytes += marked.Bytes
			sum.Lines += marked.Lines
			at += int(marked.Bytes)
		}
		rest = after
	}
	if at != len(full) || sum != s.Omitted || first != s.NextLine {
		return fmt.Sprintf("ends at %d of %d, markers add up to %+v, first %d", at, len(full), sum, first)
	}
	return ""
}

type marked struct {
	evidence.Omitted
	from int64
}

var markers = regexp.MustCompile(`(?m)^\[\.\.\. (\d+) bytes(?:, (\d+) lines)? left out, from line (\d+) \.\.\.\]\n`)

func cutMarker(text string) (before, after string, m marked) {
	at := markers.FindStringSubmatchIndex(text)
	if at == nil {
		return text, "", m
	}
	number := func(i int) (n int64) {
		if at[i] >= 0 {
			fmt.Sscan(text[at[i]:at[i+1]], &n)
		}
		return n
	}
	m.Bytes, m.Lines, m.from = number(2), number(4), number(6)
	return text[:at[0]], text[at[1]:], m
}

// wholeLines counts the lines of which all is in gap.
func wholeLines(before, gap, after []byte) int64 {
	n := int64(bytes.Count(gap, []byte("\n")))
	if len(before) > 0 && before[len(before)-1] != '\n' {
		n--
	}
	if len(after) == 0 && len(gap) > 0 && gap[len(gap)-1] != '\n' {
		n++
	}
	return max(0, n)
}

func render(b []byte, m *secret.Masker) string {
	s := strings.ReplaceAll(string(m.Bytes(b)), "\x00", "\ufffd")
	return string([]rune(s))
}

func countLines(s string) int {
	n := strings.Count(s, "\n")
	if s != "" && !strings.HasSuffix(s, "\n") {
		n++
	}
	return n
}

// FuzzShow checks the promises that hold for any input and any limits.
func FuzzShow(f *testing.F) {
	f.Add([]byte("head\n"), []byte("tail\n"), []byte("err"), int64(100), int64(9), 64, 5)
	f.Add([]byte("\xe2\x82"), []byte("\xac\x00"), []byte{}, int64(5), int64(1), 1024, 8)
	f.Add([]byte("a\x1b[1merror: x\n"), []byte("b\r50%\rc\b\n"), []byte("\x1b[Kfailed\n"), int64(1000), int64(40), 1024, 9)
	f.Add([]byte("hunter2-"), []byte("hunter2"), []byte("hunter2-hunter2"), int64(15), int64(1), 10, 1)
	masker := secret.NewMasker(secret.New("k", "hunter2-hunter2"))
	f.Fuzz(func(t *testing.T, head, tail, stderr []byte, size, lines int64, maxBytes, maxLines int) {
		in := evidence.Stream{Bytes: size, Lines: lines, Head: head, Tail: tail, SpillLines: [][2]int64{{lines, size}}}
		for i := range 3 {
			in.Kept = append(in.Kept, clue.Piece{Offset: int64(len(head)) + int64(i)*lines, Line: lines - int64(i), Data: stderr})
		}
		o := evidence.Options{Bytes: maxBytes, Lines: maxLines, Masker: masker}
		p := evidence.Show(in, evidence.Text(stderr), o)
		if maxBytes <= 0 {
			maxBytes = evidence.DefaultBytes
		}
		if maxLines <= 0 {
			maxLines = evidence.DefaultLines
		}
		out, err := p.Stdout, p.Stderr
		if len(out.Text)+len(err.Text) > maxBytes || countLines(out.Text)+countLines(err.Text) > maxLines {
			t.Fatalf("%d+%d bytes, %d+%d lines", len(out.Text), len(err.Text), countLines(out.Text), countLines(err.Text))
		}
		for _, s := range []evidence.Shown{out, err} {
			if !utf8.ValidString(s.Text) || s.Omitted.Bytes < 0 || s.Omitted.Lines < 0 || strings.Contains(s.Text, "hunter2-hunter2") {
				t.Fatalf("%+v", s)
			}
		}
		if maxBytes >= evidence.MinBytes && maxLines >= evidence.MinLines && (len(head)+len(tail) > 0 && out.Text == "" || len(stderr) > 0 && err.Text == "") {
			t.Fatal("nothing is shown")
		}
	})
}

func BenchmarkShow(b *testing.B) {
	capture := []byte(strings.Repeat("2026-11-29T17:43:02Z INFO request done path=/v1/items status=200 bytes=5120 took=12ms\n", 6000))
	s := evidence.Stream{Bytes: 1 << 30, Lines: 1 << 24, Head: capture, Tail: capture}
	masker := secret.NewMasker(secret.New("k", "sk-proj-4f9Zq77xKd0PmT1bYvW"))
	for name, m := range map[string]*secret.Masker{"plain": nil, "masked": masker} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(2 * len(capture)))
			for b.Loop() {
				evidence.Show(s, evidence.Stream{}, evidence.Options{Masker: m})
			}
		})
	}
}

func ExampleShow() {
	p := evidence.Show(evidence.Text([]byte(numbered(1, 1000))), evidence.Stream{}, evidence.Options{Bytes: 1024, Lines: 8})
	fmt.Print(p.Stdout.Text)
	// Output:
	// line 1
	// [... 8831 bytes, 993 lines left out, from line 2 ...]
	// line 995
	// line 996
	// line 997
	// line 998
	// line 999
	// line 1000
}

func TestCut(t *testing.T) {
	const s = "aé€😀z" // 1, 2, 3, 4 and 1 bytes
	for n, want := range []string{"…", "a…", "a…", "aé…", "aé…", "aé…", "aé€…", "aé€…", "aé€…", "aé€…", "aé€😀…", s, s} {
		if got := evidence.Cut(s, n); got != want {
			t.Errorf("Cut %d: %q, want %q", n, got, want)
		}
	}
	for n, want := range []string{"…", "…z", "…z", "…z", "…z", "…😀z", "…😀z", "…😀z", "…€😀z", "…€😀z", "…é€😀z", s, s} {
		if got := evidence.CutFront(s, n); got != want {
			t.Errorf("CutFront %d: %q, want %q", n, got, want)
		}
	}
	for _, bad := range []string{"\xff\xff\xff\xff\xff", "\x80\x80\x80\x80\x80\x80"} { // no more is lost than could be a character
		if a, b := evidence.Cut(bad, 3), evidence.CutFront(bad, 4); !strings.HasSuffix(a, "…") || !strings.HasPrefix(b, "…") || len(b) == len("…") {
			t.Errorf("%q and %q", a, b)
		}
	}
	if a, b := evidence.Cut(s, -1), evidence.CutFront(s, -1); a != "…" || b != "…" {
		t.Errorf("%q and %q", a, b)
	}
}

func TestVisible(t *testing.T) {
	for s, want := range map[string]string{
		"plain é€😀\n\tx": "plain é€😀\n\tx", "a\x1b[31mb\x07\r\x7f\u009bc": "a[31mbc", "bad \xff": "bad \ufffd",
		"x\u202ey\u2066z\u200b\u00ad\ufeff\ufe0f\u3164\u2028\U000e0041": "xyz", "": "",
	} {
		if got := evidence.Visible(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}
