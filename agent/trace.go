package agent

import (
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/telemetry"
	"github.com/rein-sh/rein/tool"
)

// chat has m answer, and takes of what it says about the cost only what can be.
func (c *conversation) chat(ctx context.Context, m model.Model, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	ctx, span := c.s.Telemetry().Chat(ctx, m.Name(), req, c.s.Masker())
	reply, err := m.Generate(ctx, req, emit)
	if reply != nil {
		reply.Usage = plausible(reply.Usage)
		reply.Message = readable(reply.Message)
	}
	span.Replied(ctx, reply, err, c.s.Masker())
	return reply, err
}

// readable is a message as a record can have it, which holds UTF-8 only: what is
// sent back to the model, and paid for, is the same when it comes from there.
func readable(m model.Message) model.Message {
	fields := []*string{&m.Text}
	for i := range m.Calls {
		call := &m.Calls[i]
		fields = append(fields, &call.ID, &call.Name, &call.Arguments)
	}
	for _, s := range fields {
		if !utf8.ValidString(*s) {
			*s = string([]rune(*s)) // U+FFFD for each byte that is none
		}
	}
	return m
}

// run has the tools answer a call.
func (c *conversation) run(ctx context.Context, call tool.Call) tool.Result {
	ctx, span := c.s.Telemetry().Tool(ctx, call.Name, call.ID, call.ModelID, c.s.Sandbox().ID(), call.Arguments, c.s.Masker())
	res := c.set.Run(ctx, call)
	if span != nil {
		span.Called(called(res, c.s.Telemetry().Content()))
	}
	return res
}

func called(res tool.Result, content bool) telemetry.Called {
	t := telemetry.Called{OK: res.OK, ExitCode: res.ExitCode, Timeout: res.Timeout, Bytes: res.OutputBytes}
	if res.Err != nil {
		t.Failure = res.Err.Code
	}
	if content {
		data, _ := json.Marshal(res) // a Result always encodes
		t.Result = string(data)
	}
	return t
}

// maxCount is more tokens than any reply has, and few enough to be added up.
const maxCount = 1 << 53

// plausible is what a vendor counted, if it can be counted with: amounts below
// zero would give back what has been used.
func plausible(u model.Usage) model.Usage {
	if !u.Known || u.Input < 0 || u.Output < 0 {
		return model.Usage{}
	}
	u.Input, u.Output = min(u.Input, maxCount), min(u.Output, maxCount)
	u.CachedInput = max(0, min(u.CachedInput, u.Input))
	u.CacheWrite = max(0, min(u.CacheWrite, u.Input))
	u.Reasoning = max(0, min(u.Reasoning, u.Output))
	return u
}
