package agent

import (
	"context"
	"errors"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/history"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

type loop struct{ Options }

// conversation is one run of the loop.
type conversation struct {
	*loop
	s       *run.Session
	set     *tool.Set
	round   *budget.Round
	model   model.Model // that is asked now
	req     model.Request
	step    int
	history *history.History
	// told is how many messages of req the transcript has.
	told int
	// finished: sandbox_kill has been called, and only an answer is missing.
	finished bool
	// past is what is on record, in a run that is resumed or replayed; driven,
	// until the first request that is not.
	past   *run.Past
	driven bool
	// What the model did wrong, see replies.go.
	bad, cuts int // replies in a row
	repaired  bool
}

// Work runs the loop until the model answers without calling a tool, a limit
// is used up, or something makes going on pointless.
func (l *loop) Work(ctx context.Context, s *run.Session) (run.Outcome, error) {
	return l.work(ctx, s, nil)
}

func (l *loop) work(ctx context.Context, s *run.Session, past *run.Past) (run.Outcome, error) {
	set, err := s.Tools()
	if err != nil {
		return run.Outcome{Reason: run.Failed, Detail: "the tools could not be set up"}, err
	}
	if l.Price == nil {
		s.Warn("the cost limit is not enforced: what %s costs is not known", l.Model.Name())
	}
	c := &conversation{loop: l, model: l.Model, s: s, set: set, round: s.Budget().Round(), past: past, driven: past != nil}
	c.req = model.Request{
		System:          systemPrompt(l.System, s),
		MaxOutputTokens: l.MaxOutputTokens,
	}
	if err := c.newHistory(s.Masker().String(s.Task())); err != nil {
		return run.Outcome{Reason: run.Misused, Detail: "the conversation could not be begun"}, err
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
	return c.answer(ctx, reply, c.spend(reply))
}

// say adds a message of rein's own, as the user's side.
func (c *conversation) say(text string) {
	c.history.Add(model.Message{Role: model.RoleUser, Text: text})
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
