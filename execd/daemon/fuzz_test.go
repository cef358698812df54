package daemon

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/execd"
)

// An event's text is valid JSON without a character that ends a line anywhere,
// and says what the bytes said.
func FuzzEventText(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\\x00\x1b\x7f", "\u2028\u2029\u0085\u009f", "\xff\xc3", "é😀\ufffd", strings.Repeat("\x01", 50)} {
		f.Add([]byte(s), 1000)
		f.Add([]byte(s), 10)
	}
	f.Fuzz(func(t *testing.T, text []byte, limit int) {
		limit = max(limit%4096, 1)
		var got strings.Builder
		for rest := text; len(rest) > 0; {
			b, n := appendJSONText(nil, rest, limit)
			if n == 0 || len(b) > limit+12 {
				t.Fatalf("%d bytes used, %d bytes long for limit %d", n, len(b), limit)
			}
			for _, r := range string(b) {
				if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
					t.Fatalf("%U in %q", r, b)
				}
			}
			var s string
			if err := json.Unmarshal([]byte(`"`+string(b)+`"`), &s); err != nil {
				t.Fatalf("%q: %v", b, err)
			}
			got.WriteString(s)
			rest = rest[n:]
		}
		var want strings.Builder
		for i := 0; i < len(text); {
			r, n := utf8.DecodeRune(text[i:])
			want.WriteRune(r)
			i += n
		}
		if got.String() != want.String() {
			t.Fatalf("got %q, want %q", got.String(), want.String())
		}
	})
}

// However output is cut into reads, its lines are the same.
func FuzzLines(f *testing.F) {
	for _, s := range []string{"a\nb\n\nc", "x\r\ny\r\r\n\n\rz", "\r\n\r\n", "\n\n\n", "tail", "é\n\xff\r"} {
		f.Add([]byte(s), uint8(1))
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, step uint8) {
		n := max(1, int(step))
		whole, cut := newStream(false), newStream(false)
		whole.output(0, text)
		for rest := text; len(rest) > 0; {
			k := min(n, len(rest))
			cut.output(0, rest[:k])
			rest = rest[k:]
		}
		a, b := lines(t, whole), lines(t, cut)
		if d := cmp.Diff(a, b); d != "" {
			t.Fatal(d)
		}
		if len(a) == 0 && strings.Trim(string(text), "\r") != "" {
			t.Fatalf("%q gave no event", text)
		}
	})
}

// lines ends a stream and returns the texts of its events.
func lines(t *testing.T, s *stream) []string {
	t.Helper()
	s.end(execd.Event{Type: execd.EventComplete, Timestamp: 1})
	batch, ended := s.take(nil)
	if !ended {
		t.Fatal("not ended")
	}
	var list []string
	for frame := range strings.SplitSeq(strings.TrimSuffix(string(batch), "\n\n"), "\n\n") {
		var e execd.Event
		if err := json.Unmarshal([]byte(frame), &e); err != nil {
			t.Fatalf("%q: %v", frame, err)
		}
		if e.Type == execd.EventStdout {
			if e.Text == "" {
				t.Fatal("an event without text")
			}
			list = append(list, e.Text)
		}
	}
	return list
}

func FuzzCapture(f *testing.F) {
	f.Add([]byte("one\ntwo\nthree"), uint16(7), uint8(3), uint16(5))
	f.Add(bytes.Repeat([]byte("x\n"), 500), uint16(100), uint8(64), uint16(100))
	f.Add([]byte("short\n"), uint16(44), uint8(9), uint16(5))
	f.Fuzz(func(t *testing.T, text []byte, limit uint16, step uint8, share uint16) {
		c := newCapture(int(limit))
		for rest := text; len(rest) > 0; {
			k := min(max(1, int(step)), len(rest))
			c.add(rest[:k])
			rest = rest[k:]
		}
		o := c.output(int(share))
		wantLines := int64(bytes.Count(text, newline))
		if len(text) > 0 && text[len(text)-1] != '\n' {
			wantLines++
		}
		if o.Bytes != int64(len(text)) || o.Lines != wantLines || o.HeadLines != int64(bytes.Count(o.Head, newline)) {
			t.Fatalf("counts %+v", o)
		}
		if len(o.Head)+len(o.Tail) > int(share) || !bytes.HasPrefix(text, o.Head) || !bytes.HasSuffix(text, o.Tail) {
			t.Fatalf("%q gave head %q and tail %q", text, o.Head, o.Tail)
		}
		if kept := len(o.Head) + len(o.Tail); kept < min(len(text), int(limit), int(share)) {
			t.Fatalf("%d bytes kept of %d, limit %d, share %d", kept, len(text), limit, share)
		}
	})
}

