package openai

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
)

// refusal reads an error body: OpenAI's {"error":{…}}, {"error":"…"} as Ollama
// has it, or the bare object of vLLM and FastAPI.
func refusal(status int, body []byte) wire.Refusal {
	d := parseDetail(body)
	r := wire.Refusal{Kind: kindOf(status, d), Code: d.code(), Message: d.Message}
	if strings.Contains(d.Message, "max_completion_tokens") && status == http.StatusBadRequest {
		r.Hint = "the server may know max_tokens only: legacy_max_tokens: true in the configuration sends that"
	}
	if strings.Contains(d.Message, "Encrypted content is not supported") {
		r.Hint = "the model does not reason: set its effort to " + EffortOff
	}
	return r
}

// detail is what vendors tell about an error.
type detail struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    any    `json:"code"` // a string, a number or null
}

func (d detail) code() string {
	switch c := d.Code.(type) {
	case string:
		return c
	case float64:
		return strconv.FormatFloat(c, 'f', -1, 64)
	}
	return d.Type
}

func parseDetail(body []byte) detail {
	var outer struct {
		detail
		Error  json.RawMessage `json:"error"`
		Detail json.RawMessage `json:"detail"`
	}
	// Whatever is not there or not of its type stays empty.
	_ = json.Unmarshal(body, &outer)
	d := outer.detail
	for _, raw := range []json.RawMessage{outer.Error, outer.Detail} {
		if len(raw) == 0 {
			continue
		}
		var text string
		if json.Unmarshal(raw, &text) == nil {
			d.Message = text
		} else {
			_ = json.Unmarshal(raw, &d)
		}
	}
	return d
}

// kindOf tells by the codes and words that say more than the status; "" when
// none does. See platform.openai.com/docs/guides/error-codes.
func kindOf(status int, d detail) model.Kind {
	code, words := d.code(), strings.ToLower(d.Message)
	switch {
	case code == "insufficient_quota" || d.Type == "insufficient_quota":
		return model.KindQuota
	case code == "context_length_exceeded":
		return model.KindContext
	case (status == http.StatusBadRequest || status == 0) && (strings.Contains(words, "context length") ||
		strings.Contains(words, "context window") || strings.Contains(words, "context size")):
		return model.KindContext // vLLM, llama.cpp and others have no code for it
	}
	return ""
}

// failure is what ended a stream; nil for its proper end.
func failure(call *wire.Call, err error) error {
	if s, ok := errors.AsType[*ssestream.StreamError](err); ok {
		return call.InStream(statusOf(parseDetail(s.Event.Data)), s.Event.Data)
	}
	return call.Failure(err)
}

// statusOf is the status that says what an error in a stream says; 0, which is
// that of no error, when that is nothing known.
func statusOf(d detail) int {
	switch code := d.code(); {
	case code == "rate_limit_exceeded" || d.Type == "rate_limit_error":
		return http.StatusTooManyRequests
	case strings.Contains(code, "overloaded"):
		return http.StatusServiceUnavailable
	case d.Type == "server_error" || code == "server_error" || code == "":
		return http.StatusInternalServerError
	case d.Type == "invalid_request_error" || code == "invalid_prompt":
		return http.StatusBadRequest
	default:
		if n, err := strconv.Atoi(code); err == nil && n >= 400 && n < 600 {
			return n
		}
	}
	return 0
}
