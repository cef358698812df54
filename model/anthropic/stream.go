package anthropic

import (
	"encoding/json"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
)

// maxBlocks bounds the content blocks of one reply.
const maxBlocks = 1024

// accumulator makes a reply of a stream's events, which are described at
// platform.claude.com/docs/en/build-with-claude/streaming.
type accumulator struct {
	emit func(model.Delta)
	link *wire.Link
	turn int

	id, answered string
	blocks       []*content
	at           map[int64]*content // those that are open, by index
	stop         sdk.StopReason
	ended        bool

	counted                                   bool
	input, written, read, output, thoughtCost int64
}

// content is a block as it grows.
type content struct {
	kind      string
	id, name  string
	body      strings.Builder // text, thinking or arguments
	signature strings.Builder
	data      string
	given     any // arguments that came with the start, as some servers do
}

func (a *accumulator) add(e *sdk.MessageStreamEventUnion) error {
	switch e.Type {
	case "message_start":
		a.id, a.answered = e.Message.ID, e.Message.Model
		if u := e.Message.Usage; e.Message.JSON.Usage.Valid() {
			a.counted = true
			a.input, a.written, a.read = u.InputTokens, u.CacheCreationInputTokens, u.CacheReadInputTokens
			a.output, a.thoughtCost = u.OutputTokens, u.OutputTokensDetails.ThinkingTokens
		}
	case "content_block_start":
		return a.start(e)
	case "content_block_delta":
		return a.grow(e)
	case "content_block_stop":
		delete(a.at, e.Index)
	case "message_delta":
		if e.Delta.StopReason != "" {
			a.stop = e.Delta.StopReason
		}
		a.count(&e.Usage)
	case "message_stop":
		a.ended = true
	}
	return nil
}

func (a *accumulator) start(e *sdk.MessageStreamEventUnion) error {
	if len(a.blocks) == maxBlocks {
		return a.link.Errorf("it has more than %d blocks", maxBlocks)
	}
	if a.at[e.Index] != nil {
		return a.link.Errorf("block %d begins twice", e.Index)
	}
	b := &e.ContentBlock
	c := &content{kind: b.Type, id: b.ID, name: b.Name, data: b.Data, given: b.Input}
	c.signature.WriteString(b.Signature)
	switch b.Type {
	case "text":
		a.say(c, b.Text)
	case "thinking":
		a.think(c, b.Thinking)
	case "tool_use":
		if b.Name != "" {
			a.emit(model.Delta{CallName: b.Name})
		}
	}
	if a.at == nil {
		a.at = map[int64]*content{}
	}
	a.at[e.Index] = c
	a.blocks = append(a.blocks, c)
	return nil
}

func (a *accumulator) grow(e *sdk.MessageStreamEventUnion) error {
	c := a.at[e.Index]
	if c == nil {
		return a.link.Errorf("block %d goes on without having begun", e.Index)
	}
	switch e.Delta.Type {
	case "text_delta":
		a.say(c, e.Delta.Text)
	case "thinking_delta":
		a.think(c, e.Delta.Thinking)
	case "signature_delta":
		c.signature.WriteString(e.Delta.Signature)
	case "input_json_delta":
		c.body.WriteString(e.Delta.PartialJSON)
	}
	return nil
}

func (a *accumulator) say(c *content, s string) {
	if s != "" {
		c.body.WriteString(s)
		a.emit(model.Delta{Text: s})
	}
}

func (a *accumulator) think(c *content, s string) {
	if s != "" {
		c.body.WriteString(s)
		a.emit(model.Delta{Reasoning: s})
	}
}

// count keeps the newest numbers. They are running totals; what an event does
// not tell is as it was.
func (a *accumulator) count(u *sdk.MessageDeltaUsage) {
	j := &u.JSON
	for _, n := range []struct {
		valid bool
		to    *int64
		value int64
	}{
		{j.InputTokens.Valid(), &a.input, u.InputTokens},
		{j.CacheCreationInputTokens.Valid(), &a.written, u.CacheCreationInputTokens},
		{j.CacheReadInputTokens.Valid(), &a.read, u.CacheReadInputTokens},
		{j.OutputTokens.Valid(), &a.output, u.OutputTokens},
		{j.OutputTokensDetails.Valid(), &a.thoughtCost, u.OutputTokensDetails.ThinkingTokens},
	} {
		if n.valid {
			*n.to, a.counted = n.value, true
		}
	}
}

// usage counts what was written to the cache and read from it as input, which
// Anthropic's input_tokens does not.
func (a *accumulator) usage() model.Usage {
	if !a.counted || a.input < 0 || a.written < 0 || a.read < 0 {
		return model.Usage{}
	}
	u := wire.Usage(a.input+a.written+a.read, a.read, a.output, a.thoughtCost)
	if u.Known {
		u.CacheWrite = a.written
	}
	return u
}

// finish returns the reply, if the stream told how it ended.
func (a *accumulator) finish() (*model.Reply, error) {
	if a.stop == "" || !a.ended {
		return nil, a.link.Cut()
	}
	r := &model.Reply{
		Message: model.Message{Role: model.RoleAssistant}, Stop: a.reason(), Usage: a.usage(), Model: a.answered, ID: a.id,
	}
	var k kept
	thought := false
	var said strings.Builder
	for _, c := range a.blocks {
		switch c.kind {
		case "text":
			said.WriteString(c.body.String())
			k.Blocks = append(k.Blocks, block{Piece: wire.Piece{Text: c.body.Len()}})
		case "tool_use":
			i := len(r.Message.Calls)
			k.Blocks = append(k.Blocks, block{Piece: wire.Piece{Call: &i}})
			r.Message.Calls = append(r.Message.Calls, model.ToolCall{ID: c.id, Name: c.name, Arguments: c.arguments()})
		case "thinking":
			if c.signature.Len() > 0 { // one that was cut has none, and cannot be returned
				k.Blocks = append(k.Blocks, block{Thinking: c.body.String(), Signature: c.signature.String()})
				thought = true
			}
		case "redacted_thinking":
			if c.data != "" {
				k.Blocks = append(k.Blocks, block{Redacted: c.data})
				thought = true
			}
		}
	}
	r.Message.Text = said.String()
	if err := a.link.Identify(a.turn, r.Message.Calls); err != nil {
		return nil, err
	}
	if r.Stop == model.StopEnd && len(r.Message.Calls) > 0 {
		r.Stop = model.StopToolCalls
	}
	if thought {
		var err error
		if r.Message.Opaque, err = json.Marshal(k); err != nil {
			return nil, a.link.Errorf("its thinking cannot be kept: %s", err)
		}
	}
	return r, nil
}

func (a *accumulator) reason() model.StopReason {
	switch a.stop {
	case sdk.StopReasonEndTurn, sdk.StopReasonStopSequence, sdk.StopReasonToolUse:
		return model.StopEnd
	case sdk.StopReasonMaxTokens, sdk.StopReasonPauseTurn, sdk.StopReasonModelContextWindowExceeded:
		return model.StopLength
	case sdk.StopReasonRefusal:
		return model.StopRefusal
	}
	return ""
}

// arguments of a call without parameters may be no text at all.
func (c *content) arguments() string {
	if c.body.Len() > 0 {
		return c.body.String()
	}
	if data, err := json.Marshal(c.given); err == nil && c.given != nil {
		return string(data)
	}
	return "{}"
}
