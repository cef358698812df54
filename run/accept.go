package run

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/sandbox"
)

// DefaultCheckTimeout ends a check that names no timeout.
const DefaultCheckTimeout = 5 * time.Minute

// checkOutput is how much of a check's output the report keeps, each stream.
const checkOutput = 2 << 10

// cleanupTime is what is kept back of a sandbox's life for its destruction.
const cleanupTime = 15 * time.Second

func (c Check) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return DefaultCheckTimeout
}

// command is what the sandbox's shell is given. An argument list is quoted, so
// that the shell reads nothing into it.
func (c Check) command() string {
	if c.Shell != "" {
		return c.Shell
	}
	words := make([]string, len(c.Argv))
	for i, w := range c.Argv {
		words[i] = quote(w)
	}
	return strings.Join(words, " ")
}

func checksTime(checks []Check) time.Duration {
	sum := cleanupTime
	for _, c := range checks {
		sum += c.timeout()
	}
	return sum
}

// quietTimeout bounds the ending of what the worker left running.
const quietTimeout = 20 * time.Second

// quiet ends what the worker left running, so that nothing changes while the
// outputs are read and judged: commands in the background, what they left
// behind, and commands whose end is not known. What other commands left behind
// execd killed when they ended.
func (r *runner) quiet(ctx context.Context) {
	r.mu.Lock()
	ids, sets := r.background, r.tools
	r.background, r.tools = nil, nil
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, quietTimeout)
	defer cancel()
	for _, set := range sets {
		set.Close(ctx)
	}
	var ending sync.WaitGroup // there are no more than calls
	for _, id := range ids {
		ending.Go(func() {
			err := r.box.Interrupt(ctx, id)
			if err != nil && sandbox.KindOf(err) != sandbox.KindNotFound {
				r.warn("the command %s, which may still run, could not be ended before the checks: %v", id, err)
			}
		})
	}
	ending.Wait()
}

// accept runs the checks. Its error is that of the machinery: a check that
// fails is a result.
func (r *runner) accept(ctx context.Context, checks []Check) error {
	verdict := Unchecked
	for _, p := range r.report.Protected {
		if !p.Unchanged {
			verdict = No
		}
	}
	var fault error
	for _, c := range checks {
		res, err := r.check(ctx, c)
		r.mu.Lock()
		r.report.Checks = append(r.report.Checks, res)
		r.mu.Unlock()
		switch {
		case err != nil:
			fault = err
		case !res.Passed:
			verdict = No
		case verdict == Unchecked:
			verdict = Yes
		}
		if err := r.record(audit.KindAcceptance, "", res); err != nil {
			return err
		}
	}
	unseen := len(r.o.Protect) > 0 && !r.guarded || len(checks) < len(r.o.Accept)
	if (fault != nil || unseen) && verdict != No {
		verdict = Unclear
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Accepted = verdict
	r.said = fmt.Sprintf("outputs are saved; accepted: %s; the sandbox is destroyed\n", verdict)
	return fault
}

func (r *runner) check(ctx context.Context, c Check) (CheckResult, error) {
	res := CheckResult{Name: c.Name, Command: c.command()}
	if res.Name == "" {
		res.Name = evidence.Cut(res.Command, 60)
	}
	r.emit(Event{Kind: EventCheck, Text: res.Name})
	timeout := min(c.timeout(), r.renewer.life())
	if timeout <= 0 {
		err := fmt.Errorf("no time is left for the check %s", res.Name)
		res.Error = err.Error()
		return res, err
	}
	out, err := r.box.Run(ctx, sandbox.Command{Tool: "acceptance", Shell: res.Command, Timeout: timeout})
	res.ExitCode, res.Timeout, res.DurationMS = out.ExitCode, out.TimedOut(), out.DurationMS
	res.Stdout, res.Stderr = end(out.Stdout.Head, out.Stdout.Tail), end(out.Stderr.Head, out.Stderr.Tail)
	if err != nil {
		res.Error = err.Error()
		return res, fmt.Errorf("check %s: %w", res.Name, err)
	}
	res.Passed = out.OK()
	verdict := "failed"
	if res.Passed {
		verdict = "passed"
	}
	r.emit(Event{Kind: EventCheck, Text: res.Name + ": " + verdict})
	return res, nil
}

// end is the end of a stream, for the report.
func end(head, tail []byte) string {
	return strings.ToValidUTF8(evidence.CutFront(string(head)+string(tail), checkOutput), "\uFFFD")
}
