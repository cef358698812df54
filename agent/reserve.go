package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"sort"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/history"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/price"
	"github.com/rein-sh/rein/run"
)

const (
	// MinOutputTokens is the least a reply is capped at. When less is left, work
	// ends and the last turn comes; when it has less, the model is not asked.
	MinOutputTokens = 1024
	// What vendors add to a request around each part, and to the whole, in
	// tokens at most: roles, marks, the prompt that makes a model use tools.
	frame, frames = 32, 512
)

// reserve sets aside the most that req can cost, with at most input tokens, and
// caps its reply to what is left. The *budget.Breach says that too little is.
func (c *conversation) reserve(req *model.Request, input int64) error {
	tree := c.s.Budget()
	left, reserve := tree.Left(), tree.Reserve
	if c.last {
		left, reserve = tree.LeftLast(), tree.ReserveLast
	}
	least := min(MinOutputTokens, req.MaxOutputTokens)
	// The largest cap that fits, or the least, which Reserve then refuses.
	output := least + sort.Search(req.MaxOutputTokens-least, func(i int) bool {
		need := c.most(input, int64(least+i+1))
		return need.Tokens > left.Tokens || need.Cost > left.Cost
	})
	hold, err := reserve(c.most(input, int64(output)))
	if err != nil {
		return err
	}
	c.hold, req.MaxOutputTokens = hold, output
	return nil
}

// most is the most that a request of the model that is asked now can cost.
func (c *conversation) most(input, output int64) budget.Spent {
	s := budget.Spent{Tokens: input + output}
	if rate := c.rate(); rate != nil {
		s.Cost = budget.USD(rate.Most(input, output))
	}
	return s
}

// settle counts what a reply cost. Where the vendor counted nothing it is
// estimated, at four bytes a token, and at most what was set aside.
func (c *conversation) settle(req *model.Request, reply *model.Reply) error {
	u := reply.Usage
	t := run.Tokens{Input: u.Input, Cached: u.CachedInput, Output: u.Output}
	if !u.Known {
		output := (int64(history.Size(reply.Message)) + 3) / 4
		t = run.Tokens{Input: weight(req) / 4, Output: min(output, int64(req.MaxOutputTokens)), Estimated: true}
		t.Input = min(t.Input, c.hold.Amount().Tokens-t.Output)
	}
	var cost budget.USD
	if rate := c.rate(); rate != nil {
		cost = budget.USD(rate.Cost(price.Tokens{Input: t.Input, Cached: t.Cached, Written: u.CacheWrite, Output: t.Output}))
	}
	return c.s.Settled(c.hold, t, cost)
}

// unanswered settles a request that came to nothing: one that was refused cost
// nothing, and any other may have cost all that was set aside for it: of one on
// record what was, and not what would be for its text as it is made now.
func (c *conversation) unanswered(req *model.Request, err error) {
	if refused(err) {
		c.hold.Release()
		return
	}
	if held, request, ok := c.past.Held(); ok {
		var sent sentMessages
		_ = json.Unmarshal(request, &sent) // then all of it was input
		output := min(int64(sent.MaxOutputTokens), held.Tokens)
		c.hold.Release()
		// What it is too much for finds the limit used up.
		_ = c.s.Spent(run.Tokens{Input: held.Tokens - output, Output: output, CostUSD: held.CostUSD, Estimated: true})
		return
	}
	amount := c.hold.Amount()
	output := int64(req.MaxOutputTokens)
	// It cannot go over itself.
	_ = c.s.Settled(c.hold, run.Tokens{Input: amount.Tokens - output, Output: output, Estimated: true}, amount.Cost)
}

// refused reports whether a request ended before the model began to answer it:
// with a status that says so, or without a connection. An error that came as
// part of a stream, under a good status, is none of these.
func refused(err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Status == 200 {
		return false
	}
	switch e.Kind {
	case model.KindRateLimit, model.KindOverloaded, model.KindAuth, model.KindForbidden, model.KindQuota,
		model.KindNotFound, model.KindContext, model.KindInvalid:
		return true
	case model.KindUnavailable, model.KindUnknown:
		op, ok := errors.AsType[*net.OpError](err)
		_, name := errors.AsType[*net.DNSError](err)
		return e.Status != 0 || name || ok && op.Op == "dial"
	}
	return false
}

// weight is what a request can be in tokens at most: one for each byte.
func weight(req *model.Request) int64 { return fixedWeight(req) + messagesWeight(req.Messages) }

func fixedWeight(req *model.Request) int64 {
	n := frames + len(req.System)
	for _, t := range req.Tools {
		n += frame + len(t.Name) + len(t.Description) + len(t.Schema)
	}
	return int64(n)
}

func messagesWeight(messages []model.Message) int64 {
	var n int64
	for _, m := range messages {
		n += int64(history.Size(m) + frame*(1+len(m.Calls)+len(m.Results)))
	}
	return n
}

// counted knows what the vendor counted for the beginnings of a conversation,
// so that only what is new in a request is counted by its bytes. The zero
// counted knows nothing.
type counted struct {
	model  string
	system string
	tools  int
	sent   []model.Message // as counted last
	marks  []mark          // with growing n
}

// mark: so many messages were so many tokens of input, and were answered with
// so many.
type mark struct {
	n             int
	input, output int64
}

// answered notes what the vendor counted for a request.
func (k *counted) answered(name string, req *model.Request, u model.Usage) {
	if !u.Known {
		return
	}
	same := k.same(name, req)
	k.marks = slices.DeleteFunc(k.marks, func(m mark) bool { return m.n > same || m.n >= len(req.Messages) })
	k.marks = append(k.marks, mark{len(req.Messages), u.Input, u.Output})
	k.model, k.system, k.tools, k.sent = name, req.System, len(req.Tools), req.Messages
}

// input is the most tokens that a request can have: what was counted for its
// unchanged beginning, and one for each new byte.
func (k *counted) input(name string, req *model.Request) int64 {
	same := k.same(name, req)
	for _, m := range slices.Backward(k.marks) {
		if m.n > same {
			continue
		}
		fresh := req.Messages[m.n:]
		n := m.input + messagesWeight(fresh)
		if len(fresh) > 0 { // the reply itself, the vendor's count of which may be higher
			n += max(0, m.output-messagesWeight(fresh[:1]))
		}
		return n
	}
	return weight(req)
}

// same is how many messages of a request are as they were counted last.
func (k *counted) same(name string, req *model.Request) int {
	if k.model != name || k.system != req.System || len(req.Tools) > k.tools {
		return 0
	}
	n := 0
	for n < min(len(k.sent), len(req.Messages)) && equal(&k.sent[n], &req.Messages[n]) {
		n++
	}
	return n
}

func equal(a, b *model.Message) bool {
	return a.Role == b.Role && a.Text == b.Text && slices.Equal(a.Calls, b.Calls) && slices.Equal(a.Results, b.Results) && bytes.Equal(a.Opaque, b.Opaque)
}
