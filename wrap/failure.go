package wrap

import (
	"encoding/json"
	"strings"
)

// signs are words by which vendors, gateways and agents tell of a failure, in lower
// case. The first kind of which a word is found is it.
var signs = []struct {
	kind  FailureKind
	words []string
}{
	{Spent, []string{"billing_hard_limit_reached", "billing hard limit", "insufficient_quota", "quota exceeded", "exceeded your current quota",
		"daily quota", "quota_exhausted", "credit balance is too low", "billing_error", "budget of this run is used up"}},
	{NotAllowed, []string{"rein: the request may not go on"}},
	{BadKey, []string{"invalid_api_key", "incorrect api key", "invalid api key", "invalid x-api-key", "api key not valid", "api_key_invalid", "authentication_error",
		"not logged in", "missing environment variable", "must specify the gemini_api_key", "no api key", "missing api key", "api key is missing", "401 unauthorized",
		"api error: 401", "error: 401", "no auth type is selected", "set an auth method"}},
	{TooLong, []string{"context_length_exceeded", "context window", "context length", "prompt is too long", "maximum number of tokens allowed", "maximum context", "contextoverflow"}},
	{OutOfTurns, []string{"max_turns", "maximum number of turns", "max session turns", "turn limit", "max turns"}},
	{Refusal, []string{"unable to respond to this request", "usage policy", "content_filter", "content-filter", "content filter", "content policy", "ended with empty response", "blocked by safety", "prohibited_content", "refused to answer"}},
	{NoModel, []string{"model_not_found", "model not found", "providermodelnotfound", "does not exist", "not_found_error", "not_found", "is not found for api version",
		"may not exist", "unknown model", "issue with the selected model"}},
	{TimedOut, []string{"timed out", "timeout", "idle for"}},
	{NotAllowed, []string{"permission_error", "permission_denied", "403 forbidden", "api error: 403", "does not have permission", "requires approval", "permission requested", "rejected permission", "denied by policy"}},
	{NoVendor, []string{"nobody keeps the budget", "overloaded", "internal server error", "connection error", "fetch failed", "stream disconnected", "econnrefused", "econnreset", "unable to connect", "high demand",
		"service unavailable", "rate limit", "rate_limit", "socket hang up", "connection closed", "terminated", "server had an error", "internal error", "failed to parse json", "without a finish reason", "unexpected status 5", "error: 5", "network"}},
}

// classify is the kind of a failure by the status of the answer that it tells of, 0
// for none, and its words.
func classify(status int, text string) FailureKind {
	text = strings.ToLower(text)
	for _, s := range signs {
		for _, word := range s.words {
			if strings.Contains(text, word) {
				return s.kind
			}
		}
	}
	switch {
	case status == 401:
		return BadKey
	case status == 402:
		return Spent
	case status == 403:
		return NotAllowed
	case status == 404:
		return NoModel
	case status == 408, status == 504:
		return TimedOut
	case status == 413:
		return TooLong
	case status == 429, status >= 500:
		return NoVendor
	}
	return Other
}

// failure is one in an agent's words.
func failure(status int, text string) *Failure {
	text = strings.TrimSpace(text)
	return &Failure{Kind: classify(status, text), Message: text}
}

// vendorError is the message of an error's body as vendors write it, or the text
// itself when it is none.
func vendorError(text string) (message, code string) {
	i := strings.IndexByte(text, '{')
	if i < 0 {
		return text, ""
	}
	var body struct {
		Error struct {
			Message string `json:"message"`
			Type    string `json:"type"`
			Code    any    `json:"code"`
			Status  string `json:"status"`
		} `json:"error"`
	}
	if json.NewDecoder(strings.NewReader(text[i:])).Decode(&body) != nil || body.Error.Message == "" {
		return text, ""
	}
	if c, ok := body.Error.Code.(string); ok {
		return body.Error.Message, c
	}
	if body.Error.Status != "" {
		return body.Error.Message, body.Error.Status
	}
	return body.Error.Message, body.Error.Type
}

// lastWords is the line of stderr by which an agent that wrote no event of its end
// said why: the last that tells of a failure of a known kind, else the last of an
// error. Empty for none: notices, and places in a program, say nothing.
func lastWords(stderr []string) string {
	words := ""
	for i := len(stderr) - 1; i >= 0; i-- {
		line := stderr[i]
		if strings.HasPrefix(line, "at ") {
			continue
		}
		if classify(0, line) != Other {
			return line
		}
		if low := strings.ToLower(line); words == "" && (strings.Contains(low, "error") || strings.Contains(low, "fail")) {
			words = line
		}
	}
	return words
}
