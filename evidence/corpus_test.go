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

// marked returns the decisive lines.
func (l *corpusLog) marked() (lines []string) {
	all := bytes.Split(l.text, []byte("\n"))
	for _, n := range l.Decisive {
		lines = append(lines, string(colours.ReplaceAll(all[n-1], nil)))
	}
	return lines
}

// has counts the lines that a preview shows whole.
func has(preview string, lines []string) (n int) {
	shown := map[string]int{}
	for line := range strings.SplitSeq(colours.ReplaceAllString(preview, ""), "\n") {
		shown[line]++
	}
	for _, line := range lines {
		if shown[line] > 0 {
			shown[line]--
			n++
		}
	}
	return n
}

// ends is a preview of so much of the beginning and the rest of the end.
func ends(text []byte, size, percent int) string {
	head := size * percent / 100
	return string(text[:head]) + "\n" + string(text[len(text)-(size-head):])
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
		lines := l.marked()
		p := evidence.Show(evidence.Text(l.text), evidence.Stream{}, evidence.Options{Bytes: corpusBytes})
		if n := len(p.Stdout.Text); n > corpusBytes || countLines(p.Stdout.Text) > evidence.DefaultLines {
			t.Errorf("%s: %d bytes, %d lines are shown", l.Name, n, countLines(p.Stdout.Text))
		}
		c := tally{len(lines), has(p.Stdout.Text, lines), has(ends(l.text, corpusBytes, 50), lines), has(ends(l.text, corpusBytes, 20), lines)}
		kind := "  "
		if l.HeldOut {
			kind = "* "
			unseen++
			heldOut.add(c)
		} else {
			known.add(c)
		}
		t.Logf("%s%-24s %-16s %7d bytes %6d lines   decisive %2d   rein %2d   50/50 %2d   20/80 %2d", kind, l.Name, l.Tool, len(l.text), l.Lines, c.all, c.ours, c.half, c.fifth)
		if c.ours < c.all && testing.Verbose() {
			for _, line := range lines {
				if has(p.Stdout.Text, []string{line}) == 0 {
					t.Logf("      not shown: %.160q", line)
				}
			}
		}
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
		size := 0
		for _, line := range l.marked() {
			size += len(line) + 1
		}
		if len(l.text) < 64<<10 || l.Lines < 1000 || len(l.text) != l.Bytes || bytes.Count(l.text, []byte("\n")) < 1000 || size == 0 || size > 2<<10 || l.Source == "" {
			t.Errorf("%s: %d bytes, %d lines, %d bytes of decisive lines, marked from %q", l.Name, len(l.text), l.Lines, size, l.Source)
		}
	}
}
