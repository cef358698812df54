package daemon

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rein-sh/rein/execd"
)

// output is what a command printed: many lines alike, and one that is not.
func output(lines, at int) []byte {
	var b bytes.Buffer
	for i := range lines {
		if i == at {
			b.WriteString("src/a.c:7:1: error: the quota is gone\n")
			continue
		}
		fmt.Fprintf(&b, "compiling module %d of many\n", i)
	}
	return b.Bytes()
}

// Whatever is dropped, and in what portions it came: what is kept is in its
// place, all of it within the limit, and the line that decides is among it.
func TestCaptureKeepsWhatDecides(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, limit := range []int{4 << 10, 16 << 10, 64 << 10} {
		for _, lines := range []int{100, 400, 2000, 5000} {
			for _, at := range []int{lines / 10, lines / 3, lines / 2, lines - 3} {
				full := output(lines, at)
				c := newCapture(limit)
				for rest := full; len(rest) > 0; {
					n := min(1+rng.IntN(3*limit), len(rest))
					c.add(rest[:n])
					rest = rest[n:]
				}
				check(t, c.output(limit/2), full, limit/2)
			}
		}
	}
}

func check(t *testing.T, o execd.Output, full []byte, most int) {
	t.Helper()
	size := len(o.Head) + len(o.Tail)
	text := string(o.Head)
	end := int64(len(o.Head))
	for _, k := range o.Kept {
		if k.Offset < end || k.Offset+int64(len(k.Data)) > o.Bytes-int64(len(o.Tail)) || !bytes.Equal(full[k.Offset:][:len(k.Data)], k.Data) ||
			int64(bytes.Count(full[:k.Offset], newline))+1 != k.Line {
			t.Errorf("not in its place: %d+%d, line %d", k.Offset, len(k.Data), k.Line)
		}
		end = k.Offset + int64(len(k.Data))
		size += len(k.Data)
		text += string(k.Data)
	}
	text += string(o.Tail)
	if !bytes.HasPrefix(full, o.Head) || !bytes.HasSuffix(full, o.Tail) || o.Bytes != int64(len(full)) || o.Lines != int64(bytes.Count(full, newline)) {
		t.Errorf("%d of %d bytes, %d lines", o.Bytes, len(full), o.Lines)
	}
	if size > most || size < min(most, len(full))-most/8 {
		t.Errorf("%d of %d bytes are kept, at most %d", size, len(full), most)
	}
	if !strings.Contains(text, "error: the quota is gone") {
		t.Errorf("what decides is not kept of %d bytes in %d", len(full), most)
	}
}

// The lines of each stream are found in the spill, also in the middle of one and
// when there are more turns than are remembered.
func TestSpillLines(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var streams [2]capture
	var spill bytes.Buffer
	last := 0
	for range 3 * execd.MaxSpillLines {
		which := rng.IntN(2)
		text := fmt.Sprintf("%d:%d\n", which, streams[which].newlines+1)
		if which != last {
			streams[which].place(int64(bytes.Count(spill.Bytes(), newline)))
			last = which
		}
		streams[which].add([]byte(text))
		spill.WriteString(text)
	}
	lines := strings.Split(spill.String(), "\n")
	for which := range streams {
		marks := streams[which].spillLines
		if len(marks) < execd.MaxSpillLines/4 || len(marks) > execd.MaxSpillLines {
			t.Errorf("%d marks", len(marks))
		}
		for _, m := range marks {
			if got := lines[m[1]-1]; got != fmt.Sprintf("%d:%d", which, m[0]) {
				t.Errorf("line %d of stream %d is said to be line %d of the spill, which is %q", m[0], which, m[1], got)
			}
		}
	}
}
