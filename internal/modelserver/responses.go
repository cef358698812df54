package modelserver

import (
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
		if a.custom[c.Name] {
			out = append(out, object{"type": "custom_tool_call", "id": "ctc_" + c.ID, "call_id": c.ID, "name": c.Name, "input": c.Arguments, "status": status})
			continue
		}
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
		case "custom_tool_call":
			empty["input"], empty["status"] = "", "in_progress"
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
		case "custom_tool_call":
			input := item["input"].(string)
			for _, piece := range script.Pieces(input) {
				add("response.custom_tool_call_input.delta", at(object{"delta": piece}))
			}
			add("response.custom_tool_call_input.done", at(object{"input": input}))
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
