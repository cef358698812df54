package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/history"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

// calls executes the calls of a reply in order. Every call gets exactly one
// result, executed or not; blocked, when set, is why none may be.
func (c *conversation) calls(ctx context.Context, reply *model.Reply, blocked error) (run.Outcome, bool, error) {
	var results []history.Result
	var ids []string
	var out run.Outcome
	var cause error
	var last *tool.Error // why the last call came to nothing
	done, useful := false, false
	if c.cuts++; reply.Stop != model.StopLength {
		c.cuts = 0
	}
	for i, mc := range reply.Message.Calls {
		call := c.named(mc)
		no := c.withheld(reply, i) // why it is not executed
		switch {
		case c.past.Begun(call): // what became of it is found out, whatever limits have been reached since
			no = nil
			c.round.Begun()
		case done || cause != nil:
			no = tool.NotExecuted("an earlier call of this reply ended the work")
		case blocked != nil:
			no = tool.Explain(tool.OpRun, "", blocked)
		case no != nil:
		case ctx.Err() != nil && timeOver(ctx) == nil:
			no = tool.NotExecuted(run.Ended(context.Cause(ctx)))
		default:
			if blocked = timeOver(ctx); blocked == nil {
				blocked = c.round.Call()
			}
			if blocked != nil {
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
			if out, done = c.verdict(res); !done {
				out, done = c.circling(call, res)
			}
		}
		if useful = useful || !c.hopeless(res.Err); !useful {
			last = res.Err
		}
		results, ids = append(results, remember(mc, call, res, c.s.Masker())), append(ids, call.ID)
	}
	c.withLeft(results)
	c.asSent(results, ids)
	c.history.AddResults(results)
	switch {
	case cause != nil:
		return run.Outcome{Reason: run.Failed, Detail: "a call could not be recorded"}, true, cause
	case blocked != nil && !done: // also when the time is over: what was used up is the cause
		return run.Outcome{}, false, blocked
	case ctx.Err() != nil && !done:
		return run.Outcome{Answer: reply.Message.Text}, true, context.Cause(ctx)
	case !useful && !done:
		return c.unusable(last.Message, reply.Message.Text)
	}
	if c.bad = 0; !done {
		c.nudge()
	}
	return out, done, nil
}

// timeOver is the limit of the wall clock, if that has ended ctx. The budget, asked
// at the same moment, says so, too: what is on record must not depend on which of
// them was first.
func timeOver(ctx context.Context) error {
	if b, ok := errors.AsType[*budget.Breach](context.Cause(ctx)); ok {
		return b
	}
	return nil
}

// named is a call as rein knows it.
func (c *conversation) named(mc model.ToolCall) tool.Call {
	return tool.Call{ID: c.s.NewCallID(), ModelID: mc.ID, Name: mc.Name, Arguments: json.RawMessage(mc.Arguments)}
}

// call executes one call. The error is that it could not be recorded.
func (c *conversation) call(ctx context.Context, call tool.Call) (tool.Result, error) {
	summary := c.s.Parameters(call)
	event := func(kind run.EventKind, bytes int64) {
		c.s.Emit(run.Event{Kind: kind, Step: c.step, Call: &run.CallEvent{ID: call.ID, Tool: call.Name, Summary: summary, Bytes: bytes}})
	}
	event(run.EventCall, 0)
	call.Progress = func(bytes int64) { event(run.EventOutput, bytes) }
	res := c.execute(ctx, call)
	if call.Name != tool.RunCommand {
		summary = call.Name + " " + summary
	}
	c.done.add(summary, res)
	if call.Name == tool.SandboxKill && (res.Err == nil || res.Err.Code != tool.CodeNotAccepted) {
		c.finished = true
	}
	return res, c.s.Called(call, c.step, res)
}

// hintDenied is what a person can do about a denial that stopped the run.
const hintDenied = "--on-denial continue tells the agent of such a failure and goes on; what was denied stays denied"

// hintOpens goes before it where the host could have opened what was denied.
const hintOpens = "if that is meant, --allow %s opens it for another run; "

// hintNobody is what a person can do when nobody could be asked.
const hintNobody = "--ask socket waits for rein runs approve, from another terminal; a rule that allows it needs no answer; " +
	"--on-denial continue tells the agent and goes on"

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
			hint := hintDenied
			if opens := res.Opens(); opens != "" {
				hint = fmt.Sprintf(hintOpens, opens) + hintDenied
			}
			if e.Code == string(approval.NoChannel) {
				hint = hintNobody
			}
			return run.Outcome{Reason: run.NeedsHuman, Detail: e.Message, Hint: hint}, true
		}
	}
	return run.Outcome{}, false
}