func FuzzWardenRequest(f *testing.F) {
	f.Add(wardenRequest{Switch: true, UID: 1, GID: 2, Dir: "/", Path: "/bin/sh", Args: []string{"sh", "-c", ""}, Env: []string{"A=b"}}.append(nil))
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0}, 30))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseWardenRequest(b)
		if err != nil {
			return
		}
		again, err := parseWardenRequest(r.append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(r, again); d != "" {
			t.Fatal(d)
		}
	})
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("12 (a) b) c) S 1 12 12 0 -1 4194304 1 2 3 4 5 6 7 8 20 0"), "1-2,3 4", "Name:\tx\nNSpid:\t7\t1\n")
	f.Add([]byte("1 () Z 0 0"), "", "")
	f.Fuzz(func(t *testing.T, stat []byte, memory, status string) {
		if s, ok := parseStat(stat); ok && s.pid == 0 && !bytes.HasPrefix(bytes.TrimSpace(stat), []byte("0")) &&
			!bytes.HasPrefix(bytes.TrimSpace(stat), []byte("+0")) && !bytes.HasPrefix(bytes.TrimSpace(stat), []byte("-0")) {
			t.Fatalf("%q gave %+v", stat, s)
		}
		cpuTicks(stat)
		if n := ownPages([]byte(memory)); n < 0 {
			t.Fatal(n)
		}
		innermostPid([]byte(status))
		parseOOMKills([]byte(status))
		procSubmounts(status)
		socketInode([]byte(status), 80)
	})
}

func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-1", "bytes=-5", "bytes=3-", "bytes=1-2,4-5", "bytes=18446744073709551615-", "bytes=--1"} {
		f.Add(s, int64(10))
	}
	f.Fuzz(func(t *testing.T, header string, size int64) {
		size = max(0, size)
		from, n, err := parseRange(header, size)
		if err == nil && (from < 0 || n < 1 || from+n > size) {
			t.Fatalf("%q of %d: %d bytes from %d", header, size, n, from)
		}
	})
}

func FuzzPattern(f *testing.F) {
	for _, s := range []string{"**", "*.{a,b{c,d}}", "[a-z]", "{{{{", "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", "**/x"} {
		f.Add(s, "name.a")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		match, err := compilePattern(pattern)
		if err != nil {
			return
		}
		got := match(name)
		if !strings.ContainsAny(pattern, "{}") && !strings.Contains(pattern, "**") {
			if want, err := path.Match(pattern, name); err == nil && got != want {
				t.Fatalf("%q and %q: %v", pattern, name, got)
			}
		}
	})
}

// Whatever the body, a request is answered with JSON or a stream, and refused
// before anything is started.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{`{"command":""}`, `{"command":"x","timeout":-5}`, `{"command":1}`, `{`, `[]`, `{"command":"x","envs":{"":"x"}}`,
		`{"command":"x","rein":{"id":"a/b"}}`, `{"command":"x","uid":-1}`, "\xff"} {
		f.Add(s)
	}
	m := &countingMachine{}
	s, err := New(Config{Token: "t", Machine: m, Root: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest("POST", "/command", strings.NewReader(body))
		r.Header.Set(execd.TokenHeader, "t")
		w := httptest.NewRecorder()
		started := m.started.Load()
		s.Handler().ServeHTTP(w, r)
		b, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		var e execd.Error
		if json.Unmarshal(b, &e) != nil || e.Code == "" || e.Message == "" || w.Code < 400 {
			t.Fatalf("status %d, body %q", w.Code, b)
		}
		if w.Code == 400 && m.started.Load() != started {
			t.Fatalf("%q was refused and started", body)
		}
	})
}
