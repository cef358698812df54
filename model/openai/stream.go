package openai

import (
	"encoding/json"
	"strings"

	sdk "github.com/openai/openai-go/v3"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
)

// accumulator makes a reply of a stream's chunks.
type accumulator struct {
	emit func(model.Delta)
	link *wire.Link
	turn int

	id, answered string
	text         strings.Builder
	refusal      strings.Builder
	thought      strings.Builder // reasoning_content, where a server has it
	calls        []*call
	at           map[int64]int // index in the stream → position in calls
	stop         string
	usage        model.Usage
}

type call struct {
	id, name  string
	arguments strings.Builder
}

func (a *accumulator) add(chunk *sdk.ChatCompletionChunk) error {
	if a.id == "" {
		a.id = chunk.ID
	}
	if a.answered == "" {
		a.answered = chunk.Model
	}
	if chunk.JSON.Usage.Valid() {
		u := chunk.Usage
		a.usage = wire.Usage(u.PromptTokens, u.PromptTokensDetails.CachedTokens, u.CompletionTokens, u.CompletionTokensDetails.ReasoningTokens)
	}
	for i := range chunk.Choices {
		c := &chunk.Choices[i]
		if c.Index != 0 { // only one was asked for
			continue
		}
		if err := a.addDelta(&c.Delta); err != nil {
			return err
		}
		if c.FinishReason != "" {
			a.stop = c.FinishReason
		}
	}
	return nil
}

func (a *accumulator) addDelta(d *sdk.ChatCompletionChunkChoiceDelta) error {
	if d.Content != "" {
		a.text.WriteString(d.Content)
		a.emit(model.Delta{Text: d.Content})
	}
	if d.Refusal != "" {
		a.refusal.WriteString(d.Refusal)
		a.emit(model.Delta{Text: d.Refusal})
	}
	// Not OpenAI's: DeepSeek and vLLM, and OpenRouter.
	for _, name := range []string{"reasoning_content", "reasoning"} {
		var thought string
		if f, ok := d.JSON.ExtraFields[name]; ok && json.Unmarshal([]byte(f.Raw()), &thought) == nil && thought != "" {
			a.emit(model.Delta{Reasoning: thought})
			if name == "reasoning_content" {
				a.thought.WriteString(thought)
			}
			break
		}
	}
	for i := range d.ToolCalls {
		if err := a.addCall(&d.ToolCalls[i]); err != nil {
			return err
		}
	}
	return nil
}

// addCall adds a piece of a call. Its index says which; but there are servers
// that give every call the index 0, so another id begins another call.
func (a *accumulator) addCall(d *sdk.ChatCompletionChunkChoiceDeltaToolCall) error {
	i, known := a.at[d.Index]
	if known && d.ID != "" && a.calls[i].id != "" && d.ID != a.calls[i].id {
		known = false
	}
	if !known {
		if len(a.calls) == wire.MaxCalls {
			return a.link.Errorf("it has more than %d tool calls", wire.MaxCalls)
		}
		if a.at == nil {
			a.at = map[int64]int{}
		}
		i = len(a.calls)
		a.at[d.Index] = i
		a.calls = append(a.calls, &call{})
	}
	c := a.calls[i]
	if c.id == "" {
		c.id = d.ID
	}
	// Some repeat the name with each piece.
	if n := d.Function.Name; n != "" && n != c.name {
		if c.name == "" {
			a.emit(model.Delta{CallName: n})
		}
		c.name += n
	}
	c.arguments.WriteString(d.Function.Arguments)
	return nil
}

// finish returns the reply, if the stream told how it ended.
func (a *accumulator) finish() (*model.Reply, error) {
	if a.stop == "" || a.stop == "error" { // "error" is OpenRouter's
		return nil, a.link.Cut()
	}
	r := &model.Reply{
		Message: model.Message{Role: model.RoleAssistant, Text: a.text.String()},
		Usage:   a.usage, Model: a.answered, ID: a.id,
	}
	for _, c := range a.calls {
		r.Message.Calls = append(r.Message.Calls, model.ToolCall{ID: c.id, Name: c.name, Arguments: c.arguments.String()})
	}
	if err := a.link.Identify(a.turn, r.Message.Calls); err != nil {
		return nil, err
	}
	if a.thought.Len() > 0 && len(r.Message.Calls) > 0 {
		var err error
		if r.Message.Opaque, err = json.Marshal(keptThought{a.thought.String()}); err != nil {
			return nil, a.link.Errorf("its reasoning cannot be kept: %s", err)
		}
	}
	switch a.stop {
	case "stop", "tool_calls", "function_call":
		// Some say "stop" although there are calls.
		r.Stop = model.StopEnd
		if len(r.Message.Calls) > 0 {
			r.Stop = model.StopToolCalls
		}
	case "length":
		r.Stop = model.StopLength
	case "content_filter":
		r.Stop = model.StopRefusal
	}
	if a.refusal.Len() > 0 {
		r.Stop = model.StopRefusal
		r.Message.Text += a.refusal.String()
	}
	return r, nil
}
