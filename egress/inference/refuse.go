package inference

import (
	"encoding/json"
	"net/http"
)

// said is a vendor's error: its status, and its words for it. Gemini's code is a
// reason with the details.
type said struct {
	status     int
	kind, code string
}

// errorsOf are the vendors' errors that have their clients end. Each client has its
// own idea of what is worth another try:
//   - OpenAI's and Anthropic's SDKs try 408, 409, 429 and 5xx again, unless
//     x-should-retry: false says otherwise (openai-go internal/requestconfig,
//     anthropic-sdk-go alike; so does Claude Code's own loop);
//   - Vercel's AI SDK, of OpenCode, tries the same again, and knows no such header;
//   - Qwen Code's own loop tries 429 and 5xx again, whatever the code says
//     (packages/core/src/utils/retry.ts);
//   - Codex does not try 400 again, and shows its body; of 429 it shows the number
//     alone, and all other it tries again (codex-api/src/api_bridge.rs,
//     codex-protocol/src/error.rs);
//   - Gemini CLI tries 429, 499 and 5xx again, and for a used-up quota of a day
//     another model first (packages/core/src/utils/googleQuotaErrors.ts).
//
// So that what is used up is 402 where the vendor has that, which Anthropic's
// billing_error is; for Responses 400; and 403 for Gemini, as for an account without
// billing.
var errorsOf = map[API]map[StopCode]said{
	Chat: {
		StopBudget: {402, "insufficient_quota", "insufficient_quota"},
		StopModel:  {404, "invalid_request_error", "model_not_found"},
		StopClosed: {503, "server_error", "server_error"},
		StopAsked:  {400, "invalid_request_error", "invalid_value"},
	},
	Responses: {
		StopBudget: {400, "insufficient_quota", "insufficient_quota"},
		StopModel:  {400, "invalid_request_error", "model_not_found"},
		StopClosed: {503, "server_error", "server_error"},
		StopAsked:  {400, "invalid_request_error", "invalid_value"},
	},
	Messages: {
		StopBudget: {402, "billing_error", ""},
		StopModel:  {404, "not_found_error", ""},
		StopClosed: {503, "api_error", ""},
		StopAsked:  {400, "invalid_request_error", ""},
	},
	Gemini: {
		StopBudget: {403, "PERMISSION_DENIED", "BILLING_DISABLED"},
		StopModel:  {404, "NOT_FOUND", ""},
		StopClosed: {503, "UNAVAILABLE", ""},
		StopAsked:  {400, "INVALID_ARGUMENT", ""},
	},
}

// lead is how the reason begins, so that whoever reads it in a client's output
// knows whose it is.
var lead = map[StopCode]string{
	StopBudget: "rein: the budget of this run is used up: ",
	StopModel:  "rein: ",
	StopClosed: "rein: nobody keeps the budget of this run any more: ",
	StopAsked:  "rein: the request may not go on: ",
}

// Refuse is the answer to a request that does not go on: the vendor's own error,
// of those that have its clients end by themselves and not try again. Vendors say
// such errors before a stream begins, and in the same way for one as for none, so
// that stream changes nothing.
func Refuse(api API, s Stop, _ bool) (status int, header http.Header, body []byte) {
	errors, ok := errorsOf[api]
	if !ok {
		errors = errorsOf[Chat]
	}
	if _, ok := lead[s.Code]; !ok { // a RefusalCode, for example
		s.Code = StopAsked
	}
	e := errors[s.Code]
	type object = map[string]any
	message := lead[s.Code] + s.Reason
	var out object
	switch api {
	case Messages:
		out = object{"type": "error", "error": object{"type": e.kind, "message": message}}
	case Gemini:
		inner := object{"code": e.status, "message": message, "status": e.kind}
		if e.code != "" {
			inner["details"] = []object{{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": e.code, "domain": "googleapis.com"}}
		}
		out = object{"error": inner}
	default:
		out = object{"error": object{"message": message, "type": e.kind, "code": e.code, "param": nil}}
	}
	body, _ = json.Marshal(out) // of strings and numbers
	return e.status, http.Header{"Content-Type": {"application/json"}, "X-Should-Retry": {"false"}}, body
}
