package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

type loop struct{ Options }

// conversation is one run of the loop.
type conversation struct {
	*loop
	s     *run.Session
	set   *tool.Set
	round *budget.Round
	req   model.Request
	step  int
	// told is how many messages of req the transcript has.
	told int
	// finished: sandbox_kill has been called, and only an answer is missing.
	finished bool
}

// Work runs the loop until the model answers without calling a tool, a limit
// is used up, or something makes going on pointless.
func (l *loop) Work(ctx context.Context, s *run.Session) (run.Outcome, error) {
	set, err := s.Tools()
	if err != nil {
		return run.Outcome{Reason: run.Failed, Detail: "the tools could not be set up"}, err
	}
	if l.Price == nil {
		s.Warn("the cost limit is not enforced: what %s costs is not known", l.Model.Name())
	}
	c := &conversation{loop: l, s: s, set: set, round: s.Budget().Round()}
	c.req = model.Request{
		System:          systemPrompt(l.System, s),
		Messages:        []model.Message{{Role: model.RoleUser, Text: s.Masker().String(s.Task())}},
		MaxOutputTokens: l.MaxOutputTokens,
	}
	for _, d := range set.Definitions() {
		c.req.Tools = append(c.req.Tools, model.ToolDef{Name: d.Name, Description: d.Description, Schema: d.Schema})
	}
	for {
		out, done, err := c.turn(ctx)
		if breach, ok := errors.AsType[*budget.Breach](err); ok {
			return c.lastWord(ctx, breach)
		}
		if done || err != nil {
			return out, err
		}
	}
}

// turn is one step: a reply and all the calls in it.
func (c *conversation) turn(ctx context.Context) (run.Outcome, bool, error) {
	if err := c.round.Step(); err != nil {
		return run.Outcome{}, false, err
	}
	c.step++
	c.s.Emit(run.Event{Kind: run.EventStep, Step: c.step})
	reply, err := c.ask(ctx)
	if err != nil {
		out, err := c.givenUp(ctx, err)
		return out, true, err
	}
	spent := c.spend(reply)
	c.req.Messages = append(c.req.Messages, reply.Message)
	switch {
	case reply.Stop == model.StopRefusal:
		return run.Outcome{Reason: run.Failed, Answer: reply.Message.Text, Detail: "the model refused"}, true, spent
	case len(reply.Message.Calls) > 0:
		out, done, err := c.calls(ctx, reply, spent)
		return out, done, err
	case spent != nil:
		return run.Outcome{}, false, spent
	case reply.Stop == model.StopLength:
		c.say(fmt.Sprintf("Your reply was cut off after %d tokens. Go on, more briefly.", c.MaxOutputTokens))
		return run.Outcome{}, false, nil
	}
	return run.Outcome{Reason: run.Done, Answer: reply.Message.Text}, true, nil
}

// say adds a message of rein's own, as the user's side.
func (c *conversation) say(text string) {
	c.req.Messages = append(c.req.Messages, model.Message{Role: model.RoleUser, Text: text})
}

// calls executes the calls of a reply in order. Every call gets exactly one
// result, executed or not; blocked, when set, is why none may be.
func (c *conversation) calls(ctx context.Context, reply *model.Reply, blocked error) (run.Outcome, bool, error) {
	var results []model.ToolResult
	var out run.Outcome
	var cause error
	done := false
	for _, mc := range reply.Message.Calls {
		call := tool.Call{ID: c.s.NewCallID(), ModelID: mc.ID, Name: mc.Name, Arguments: json.RawMessage(mc.Arguments)}
		var no *tool.Error // why it is not executed
		switch {
		case done || cause != nil:
			no = notExecuted("an earlier call of this reply ended the work")
		case blocked != nil:
			no = tool.Explain(tool.OpRun, "", blocked)
		case reply.Stop == model.StopLength:
			no = notExecuted(fmt.Sprintf("your reply was cut off after %d tokens, and a cut call is not executed", c.MaxOutputTokens))
		case ctx.Err() != nil:
			no = notExecuted("the run has ended")
		default:
			if blocked = c.round.Call(); blocked != nil {
				no = tool.Explain(tool.OpRun, "", blocked)
			}
		}
		var res tool.Result
		if no != nil {
			res = tool.Result{CallID: call.ID, SandboxID: c.s.Sandbox().ID(), Err: no}
			if err := c.s.NotCalled(call, c.step, res); cause == nil {
				cause = err
			}
		} else {
			res, cause = c.call(ctx, call)
			out, done = c.verdict(res)
		}
		results = append(results, model.ToolResult{ID: mc.ID, Name: mc.Name, Content: wrap(call.Name, res), IsError: !res.OK})
	}
	c.req.Messages = append(c.req.Messages, model.Message{Role: model.RoleTool, Results: results})
	switch {
	case cause != nil:
		return run.Outcome{Reason: run.Failed, Detail: "a call could not be recorded"}, true, cause
	case ctx.Err() != nil && !done:
		return run.Outcome{Answer: reply.Message.Text}, true, context.Cause(ctx)
	case blocked != nil && !done:
		return run.Outcome{}, false, blocked
	}
	return out, done, nil
}

