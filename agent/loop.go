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
	model   model.Model    // that is asked now
	fell    bool           // it is Options.Fallback
	overrun *budget.Breach // of a summary
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
	// hold is what is set aside for the request that is being made, counted what
	// earlier ones were; last: it is the last turn's.
	hold    *budget.Reservation
	counted counted
	last    bool
	done    deeds
	stuck   budget.Stuck
	circle  budget.Finding // that the model is to be told of
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
	c.keep()
	work, cancel := s.WorkContext(ctx)
	defer cancel()
	for {
		out, done, err := c.turn(work)
		if breach, ok := errors.AsType[*budget.Breach](err); ok {
			return c.stopped(ctx, breach)
		}
		if out.Reason == run.Stuck && err == nil {
			return c.lastWord(ctx, out), nil
		}
		if done || err != nil {
			return c.ended(work, out, err)
		}
	}
}

// turn is one step: a reply and all the calls in it.
func (c *conversation) turn(ctx context.Context) (run.Outcome, bool, error) {
	if err := timeOver(ctx); err != nil {
		return run.Outcome{}, false, err
	}
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
	return c.answer(ctx, reply, c.settle(&c.req, reply))
}

// say adds a message of rein's own, as the user's side, and what is left of the
// limits: the newest message has that, whatever it is.
func (c *conversation) say(text string) {
	if !c.last {
		text += "\n\n" + c.left()
	}
	c.history.Add(model.Message{Role: model.RoleUser, Text: text})
}
