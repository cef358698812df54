package run_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

// TestBackgroundProgress: what a command in the background prints is progress,
// also when it is seen only at its end, and so is its first success.
func TestBackgroundProgress(t *testing.T) {
	poll := func(running, ok bool, bytes int64) tool.Result {
		return tool.Result{OK: ok, Stdout: "new text\n"[:min(bytes, 9)], Background: &tool.Background{ID: "bg", Running: running, Bytes: bytes}}
	}
	unreachable := tool.Result{Err: &tool.Error{Class: tool.Retryable, Code: tool.CodeUnavailable}}
	for name, c := range map[string]struct {
		before, after []tool.Result // results of the same wait, around a renewal
		renewed       bool
	}{
		"growth seen at the end of a failure": {after: []tool.Result{poll(false, false, 9)}, renewed: true},
		"last growth":                         {[]tool.Result{poll(true, false, 5)}, []tool.Result{poll(false, false, 9)}, true},
		"nothing new in a failure":            {[]tool.Result{poll(true, false, 9)}, []tool.Result{poll(false, false, 9)}, false},
		"success after a wait that failed":    {[]tool.Result{poll(true, false, 9), unreachable}, []tool.Result{poll(false, true, 9)}, true},
		"the same end again":                  {[]tool.Result{poll(false, true, 9)}, []tool.Result{poll(false, true, 9)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options(t)
				o.Limits = budget.Long()
				var ended bool
				do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
					told := func(results []tool.Result) {
						for _, r := range results {
							if err := s.Called(tool.Call{ID: s.NewCallID(), Name: tool.RunCommand, Arguments: json.RawMessage(`{"wait":"bg"}`)}, 1, r); err != nil {
								t.Error(err)
							}
						}
					}
					wait := 18 * time.Minute // the first renewal is at 17, the second at 32
					if len(c.before) > 0 {
						told(c.before)
						time.Sleep(wait)
						wait = 15 * time.Minute
					}
					told(c.after)
					select {
					case <-ctx.Done():
					case <-time.After(wait):
					}
					ended = ctx.Err() != nil
					return done("")
				})
				if ended == c.renewed {
					t.Errorf("work was ended: %v", ended)
				}
			})
		})
	}
}
