package budget_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rein-sh/rein/budget"
)

func TestProgress(t *testing.T) {
	var p budget.Progress
	call := func(want bool, args string, ok bool, result string) {
		t.Helper()
		before := p.Since()
		if got := p.Call("run_command", []byte(args), ok, []byte(result)); got != want {
			t.Errorf("Call(%s, %v, %q) = %v", args, ok, result, got)
		}
		if p.Since() != (before || want) {
			t.Errorf("Since() = %v after Call(%s)", p.Since(), args)
		}
	}
	call(false, `{"command":"false"}`, false, "exit code 1")
	call(true, `{"command":"ls"}`, true, "a b")
	p.Renewed()
	if p.Since() {
		t.Error("progress survived the renewal")
	}
	call(false, `{"command":"ls"}`, true, "a b")                   // the same call
	call(false, `{ "command" : "ls" }`, true, "now something new") // the same call, whatever it returns
	call(false, `{"command":"false"}`, true, "suddenly fine")      // made before, though it failed
	call(false, `{"command":"ls ."}`, true, "a b")                 // the same result
	call(true, `{"command":"date"}`, true, "Sun Nov 29 17:43:02 UTC 2026")
	call(false, `{"command":"date "}`, true, "Mon Nov 30  9:01:59 UTC 2026") // the same but for the time
	call(false, `{"command":"date  "}`, false, "a failure")
	call(true, `{"command":"cat x"}`, true, "a failure") // failures are not remembered as results
	call(true, `not json`, true, "c")
	call(false, `not json`, true, "d")
	call(true, `not  json`, true, "d")
	if !p.Call("read_file", []byte(`{"command":"ls"}`), true, []byte("e")) {
		t.Error("another tool with the same arguments is another call")
	}
}

// A loop that does the same thing with another number each time gets nowhere.
func TestProgressOfALoop(t *testing.T) {
	var p budget.Progress
	for i := range 200 {
		args := fmt.Appendf(nil, `{"command":"sleep 1; echo attempt %d"}`, i)
		got := p.Call("run_command", args, true, fmt.Appendf(nil, "attempt %d at 2026-11-29T12:%02d:%02dZ took %dms\n", i, i/60, i%60, i))
		if got != (i == 0) {
			t.Fatalf("attempt %d: progress %v", i, got)
		}
	}
}

func TestBackground(t *testing.T) {
	var p budget.Progress
	for i, step := range []struct {
		id    string
		bytes int64
		want  bool
	}{
		{"a", 0, false}, {"a", 10, true}, {"a", 10, false}, {"a", 5, false}, {"a", 11, true}, {"b", 1, true}, {"b", 1, false},
	} {
		p.Renewed()
		if got := p.Background(step.id, step.bytes); got != step.want || p.Since() != step.want {
			t.Errorf("step %d: %v, Since %v", i, got, p.Since())
		}
	}
}

func TestProgressConcurrently(t *testing.T) {
	var p budget.Progress
	var wg sync.WaitGroup
	var mu sync.Mutex
	counted := 0
	for range 8 {
		wg.Go(func() {
			for i := range 50 {
				if p.Call("t", fmt.Appendf(nil, "%d", i), true, fmt.Appendf(nil, "result %s", strings.Repeat("x", i))) {
					mu.Lock()
					counted++
					mu.Unlock()
				}
				p.Background("b", int64(i))
				p.Since()
			}
		})
	}
	wg.Wait()
	if counted != 50 {
		t.Errorf("50 different calls counted %d times", counted)
	}
}

func TestNormalize(t *testing.T) {
	for _, same := range [][]string{
		{"3 files", "12 files", "1,024 files"},
		{"ok pkg 0.012s", "ok pkg 1.5s", "ok pkg 350ms", "ok pkg 12µs", "ok pkg 1m30.5s", "ok pkg 2h"},
		{"at 2026-11-29T17:43:02Z", "at 1999-01-02T03:04:05.678Z"},
		{"Sun Nov 29 17:43:02 UTC 2026", "Mon Dec  1  9:00:00 UTC 2025"},
		{"29/Nov/2026:17:43:02 +0000", "01/May/2025:07:00:00 +0100"},
		{"Sun, 29 Nov 2026 17:43:02 GMT", "Tue, 01 Mar 2022 00:00:00 GMT"},
		{"November 29, 2026", "May 3, 2025"},
		{"5:43 PM", "11:02 am", "11:02  AM"},
		{"Nov 29, Nov 30", "Dec 01, Jan 2"},
		{"a  b", "a\tb", "a \t b"},
		{"50% done", "100% done"},
	} {
		for _, s := range same[1:] {
			if a, b := budget.Normalize([]byte(same[0])), budget.Normalize([]byte(s)); !bytes.Equal(a, b) {
				t.Errorf("%q and %q differ: %q, %q", same[0], s, a, b)
			}
		}
	}
	for _, differ := range [][2]string{
		{"ok", "FAIL"}, {"a b", "ab"}, {"3 passed", "3 failed"}, {"you may go", "you jan go"}, {"sat down", "sun down"},
		{"a\nb", "a b"}, {"I am here", "I pm here"}, {"5 MB", "5 GB"}, {"", "0"},
	} {
		if a, b := budget.Normalize([]byte(differ[0])), budget.Normalize([]byte(differ[1])); bytes.Equal(a, b) {
			t.Errorf("%q and %q are the same: %q", differ[0], differ[1], a)
		}
	}
}

// FuzzNormalize checks that the result is never longer, has no digit, and does
// not depend on which digits there were.
func FuzzNormalize(f *testing.F) {
	f.Add([]byte("Sun Nov 29 17:43:02.5 UTC 2026 took 1m30.5s, 1,024 files"))
	f.Add([]byte("µs 5µs 5μ am 5 am 5,am mar/apr 1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got := budget.Normalize(text)
		if len(got) > len(text) || bytes.ContainsAny(got, "0123456789") {
			t.Fatalf("%q became %q", text, got)
		}
		nines := bytes.Map(func(r rune) rune {
			if '0' <= r && r <= '9' {
				return '9'
			}
			return r
		}, text)
		if again := budget.Normalize(nines); bytes.Equal(bytes.ToValidUTF8(text, nil), text) && !bytes.Equal(again, got) {
			t.Fatalf("%q became %q, with other digits %q", text, got, again)
		}
	})
}

func BenchmarkNormalize(b *testing.B) {
	text := bytes.Repeat([]byte("2026-11-29 17:43:02 INFO request 4711 done in 12.5ms, 1,024 bytes\n"), 250)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		budget.Normalize(text)
	}
}
