package openai

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/rein-sh/rein/model"
)

// maxErrorBody is how much is read of a response that is not a reply.
const maxErrorBody = 64 << 10

// accept takes a response that is a stream and turns every other one into an
// error.
func (m *Model) accept(w *watch, res *http.Response) (*http.Response, error) {
	res.Body = w.over(res.Body)
	mediaType, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if res.StatusCode == http.StatusOK && mediaType != "application/json" {
		return res, nil
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	_ = res.Body.Close() // read as far as wanted
	if err != nil {
		body = nil // the status says enough
	}
	if res.StatusCode == http.StatusOK {
		return nil, &model.Error{Kind: model.KindUnknown, Model: m.Name(), Status: res.StatusCode,
			Message: "the server answered a stream request with plain JSON",
			Hint:    "the server does not stream chat completions, or the base URL is another API's"}
	}
	e := m.refusal(res.StatusCode, body, mediaType)
	e.RetryAfter = retryAfter(res.Header, time.Now())
	return nil, e
}

// refusal reads an error body: OpenAI's {"error":{…}}, {"error":"…"} as Ollama
// has it, or the bare object of vLLM and FastAPI.
func (m *Model) refusal(status int, body []byte, mediaType string) *model.Error {
	d := parseDetail(body)
	if d.Message == "" && mediaType == "text/plain" {
		d.Message = string(body)
	}
	e := &model.Error{
		Kind: kindOf(status, d), Model: m.Name(), Status: status, Code: d.code(),
		Message: m.clean(d.Message),
	}
	if e.Message == "" {
		e.Message = http.StatusText(status)
	}
	switch e.Kind {
	case model.KindAuth:
		e.Hint = "check the key and that it belongs to " + m.opts.BaseURL
	case model.KindNotFound:
		e.Hint = "check the model's name and the base URL " + m.opts.BaseURL
	case model.KindInvalid:
		if strings.Contains(d.Message, "max_completion_tokens") {
			e.Hint = "the server may know max_tokens only: set LegacyMaxTokens"
		}
	}
	if status >= 300 && status < 400 {
		e.Message = "the server redirects, which is not followed"
		e.Hint = "set the base URL to where it redirects"
	}
	return e
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

// kindOf classifies by status, then by the codes and words that say more. See
// platform.openai.com/docs/guides/error-codes.
func kindOf(status int, d detail) model.Kind {
	code, words := d.code(), strings.ToLower(d.Message)
	switch {
	case code == "insufficient_quota" || d.Type == "insufficient_quota" || status == http.StatusPaymentRequired:
		return model.KindQuota
	case code == "context_length_exceeded" || status == http.StatusRequestEntityTooLarge:
		return model.KindContext
	case (status == http.StatusBadRequest || status == 0) && (strings.Contains(words, "context length") ||
		strings.Contains(words, "context window") || strings.Contains(words, "context size")):
		return model.KindContext // vLLM, llama.cpp and others have no code for it
	}
	switch status {
	case http.StatusTooManyRequests:
		return model.KindRateLimit
	case http.StatusUnauthorized:
		return model.KindAuth
	case http.StatusForbidden:
		return model.KindForbidden
	case http.StatusNotFound:
		return model.KindNotFound
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return model.KindTimeout
	case http.StatusServiceUnavailable, 529:
		return model.KindOverloaded
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity:
		return model.KindInvalid
	}
	if status >= 500 {
		return model.KindUnavailable
	}
	return model.KindUnknown
}

// failure classifies what ended a stream or kept it from beginning.
func (m *Model) failure(ctx context.Context, w *watch, err error) error {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e
	}
	e := &model.Error{Kind: model.KindUnknown, Model: m.Name()}
	switch cause := context.Cause(w.ctx); {
	case ctx.Err() != nil:
		e.Err = ctx.Err()
		if errors.Is(e.Err, context.DeadlineExceeded) {
			e.Kind = model.KindTimeout
		}
		return e
	case errors.Is(cause, errStalled):
		e.Kind, e.Err = model.KindTimeout, errStalled
		e.Message = fmt.Sprintf("nothing came for %v", m.opts.StallTimeout)
		return e
	case errors.Is(w.broken, errTooLong) || errors.Is(err, bufio.ErrTooLong):
		e.Message = fmt.Sprintf("the response is longer than %d bytes", m.opts.MaxBytes)
		return e
	case w.body == nil:
		return m.unreachable(e, err)
	case w.broken != nil:
		e.Kind, e.Err = model.KindCut, w.broken
		e.Message = "the connection broke in the middle of the reply"
		return e
	}
	if s, ok := errors.AsType[*ssestream.StreamError](err); ok {
		return m.inStream(s)
	}
	e.Message = "the reply is malformed: an event is not JSON of the protocol"
	return e
}

// unreachable is for requests without a response.
func (m *Model) unreachable(e *model.Error, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	e.Kind, e.Message = model.KindUnavailable, m.clean(err.Error())
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		e.Kind = model.KindUnknown
		e.Hint = "the server's certificate is not trusted here"
	}
	return e
}

// inStream reads an error sent as an event, which has no status.
func (m *Model) inStream(s *ssestream.StreamError) error {
	d := parseDetail(s.Event.Data)
	status := 0 // which none of those below makes KindUnknown
	switch code := d.code(); {
	case code == "rate_limit_exceeded" || d.Type == "rate_limit_error":
		status = http.StatusTooManyRequests
	case strings.Contains(code, "overloaded"):
		status = http.StatusServiceUnavailable
	case d.Type == "server_error" || code == "server_error" || code == "":
		status = http.StatusInternalServerError
	case d.Type == "invalid_request_error":
		status = http.StatusBadRequest
	default:
		if n, err := strconv.Atoi(code); err == nil && n >= 400 && n < 600 {
			status = n
		}
	}
	e := m.refusal(status, s.Event.Data, "")
	e.Status = http.StatusOK
	return e
}

// clean bounds a vendor's message and keeps the key out of it.
func (m *Model) clean(s string) string {
	if key := m.opts.Key; !key.IsZero() {
		s = strings.ReplaceAll(s, key.Reveal(), key.String())
	}
	const most = 1000
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(strings.TrimSpace(s), "")
}

// maxRetryAfter bounds what a server may ask for; more is as good as never.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads retry-after-ms (OpenAI and Azure), else Retry-After in
// seconds or as an HTTP date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		v := strings.TrimSpace(h.Get(u.name))
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || math.IsNaN(n) {
			continue
		}
		return time.Duration(min(max(n*float64(u.unit), 0), float64(maxRetryAfter)))
	}
	at, err := http.ParseTime(h.Get("Retry-After"))
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
