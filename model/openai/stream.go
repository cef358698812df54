package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/openai/openai-go/v3"

	"github.com/rein-sh/rein/model"
)

// maxCalls bounds the tool calls of one reply; OpenAI allows 128 tools.
const maxCalls = 128

// accumulator makes a reply of a stream's chunks.
type accumulator struct {
	emit  func(model.Delta)
	model string
	turn  int

	id, answered string
	text         strings.Builder
	refusal      strings.Builder
	calls        []*call
	at           map[int64]int // index in the stream → position in calls
	stop         string
	usage        model.Usage
}

type call struct {
	id, name  string
	arguments strings.Builder
}

func (a *accumulator) malformed(format string, args ...any) error {
	return &model.Error{Kind: model.KindUnknown, Model: a.model,
		Message: "the reply is malformed: " + fmt.Sprintf(format, args...)}
}

func (a *accumulator) add(chunk *sdk.ChatCompletionChunk) error {
	if a.id == "" {
		a.id = chunk.ID
	}
	if a.answered == "" {
		a.answered = chunk.Model
	}
	if chunk.JSON.Usage.Valid() {
		a.addUsage(chunk.Usage)
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
		if len(a.calls) == maxCalls {
			return a.malformed("it has more than %d tool calls", maxCalls)
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

// addUsage keeps numbers that can be true.
func (a *accumulator) addUsage(u sdk.CompletionUsage) {
	if u.PromptTokens < 0 || u.CompletionTokens < 0 {
		return
	}
	a.usage = model.Usage{
		Known:       true,
		Input:       u.PromptTokens,
		CachedInput: min(max(u.PromptTokensDetails.CachedTokens, 0), u.PromptTokens),
		Output:      u.CompletionTokens,
		Reasoning:   min(max(u.CompletionTokensDetails.ReasoningTokens, 0), u.CompletionTokens),
	}
}

// finish returns the reply, if the stream told how it ended.
func (a *accumulator) finish() (*model.Reply, error) {
	if a.stop == "" || a.stop == "error" { // "error" is OpenRouter's
		return nil, &model.Error{Kind: model.KindCut, Model: a.model, Message: "the reply ended without a finish reason"}
	}
	r := &model.Reply{
		Message: model.Message{Role: model.RoleAssistant, Text: a.text.String()},
		Usage:   a.usage, Model: a.answered, ID: a.id,
	}
	if err := a.finishCalls(r); err != nil {
		return nil, err
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

// finishCalls gives calls without an id, or with that of another, one of ours:
// results find their calls by it.
func (a *accumulator) finishCalls(r *model.Reply) error {
	given, used := map[string]bool{}, map[string]bool{}
	for _, c := range a.calls {
		given[c.id] = true
	}
	n := 0
	for i, c := range a.calls {
		if c.name == "" {
			return a.malformed("tool call %d has no name", i+1)
		}
		for c.id == "" || used[c.id] {
			n++
			if id := fmt.Sprintf("call_%d_%d", a.turn, n); !given[id] {
				c.id = id
			}
		}
		used[c.id] = true
		r.Message.Calls = append(r.Message.Calls, model.ToolCall{ID: c.id, Name: c.name, Arguments: c.arguments.String()})
	}
	return nil
}
