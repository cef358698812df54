package modelserver

import (
	"cmp"
	"encoding/json"
	"net/http"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/script"
)

// gemini is the Gemini API's generateContent and streamGenerateContent, as
// described at ai.google.dev/api/generate-content. The thoughtSignature of the
// first call, or of the last text, is the proof of what was thought. Calls
// have no ids, as they often have none from Google.
type gemini struct{}

func (gemini) broken() event { return event{data: `{"candidates":[{"content":`} }

// parts are the reply's, with text in pieces when it is streamed.
func (gemini) parts(a answer, streamed bool) []object {
	var out []object
	pieces := func(text string) []string {
		if streamed {
			return script.Pieces(text)
		}
		if text == "" {
			return nil
		}
		return []string{text}
	}
	for _, piece := range pieces(a.thought) {
		out = append(out, object{"text": piece, "thought": true})
	}
	for _, piece := range pieces(a.reply.Message.Text) {
		out = append(out, object{"text": piece})
	}
	calls := a.reply.Message.Calls
	for i, c := range calls {
		part := object{"functionCall": object{"name": c.Name, "args": canonical(c.Arguments)}}
		if i == 0 && a.proof != "" {
			part["thoughtSignature"] = a.proof
		}
		out = append(out, part)
	}
	if len(calls) == 0 && a.proof != "" {
		out = append(out, object{"text": "", "thoughtSignature": a.proof})
	}
	return out
}

func (gemini) finish(a answer) string {
	switch a.reply.Stop {
	case model.StopLength:
		return "MAX_TOKENS"
	case model.StopRefusal:
		return "SAFETY"
	}
	return "STOP"
}

func (gemini) chunk(a answer, parts []object, finish string) object {
	candidate := object{"index": 0, "content": object{"role": "model", "parts": parts}}
	if finish != "" {
		candidate["finishReason"] = finish
	}
	out := object{"candidates": []object{candidate}, "modelVersion": a.model, "responseId": a.reply.ID}
	if u := a.reply.Usage; u.Known && finish != "" {
		out["usageMetadata"] = object{
			"promptTokenCount": u.Input, "cachedContentTokenCount": u.CachedInput,
			"candidatesTokenCount": u.Output - u.Reasoning, "thoughtsTokenCount": u.Reasoning, "totalTokenCount": u.Input + u.Output,
		}
	}
	return out
}

func (p gemini) whole(a answer) any { return p.chunk(a, p.parts(a, false), p.finish(a)) }

func (p gemini) events(a answer) (events []event, content int) {
	for _, part := range p.parts(a, true) {
		events = append(events, event{data: p.chunk(a, []object{part}, "")})
	}
	content = len(events)
	return append(events, event{data: p.chunk(a, []object{{"text": ""}}, p.finish(a))}), content
}

// googleErrors are Google's words for the kinds, after
// ai.google.dev/gemini-api/docs/troubleshooting.
var googleErrors = map[model.Kind]struct {
	status          int
	code, message   string
	reason, quotaID string
}{
	model.KindRateLimit: {429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details.", "",
		"GenerateRequestsPerMinutePerProjectPerModel"},
	model.KindQuota: {429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details.", "",
		"GenerateRequestsPerDayPerProjectPerModel-FreeTier"},
	model.KindOverloaded:  {503, "UNAVAILABLE", "The model is overloaded. Please try again later.", "", ""},
	model.KindUnavailable: {500, "INTERNAL", "An internal error has occurred.", "", ""},
	model.KindAuth:        {400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", "API_KEY_INVALID", ""},
	model.KindForbidden:   {403, "PERMISSION_DENIED", "The caller does not have permission", "", ""},
	model.KindNotFound:    {404, "NOT_FOUND", "The model is not found for API version v1beta, or is not supported for generateContent.", "", ""},
	model.KindContext: {400, "INVALID_ARGUMENT", "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
		"", ""},
	model.KindInvalid: {400, "INVALID_ARGUMENT", "Request contains an invalid argument.", "", ""},
}

// refuse asks for a pause in the body, as Google does.
func (gemini) refuse(w http.ResponseWriter, e refusal) {
	usual := googleErrors[e.kind]
	status := cmp.Or(e.status, usual.status)
	var details []object
	if reason := cmp.Or(e.code, usual.reason); reason != "" {
		details = append(details, object{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"})
	}
	if usual.quotaID != "" {
		details = append(details, object{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []object{{"quotaId": usual.quotaID}}})
	}
	if e.after > 0 {
		seconds, _ := json.Marshal(e.after.Seconds()) // a number
		details = append(details, object{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": string(seconds) + "s"})
	}
	said := object{"code": status, "message": cmp.Or(e.message, usual.message), "status": usual.code}
	if details != nil {
		said["details"] = details
	}
	writeJSON(w, status, object{"error": said})
}
