package evidence_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rein-sh/rein/evidence"
)

// corpusDir is where the logs are; scripts/corpus makes them.
var corpusDir = flag.String("corpus", "testdata/corpus", "directory of the corpus")

// corpusLog is the log of a real tool, with the lines that state what the tool's
// structured output states.
type corpusLog struct {
	Name     string `json:"name"`
	Tool     string `json:"tool"`
	HeldOut  bool   `json:"held_out"`
	Source   string `json:"marked_from"`
	Bytes    int    `json:"bytes"`
	Lines    int    `json:"lines"`
	Decisive []int  `json:"decisive"`
	text     []byte
}

func corpus(t testing.TB) []corpusLog {
	files, err := filepath.Glob(filepath.Join(*corpusDir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	var logs []corpusLog
	for _, f := range files {
		var l corpusLog
		data, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(data, &l)
		}
		if err != nil {
			t.Fatal(err)
		}
		if l.text, err = unpack(strings.TrimSuffix(f, ".json") + ".log.gz"); err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
	}
	return logs
}

func unpack(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

var colours = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|\r")

// has counts the decisive lines that a preview shows whole, each where it
// stands: the same words elsewhere do not count.
func (l *corpusLog) has(preview string) (n int) {
	all, there := bytes.Split(l.text, []byte("\n")), shownAt(preview)
	for _, at := range l.Decisive {
		if line, ok := there[at]; ok && line == string(colours.ReplaceAll(all[at-1], nil)) {
			n++
		}
	}
	return n
}

// shownAt is what a preview shows of each line, by the numbers that its markers
// say.
func shownAt(preview string) map[int]string {
	there, at := map[int]string{}, 1
	for line := range strings.SplitSeq(preview, "\n") {
		if _, _, m := cutMarker(line + "\n"); m.from > 0 {
			if next := int(m.from + m.Lines); at == int(m.from) { // all of line from is left out
				at = next
			} else {
				at = next + 1
			}
			continue
		}
		there[at] = colours.ReplaceAllString(line, "")
		at++
	}
	return there
}

// ends counts the decisive lines in so many percent of size bytes from the
// beginning and the rest from the end.
func (l *corpusLog) ends(size, percent int) (n int) {
	head := size * percent / 100
	tail := len(l.text) - (size - head)
	at := 0
	for i, line := range bytes.SplitAfter(l.text, []byte("\n")) {
		end := at + len(line)
		if (end <= head || at >= tail) && slices.Contains(l.Decisive, i+1) {
			n++
		}
		at = end
	}
	return n
}

const corpusBytes = 8 << 10

// tally counts decisive lines.
type tally struct{ all, ours, half, fifth int }

func (a *tally) add(b tally) {
	a.all += b.all
	a.ours += b.ours
	a.half += b.half
	a.fifth += b.fifth
}

func (a tally) share(n int) float64 { return 100 * float64(n) / float64(a.all) }

// The lines that decide are kept, wherever they stand, in previews that are
// within their limits.
func TestCorpus(t *testing.T) {
	var known, heldOut tally
	logs, unseen := corpus(t), 0
	for _, l := range logs {
		p := evidence.Show(evidence.Text(l.text), evidence.Stream{}, evidence.Options{Bytes: corpusBytes})
		if n := len(p.Stdout.Text); n > corpusBytes || countLines(p.Stdout.Text) > evidence.DefaultLines {
			t.Errorf("%s: %d bytes, %d lines are shown", l.Name, n, countLines(p.Stdout.Text))
		}
		c := tally{len(l.Decisive), l.has(p.Stdout.Text), l.ends(corpusBytes, 50), l.ends(corpusBytes, 20)}
		kind := "  "
		if l.HeldOut {
			kind = "* "
			unseen++
			heldOut.add(c)
		} else {
			known.add(c)
		}
		t.Logf("%s%-24s %-16s %7d bytes %6d lines   decisive %2d   rein %2d   50/50 %2d   20/80 %2d", kind, l.Name, l.Tool, len(l.text), l.Lines, c.all, c.ours, c.half, c.fifth)
	}
	all := known
	all.add(heldOut)
	t.Logf("%d logs at %d bytes; decisive lines kept:   rein %.1f %%   50/50 %.1f %%   20/80 %.1f %%", len(logs), corpusBytes, all.share(all.ours), all.share(all.half), all.share(all.fifth))
	t.Logf("of them %d (*) of tools that no pattern names:   rein %.1f %%   50/50 %.1f %%   20/80 %.1f %%", unseen, heldOut.share(heldOut.ours), heldOut.share(heldOut.half), heldOut.share(heldOut.fifth))
	if len(logs) < 80 || unseen < 20 {
		t.Errorf("%d logs, %d of them held out; want 80 and 20", len(logs), unseen)
	}
	if all.share(all.ours) < 98 || heldOut.share(heldOut.ours) < 90 || all.share(all.ours)-all.share(all.fifth) < 20 {
		t.Errorf("kept %.1f %% in all, %.1f %% of those held out, %.1f %% with 20/80", all.share(all.ours), heldOut.share(heldOut.ours), all.share(all.fifth))
	}
}

// Where there is little room it is what decides that is kept.
func TestCorpusInLittleRoom(t *testing.T) {
	logs := corpus(t)
	for _, least := range []struct{ bytes, all, heldOut int }{{4 << 10, 98, 90}, {3 << 10, 98, 90}, {2 << 10, 93, 90}, {1 << 10, 85, 90}} {
		var all, heldOut tally
		for _, l := range logs {
			p := evidence.Show(evidence.Text(l.text), evidence.Stream{}, evidence.Options{Bytes: least.bytes})
			if n := len(p.Stdout.Text); n > least.bytes {
				t.Errorf("%s: %d bytes are shown", l.Name, n)
			}
			c := tally{all: len(l.Decisive), ours: l.has(p.Stdout.Text)}
			all.add(c)
			if l.HeldOut {
				heldOut.add(c)
			}
		}
		t.Logf("at %d bytes:   rein %.1f %%   of tools that no pattern names %.1f %%", least.bytes, all.share(all.ours), heldOut.share(heldOut.ours))
		if all.share(all.ours) < float64(least.all) || heldOut.share(heldOut.ours) < float64(least.heldOut) {
			t.Errorf("at %d bytes %.1f %% are kept, and %.1f %% of those held out", least.bytes, all.share(all.ours), heldOut.share(heldOut.ours))
		}
	}
}

func BenchmarkCorpus(b *testing.B) {
	logs := corpus(b)
	size := 0
	for _, l := range logs {
		size += len(l.text)
	}
	b.SetBytes(int64(size))
	used := processorTime()
	for b.Loop() {
		for _, l := range logs {
			evidence.Show(evidence.Text(l.text), evidence.Stream{}, evidence.Options{Bytes: corpusBytes})
		}
	}
	b.ReportMetric(float64(size)*float64(b.N)/1e6/(processorTime()-used).Seconds(), "MB/cpu-s")
}

// processorTime is what this process has used; a machine that is shared says
// little about speed in its own time.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// No pattern names a tool that a log is from which was held out.
func TestHeldOut(t *testing.T) {
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("clue/*.go")
	if err != nil || len(more) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	logs := corpus(t)
	for _, name := range append(sources, more...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range logs {
			if !l.HeldOut {
				continue
			}
			if at := regexp.MustCompile(`(?i)\b` + regexp.QuoteMeta(l.Tool) + `\b`).FindIndex(text); at != nil {
				t.Errorf("%s names %s: %q", name, l.Tool, text[at[0]:min(len(text), at[1]+40)])
			}
		}
	}
}

// Every log is what was asked for: long, with few decisive lines.
func TestCorpusItself(t *testing.T) {
	for _, l := range corpus(t) {
		size, all := 0, bytes.SplitAfter(l.text, []byte("\n"))
		for _, at := range l.Decisive {
			size += len(all[at-1])
		}
		if len(l.text) < 64<<10 || l.Lines < 1000 || len(l.text) != l.Bytes || bytes.Count(l.text, []byte("\n")) < 1000 || size == 0 || size > 2<<10 || l.Source == "" {
			t.Errorf("%s: %d bytes, %d lines, %d bytes of decisive lines, marked from %q", l.Name, len(l.text), l.Lines, size, l.Source)
		}
	}
}
