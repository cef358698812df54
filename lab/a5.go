package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// The life of a5's sandboxes, with the arithmetic of every run and smaller
// numbers: there is no time to wait for minutes.
var (
	a5Terms = budget.Terms{Estimate: 5 * time.Second, Margin: 2 * time.Second, SaveBefore: 1500 * time.Millisecond}
	a5Wall  = 15 * time.Second
)

// A5 is two runs. One calls the same endless loop again and again: each call
// ends at its timeout, the sandbox is never renewed, and it is destroyed. The
// other makes progress: its sandbox is renewed, and never past the absolute end.
// The error is that of the machinery; what failed in the runs is in the Result.
func A5(ctx context.Context, env Env) (Result, error) {
	b, err := begin(env, "a5", "the brakes: an endless loop, and work that gets on")
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, Limit-2*time.Second)
	defer cancel()
	var loop, work lived
	var both sync.WaitGroup
	both.Go(func() { loop = b.live(ctx, "loop for ever", endless) })
	both.Go(func() { work = b.live(ctx, "get on", gettingOn) })
	both.Wait()
	err = b.guard(func() {
		b.judgeLoop(loop)
		b.judgeWork(work)
	})
	return b.end(errors.Join(err, loop.err, work.err))
}

// endless is a call that does not end by itself.
func endless(int) model.ToolCall {
	return model.ToolCall{ID: "c", Name: tool.RunCommand, Arguments: `{"command":"while :; do sleep 0.05; done","timeout_seconds":1}`}
}

// gettingOn is a call whose result is new: not only its digits are.
func gettingOn(n int) model.ToolCall {
	word := strings.Repeat(string(rune('a'+n%26)), 1+n/26)
	args, _ := json.Marshal(map[string]any{"command": "sleep 0.4; echo " + word + " >> done; cat done", "timeout_seconds": 1}) // plain data always encodes
	return model.ToolCall{ID: "c", Name: tool.RunCommand, Arguments: string(args)}
}

// caller is a model that makes one call in each reply.
type caller struct {
	call func(n int) model.ToolCall
	mu   sync.Mutex
	n    int
}

func (c *caller) Name() string { return "lab/caller" }

func (c *caller) Generate(ctx context.Context, req *model.Request, _ func(model.Delta)) (*model.Reply, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	usage := model.Usage{Known: true, Input: 100, Output: 10}
	if len(req.Tools) == 0 { // the last turn
		return &model.Reply{Message: model.Message{Role: model.RoleAssistant, Text: "stopped"}, Stop: model.StopEnd, Usage: usage}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return &model.Reply{Message: model.Message{Role: model.RoleAssistant, Calls: []model.ToolCall{c.call(c.n - 1)}}, Stop: model.StopToolCalls, Usage: usage}, nil
}

// lived is what is known of a run of a5.
type lived struct {
	report *run.Report
	err    error
	// Of its audit log: the first end of the sandbox, those it was moved to
	// while the work went on, and the last of all.
	born     time.Time
	renewals []time.Time
	last     time.Time
}

// live does one run.
func (b *bench) live(ctx context.Context, task string, call func(int) model.ToolCall) (l lived) {
	l.err = b.guard(func() {
		w, err := agent.New(agent.Options{Model: &caller{call: call}, Price: &agent.Price{}})
		if err != nil {
			panic(err) // it has all it needs
		}
		limits := budget.Long()
		limits.MaxWallTime = a5Wall
		l.report, err = run.Do(ctx, run.Options{Task: task, Provider: b.env.Provider, Target: run.Target{Spec: b.env.Spec}, Limits: limits,
			Lease: a5Terms, StateDir: filepath.Join(b.env.StateDir, "lab"), Masker: b.env.Masker, Model: "lab/caller"}, w)
		if l.report == nil {
			panic(err)
		}
		l.read(filepath.Join(l.report.Dir, run.AuditFile))
		// The run has a log of its own; this one has its head.
		if _, err := b.log.Append(audit.Entry{Kind: audit.KindRunEnd, RunID: l.report.RunID, SandboxID: l.report.SandboxID, Data: l.report.AuditHead}); err != nil {
			panic(err)
		}
	})
	return l
}

// read finds the ends of the sandbox in the audit log.
func (l *lived) read(path string) {
	f, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	over := false
	for r, err := range audit.Records(f) {
		if err != nil {
			panic(err)
		}
		switch r.Kind {
		case audit.KindSandboxCreated:
			var info sandbox.Info
			if json.Unmarshal(r.Data, &info) == nil {
				l.born, l.last = info.ExpiresAt, info.ExpiresAt
			}
		case audit.KindRunOutcome:
			over = true
		case audit.KindSandboxRenewed:
			var o sandbox.LifecycleOutcome
			if json.Unmarshal(r.Data, &o) != nil || !o.OK {
				continue
			}
			if l.last = o.ExpiresAt; !over {
				l.renewals = append(l.renewals, o.ExpiresAt)
			}
		}
	}
}

func (b *bench) judgeLoop(l lived) {
	r := l.report
	if r == nil {
		b.step("endless loop", "a run with a report", func() (string, bool) { return fmt.Sprint(l.err), false })
		return
	}
	b.result.SandboxID, b.result.Runtime = r.SandboxID, r.Target.Runtime
	b.step("loop: command timeout", "every call that was begun ended at its timeout, one at least", func() (string, bool) {
		return fmt.Sprintf("%d calls, %d timed out, %d succeeded", r.Calls.Total, r.Calls.TimedOut, r.Calls.Succeeded), r.Calls.TimedOut >= 1 && r.Calls.Succeeded == 0
	})
	b.step("loop: no renewal", "0 renewals, the end unchanged, stopped for no progress (exit code 5)", func() (string, bool) {
		return fmt.Sprintf("%d renewals, end moved by %v, %s", len(l.renewals), l.last.Sub(l.born).Round(time.Millisecond), r.Reason),
			len(l.renewals) == 0 && l.last.Equal(l.born) && r.ExitCode == run.NoProgress.ExitCode()
	})
	b.destroyed("loop", r)
}

func (b *bench) judgeWork(l lived) {
	r := l.report
	if r == nil {
		b.step("work", "a run with a report", func() (string, bool) { return fmt.Sprint(l.err), false })
		return
	}
	b.step("work: renewals", "2 renewals or more", func() (string, bool) {
		return fmt.Sprintf("%d renewals in %d successful calls", len(l.renewals), r.Calls.Succeeded), len(l.renewals) >= 2
	})
	absolute := r.StartedAt.Add(a5Wall + a5Terms.Margin)
	b.step("work: absolute end", "no end later than the run's deadline and the margin", func() (string, bool) {
		left := absolute.Sub(l.last)
		for _, end := range l.renewals {
			left = min(left, absolute.Sub(end))
		}
		// Providers keep time to the second at worst.
		return fmt.Sprintf("the latest end was %v before it; stopped by %s", left.Round(time.Millisecond), r.Reason), left > -time.Second && r.Reason == run.OverBudget
	})
	b.destroyed("work", r)
}

// destroyed asks the provider, and not the report, whether the sandbox is gone.
func (b *bench) destroyed(name string, r *run.Report) {
	b.step(name+": destroyed", "the provider knows the sandbox no more", func() (string, bool) {
		ctx, cancel := context.WithTimeout(context.Background(), sandbox.DefaultOpTimeout)
		defer cancel()
		_, err := b.env.Provider.Get(ctx, r.SandboxID)
		return fmt.Sprintf("%v; record %s", err, r.Dir), r.Cleanup.OK && sandbox.KindOf(err) == sandbox.KindNotFound
	})
}
