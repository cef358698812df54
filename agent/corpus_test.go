package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rein-sh/rein/internal/corpus"
	"github.com/rein-sh/rein/run"
)

// What decides is there when a result has come all the way to the model: out of
// the sandbox within what is brought out of it, through the preview with the
// limits of any run, and through what a result may hold of a request. Of the
// first request of a run with results that is a fifth of very little, about 1 KiB
// of text; after four results that were long there is room for what is asked of
// a preview, and where the older ones have just been reduced for nearly that.
func TestCorpusReachesTheModel(t *testing.T) {
	t.Parallel()
	logs, err := corpus.Read("../evidence/testdata/corpus")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ before, all, heldOut int }{{0, 83, 90}, {4, 98, 90}, {8, 97, 90}} {
		t.Run(fmt.Sprintf("after %d", c.before), func(t *testing.T) {
			t.Parallel()
			var all, kept, unseen, keptUnseen, shown int
			for _, l := range logs {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "log"), l.Text, 0o600); err != nil {
					t.Fatal(err)
				}
				_, f, err := play(t, setup{run: func(o *run.Options) { o.Workspace = run.Workspace{Dir: dir} }},
					listings(c.before, sh("cat log; exit 1"), text("done"))...)
				if err != nil {
					t.Fatal(l.Name, err)
				}
				res := results(t, f.seen[len(f.seen)-1])[0]
				n := l.Kept(res.Stdout)
				if n < len(l.Decisive) {
					t.Logf("%s: %d of %d in %d bytes", l.Name, n, len(l.Decisive), len(res.Stdout))
				}
				if res.Spill == nil || res.Spill.Bytes != int64(len(l.Text)) {
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
