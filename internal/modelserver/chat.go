package modelserver

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/script"
)

// chat is OpenAI's Chat Completions, as described at
// platform.openai.com/docs/api-reference/chat. It shows nothing of thinking.
type chat struct{}

func (chat) broken() event { return event{data: `{"choices":[{"delta":`} }

func (chat) events(a answer) (events []event, content int) {
	add := func(delta object, finish any) {
		events = append(events, event{data: object{
			"id": a.reply.ID, "object": "chat.completion.chunk", "created": a.created, "model": a.model,
			"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}},
		}})
	}
	add(object{"role": "assistant", "content": ""}, nil)
	field := "content"
	if a.reply.Stop == model.StopRefusal {
		field = "refusal"
	}
	for _, piece := range script.Pieces(a.reply.Message.Text) {
		add(object{field: piece}, nil)
	}
	for i, c := range a.reply.Message.Calls {
		add(object{"tool_calls": []object{{
			"index": i, "id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": ""},
		}}}, nil)
		for _, piece := range script.Pieces(c.Arguments) {
			add(object{"tool_calls": []object{{"index": i, "function": object{"arguments": piece}}}}, nil)
		}
	}
	content = len(events)
	add(object{}, chatFinish(a))
	if a.usage && a.reply.Usage.Known {
		events = append(events, event{data: object{
			"id": a.reply.ID, "object": "chat.completion.chunk", "created": a.created, "model": a.model,
			"choices": []object{}, "usage": chatUsage(a),
		}})
	}
	return append(events, event{data: "[DONE]"}), content
}

func (chat) whole(a answer) any {
	m := object{"role": "assistant", "content": a.reply.Message.Text, "refusal": nil}
	if a.reply.Stop == model.StopRefusal {
		m["content"], m["refusal"] = nil, a.reply.Message.Text
	}
	var calls []object
	for _, c := range a.reply.Message.Calls {
		calls = append(calls, object{"id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": c.Arguments}})
	}
	if calls != nil {
		m["tool_calls"] = calls
	}
	out := object{
		"id": a.reply.ID, "object": "chat.completion", "created": a.created, "model": a.model,
		"choices": []object{{"index": 0, "message": m, "finish_reason": chatFinish(a)}},
	}
	if a.reply.Usage.Known {
		out["usage"] = chatUsage(a)
	}
	return out
}

func chatFinish(a answer) string {
	switch a.reply.Stop {
	case model.StopToolCalls:
		return "tool_calls"
	case model.StopLength:
		return "length"
	}
	return "stop"
}

func chatUsage(a answer) object {
	u := a.reply.Usage
	return object{
		"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output,
		"prompt_tokens_details":     object{"cached_tokens": u.CachedInput},
		"completion_tokens_details": object{"reasoning_tokens": u.Reasoning},
	}
}

// openaiErrors are OpenAI's words for the kinds: status, type, code, message.
// The codes are those of platform.openai.com/docs/guides/error-codes where it
// has one.
var openaiErrors = map[model.Kind]struct {
	status              int
	kind, code, message string
}{
	model.KindRateLimit:   {429, "rate_limit_error", "rate_limit_exceeded", "Rate limit reached."},
	model.KindOverloaded:  {503, "server_error", "overloaded", "The engine is currently overloaded."},
	model.KindUnavailable: {500, "server_error", "server_error", "The server had an error."},
	model.KindAuth:        {401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."},
	model.KindForbidden:   {403, "invalid_request_error", "unsupported_country_region_territory", "Not allowed."},
	model.KindQuota:       {429, "insufficient_quota", "insufficient_quota", "You exceeded your current quota."},
	model.KindNotFound:    {404, "invalid_request_error", "model_not_found", "The model does not exist."},
	model.KindContext:     {400, "invalid_request_error", "context_length_exceeded", "The input exceeds this model's context length."},
	model.KindInvalid:     {400, "invalid_request_error", "invalid_value", "The request is invalid."},
}

// refuse serves Responses, too.
func (chat) refuse(w http.ResponseWriter, e refusal) {
	usual := openaiErrors[e.kind]
	askFor(w, e.after)
	writeJSON(w, cmp.Or(e.status, usual.status), object{"error": object{
		"message": cmp.Or(e.message, usual.message), "type": usual.kind, "code": cmp.Or(e.code, usual.code), "param": nil,
	}})
}

// askFor asks for a pause in headers, as OpenAI and Anthropic do.
func askFor(w http.ResponseWriter, after time.Duration) {
	if after <= 0 {
		return
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(after.Seconds()))))
	if after%time.Second != 0 {
		w.Header().Set("Retry-After-Ms", strconv.FormatInt(after.Milliseconds(), 10))
	}
}
