package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	runs "github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/tool"
)

// What the loop may cost.
const (
	loopCalls   = 20
	loopResult  = 1 << 10 // bytes of each call's output
	loopRuns    = 1000
	loopTarget  = 200 * time.Microsecond
	loopMemory  = 256 << 20
	loopSamples = 50 // runs that are timed
)

// loop measures what rein's loop costs by itself: the time of a call without
// that of the model and the sandbox, and the memory of many runs at once.
func loop(ctx context.Context, c config) error {
	fmt.Printf("\nThe loop (%d calls with %d bytes each; model and calls answer at once)\n", loopCalls, loopResult)
	for _, sync := range []bool{false, true} {
		took, err := overhead(ctx, filepath.Join(c.stateDir, fmt.Sprint("overhead-", sync)), sync)
		if err != nil {
			return err
		}
		p50, p99 := quantile(took, 50), quantile(took, 99)
		if !sync {
			upTo("overhead of a call, fsync off, p50", float64(p50)/1e3, float64(loopTarget)/1e3, "µs")
			fmt.Printf("  %-52s %8.1fµs\n", "the same, p99", float64(p99)/1e3)
			continue
		}
		fmt.Printf("  %-52s %8.1fµs, p99 %.1fµs\n", "overhead of a call, each record on the disk, p50", float64(p50)/1e3, float64(p99)/1e3)
	}
	peak, took, err := crowd(ctx, filepath.Join(c.stateDir, "crowd"))
	if err != nil {
		return err
	}
	upTo(fmt.Sprintf("memory of %d runs at once, all of the process", loopRuns), float64(peak)/(1<<20), loopMemory>>20, " MiB")
	fmt.Printf("  %-52s %8.1fs\n", "they took", took.Seconds())
	return nil
}

// upTo prints a figure that should be at most want.
func upTo(what string, got, want float64, unit string) {
	word := "met"
	if got > want {
		word = "MISSED"
	}
	fmt.Printf("  %-52s %8.1f%s  (target at most %g%s)  %s\n", what, got, unit, want, unit, word)
}

// scripted asks for one call after another, and notes how long the loop took
// from each answer to the next request.
type scripted struct {
	calls   int
	last    time.Time
	took    []time.Duration
	waiting func() // before each answer; may be nil
}

func (s *scripted) Name() string { return "bench/script" }

func (s *scripted) Generate(context.Context, *model.Request, func(model.Delta)) (*model.Reply, error) {
	if !s.last.IsZero() {
		s.took = append(s.took, time.Since(s.last))
	}
	if s.waiting != nil {
		s.waiting()
	}
	defer func() { s.last = time.Now() }()
	r := &model.Reply{Message: model.Message{Role: model.RoleAssistant}, Stop: model.StopToolCalls,
		Usage: model.Usage{Known: true, Input: int64(1000 + 500*s.calls), Output: 50}}
	if s.calls == loopCalls {
		r.Message.Text, r.Stop = "done", model.StopEnd
		return r, nil
	}
	s.calls++
	r.Message.Calls = []model.ToolCall{{ID: fmt.Sprint("c", s.calls), Name: "tell", Arguments: fmt.Sprintf(`{"n":%d}`, s.calls)}}
	return r, nil
}

// told is what each result has besides its number.
var told = strings.Repeat("x", loopResult-6) + "\n"

// tell answers at once, without a sandbox: what is left is the loop.
func tell(_ context.Context, in struct {
	N int `json:"n"`
}) (string, error) {
	return fmt.Sprintf("%4d %s", in.N, told), nil
}

// options are those of a run, or of many.
func options(p sandbox.Provider, dir string, sync bool) (*runs.Options, error) {
	t, err := tool.Func("tell", "Tell a text.", tell)
	return &runs.Options{Task: "bench", Provider: p, Limits: budget.Long(), StateDir: dir, SyncRecords: sync, Tools: []tool.Custom{t}}, err
}

// one does one run of the loop.
func one(ctx context.Context, o *runs.Options, m *scripted) error {
	w, err := agent.New(agent.Options{Model: m, Price: &agent.Price{Input: 1, Output: 5}})
	if err != nil {
		return err
	}
	rep, err := runs.Do(ctx, *o, w)
	if err != nil {
		return err
	}
	if rep.Reason != runs.Done || rep.Calls.Succeeded != loopCalls {
		return fmt.Errorf("a run ended with: %s %d calls of %d", rep.Conclusion, rep.Calls.Succeeded, loopCalls)
	}
	return nil
}

var errEmpty = errors.New("no call was timed")

// overhead is how long the loop took for each call.
func overhead(ctx context.Context, dir string, sync bool) ([]time.Duration, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var all []time.Duration
	for range loopSamples {
		m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: dir})
		s := &scripted{}
		o, err := options(m, dir, sync)
		if err == nil {
			err = one(ctx, o, s)
		}
		m.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, s.took...)
	}
	if len(all) == 0 {
		return nil, errEmpty
	}
	return all, nil
}

// crowd has many runs at once, all of which wait for their last answer until
// every one has come so far, and returns how much memory that took.
func crowd(ctx context.Context, dir string) (peak int64, took time.Duration, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, 0, err
	}
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: dir})
	defer m.Close()
	o, err := options(m, filepath.Join(dir, "state"), false)
	if err != nil {
		return 0, 0, err
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(loopMemory / 10 * 9)) // as a program that has so much would
	start := time.Now()
	var wg, ready sync.WaitGroup
	ready.Add(loopRuns)
	all := make(chan struct{})
	faults := make(chan error, loopRuns)
	for range loopRuns {
		wg.Go(func() {
			s := &scripted{}
			arrived := sync.OnceFunc(ready.Done)
			defer arrived()
			s.waiting = func() {
				if s.calls == loopCalls {
					arrived()
					<-all
				}
			}
			faults <- one(ctx, o, s)
		})
	}
	ready.Wait()
	close(all)
	wg.Wait()
	for range loopRuns {
		if e := <-faults; e != nil && err == nil {
			err = e
		}
	}
	peak, gone := status(os.Getpid(), "VmHWM:")
	return peak, time.Since(start), errors.Join(err, gone)
}
