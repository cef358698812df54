package evidence_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/internal/corpus"
)

// corpusDir is where the logs are; scripts/corpus makes them.
var corpusDir = flag.String("corpus", "testdata/corpus", "directory of the corpus")

func read(t testing.TB) []corpus.Log {
	t.Helper()
	all, err := corpus.Read(*corpusDir)
	if err != nil {
		t.Fatal(err)
	}
	return all
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
	logs, unseen := read(t), 0
	for _, l := range logs {
		p := evidence.Show(evidence.Text(l.Text), evidence.Stream{}, evidence.Options{Bytes: corpusBytes})
		if n := len(p.Stdout.Text); n > corpusBytes || countLines(p.Stdout.Text) > evidence.DefaultLines {
			t.Errorf("%s: %d bytes, %d lines are shown", l.Name, n, countLines(p.Stdout.Text))
		}
		c := tally{len(l.Decisive), l.Kept(p.Stdout.Text), l.Ends(corpusBytes, 50), l.Ends(corpusBytes, 20)}
		kind := "  "
		if l.HeldOut {
			kind = "* "
			unseen++
			heldOut.add(c)
		} else {
			known.add(c)
		}
		t.Logf("%s%-24s %-16s %7d bytes %6d lines   decisive %2d   rein %2d   50/50 %2d   20/80 %2d", kind, l.Name, l.Tool, len(l.Text), l.Lines, c.all, c.ours, c.half, c.fifth)
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
	logs := read(t)
	for _, least := range []struct{ bytes, all, heldOut int }{{4 << 10, 99, 90}, {3 << 10, 99, 90}, {2 << 10, 96, 90}, {1 << 10, 88, 90}} {
		var all, heldOut tally
		for _, l := range logs {
			p := evidence.Show(evidence.Text(l.Text), evidence.Stream{}, evidence.Options{Bytes: least.bytes})
			if n := len(p.Stdout.Text); n > least.bytes {
				t.Errorf("%s: %d bytes are shown", l.Name, n)
			}
			c := tally{all: len(l.Decisive), ours: l.Kept(p.Stdout.Text)}
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
	logs := read(b)
	size := 0
	for _, l := range logs {
		size += len(l.Text)
	}
	b.SetBytes(int64(size))
	used := processorTime()
	for b.Loop() {
		for _, l := range logs {
			evidence.Show(evidence.Text(l.Text), evidence.Stream{}, evidence.Options{Bytes: corpusBytes})
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
	logs := read(t)
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
	for _, l := range read(t) {
		size, all := 0, bytes.SplitAfter(l.Text, []byte("\n"))
		for _, at := range l.Decisive {
			size += len(all[at-1])
		}
		if len(l.Text) < 64<<10 || l.Lines < 1000 || len(l.Text) != l.Bytes || bytes.Count(l.Text, []byte("\n")) < 1000 || size == 0 || size > 2<<10 || l.Source == "" {
			t.Errorf("%s: %d bytes, %d lines, %d bytes of decisive lines, marked from %q", l.Name, len(l.Text), l.Lines, size, l.Source)
		}
	}
}
