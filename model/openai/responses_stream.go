package openai

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/openai/openai-go/v3/responses"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
)

// maxItems bounds the output items of one response.
const maxItems = 1024

// response makes a reply of a Responses stream's events, which are described
// at platform.openai.com/docs/api-reference/responses-streaming.
type response struct {
	emit func(model.Delta)
	call *wire.Call
	link *wire.Link
	turn int

	items map[int64]json.RawMessage // those that are done, by index
	final *responses.Response
}

func (a *response) add(e *responses.ResponseStreamEventUnion) error {
	switch e.Type {
	case "response.output_text.delta", "response.refusal.delta":
		if e.Delta != "" {
			a.emit(model.Delta{Text: e.Delta})
		}
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		if e.Delta != "" {
			a.emit(model.Delta{Reasoning: e.Delta})
		}
	case "response.output_item.added":
		if e.Item.Type == "function_call" && e.Item.Name != "" {
			a.emit(model.Delta{CallName: e.Item.Name})
		}
	case "response.output_item.done":
		if len(a.items) == maxItems {
			return a.link.Errorf("it has more than %d items", maxItems)
		}
		if a.items == nil {
			a.items = map[int64]json.RawMessage{}
		}
		a.items[e.OutputIndex] = json.RawMessage(e.Item.RawJSON())
	case "response.completed", "response.incomplete":
		r := e.Response
		a.final = &r
	case "response.failed":
		return a.failed(e.Response.Error.RawJSON())
	case "error":
		return a.failed(e.RawJSON())
	}
	return nil
}

// failed is an error the vendor told in the stream.
func (a *response) failed(text string) error {
	return a.call.InStream(statusOf(parseDetail([]byte(text))), []byte(text))
}

// finish returns the reply, if the stream told how it ended.
func (a *response) finish() (*model.Reply, error) {
	if a.final == nil {
		return nil, a.link.Cut()
	}
	items := a.output()
	text, calls, refused, err := readItems(items)
	if err != nil {
		return nil, a.link.Errorf("an output item is not of the protocol")
	}
	if err := a.link.Identify(a.turn, calls); err != nil {
		return nil, err
	}
	r := &model.Reply{
		Message: model.Message{Role: model.RoleAssistant, Text: text, Calls: calls},
		Model:   a.final.Model, ID: a.final.ID,
	}
	if a.final.JSON.Usage.Valid() {
		u := a.final.Usage
		r.Usage = wire.Usage(u.InputTokens, u.InputTokensDetails.CachedTokens, u.OutputTokens, u.OutputTokensDetails.ReasoningTokens)
	}
	switch {
	case a.final.Status == responses.ResponseStatusIncomplete:
		// An item that is cut cannot be returned as it is.
		r.Stop = model.StopLength
		if a.final.IncompleteDetails.Reason == "content_filter" {
			r.Stop = model.StopRefusal
		}
		return r, nil
	case a.final.Status != responses.ResponseStatusCompleted:
		return r, nil // for no known reason
	case refused:
		r.Stop = model.StopRefusal
	case len(calls) > 0:
		r.Stop = model.StopToolCalls
	default:
		r.Stop = model.StopEnd
	}
	if len(items) > 0 {
		if r.Message.Opaque, err = json.Marshal(kept{items}); err != nil {
			return nil, a.link.Errorf("an output item is not of the protocol")
		}
	}
	return r, nil
}

// output is what the response is made of: the items of its last event, or those
// that came one by one where a server leaves them out there.
func (a *response) output() []json.RawMessage {
	var out []json.RawMessage
	for i := range a.final.Output {
		out = append(out, json.RawMessage(a.final.Output[i].RawJSON()))
	}
	if len(out) == 0 {
		for _, i := range slices.Sorted(maps.Keys(a.items)) {
			out = append(out, a.items[i])
		}
	}
	return out
}
