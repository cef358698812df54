package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

// Bounds of what a model may do wrong.
const (
	// MaxUnusable is how many replies in a row may be of no use before the run
	// ends: empty ones, cut ones, and those of which no call could be executed.
	MaxUnusable = 4
	// MaxCalls is how many calls of one reply are executed.
	MaxCalls = 32
)

// answer takes a reply into the conversation and does what it asks. blocked,
// when set, is the limit that forbids its calls.
func (c *conversation) answer(ctx context.Context, reply *model.Reply, blocked error) (run.Outcome, bool, error) {
	if reply.Stop == model.StopRefusal {
		return c.refused(reply, blocked)
	}
	if nothing(reply) { // left out of the conversation: vendors refuse messages without content
		if blocked != nil {
			return run.Outcome{}, false, blocked
		}
		why := emptiness(reply, c.req.MaxOutputTokens)
		c.say("Your reply " + why + ". Call a tool, or give your final answer.")
		return c.unusable("it "+why, "")
	}
	c.repair(reply)
	c.history.Add(reply.Message)
	switch {
	case len(reply.Message.Calls) > 0:
		return c.calls(ctx, reply, blocked)
	case blocked != nil:
		return run.Outcome{}, false, blocked
	case reply.Stop == model.StopLength:
		why := fmt.Sprintf("was cut off after %d tokens", c.req.MaxOutputTokens)
		c.say("Your reply " + why + ". Go on, more briefly.")
		return c.unusable("it "+why, reply.Message.Text)
	}
	if !c.finished {
		if v, err := c.s.Judge(ctx, c.step); v != nil || err != nil {
			c.judged(v)
			return run.Outcome{}, err != nil, err
		}
	}
	return run.Outcome{Reason: run.Done, Answer: reply.Message.Text}, true, nil
}

// judged tells the model which checks have failed.
func (c *conversation) judged(v *run.Verdict) {
	if v == nil {
		return
	}
	c.history.Note(notAccepted(v.Why()))
	res := tool.Fail(tool.OpKill, tool.CodeNotAccepted, v.Why(), v.Hint())
	res.SandboxID, res.Stdout = c.s.Sandbox().ID(), v.Details()
	c.say("Your work is not accepted yet: rein ran its acceptance checks. What they found:\n\n" + wrap("acceptance", res))
}

// nothing reports whether a reply has neither text nor calls.
func nothing(reply *model.Reply) bool {
	return strings.TrimSpace(reply.Message.Text) == "" && len(reply.Message.Calls) == 0
}

// emptiness says in which way a reply was empty.
func emptiness(reply *model.Reply, most int) string {
	switch {
	case reply.Stop == model.StopLength:
		return fmt.Sprintf("was cut off after %d tokens, before it said anything", most)
	case reply.Usage.Reasoning > 0:
		return "held reasoning only, no text and no call"
	}
	return "was empty"
}

// refused ends the run: what a model will not do is not asked for again. Its
// calls, if it made any, are recorded as not executed.
func (c *conversation) refused(reply *model.Reply, blocked error) (run.Outcome, bool, error) {
	out := run.Outcome{Reason: run.Failed, Answer: reply.Message.Text, Detail: "the model refused"}
	for _, mc := range reply.Message.Calls {
		call := c.named(mc)
		res := tool.Result{CallID: call.ID, SandboxID: c.s.Sandbox().ID(), Err: tool.NotExecuted("the model refused to go on")}
		if err := c.s.NotCalled(call, c.step, res); err != nil {
			return out, true, err
		}
	}
	return out, true, blocked
}

// unusable counts a reply that was of no use, and ends the run when it is one
// too many in a row. text is what it said all the same.
func (c *conversation) unusable(why, text string) (run.Outcome, bool, error) {
	c.bad++
	if c.bad < MaxUnusable {
		return run.Outcome{}, false, nil
	}
	if c.finished {
		c.s.Warn("the model gave no final answer: %s", why)
		return run.Outcome{Reason: run.Done, Answer: text}, true, nil
	}
	return run.Outcome{Reason: run.Failed, Answer: text,
		Detail: fmt.Sprintf("%d replies in a row could not be used; of the last one: %s", c.bad, why)}, true, nil
}

// repair makes a reply one that can be answered: each call gets an id of its
// own, since results find their calls by it.
func (c *conversation) repair(reply *model.Reply) {
	calls := reply.Message.Calls
	used := map[string]bool{}
	for _, call := range calls {
		used[call.ID] = true
	}
	seen, n := map[string]bool{"": true}, 0
	for i := range calls {
		for changed := false; seen[calls[i].ID] || changed && used[calls[i].ID]; changed = true {
			n++
			calls[i].ID = fmt.Sprintf("call_%d_%d", c.step, n)
		}
		seen[calls[i].ID] = true
	}
	if n > 0 && !c.repaired {
		c.repaired = true
		c.s.Warn("the model gave calls no id, or that of another; rein gave them ids of its own")
	}
}

// hopeless reports whether a call could not be executed for what the model
// wrote, whatever the sandbox is like.
func (c *conversation) hopeless(e *tool.Error) bool {
	if e == nil {
		return false
	}
	switch e.Code {
	case tool.CodeInvalidJSON, tool.CodeInvalidArguments, tool.CodeUnknownTool, tool.CodeUnknownSandbox, tool.CodeTimeoutTooLong, tool.CodeNotExecuted:
		return true
	case tool.CodeSandboxGone:
		return c.finished
	}
	return false
}

// cut is why a call of a reply that was cut off is not executed. The model is
// told, and the second time in a row how to get around it.
func (c *conversation) cut() *tool.Error {
	e := tool.NotExecuted(fmt.Sprintf("your reply was cut off after %d tokens, and a cut call is not executed", c.req.MaxOutputTokens))
	e.Hint = "say less in one reply"
	if c.cuts > 1 {
		e.Hint = "write a large file in pieces, each in a reply of its own: the first with " + tool.WriteFile +
			", the others appended with " + tool.RunCommand + " (cat >> FILE <<'EOF'), or as several smaller files"
	}
	return e
}

// withheld is why a call is not executed because of what the reply looks like;
// nil when nothing is wrong with it.
func (c *conversation) withheld(reply *model.Reply, i int) *tool.Error {
	arguments := len(reply.Message.Calls[i].Arguments)
	switch {
	case reply.Stop == model.StopLength:
		return c.cut()
	case i >= MaxCalls:
		return tool.NotExecuted(fmt.Sprintf("your reply had %d calls, and at most %d of one reply are executed", len(reply.Message.Calls), MaxCalls))
	case arguments > tool.MaxArguments:
		reply.Message.Calls[i].Arguments = "{}" // not sent back with every request to come
		e := tool.NotExecuted(fmt.Sprintf("the arguments had %d bytes, more than %d", arguments, tool.MaxArguments))
		e.Hint = "write a large file in pieces"
		return e
	}
	return nil
}
