package evidence_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/evidence/clue"
	"github.com/rein-sh/rein/secret"
)

// What only controls a terminal is not shown, nor what was overwritten on it.
func TestStrip(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"\x1b[1;31merror\x1b[0m: \x1b[Kx\n", "error: x\n"},
		{"\x1b]0;title\x07a\x1b]8;;http://h\x1b\\link\x1b]8;;\x1b\\\n", "alink\n"},
		{"10%\r50%\r100%\n", "100%\n"},
		{"10%\r\x1b[K50%\r\x1b[K100%\r\n", "100%\r\n"},
		{"a 10%\r a 20%\r", " a 20%"},
		{"progress 99%\r\r\ndone\n", "progress 99%\r\r\ndone\n"},
		{"50%\r        \rdone\n", "done\n"},
		{"work |\b/\b-\b done\n", "work  done\n"},
		{"N\bNA\bAM\bME\bE\n", "NAME\n"},
		{"é\be\b\b\b\bx\n", "x\n"},
		{"bell\x07\n", "bell\n"},
		{"windows\r\nlines\r\n", "windows\r\nlines\r\n"},
		{"no end \x1b[3", "no end "},
		{"\x1b]0;never ends\nthe text is kept\n", "0;never ends\nthe text is kept\n"},
	} {
		s := show(c.in, "", evidence.Options{}).Stdout
		if s.Text != c.want || s.Omitted != (evidence.Omitted{}) || s.Stripped != int64(len(c.in)-len(c.want)) {
			t.Errorf("%q is shown as %q, %d stripped, want %q", c.in, s.Text, s.Stripped, c.want)
		}
		if s = show(c.in, "", evidence.Options{AsIs: true}).Stdout; s.Text != c.in || s.Stripped != 0 {
			t.Errorf("%q as it is: %q", c.in, s.Text)
		}
	}
	for _, in := range []string{"\x1b[2J", "\r\r\r", "\b"} {
		if s := show(in, "", evidence.Options{}).Stdout; s.Text != fmt.Sprintf("[%d bytes that only control a terminal]\n", len(in)) {
			t.Errorf("%q is shown as %q", in, s.Text)
		}
	}
}

// Progress of a megabyte takes the room of its last state.
func TestProgress(t *testing.T) {
	var b strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&b, "\rdownloading %d of 100000", i)
	}
	b.WriteString("\r\nready\n")
	s := show(b.String(), "", evidence.Options{}).Stdout
	if s.Text != "downloading 99999 of 100000\r\nready\n" || s.Omitted.Bytes != 0 {
		t.Errorf("%.200q, %+v left out", s.Text, s.Omitted)
	}
}

