package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

// What is kept of the limits for the last turn, besides one step.
const (
	lastTime  = 30 * time.Second
	lastBytes = 4 << 10 // of a conversation that was shortened to fit
)

// keep sets aside what the last turn needs.
func (c *conversation) keep() {
	input := int64(frames + 2*frame + len(c.req.System) + lastBytes)
	output := int64(min(MinOutputTokens, c.MaxOutputTokens))
	k := budget.Kept{Steps: 1, Time: lastTime, Spent: budget.Spent{Tokens: input + output}}
	for _, rate := range []*Price{c.Price, c.FallbackPrice} {
		if rate != nil {
			k.Cost = max(k.Cost, budget.USD(rate.Most(input, output)))
		}
	}
	c.s.Budget().Keep(k)
}

// lastWord is what happens when a limit is used up or the work is stopped for
// another reason: the model gets one more turn, without tools, to say how far it
// got. When that cannot be, rein says it.
func (c *conversation) lastWord(ctx context.Context, out run.Outcome) run.Outcome {
	c.req.Tools, c.last = nil, true
	err := c.askLast(ctx, "The work is stopped ("+out.Detail+"). No tool can be called any more. "+
		"Say in a few sentences what is done, what is not, and what you would do next.", &out)
	if err != nil {
		c.s.Warn("there is no last answer of the model: %v", err)
		out.Answer, out.Composed = c.done.report(), true
	}
	return out
}

// ended gives work an account that ends otherwise and without an answer: a last
// turn when the sandbox gets no more time, and rein's own when there is none.
func (c *conversation) ended(work context.Context, out run.Outcome, err error) (run.Outcome, error) {
	if out.Reason == run.Done {
		return out, err
	}
	if last, cancel, ok := c.s.LastTurn(work); ok {
		defer cancel()
		out.Detail = context.Cause(work).Error()
		return c.lastWord(last, out), err
	}
	if strings.TrimSpace(out.Answer) == "" {
		out.Answer, out.Composed = c.done.report(), true
	}
	return out, err
}

// errNoAnswer is the case of a last reply without text.
var errNoAnswer = errors.New("it said nothing")

func (c *conversation) askLast(ctx context.Context, text string, out *run.Outcome) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := c.round.LastStep(); err != nil {
		return err
	}
	c.step++
	c.s.Emit(run.Event{Kind: run.EventStep, Step: c.step})
	c.say(text)
	reply, err := c.ask(ctx)
	if b, ok := errors.AsType[*budget.Breach](err); ok && b.Needed > 0 {
		// All of the conversation is too much for what is left; its outline is not.
		if err := c.newHistory(c.done.outline(c.s.Masker().String(c.s.Task())) + "\n\n" + text); err != nil {
			return err
		}
		reply, err = c.ask(ctx)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	if err := c.settle(&c.req, reply); err != nil {
		c.s.Warn("the last answer went over a limit: %v", err)
	}
	if strings.TrimSpace(reply.Message.Text) == "" {
		return errNoAnswer
	}
	out.Answer = reply.Message.Text
	return nil
}

// deeds is what was done, for when the conversation itself cannot be sent, or
// nobody is there to read it.
type deeds struct {
	calls, failed int
	lines         []string // of the newest calls
}

// Bounds of deeds.
const (
	maxDeeds  = 16
	deedBytes = 120
)

// add notes a call and how it ended.
func (d *deeds) add(what string, res tool.Result) {
	d.calls++
	if !res.OK {
		d.failed++
	}
	if len(d.lines) == maxDeeds {
		d.lines = d.lines[1:]
	}
	if res.Edited != "" {
		what += ", edited to: " + res.Edited
	}
	d.lines = append(d.lines, evidence.Cut(what, deedBytes)+": "+outcome(res))
}

// outline is the task and the newest calls in at most lastBytes, with some left
// for what the model is to do with it.
func (d *deeds) outline(task string) string {
	const words = 1 << 10
	text := evidence.Cut(task, (lastBytes-words)/2) + "\n\n" + d.newest()
	return evidence.Cut(text, lastBytes-words)
}

func (d *deeds) newest() string {
	if d.calls == 0 {
		return "No tool was called."
	}
	calls := "1 tool call"
	if d.calls > 1 {
		calls = fmt.Sprintf("%d tool calls", d.calls)
	}
	return fmt.Sprintf("%s, %d not successful. The newest:\n- %s", calls, d.failed, strings.Join(d.lines, "\n- "))
}

// report is an answer without a model.
func (d *deeds) report() string {
	return "There is no last answer of the model; rein wrote this from its records. " + d.newest()
}

// stopped ends the work for a limit.
func (c *conversation) stopped(ctx context.Context, breach *budget.Breach) (run.Outcome, error) {
	c.s.Stopped(breach)
	out := run.Outcome{Reason: run.OverBudget, Detail: breach.Error()}
	if breach.Limit == budget.LimitProviderOverrun { // its next reply might use more again
		out.Answer, out.Composed = c.done.report(), true
		return out, breach
	}
	return c.lastWord(ctx, out), breach
}
