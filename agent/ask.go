package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

// Backoff between repetitions of a request: full jitter, so that many clients
// of one vendor do not come back together.
const (
	backoffBase = time.Second
	backoffCap  = time.Minute
)

// classOf is the class of a failed request. A request to a model changes
// nothing, so one that was cut or timed out may be repeated.
func classOf(err error) tool.Class {
	return tool.Classify(tool.OpModel, string(model.KindOf(err)))
}

// ask gets the model's next reply: it repeats the request after retryable
// failures, shortens it when it is too long, and asks the fallback model when
// that one cannot be had.
func (c *conversation) ask(ctx context.Context) (*model.Reply, error) {
	for attempt := 0; ; {
		reply, err := c.request(ctx, attempt)
		if err == nil || ctx.Err() != nil {
			return reply, err
		}
		if errors.Is(err, errLost) {
			continue // it failed for nothing that the model did
		}
		switch classOf(err) {
		case tool.Retryable:
			if attempt < c.Retries {
				why := c.pause(ctx, attempt, err)
				if why == nil {
					attempt++
					continue
				}
				err = why
			}
			if ctx.Err() != nil || !c.fallBack(err) {
				return nil, err
			}
			attempt = 0
		case tool.Fixable:
			if !c.overflow() {
				return nil, err
			}
		default:
			return nil, err
		}
	}
}

// request makes one request and records it and its outcome. What is recorded is
// put together by others: none of it takes space while the model answers.
func (c *conversation) request(ctx context.Context, attempt int) (*model.Reply, error) {
	if err := c.prepare(ctx, attempt); err != nil {
		return nil, err
	}
	text := c.s.Masker().Writer(emitter{c, run.EventText})
	reasoning := c.s.Masker().Writer(emitter{c, run.EventReason})
	start := time.Now()
	reply, err := c.generate(ctx, c.model, &c.req, func(d model.Delta) {
		io.WriteString(text, d.Text) // an emitter does not fail
		io.WriteString(reasoning, d.Reasoning)
	})
	text.Close()
	reasoning.Close()
	if err == nil && (reply == nil || reply.Stop == "") {
		err = &model.Error{Kind: model.KindCut, Model: c.model.Name(), Message: "the reply has no proper end"}
	}
	return c.replied(reply, err, time.Since(start).Milliseconds())
}

// prepare makes the next request in c.req, sets aside what it may cost and
// records it.
func (c *conversation) prepare(ctx context.Context, attempt int) error {
	c.refresh(ctx)
	if c.overrun != nil {
		return c.overrun
	}
	c.req.MaxOutputTokens = c.MaxOutputTokens
	if err := c.reserve(&c.req, c.counted.input(c.model.Name(), &c.req)); err != nil {
		return err
	}
	if c.retold() {
		c.told = 0
	}
	sent := sentMessages{From: c.told, Messages: c.req.Messages[c.told:], MaxOutputTokens: c.req.MaxOutputTokens}
	if c.told == 0 {
		sent.System, sent.Tools = c.req.System, c.req.Tools
	}
	sent.NoTools = len(c.req.Tools) == 0
	if err := c.sayRequest(sent, attempt+1); err != nil {
		return err
	}
	c.told = len(c.req.Messages)
	return nil
}

// replied records what became of a request, which took so many milliseconds.
func (c *conversation) replied(reply *model.Reply, err error, took int64) (*model.Reply, error) {
	if err != nil {
		c.unanswered(&c.req, err)
		return nil, errors.Join(err, c.sayFailure("", err, took))
	}
	if reply.Usage.Known {
		c.history.Used(reply.Usage.Input)
		c.counted.answered(c.model.Name(), &c.req, reply.Usage)
	}
	return reply, c.sayReply("", reply, took)
}

// emitter shows pieces of a reply as they come.
type emitter struct {
	c    *conversation
	kind run.EventKind
}

func (e emitter) Write(p []byte) (int, error) {
	if len(p) > 0 {
		e.c.s.Emit(run.Event{Kind: e.kind, Step: e.c.step, Text: string(p)})
	}
	return len(p), nil
}

// pause waits before a repetition: as long as the vendor asks for, or a random
// time that grows. Waiting longer than the run may last is not begun.
func (c *conversation) pause(ctx context.Context, attempt int, cause error) error {
	if c.past.Binding() { // it was waited then, or it was not
		if ctx.Err() == nil && !c.past.Asks(c.model.Name()) {
			return cause
		}
		return context.Cause(ctx)
	}
	wait := time.Duration(rand.Int64N(int64(min(backoffCap, backoffBase<<min(attempt, 10)))))
	if e, ok := errors.AsType[*model.Error](cause); ok && e.RetryAfter > 0 {
		wait = e.RetryAfter + time.Duration(rand.Int64N(int64(backoffBase)))
	}
	if left := c.s.Budget().Remaining(); wait >= left {
		return fmt.Errorf("%w; the next attempt would be in %s, and %s are left", cause, wait.Round(time.Second), left.Round(time.Second))
	}
	done := c.s.Waiting(fmt.Sprintf("%s; next attempt in %s", model.KindOf(cause), wait.Round(100*time.Millisecond)))
	defer done()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// givenUp is the outcome of a request that failed for good.
func (c *conversation) givenUp(ctx context.Context, err error) (run.Outcome, error) {
	if ctx.Err() != nil {
		return run.Outcome{}, context.Cause(ctx)
	}
	if breach, ok := errors.AsType[*budget.Breach](err); ok {
		return run.Outcome{}, breach
	}
	if model.KindOf(err) == "" {
		return run.Outcome{Reason: run.Failed, Detail: "the model could not be asked"}, err
	}
	out := run.Outcome{Reason: run.NoModel, Detail: err.Error(), Hint: remedy(err)}
	switch classOf(err) {
	case tool.NeedsHuman:
		out.Reason = run.NeedsHuman
	case tool.Fatal:
		if model.KindOf(err) == model.KindInvalid {
			out.Reason = run.Failed
		}
	}
	return out, err
}

// remedy is what a person can do about a model that could not be had.
func remedy(err error) string {
	if e, ok := errors.AsType[*model.Error](err); ok && e.Hint != "" {
		return e.Hint
	}
	switch kind := model.KindOf(err); {
	case kind == model.KindContext:
		return "give a smaller task or a lower --output-bytes, or choose a model that takes more"
	case kind == model.KindAuth:
		return "rein probe --model NAME says what is wrong with the key"
	case classOf(err) == tool.Retryable:
		return "run it again later, or name a second model with --fallback"
	}
	return ""
}
