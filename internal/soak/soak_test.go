package soak_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/internal/soak"
	"go.uber.org/goleak"
)

var (
	alone   = flag.Uint64("seed", 0, "play this script alone, and say what it is")
	from    = flag.Uint64("from", 1, "the first script")
	scripts = flag.Int("scripts", 300, "how many scripts to play")
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// TestProperty plays scripts and judges each. A failure names the seed:
//
//	go test ./internal/soak -run TestProperty -seed N -v
func TestProperty(t *testing.T) {
	if *alone != 0 {
		t.Log(soak.New(*alone))
		play(t, *alone)
		return
	}
	first := *from
	var next atomic.Uint64
	ends := make([]map[string]int, 4)
	t.Run("scripts", func(t *testing.T) {
		for w := range ends {
			ends[w] = map[string]int{}
			t.Run(fmt.Sprint(w), func(t *testing.T) {
				t.Parallel()
				for {
					n := next.Add(1) - 1
					if n >= uint64(*scripts) {
						return
					}
					t.Run(fmt.Sprint("seed=", first+n), func(t *testing.T) {
						for _, what := range play(t, first+n) {
							ends[w][what]++
						}
					})
				}
			})
		}
	})
	all := map[string]int{}
	for _, e := range ends {
		for reason, n := range e {
			all[reason] += n
		}
	}
	t.Logf("%d scripts from seed %d: %v", *scripts, first, all)
	if *scripts >= 300 {
		for _, what := range []string{"done", "failed", "budget", "sandbox_lost", "model_unavailable", "interrupted", "not_accepted", "expired_no_progress",
			"stuck", "needs_human", "resumed", "resumed again", "output", "session_create", "session_run", "session_close", "show", "nap", "wish", "soak/second", "summary",
			"approval_denied", "approval_timed_out", "approval_no_channel", "denied_by_rule", "approved", "granted"} {
			if all[what] == 0 {
				t.Errorf("%s came up in no script: they have become too tame", what)
			}
		}
	}
}

// TestSeeds plays the scripts that once found something which no test beside the
// fault shows as well.
func TestSeeds(t *testing.T) {
	for _, seed := range []uint64{61878, 902339, 940659, 5003862, 5004864, 5009232, 6001233, 9008985, 9103304, 9103622, 9105740, 1796133278, 1796133624, 1796141351, 1796144729, 1796144818} {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			play(t, seed)
		})
	}
}

// play plays one script in simulated time and returns how it ended and what was
// in it.
func play(t *testing.T, seed uint64) (what []string) {
	dir, err := os.MkdirTemp("", "rein-soak-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	synctest.Test(t, func(t *testing.T) {
		x, err := soak.Play(soak.New(seed), dir)
		if err != nil {
			t.Fatal(err)
		}
		conclusion := fmt.Sprint(x.Err)
		if rep := x.Report; rep != nil {
			what = append(slices.Collect(maps.Keys(rep.Calls.ByTool)), string(rep.Reason))
			what = append(what, x.Came()...)
			if rep.Brake != nil {
				what = append(what, rep.Brake.Limit)
			}
			if conclusion = rep.Conclusion + ": " + rep.Error; x.Crashed {
				what = append(what, "resumed")
			}
			if rep.Output != nil && rep.Output.Files > 0 {
				what = append(what, "output")
			}
			if len(rep.Resumed) > 1 {
				what = append(what, "resumed again")
			}
		}
		defer time.Sleep(soak.Outlive) // whatever was left behind ends, or is found
		faults := soak.Judge(x)
		if len(faults) > 0 {
			t.Errorf("seed %d: %s\n  %s", seed, conclusion, strings.Join(faults, "\n  "))
		}
		if seed == *alone {
			t.Log(conclusion)
		}
	})
	return what
}