// codeNotExecuted is the code of a call that was not executed.
const codeNotExecuted = "not_executed"

func notExecuted(why string) *tool.Error {
	return &tool.Error{Class: tool.Fixable, Code: codeNotExecuted, Message: why + "; this call was not executed"}
}

// call executes one call. The error is that it could not be recorded.
func (c *conversation) call(ctx context.Context, call tool.Call) (tool.Result, error) {
	summary := run.Summarize(call, c.s.Masker())
	event := func(kind run.EventKind, bytes int64) {
		c.s.Emit(run.Event{Kind: kind, Step: c.step, Call: &run.CallEvent{ID: call.ID, Tool: call.Name, Summary: summary, Bytes: bytes}})
	}
	event(run.EventCall, 0)
	call.Progress = func(bytes int64) { event(run.EventOutput, bytes) }
	res := c.set.Run(ctx, call)
	if call.Name == tool.SandboxKill {
		c.finished = true
	}
	return res, c.s.Called(call, c.step, res)
}

// hintDenied is what a person can do about a denial that stopped the run.
const hintDenied = "--on-denial continue tells the agent of such a failure and goes on; what was denied stays denied"

// verdict says whether a result ends the run.
func (c *conversation) verdict(res tool.Result) (run.Outcome, bool) {
	e := res.Err
	if e == nil {
		return run.Outcome{}, false
	}
	switch e.Class {
	case tool.Fatal:
		if c.finished || e.Code == tool.CodeBudget { // a last answer is still welcome
			return run.Outcome{}, false
		}
		reason := run.Failed
		if e.Code == tool.CodeSandboxLost || e.Code == tool.CodeSandboxGone {
			reason = run.Lost
		}
		return run.Outcome{Reason: reason, Detail: e.Message}, true
	case tool.NeedsHuman:
		if c.OnDenial == StopIfFailed {
			return run.Outcome{Reason: run.NeedsHuman, Detail: e.Message, Hint: hintDenied}, true
		}
	}
	return run.Outcome{}, false
}

// lastWord is what happens when a limit is used up: when only steps or calls
// are, the model gets one more turn, without tools, to say how far it got.
func (c *conversation) lastWord(ctx context.Context, breach *budget.Breach) (run.Outcome, error) {
	c.s.Stopped(breach)
	out := run.Outcome{Reason: run.OverBudget, Detail: breach.Error()}
	if ctx.Err() != nil || c.s.Budget().Check() != nil {
		return out, breach
	}
	c.req.Tools = nil
	c.say("A limit of this task is used up (" + breach.Error() + "). No tool can be called any more. " +
		"Say in a few sentences what is done, what is not, and what you would do next.")
	reply, err := c.ask(ctx)
	if err != nil {
		c.s.Warn("there is no last answer: %v", err)
		return out, breach
	}
	if err := c.spend(reply); err != nil {
		c.s.Warn("the last answer went over a limit: %v", err)
	}
	out.Answer = reply.Message.Text
	return out, breach
}

// spend counts what a reply cost. Where the vendor counted nothing it is
// estimated, at four bytes a token.
func (c *conversation) spend(reply *model.Reply) error {
	t := run.Tokens{Input: reply.Usage.Input, Cached: reply.Usage.CachedInput, Output: reply.Usage.Output}
	if !reply.Usage.Known {
		in, _ := json.Marshal(c.req) // plain data always encodes
		out, _ := json.Marshal(reply.Message)
		t = run.Tokens{Input: int64(len(in)+3) / 4, Output: int64(len(out)+3) / 4, Estimated: true}
	}
	if c.Price != nil {
		t.CostUSD = (float64(t.Input)*c.Price.Input + float64(t.Output)*c.Price.Output) / 1e6
	}
	return c.s.Spent(t)
}
