package clue_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/rein-sh/rein/evidence/clue"
)

// Lines by what they are worth alone: what states a failure, what only names
// one, and what says that there was none.
func TestScore(t *testing.T) {
	for _, c := range []struct {
		least, most int
		lines       []string
	}{
		{60, 100, []string{
			"error: no such file", "src/a.c:12:5: error: 'x' undeclared", "E       AssertionError: 1 != 2", "--- FAIL: TestParse (0.01s)",
			"not ok 12 - parses", "  ✗ parses the header", "[ERROR] the build has ended", "\x1b[31m\x1b[1mERROR\x1b[0m in src/a.ts", "level=error msg=lost",
			"java.lang.IllegalStateException: closed", "Caused by: java.io.IOException: gone", "thing.cc:12: Failure", "2026-11-29T17:43:02Z ERROR lost",
			"make: *** [Makefile:3: all] Error 1", "=== 1 failed, 300 passed in 0.2s ===", "Tests run: 5, Failures: 1, Errors: 0", "3 errors generated.",
			"Segmentation fault (core dumped)", "panic: index out of range", `{"level":"error","msg":"lost"}`, "  12/30 test .....***Failed  0.01 sec",
		}},
		{clue.Decisive, 100, []string{
			"a.c:(.text+0x5): undefined reference to `b'", "    a_test.go:12: got 3", "   expected: 2", "        got: 1", "  1) parses the header", "Killed",
			"Process ended with exit code 137", "ld: cannot find -lx", "x.pl is not defined", "File \"a.ml\", line 4, characters 2-3:",
			"    -   \"total\": 4,", "    +   \"total\": 3,",
		}},
		{0, clue.Decisive, []string{
			"a.c:12:5: warning: unused variable 'error' [-Wunused]", "[info] retrying after error 110", "note: an error is reported once", "2026-11-29T17:43:02Z DEBUG failed over",
		}},
		{0, 20, []string{
			"", "gcc -Wall -Werror -c -o error_handling.o src/error_handling.c", "ok 12 - reports errors", "--- PASS: TestError (0.00s)", "0 errors, 0 warnings",
			"test_app.py::test_error PASSED [ 12%]", "300 passed, 0 failed", "[       OK ] Error.Case (0 ms)", "  ✓ reports the error", "Tests run: 5, Failures: 0, Errors: 0",
			"no errors found", "failures expected in parse: none", "step 3: errors are 0", "conflicts: none", "\tat a.b.c(Error.java:3)", "exit status 0", "compiling fail.c", "downloading exceptions-1.2.tar.gz", "test error::is_shown ... ok",
			"+ cp a b", "-----------", "+  --------  +",
		}},
	} {
		for _, line := range c.lines {
			if n := clue.Score([]byte(line)); n < c.least || n > c.most {
				t.Errorf("%d, not from %d to %d: %s", n, c.least, c.most, line)
			}
		}
	}
}

// stream is many lines alike, and among them some that are not.
func stream(lines int, at map[int]string) []byte {
	var b bytes.Buffer
	for i := range lines {
		if s, ok := at[i]; ok {
			b.WriteString(s + "\n")
			continue
		}
		fmt.Fprintf(&b, "compiled module_%d.o in %d ms, 0 errors\n", i, i%7)
	}
	return b.Bytes()
}

// pieces runs a Scanner over in, given in parts of such a size.
func pieces(in []byte, size, limit int) []clue.Piece {
	s := clue.New(limit)
	for rest := in; len(rest) > 0; {
		n := min(size, len(rest))
		s.Write(rest[:n])
		rest = rest[n:]
	}
	return s.Pieces(0, int64(len(in)), limit)
}

// What is kept of a long stream is in its place, within the limit, and the same
// however the stream is cut.
func TestPieces(t *testing.T) {
	failure, odd := "module_777: error: the checksum differs", "a quorum of the replicas went away"
	in := stream(50_000, map[int]string{31_000: failure, 40_000: odd})
	want := pieces(in, len(in), 8<<10)
	size, text := 0, ""
	for _, p := range want {
		size += len(p.Data)
		text += string(p.Data)
		if !bytes.Equal(in[p.Offset:][:len(p.Data)], p.Data) || int64(bytes.Count(in[:p.Offset], []byte("\n")))+1 != p.Line {
			t.Errorf("not in its place: line %d, byte %d: %q", p.Line, p.Offset, p.Data)
		}
	}
	if size == 0 || size > 8<<10 || !strings.Contains(text, failure+"\n") || !strings.Contains(text, odd+"\n") {
		t.Errorf("%d bytes are kept: %q", size, text)
	}
	for _, n := range []int{1, 7, 4096, 65_536} {
		if got := pieces(in, n, 8<<10); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("parts of %d bytes are kept differently", n)
		}
	}
}

// However many lines state failures, the first of them are kept.
func TestFlood(t *testing.T) {
	at := map[int]string{}
	for i := 2000; i < 22_000; i++ {
		at[i] = fmt.Sprintf("src/a_%d.c:%d:1: error: 'x_%d' undeclared", i, i, i)
	}
	var text string
	for _, p := range pieces(stream(30_000, at), 1<<16, 4<<10) {
		text += string(p.Data)
	}
	if !strings.Contains(text, at[2000]+"\n") || len(text) > 4<<10 {
		t.Errorf("%d bytes are kept: %.300q", len(text), text)
	}
}

// A line without an end takes no memory, and its beginning is judged.
func TestGiantLine(t *testing.T) {
	s := clue.New(4 << 10)
	s.Write([]byte("fatal error: "))
	for range 1000 {
		s.Write(bytes.Repeat([]byte("x"), 10_000))
	}
	got := s.Pieces(0, 10_000_013, 4<<10)
	if len(got) != 1 || len(got[0].Data) != clue.MaxLine || got[0].Line != 1 {
		t.Errorf("%d pieces", len(got))
	}
}