// A value is masked whatever colours are inside it, and no part of it shows.
func TestMaskUnderStripping(t *testing.T) {
	m := secret.NewMasker(secret.New("k", "hunter2-hunter2"))
	for in, want := range map[string]string{
		"a hunt\x1b[31mer2-hun\x1b[0mter2 b\n":      "a [secret:k] b\n",
		"\x1b[1mhunter2-hunter2\x1b[0m\n":           "[secret:k]\n",
		"hunter\x1b[0m2-hunter2hunter2-hunter2 end": "[secret:k][secret:k] end",
		"hunter2-hun\b\bunter2 x\n":                 "[secret:k] x\n",
		"hunter2-hunter2\roverwritten\n":            "[secret:k]overwritten\n",
		"first \rhunt\x1b[Ker2-hunter2\r\nnext\r\n": "[secret:k]\r\nnext\r\n",
	} {
		if got := show(in, "", evidence.Options{Masker: m}).Stdout.Text; got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

// Lines that decide are shown from the middle, also from what only the sandbox
// had, each after a marker that tells of the gap before it.
func TestDecisive(t *testing.T) {
	lines := strings.SplitAfter(strings.Repeat("compiled a module in 12 ms\n", 5000), "\n")
	lines[2000], lines[3500] = "src/a.c:7:1: error: 'x' undeclared\n", "FAILED tests/test_b.py::test_c\n"
	full := strings.Join(lines, "")
	check := func(s evidence.Shown) {
		t.Helper()
		for _, want := range []string{lines[2000], lines[3500]} {
			if !strings.Contains(s.Text, "left out, from line ") || !strings.Contains(s.Text, want) {
				t.Errorf("no %q in %q", want, s.Text)
			}
		}
		if s.Omitted.Bytes == 0 || len(s.Text) > 4096 || s.Text != s.Head && !strings.HasSuffix(full, s.Tail) {
			t.Errorf("%d bytes are shown, %+v left out", len(s.Text), s.Omitted)
		}
	}
	o := evidence.Options{Bytes: 4096}
	check(show(full, "", o).Stdout)
	scan := clue.New(2048)
	scan.Write([]byte(full))
	in := evidence.Stream{Bytes: int64(len(full)), Lines: 5000, Head: []byte(full[:1000]), Tail: []byte(full[len(full)-1000:]),
		Kept: scan.Pieces(1000, int64(len(full)-1000), 2048)}
	check(evidence.Show(in, evidence.Stream{}, o).Stdout)
	if problem := checkCounts(evidence.Show(in, evidence.Stream{}, o).Stdout, []byte(full), nil); problem != "" {
		t.Error(problem)
	}
	// What cannot be where it says is not shown.
	in.Kept = []clue.Piece{{Offset: 10, Line: 1, Data: []byte("error: early\n")}, {Offset: 5000, Line: 9000, Data: []byte("error: far\n")}, {Offset: int64(len(full) - 500), Line: 4999, Data: []byte("error: late\n")}}
	if s := evidence.Show(in, evidence.Stream{}, o).Stdout; strings.Contains(s.Text, "error: ") {
		t.Errorf("%q", s.Text)
	}
}

// Stderr has more than its share when it is what decides.
func TestShareByWhatDecides(t *testing.T) {
	var talk, errs strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&talk, "compiled module %d in 12 ms\n", i)
		fmt.Fprintf(&errs, "checking module %d of many, as asked\n", i)
		if i%50 == 0 {
			fmt.Fprintf(&errs, "src/module_%d.c:7:1: error: the quota of tenant %d is gone, and so is its ledger\n", i, i)
		}
	}
	p := show(talk.String(), errs.String(), evidence.Options{Bytes: 12 << 10})
	if n := strings.Count(p.Stderr.Text, "error: "); n < 40 || len(p.Stdout.Text) < 1000 || len(p.Stdout.Text)+len(p.Stderr.Text) > 12<<10 {
		t.Errorf("%d errors are shown; %d and %d bytes", n, len(p.Stdout.Text), len(p.Stderr.Text))
	}
}

// Numbers of lines are those of the spill where the stream's lines are mixed
// with another's.
func TestSpillLines(t *testing.T) {
	in := evidence.Text([]byte(numbered(1, 1000)))
	in.SpillLines = [][2]int64{{3, 103}, {800, 2000}}
	s := evidence.Show(in, evidence.Stream{}, evidence.Options{Bytes: 1024, Lines: 30}).Stdout
	if s.NextLine != 100+int64(strings.Count(s.Head, "\n"))+1 {
		t.Errorf("next line %d after %d", s.NextLine, strings.Count(s.Head, "\n"))
	}
	in.SpillLines = [][2]int64{{3, 1 << 60}, {2, 1}}
	if s = evidence.Show(in, evidence.Stream{}, evidence.Options{Bytes: 1024, Lines: 30}).Stdout; s.NextLine != int64(strings.Count(s.Head, "\n"))+1 {
		t.Errorf("next line %d of what cannot be", s.NextLine)
	}
}

// The end alone, with what is before it counted.
func TestLast(t *testing.T) {
	s := show(numbered(1, 1000), "", evidence.Options{Last: 50}).Stdout
	if s.Tail != numbered(951, 1000) || s.Head != "" || s.Omitted.Lines != 950 || s.NextLine != 1 || !strings.HasPrefix(s.Text, "[... 8442 bytes, 950 lines left out, from line 1 ...]\n") {
		t.Errorf("%+v", s)
	}
	if s = show(numbered(1, 50), "", evidence.Options{Last: 50}).Stdout; s.Text != numbered(1, 50) {
		t.Errorf("%+v", s)
	}
	if p := show(numbered(1, 90), numbered(1, 90), evidence.Options{Last: 10}); p.Stdout.Tail != numbered(81, 90) || p.Stderr.Tail != numbered(81, 90) {
		t.Errorf("%+v", p)
	}
}
