package agent_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rein-sh/rein/run"
)

// corpusLog is one of package evidence's corpus: what a real tool printed, and
// the numbers of the lines that decide.
type corpusLog struct {
	Name     string `json:"name"`
	HeldOut  bool   `json:"held_out"`
	Decisive []int  `json:"decisive"`
	text     []byte
}

func corpus(t *testing.T) (logs []corpusLog) {
	t.Helper()
	files, err := filepath.Glob("../evidence/testdata/corpus/*.json")
	if err != nil || len(files) < 80 {
		t.Fatalf("%d logs, %v", len(files), err)
	}
	for _, name := range files {
		var l corpusLog
		data, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(data, &l)
		}
		if err == nil {
			l.text, err = unpack(strings.TrimSuffix(name, ".json") + ".log.gz")
		}
		if err != nil {
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

var (
	controls = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|\r")
	leftOut  = regexp.MustCompile(`^\[\.\.\. \d+ bytes(?:, (\d+) lines)? left out, from line (\d+) \.\.\.\]$`)
)

// has counts the decisive lines that a preview shows whole, where its markers
// say that they stand.
func (l *corpusLog) has(preview string) (n int) {
	there, at := map[int]string{}, 1
	for line := range strings.SplitSeq(preview, "\n") {
		m := leftOut.FindStringSubmatch(line)
		if m == nil {
			there[at] = line
			at++
			continue
		}
		var lines, from int
		fmt.Sscan(m[1], &lines) // none is 0
		fmt.Sscan(m[2], &from)
		if at != from { // of line from the beginning is shown
			from++
		}
		at = from + lines
	}
	all := bytes.Split(l.text, []byte("\n"))
	for _, at := range l.Decisive {
		if line, ok := there[at]; ok && line == string(controls.ReplaceAll(all[at-1], nil)) {
			n++
		}
	}
	return n
}

// What decides is there when a result has come all the way to the model: out of
// the sandbox within what is brought out of it, through the preview with the
// limits of any run, and through what a result may hold of a request. Of the
// first request of a run with results that is a fifth of very little, about 1 KiB
// of text; after four results that were long there is room for what is asked of
// a preview, and where the older ones have just been reduced for nearly that.
func TestCorpusReachesTheModel(t *testing.T) {
	t.Parallel()
	logs := corpus(t)
	for _, c := range []struct{ before, all, heldOut int }{{0, 83, 90}, {4, 98, 90}, {8, 97, 90}} {
		t.Run(fmt.Sprintf("after %d", c.before), func(t *testing.T) {
			t.Parallel()
			var all, kept, unseen, keptUnseen, shown int
			for _, l := range logs {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "log"), l.text, 0o600); err != nil {
					t.Fatal(err)
				}
				_, f, err := play(t, setup{run: func(o *run.Options) { o.Workspace = run.Workspace{Dir: dir} }},
					listings(c.before, sh("cat log; exit 1"), text("done"))...)
				if err != nil {
					t.Fatal(l.Name, err)
				}
				res := results(t, f.seen[len(f.seen)-1])[0]
				n := l.has(res.Stdout)
				if n < len(l.Decisive) {
					t.Logf("%s: %d of %d in %d bytes", l.Name, n, len(l.Decisive), len(res.Stdout))
				}
				if res.Spill == nil || res.Spill.Bytes != int64(len(l.text)) {
					t.Errorf("%s: the rest of it is %+v", l.Name, res.Spill)
				}
				all, kept, shown = all+len(l.Decisive), kept+n, shown+len(res.Stdout)
				if l.HeldOut {
					unseen, keptUnseen = unseen+len(l.Decisive), keptUnseen+n
				}
			}
			t.Logf("of %d decisive lines %d reach the model, in %d bytes of each log; of tools that no pattern names %d of %d", all, kept, shown/len(logs), keptUnseen, unseen)
			if kept*100 < all*c.all || keptUnseen*100 < unseen*c.heldOut {
				t.Errorf("want %d %% and %d %%", c.all, c.heldOut)
			}
		})
	}
}
