package anthropic

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
)

// refusal reads an error body, which is described at
// platform.claude.com/docs/en/api/errors.
func refusal(status int, body []byte) wire.Refusal {
	d := parseDetail(body)
	r := wire.Refusal{Code: d.Details.Code, Message: d.Message}
	if r.Code == "" {
		r.Code = d.Type
	}
	words := strings.ToLower(d.Message)
	switch {
	case d.Type == "billing_error" || strings.HasSuffix(d.Details.Code, "spend_limit_reached") ||
		strings.Contains(words, "credit balance is too low"):
		r.Kind = model.KindQuota
	case d.Type == "request_too_large" || strings.Contains(words, "prompt is too long") ||
		strings.Contains(words, "exceed context limit"):
		r.Kind = model.KindContext
	}
	return r
}

// detail is what Anthropic tells about an error.
type detail struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Details struct {
		Code string `json:"error_code"`
	} `json:"details"`
}

func parseDetail(body []byte) detail {
	var outer struct {
		Error detail `json:"error"`
	}
	// Whatever is not there or not of its type stays empty.
	_ = json.Unmarshal(body, &outer)
	return outer.Error
}

// statusOf is the status that says what an error in a stream says; 0, which is
// that of no error, when its type is not known.
func statusOf(errorType string) int {
	return map[string]int{
		"invalid_request_error": http.StatusBadRequest,
		"authentication_error":  http.StatusUnauthorized,
		"billing_error":         http.StatusPaymentRequired,
		"permission_error":      http.StatusForbidden,
		"not_found_error":       http.StatusNotFound,
		"request_too_large":     http.StatusRequestEntityTooLarge,
		"rate_limit_error":      http.StatusTooManyRequests,
		"api_error":             http.StatusInternalServerError,
		"timeout_error":         http.StatusGatewayTimeout,
		"overloaded_error":      529,
		"":                      http.StatusInternalServerError,
	}[errorType]
}
