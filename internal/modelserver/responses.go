package modelserver

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/script"
)

// responses is OpenAI's Responses API without what it stores, as described at
// platform.openai.com/docs/api-reference/responses. A reasoning item's
// encrypted content is the proof of what was thought.
type responses struct{ chat }

func (responses) broken() event {
	return event{"response.output_text.delta", `{"type":"response.output_text.delta","delta":`}
}

// items are what the response is made of.
func (responses) items(a answer) []object {
	var out []object
	if a.thought != "" {
		reasoning := object{"type": "reasoning", "id": "rs_" + a.reply.ID, "summary": []object{{"type": "summary_text", "text": a.thought}}}
		if a.proof != "" {
			reasoning["encrypted_content"] = a.proof
		}
		out = append(out, reasoning)
	}
	status := "completed"
	if a.reply.Stop == model.StopLength {
		status = "incomplete"
	}
	if text := a.reply.Message.Text; text != "" {
		part := object{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
		if a.reply.Stop == model.StopRefusal {
			part = object{"type": "refusal", "refusal": text}
		}
		out = append(out, object{"type": "message", "id": "msg_" + a.reply.ID, "status": status, "role": "assistant", "content": []object{part}})
	}
	for _, c := range a.reply.Message.Calls {
		out = append(out, object{"type": "function_call", "id": "fc_" + c.ID, "call_id": c.ID, "name": c.Name, "arguments": c.Arguments, "status": status})
	}
	return out
}

func (p responses) whole(a answer) any {
	out := object{
		"id": a.reply.ID, "object": "response", "created_at": a.created, "model": a.model, "status": "completed",
		"error": nil, "incomplete_details": nil, "instructions": nil, "output": p.items(a), "store": false, "usage": nil,
	}
	if a.reply.Stop == model.StopLength {
		out["status"], out["incomplete_details"] = "incomplete", object{"reason": "max_output_tokens"}
	}
	if u := a.reply.Usage; u.Known {
		out["usage"] = object{
			"input_tokens": u.Input, "input_tokens_details": object{"cached_tokens": u.CachedInput},
			"output_tokens": u.Output, "output_tokens_details": object{"reasoning_tokens": u.Reasoning},
			"total_tokens": u.Input + u.Output,
		}
	}
	return out
}

func (p responses) events(a answer) (events []event, content int) {
	add := func(name string, fields object) {
		fields["type"], fields["sequence_number"] = name, len(events)
		events = append(events, event{name, fields})
	}
	begun := p.whole(a).(object)
	begun["status"], begun["output"], begun["usage"], begun["incomplete_details"] = "in_progress", []any{}, nil, nil
	add("response.created", object{"response": begun})
	add("response.in_progress", object{"response": begun})
	for i, item := range p.items(a) {
		empty := object{}
		for k, v := range item {
			empty[k] = v
		}
		switch item["type"] {
		case "reasoning":
			empty["summary"] = []any{}
		case "message":
			empty["content"], empty["status"] = []any{}, "in_progress"
		case "function_call":
			empty["arguments"], empty["status"] = "", "in_progress"
		}
		at := func(more object) object {
			more["output_index"], more["item_id"] = i, item["id"]
			return more
		}
		add("response.output_item.added", object{"output_index": i, "item": empty})
		switch item["type"] {
		case "reasoning":
			for _, piece := range script.Pieces(a.thought) {
				add("response.reasoning_summary_text.delta", at(object{"summary_index": 0, "delta": piece}))
			}
		case "message":
			name := "response.output_text.delta"
			if a.reply.Stop == model.StopRefusal {
				name = "response.refusal.delta"
			}
			for _, piece := range script.Pieces(a.reply.Message.Text) {
				add(name, at(object{"content_index": 0, "delta": piece}))
			}
		case "function_call":
			arguments := item["arguments"].(string)
			for _, piece := range script.Pieces(arguments) {
				add("response.function_call_arguments.delta", at(object{"delta": piece}))
			}
			add("response.function_call_arguments.done", at(object{"name": item["name"], "arguments": arguments}))
		}
		add("response.output_item.done", object{"output_index": i, "item": item})
	}
	content = len(events)
	end := "response.completed"
	if a.reply.Stop == model.StopLength {
		end = "response.incomplete"
	}
	add(end, object{"response": p.whole(a)})
	return events, content
}

// responsesRequest is what is read of a request.
type responsesRequest struct {
	Model           string          `json:"model"`
	Instructions    string          `json:"instructions"`
	Input           json.RawMessage `json:"input"`
	Stream          bool            `json:"stream"`
	Store           *bool           `json:"store"`
	Include         []string        `json:"include"`
	MaxOutputTokens *int            `json:"max_output_tokens"`
	Tools           []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"tools"`
}

// responsesItem is one item of the input.
type responsesItem struct {
	Type             string      `json:"type"`
	Role             string      `json:"role"`
	Content          chatContent `json:"content"`
	ID               string      `json:"id"`
	CallID           string      `json:"call_id"`
	Name             string      `json:"name"`
	Arguments        string      `json:"arguments"`
	Output           chatContent `json:"output"`
	EncryptedContent string      `json:"encrypted_content"`
}

// read refuses calls without results and results without calls, and reasoning
// that leads to nothing.
func (responses) read(_ *http.Request, body []byte) (*ask, *refusal) {
	var in responsesRequest
	if bad := decode(body, &in); bad != nil {
		return nil, bad
	}
	items, bad := in.items()
	switch {
	case bad != nil:
		return nil, bad
	case in.Model == "" || len(items) == 0:
		return nil, invalid("The request needs a model and an input.")
	case in.MaxOutputTokens != nil && *in.MaxOutputTokens < 16:
		return nil, invalid("Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got %d instead.", *in.MaxOutputTokens)
	}
	a := &ask{req: &model.Request{System: in.Instructions}, model: in.Model, stream: in.Stream, proofs: map[int]string{},
		signs: slices.Contains(in.Include, "reasoning.encrypted_content")}
	if in.MaxOutputTokens != nil {
		a.req.MaxOutputTokens = *in.MaxOutputTokens
	}
	r := responsesReader{ask: a, open: map[string]string{}}
	for i, item := range items {
		if bad := r.add(item, i); bad != nil {
			return nil, bad
		}
	}
	for id := range r.open {
		return nil, invalid("No tool output found for function call %s.", id)
	}
	if r.reasoned != "" {
		return nil, invalid("Item '%s' of type 'reasoning' was provided without its required following item.", r.reasoned)
	}
	for i, t := range in.Tools {
		if t.Type != "function" || t.Name == "" {
			return nil, invalid("Missing required parameter: 'tools[%d].name'.", i)
		}
		a.req.Tools = append(a.req.Tools, model.ToolDef{Name: t.Name, Description: t.Description, Schema: t.Parameters})
	}
	return a, nil
}

// items are those of the input; a text is a user's message.
func (in responsesRequest) items() ([]responsesItem, *refusal) {
	var text string
	if json.Unmarshal(in.Input, &text) == nil {
		return []responsesItem{{Role: "user", Content: chatContent(text)}}, nil
	}
	var items []responsesItem
	if len(in.Input) == 0 {
		return nil, nil
	}
	return items, decode(in.Input, &items)
}

// responsesReader puts items into messages: what the assistant said in a row is
// one.
type responsesReader struct {
	*ask
	open     map[string]string // call_id → tool of calls without their result
	reasoned string            // the reasoning item whose following one is missing
	said     bool              // the last message is the assistant's, and goes on
}

func (r *responsesReader) add(item responsesItem, i int) *refusal {
	assistant := item.Type == "reasoning" || item.Type == "function_call" || item.Role == "assistant"
	if r.reasoned != "" && (!assistant || item.Type == "reasoning") {
		return invalid("Item '%s' of type 'reasoning' was provided without its required following item.", r.reasoned)
	}
	if assistant && !r.said {
		for id := range r.open {
			return invalid("No tool output found for function call %s.", id)
		}
		r.req.Messages = append(r.req.Messages, model.Message{Role: model.RoleAssistant})
	}
	r.said = assistant
	n := len(r.req.Messages) - 1
	switch {
	case item.Type == "reasoning":
		if item.EncryptedContent == "" {
			return invalid("Item with id '%s' not found. Items are not persisted when `store` is set to false.", item.ID)
		}
		r.reasoned, r.proofs[n] = item.ID, item.EncryptedContent
		return nil
	case item.Type == "function_call":
		if _, twice := r.open[item.CallID]; twice || item.CallID == "" {
			return invalid("Duplicate or missing 'call_id' at input[%d].", i)
		}
		r.open[item.CallID] = item.Name
		m := &r.req.Messages[n]
		m.Calls = append(m.Calls, model.ToolCall{ID: item.CallID, Name: item.Name, Arguments: item.Arguments})
	case item.Type == "function_call_output":
		name, ok := r.open[item.CallID]
		if !ok {
			return invalid("No tool call found for function call output with call_id %s.", item.CallID)
		}
		delete(r.open, item.CallID)
		r.req.Messages = addResult(r.req.Messages, model.ToolResult{ID: item.CallID, Name: name, Content: string(item.Output)})
	case item.Type != "" && item.Type != "message":
		return invalid("Invalid value: '%s' at input[%d].type.", item.Type, i)
	case item.Role == "assistant":
		r.req.Messages[n].Text += string(item.Content)
	case item.Role == "system" || item.Role == "developer":
		r.req.System = strings.TrimPrefix(r.req.System+"\n\n"+string(item.Content), "\n\n")
	case item.Role == "user":
		for id := range r.open {
			return invalid("No tool output found for function call %s.", id)
		}
		r.req.Messages = append(r.req.Messages, model.Message{Role: model.RoleUser, Text: string(item.Content)})
	default:
		return invalid("Invalid value: '%s' at input[%d].role.", item.Role, i)
	}
	r.reasoned = ""
	return nil
}
