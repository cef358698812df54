package soak

import (
	"fmt"
	"slices"
	"time"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/history"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/tool"
)

// theme gives some plans what chance alone hardly comes to.
func (g dice) theme(p *Plan) {
	switch g.IntN(16) {
	case 0:
		g.circles(p)
	case 1:
		g.forbidden(p)
	case 2:
		g.unavailable(p)
	case 3:
		g.circles(p)
		p.Approval = &Approval{Default: approval.Ask, Answers: []Answer{{Decision: approval.Decision{Approve: true, ForRun: true, By: "somebody"}}}}
	}
}

// unavailable is a model that cannot be had for so long that another is asked.
func (g dice) unavailable(p *Plan) {
	roomy(p)
	p.Retries, p.Fallback = pick(g, -1, 1), true
	var failures []Reply
	for range pick(g, 1, 2, 3) {
		failures = append(failures, Reply{What: "failure", Delay: pick(g, 0, time.Second),
			Fail: &model.Error{Kind: pick(g, model.KindUnavailable, model.KindOverloaded, model.KindTimeout), Model: "soak/model", Message: "no"}})
	}
	p.Replies = slices.Insert(p.Replies, g.IntN(min(3, len(p.Replies))), failures...)
}

// fallback gives some plans another model.
func (g dice) fallback(p *Plan) {
	if p.Fallback = p.Fallback || g.one(4); p.Fallback && !g.one(6) {
		p.FallbackPrice = &agent.Price{Input: pick(g, 0.1, 3, 30), Output: pick(g, 0.4, 15, 150)}
	}
}

// context says what of the conversation is sent, in some plans as little as
// there can be.
func (g dice) context(p *Plan) {
	if !g.one(3) {
		return
	}
	p.Context = agent.Context{Strategy: pick(g, history.Strategies()...), High: pick(g, 0, 2, 2000, 8000), Share: pick(g, 0, 1, 5, 100),
		Window: pick[int64](g, 0, 0, 9_000, 12_000, 40_000), FallbackWindow: pick[int64](g, 0, 0, 9_000, 40_000)}
	if p.Context.High > 0 {
		p.Context.Low = g.IntN(p.Context.High)
	}
}

// roomy limits are not what ends a run.
func roomy(p *Plan) {
	std := budget.Standard()
	std.MaxSteps, std.MaxToolCalls = 40, 60
	std.CallTimeout, std.MaxCallTimeout, std.TTL = p.Limits.CallTimeout, p.Limits.MaxCallTimeout, p.Limits.TTL
	std.OutputBytes, std.OutputLines = p.Limits.OutputBytes, p.Limits.OutputLines
	p.Limits = std
}

// circles are calls that repeat with their results, one by one or in turn.
func (g dice) circles(p *Plan) {
	roomy(p)
	var turn []model.ToolCall
	for i := range pick(g, 1, 1, 2, 3, 5) {
		turn = append(turn, pick(g,
			call(tool.RunCommand, map[string]any{"command": pick(g, "echo same", "false", "ls /nosuch", "echo bad >&2; exit 3") + fmt.Sprint(" #", i)}),
			call(tool.ReadFile, map[string]any{"path": fmt.Sprint("nosuch", i)}),
			call(tool.WriteFile, map[string]any{"path": fmt.Sprint("same", i), "content": "same\n"})))
	}
	p.Replies = nil
	for n := range 6 * len(turn) {
		c := turn[n%len(turn)]
		c.ID = fmt.Sprint("c", n)
		p.Replies = append(p.Replies, Reply{What: "circle", Stop: model.StopToolCalls, Delay: pick(g, 0, 0, time.Second), Calls: []model.ToolCall{c}})
	}
}

// forbidden ends in a failure of the model that only a person can do something about.
func (g dice) forbidden(p *Plan) {
	roomy(p)
	p.Replies = append(p.Replies[:g.IntN(min(3, len(p.Replies)))], Reply{What: "failure",
		Fail: &model.Error{Kind: pick(g, model.KindForbidden, model.KindQuota), Model: "soak/model", Message: "no"}})
}
