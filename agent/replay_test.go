package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/tool"
)

// runs of many ends, each to be replayed.
func endings() map[string]struct {
	limits  func(*budget.Limits)
	options func(*agent.Options)
	answers []answer
	want    run.Reason
} {
	type ending = struct {
		limits  func(*budget.Limits)
		options func(*agent.Options)
		answers []answer
		want    run.Reason
	}
	a, b := cmd("echo 1")
	c, d := cmd("echo 2")
	busy := fails(model.Error{Kind: model.KindRateLimit, RetryAfter: 20 * time.Second})
	return map[string]ending{
		"done":     {answers: []answer{sh("echo 1; exit 3"), busy, calls(a, b, tool.SandboxKill, "{}"), text("done")}, want: run.Done},
		"no model": {answers: []answer{sh("echo 1"), fails(model.Error{Kind: model.KindAuth})}, want: run.NoModel},
		"quota":    {answers: []answer{fails(model.Error{Kind: model.KindQuota})}, want: run.NeedsHuman},
		"given up": {answers: []answer{busy}, options: func(o *agent.Options) { o.Retries = 2 }, want: run.NoModel},
		"refusal":  {answers: []answer{stopped(text("no"), model.StopRefusal)}, want: run.Failed},
		"cut":      {answers: []answer{stopped(calls(a, b, a, b), model.StopLength), text("shorter")}, want: run.Done},
		"stuck":    {answers: []answer{calls(a, b, a, b)}, want: run.Stuck},
		"calls":    {answers: []answer{calls(a, b, c, d, tool.ReadFile, `{"path":"x"}`)}, limits: func(l *budget.Limits) { l.MaxToolCalls = 4 }, want: run.OverBudget},
		"steps":    {answers: []answer{sh("date")}, limits: func(l *budget.Limits) { l.MaxSteps = 3 }, want: run.OverBudget},
		"wall": {answers: []answer{sh("sleep 50"), sh("sleep 51"), sh("sleep 52"), calls(tool.RunCommand, `{"command":"sleep 100"}`, a, b), sh("sleep 54")},
			limits: func(l *budget.Limits) { l.MaxWallTime = 3 * time.Minute }, want: run.OverBudget},
	}
}

// A replay makes the calls that were made, comes to the same verdicts, and ends
// for the same reason.
func TestReplay(t *testing.T) {
	t.Parallel()
	for name, e := range endings() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
				defer mem.Close()
				f := &fake{answers: e.answers}
				o := agent.Options{Model: f, Price: &agent.Price{Input: 1, Output: 2}}
				if e.options != nil {
					e.options(&o)
				}
				w, err := agent.New(o)
				if err != nil {
					t.Fatal(err)
				}
				ro := run.Options{Task: "the task", Provider: mem, StateDir: t.TempDir(), Limits: budget.Standard()}
				if e.limits != nil {
					e.limits(&ro.Limits)
				}
				rep, _ := run.Do(context.Background(), ro, w)
				if rep == nil || rep.Reason != e.want {
					t.Fatalf("%+v", rep)
				}
				asked := len(f.seen)
				time.Sleep(time.Hour) // it is replayed later
				got, err := run.Replay(context.Background(), rep.Dir, rep.AuditHead.String(), ro, w.(run.Resumer))
				if err != nil || !got.Same || got.Replayed != e.want || got.Changed || len(f.seen) != asked {
					t.Errorf("%+v, %v; the model was asked %d times", got, err, len(f.seen)-asked)
				}
				if rep.Brake != nil && (got.Brake == nil || got.Brake.Limit != rep.Brake.Limit) {
					t.Errorf("brake %+v, was %+v", got.Brake, rep.Brake)
				}
			})
		})
	}
}

// What a loop with other limits would have done differently shows.
func TestReplayDiffers(t *testing.T) {
	t.Parallel()
	a, b := cmd("echo 1")
	rep, _, err := play(t, setup{}, calls(a, b, a, b), text("done"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := agent.New(agent.Options{Model: &fake{}})
	if err != nil {
		t.Fatal(err)
	}
	o := run.Options{Task: "the task", Provider: sandboxtest.NewMemory(sandboxtest.MemoryOptions{}), Limits: budget.Standard()}
	o.Limits.MaxToolCalls = 1
	got, err := run.Replay(t.Context(), rep.Dir, rep.AuditHead.String(), o, w.(run.Resumer))
	if err != nil || got.Same || !got.Changed || len(got.Differences) == 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	if d := got.Differences[0].String(); !strings.Contains(d, "recorded run_command echo 1; replayed run_command echo 1, not executed (fatal budget)") {
		t.Error(d)
	}
}

// A record that was changed is not followed.
func TestReplayOfAltered(t *testing.T) {
	t.Parallel()
	rep, _, err := play(t, setup{}, sh("echo 1"), text("done"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := agent.New(agent.Options{Model: &fake{}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(rep.Dir, "transcript.jsonl")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(data), "echo 1", "echo 2", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	o := run.Options{Task: "the task", Provider: sandboxtest.NewMemory(sandboxtest.MemoryOptions{}), Limits: budget.Standard()}
	if got, err := run.Replay(t.Context(), rep.Dir, "", o, w.(run.Resumer)); err == nil || !strings.Contains(err.Error(), "is not what the audit log has the hash of") {
		out, _ := json.Marshal(got)
		t.Errorf("%s, %v", out, err)
	}
}
