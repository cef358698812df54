package modelserver

import (
	"cmp"
	"net/http"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/script"
)

// messages is Anthropic's Messages, as described at
// platform.claude.com/docs/en/api/messages. A thinking block's signature is
// the proof of what was thought.
type messages struct{}

func (messages) broken() event {
	return event{"content_block_delta", `{"type":"content_block_delta","index":0,"delta":`}
}

// blocks are the content of the reply.
func (messages) blocks(a answer) []object {
	var out []object
	if a.thought != "" {
		out = append(out, object{"type": "thinking", "thinking": a.thought, "signature": a.proof})
	}
	if a.reply.Message.Text != "" {
		out = append(out, object{"type": "text", "text": a.reply.Message.Text})
	}
	for _, c := range a.reply.Message.Calls {
		out = append(out, object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": canonical(c.Arguments)})
	}
	return out
}

// usage counts as Anthropic does: what was cached is not in input_tokens.
func (messages) usage(a answer) object {
	u := a.reply.Usage
	return object{
		"input_tokens": u.Input - u.CachedInput, "cache_read_input_tokens": u.CachedInput, "cache_creation_input_tokens": 0,
		"output_tokens": u.Output, "output_tokens_details": object{"thinking_tokens": u.Reasoning},
	}
}

func (messages) stop(a answer) string {
	switch a.reply.Stop {
	case model.StopToolCalls:
		return "tool_use"
	case model.StopLength:
		return "max_tokens"
	case model.StopRefusal:
		return "refusal"
	}
	return "end_turn"
}

func (p messages) whole(a answer) any {
	out := object{
		"id": a.reply.ID, "type": "message", "role": "assistant", "model": a.model, "content": p.blocks(a),
		"stop_reason": p.stop(a), "stop_sequence": nil,
	}
	if a.reply.Usage.Known {
		out["usage"] = p.usage(a)
	}
	return out
}

func (p messages) events(a answer) (events []event, content int) {
	add := func(name string, fields object) {
		fields["type"] = name
		events = append(events, event{name, fields})
	}
	begun := p.whole(a).(object)
	begun["content"], begun["stop_reason"] = []any{}, nil
	if a.reply.Usage.Known {
		usage := p.usage(a)
		usage["output_tokens"] = 1
		delete(usage, "output_tokens_details")
		begun["usage"] = usage
	}
	add("message_start", object{"message": begun})
	add("ping", object{})
	for i, block := range p.blocks(a) {
		grow := func(kind, field, text string) {
			for _, piece := range script.Pieces(text) {
				add("content_block_delta", object{"index": i, "delta": object{"type": kind, field: piece}})
			}
		}
		switch block["type"] {
		case "thinking":
			add("content_block_start", object{"index": i, "content_block": object{"type": "thinking", "thinking": "", "signature": ""}})
			grow("thinking_delta", "thinking", a.thought)
			add("content_block_delta", object{"index": i, "delta": object{"type": "signature_delta", "signature": a.proof}})
		case "text":
			add("content_block_start", object{"index": i, "content_block": object{"type": "text", "text": ""}})
			grow("text_delta", "text", a.reply.Message.Text)
		case "tool_use":
			add("content_block_start", object{"index": i, "content_block": object{"type": "tool_use", "id": block["id"], "name": block["name"], "input": object{}}})
			grow("input_json_delta", "partial_json", p.arguments(a, block["id"]))
		}
		add("content_block_stop", object{"index": i})
	}
	content = len(events)
	end := object{"delta": object{"stop_reason": p.stop(a), "stop_sequence": nil}}
	if a.reply.Usage.Known {
		end["usage"] = object{"output_tokens": a.reply.Usage.Output, "output_tokens_details": object{"thinking_tokens": a.reply.Usage.Reasoning}}
	}
	add("message_delta", end)
	add("message_stop", object{})
	return events, content
}

// arguments are a call's as the model wrote them, which only a stream can send.
func (messages) arguments(a answer, id any) string {
	for _, c := range a.reply.Message.Calls {
		if c.ID == id {
			return c.Arguments
		}
	}
	return ""
}

// anthropicErrors are Anthropic's words for the kinds, after
// platform.claude.com/docs/en/api/errors.
var anthropicErrors = map[model.Kind]struct {
	status        int
	kind, message string
}{
	model.KindRateLimit:   {429, "rate_limit_error", "This request would exceed your organization's rate limit."},
	model.KindOverloaded:  {529, "overloaded_error", "Overloaded"},
	model.KindUnavailable: {500, "api_error", "Internal server error"},
	model.KindAuth:        {401, "authentication_error", "invalid x-api-key"},
	model.KindForbidden:   {403, "permission_error", "Your API key does not have permission to use the specified resource."},
	model.KindQuota:       {402, "billing_error", "Your credit balance is too low to access the Anthropic API."},
	model.KindNotFound:    {404, "not_found_error", "model: there is no such model"},
	model.KindContext:     {400, "invalid_request_error", "prompt is too long: 200001 tokens > 200000 maximum"},
	model.KindInvalid:     {400, "invalid_request_error", "The request is invalid."},
}

func (messages) refuse(w http.ResponseWriter, e refusal) {
	usual := anthropicErrors[e.kind]
	askFor(w, e.after)
	said := object{"type": usual.kind, "message": cmp.Or(e.message, usual.message)}
	if e.code != "" {
		said["details"] = object{"error_code": e.code}
	}
	writeJSON(w, cmp.Or(e.status, usual.status), object{"type": "error", "error": said, "request_id": "req_script"})
}