func TestEscape(t *testing.T) {
	for in, want := range map[string]int{
		"\x1b[31mred": 5, "\x1b[0;1;31m": 9, "\x1b[?25lx": 6, "\x1b]0;title\x07x": 10, "\x1b]8;;http://a\x1b\\x": 15, "\x1b(Bx": 3, "\x1b7x": 2, "\x1b": 1,
		"\x1b]no end\nx": 2, "\x1b[3\nx": 3, "\x1b\n": 1, "\x1b[12": 4,
	} {
		if got := clue.Escape([]byte(in)); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}

func FuzzScanner(f *testing.F) {
	f.Add([]byte("error: x\nok\n\x1b[31mfailed\x1b[0m\r\n"), 3, 100)
	f.Add([]byte("a\rb\rerror: 0 errors\n\n\n1) x\n"), 1, 10)
	f.Fuzz(func(t *testing.T, in []byte, size, limit int) {
		size, limit = max(1, size%1000), max(0, limit%5000)
		total, end := 0, int64(0)
		for _, p := range pieces(in, size, limit) {
			total += len(p.Data)
			if p.Offset < end || !bytes.HasPrefix(in[p.Offset:], p.Data) || int64(bytes.Count(in[:p.Offset], []byte("\n")))+1 != p.Line {
				t.Fatalf("not in its place: %+v", p)
			}
			end = p.Offset + int64(len(p.Data))
		}
		if total > limit {
			t.Fatalf("%d bytes are kept, more than %d", total, limit)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	for name, text := range map[string]string{
		"log": "2026-11-29T17:43:02Z INFO request done path=/v1/items status=200 bytes=5120 took=12ms\ngcc -Wall -c -o build/app/parse.o src/app/parse.c\n",
		"yes": "y\n",
	} {
		b.Run(name, func(b *testing.B) {
			in := []byte(strings.Repeat(text, (1<<20)/len(text)))
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				s := clue.Index(64 << 10)
				s.Write(in)
				s.Lines()
			}
		})
	}
}

// scores are what the lines of a stream are worth, by their text.
func scores(in string) map[string]int {
	s := clue.Index(64 << 10)
	s.Write([]byte(in))
	all := map[string]int{}
	for _, l := range s.Lines() {
		all[in[l.Start:l.End]] = l.Score
	}
	return all
}

// A line is judged by how it differs from those that are otherwise like it: by
// the result in the place of another, by a mark, a colour, a code.
func TestUnlike(t *testing.T) {
	for name, c := range map[string]struct{ like, unlike string }{
		"result": {"tests/test_%d.py::test_error_%d PASSED   [ 36%%]\n", "tests/test_a.py::test_b FAILED   [ 37%]\n"},
		"mark":   {" \u2714 Close ledger %d and %d\n", " \u2718 Open ledger 3 and 4\n"},
		"colour": {"  \x1b[32m  %d) wrote %d\x1b[0m\n", "  \x1b[31m  3) write update\x1b[0m\n"},
		"code":   {"src/deep/down/part_%d.py:%d:1: C0114: Missing text here (missing-text)\n", "src/deep/down/part_a.py:3:1: E0602: Undefined name here (undefined-name)\n"},
		"sides":  {"  %d != -%d, as it should\n", "    205 != 206\n"},
	} {
		var b strings.Builder
		for i := range 1500 {
			if i == 700 {
				b.WriteString(c.unlike)
			}
			fmt.Fprintf(&b, c.like, i, i+1)
		}
		if all := scores(b.String()); all[c.unlike] < clue.Decisive+5 {
			t.Errorf("%s: %q is worth %d", name, c.unlike, all[c.unlike])
		}
	}
}

// Of lines that differ in numbers only, the one whose number is not 0 is worth
// most, wherever it stands among them.
func TestNumbers(t *testing.T) {
	for _, at := range []int{1, 700, 1499} {
		var b strings.Builder
		for i := range 1500 {
			errors := 0
			if i == at {
				errors = 20
			}
			fmt.Fprintf(&b, "part %d has %d errors\n", i, errors)
		}
		all := scores(b.String())
		unlike := fmt.Sprintf("part %d has 20 errors\n", at)
		for line, n := range all {
			if line != unlike && n >= all[unlike] {
				t.Errorf("%q is worth %d, %q %d", line, n, unlike, all[unlike])
			}
		}
	}
}

// In a list of names, numbered or not, one that speaks of failure is a name.
func TestNames(t *testing.T) {
	var b strings.Builder
	for i := range 900 {
		fmt.Fprintf(&b, "  %s %s %d\n", []string{"pack", "find", "update", "resolve"}[i%4], []string{"ledger", "failure", "zone", "error", "quota"}[i%5], i)
	}
	for line, n := range scores(b.String()) {
		if n >= clue.Decisive {
			t.Fatalf("%q is worth %d", line, n)
		}
	}
}

// What a tool says of a file stands under its name, which may be far above.
func TestHeading(t *testing.T) {
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, "conf/part_%d.yaml\n", i)
		for k := range 9 {
			fmt.Fprintf(&b, "  %d:1     warning  too many blanks\n", k)
		}
		if i == 120 {
			b.WriteString("  10:4     error    it does not end\n")
		}
		b.WriteString("\n")
	}
	in := []byte(b.String())
	for _, size := range []int{7, len(in)} {
		text := ""
		for _, p := range pieces(in, size, 2<<10) {
			text += string(p.Data)
		}
		if !strings.Contains(text, "conf/part_120.yaml\n") || !strings.Contains(text, "it does not end\n") {
			t.Errorf("parts of %d bytes: kept is %.600q", size, text)
		}
	}
}
