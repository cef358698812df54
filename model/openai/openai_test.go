package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/openai"
	"github.com/rein-sh/rein/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// transport answers without a network.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := f(r)
	_, _ = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	return res, err
}

func respond(status int, header http.Header, body string) *http.Response {
	if header == nil {
		header = http.Header{"Content-Type": {"text/event-stream"}}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body))}
}

func newModel(t *testing.T, o openai.Options) model.Model {
	t.Helper()
	if o.Model == "" {
		o.Model = "m1"
	}
	m, err := openai.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// streaming is a model whose server sends body.
func streaming(t *testing.T, body string) model.Model {
	return newModel(t, openai.Options{Transport: transport(func(*http.Request) (*http.Response, error) {
		return respond(200, nil, body), nil
	})})
}

func request() *model.Request {
	return &model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "go"}}, MaxOutputTokens: 100}
}

// sse makes a stream of events, each the data of one.
func sse(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("data: " + e + "\n\n")
	}
	return b.String()
}

// delta is an event with one.
func delta(d string) string { return `{"choices":[{"index":0,"delta":` + d + `}]}` }

// finish is an event with a finish reason.
func finish(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

func TestRequest(t *testing.T) {
	var got map[string]any
	var header http.Header
	var url string
	m := newModel(t, openai.Options{
		BaseURL: "https://models.example/openai/v1/", Model: "m1", Vendor: "acme", Key: secret.New("k", "sk-123456"),
		Header: http.Header{"X-Team": {"a", "b"}},
		Transport: transport(func(r *http.Request) (*http.Response, error) {
			header, url = r.Header, r.URL.String()
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
				t.Error(err)
			}
			return respond(200, nil, sse(finish("stop"), "[DONE]")), nil
		}),
	})
	if m.Name() != "acme/m1" {
		t.Errorf("name %q", m.Name())
	}
	req := &model.Request{
		System: "S", MaxOutputTokens: 7,
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "U"},
			{Role: model.RoleAssistant, Calls: []model.ToolCall{{ID: "1", Name: "f", Arguments: "{"}, {ID: "2", Name: "g", Arguments: "{}"}}},
			{Role: model.RoleTool, Results: []model.ToolResult{{ID: "1", Content: "R1"}, {ID: "2", Content: "R2"}}},
			{Role: model.RoleAssistant, Text: "A"},
			{Role: model.RoleAssistant},
		},
		Tools: []model.ToolDef{{Name: "f", Description: "D", Schema: json.RawMessage(`{"type":"object","required":["x"]}`)}, {Name: "g"}},
	}
	if _, err := m.Generate(t.Context(), req, nil); err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	err := json.Unmarshal([]byte(`{
		"model": "m1", "stream": true, "stream_options": {"include_usage": true}, "max_completion_tokens": 7,
		"messages": [
			{"role": "system", "content": "S"},
			{"role": "user", "content": "U"},
			{"role": "assistant", "tool_calls": [
				{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"INVALID_JSON\":\"{\"}"}},
				{"id": "2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
			{"role": "tool", "tool_call_id": "1", "content": "R1"},
			{"role": "tool", "tool_call_id": "2", "content": "R2"},
			{"role": "assistant", "content": "A"},
			{"role": "assistant", "content": ""}],
		"tools": [
			{"type": "function", "function": {"name": "f", "description": "D", "parameters": {"type": "object", "required": ["x"]}}},
			{"type": "function", "function": {"name": "g"}}]}`), &want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if url != "https://models.example/openai/v1/chat/completions" {
		t.Errorf("URL %s", url)
	}
	if header.Get("Authorization") != "Bearer sk-123456" || len(header["X-Team"]) != 2 {
		t.Errorf("header %v", header)
	}
}

func TestOptionsForOtherServers(t *testing.T) {
	var got map[string]any
	m := newModel(t, openai.Options{LegacyMaxTokens: true, NoStreamUsage: true,
		Transport: transport(func(r *http.Request) (*http.Response, error) {
			return respond(200, nil, sse(finish("stop"))), json.NewDecoder(r.Body).Decode(&got)
		}),
	})
	reply, err := m.Generate(t.Context(), request(), nil)
	if err != nil || reply.Usage.Known {
		t.Fatalf("%+v, %v", reply, err)
	}
	if got["max_tokens"] != 100.0 || got["max_completion_tokens"] != nil || got["stream_options"] != nil {
		t.Errorf("sent %v", got)
	}
}

// Whatever the environment says, nothing of it is used.
func TestHostileEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"OPENAI_API_KEY": "env-key", "OPENAI_ADMIN_KEY": "env-admin", "OPENAI_ORG_ID": "env-org", "OPENAI_PROJECT_ID": "env-project",
		"OPENAI_BASE_URL": "http://env.invalid/v1", "OPENAI_WEBHOOK_SECRET": "env-secret", "OPENAI_CUSTOM_HEADERS": "X-Env: env-header",
		"HTTP_PROXY": "http://env.invalid:1", "HTTPS_PROXY": "http://env.invalid:1", "ALL_PROXY": "http://env.invalid:1", "NO_PROXY": "",
	} {
		t.Setenv(name, value)
		t.Setenv(strings.ToLower(name), value)
	}
	var header http.Header
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, sse(finish("stop"), "[DONE]"))
	}))
	defer ts.Close()
	// Not 127.0.0.1, for which a proxy is never used.
	m := newModel(t, openai.Options{BaseURL: strings.Replace(ts.URL, "127.0.0.1", "0.0.0.0", 1)})
	if _, err := m.Generate(t.Context(), request(), nil); err != nil {
		t.Fatal(err)
	}
	if header.Get("Authorization") != "" || strings.Contains(fmt.Sprint(header), "env") {
		t.Errorf("header %v", header)
	}
	var url string
	m = newModel(t, openai.Options{Transport: transport(func(r *http.Request) (*http.Response, error) {
		url = r.URL.String()
		return respond(200, nil, sse(finish("stop"))), nil
	})})
	if _, err := m.Generate(t.Context(), request(), nil); err != nil || url != openai.DefaultBaseURL+"/chat/completions" {
		t.Errorf("URL %s, %v", url, err)
	}
}

func TestRefusals(t *testing.T) {
	const key = "sk-123456"
	asJSON := http.Header{"Content-Type": {"application/json"}}
	text := http.Header{"Content-Type": {"text/plain"}}
	html := http.Header{"Content-Type": {"text/html"}}
	tests := []struct {
		name    string
		status  int
		header  http.Header
		body    string
		kind    model.Kind
		code    string
		message string
	}{
		{"rate limit", 429, asJSON, `{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}`, model.KindRateLimit, "rate_limit_exceeded", "slow down"},
		{"quota", 429, asJSON, `{"error":{"message":"spent","type":"insufficient_quota","code":"insufficient_quota"}}`, model.KindQuota, "insufficient_quota", "spent"},
		{"payment", 402, asJSON, `{"error":{"message":"pay"}}`, model.KindQuota, "", "pay"},
		{"key", 401, asJSON, `{"error":{"message":"Incorrect API key provided: ` + key + `.","code":"invalid_api_key"}}`, model.KindAuth, "invalid_api_key", "Incorrect API key provided: [secret:k]."},
		{"forbidden", 403, asJSON, `{"error":{"message":"no"}}`, model.KindForbidden, "", "no"},
		{"Ollama", 404, asJSON, `{"error":"model not found"}`, model.KindNotFound, "", "model not found"},
		{"FastAPI", 422, asJSON, `{"detail":"bad field"}`, model.KindInvalid, "", "bad field"},
		{"vLLM", 400, asJSON, `{"object":"error","message":"This model's maximum context length is 10 tokens","type":"BadRequestError","code":400}`, model.KindContext, "400", "This model's maximum context length is 10 tokens"},
		{"context", 400, asJSON, `{"error":{"message":"long","code":"context_length_exceeded"}}`, model.KindContext, "context_length_exceeded", "long"},
		{"large", 413, text, `too large`, model.KindContext, "", "too large"},
		{"invalid", 400, asJSON, `{"error":{"message":"bad","type":"invalid_request_error","code":null}}`, model.KindInvalid, "invalid_request_error", "bad"},
		{"odd types", 400, asJSON, `{"error":{"message":5,"type":[],"code":{}}}`, model.KindInvalid, "", "Bad Request"},
		{"busy", 503, html, `<html>busy ` + key + `</html>`, model.KindOverloaded, "", "Service Unavailable"},
		{"overloaded", 529, asJSON, `{}`, model.KindOverloaded, "", ""},
		{"gateway", 502, html, `<html>`, model.KindUnavailable, "", "Bad Gateway"},
		{"gateway timeout", 504, text, key, model.KindTimeout, "", "[secret:k]"},
		{"redirect", 307, http.Header{"Location": {"https://elsewhere.example/"}}, ``, model.KindUnknown, "", "the server redirects, which is not followed"},
		{"no content", 204, nil, ``, model.KindUnknown, "", "No Content"},
		{"teapot", 418, text, strings.Repeat("x", 2000), model.KindUnknown, "", strings.Repeat("x", 1000) + "…"},
		{"not a stream", 200, asJSON, `{"choices":[]}`, model.KindUnknown, "", "the server answered a stream request with plain JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := 0
			m := newModel(t, openai.Options{Key: secret.New("k", key), Transport: transport(func(*http.Request) (*http.Response, error) {
				n++
				return respond(tt.status, tt.header, tt.body), nil
			})})
			_, err := m.Generate(t.Context(), request(), nil)
			e, ok := errors.AsType[*model.Error](err)
			if !ok {
				t.Fatalf("got %v", err)
			}
			if e.Kind != tt.kind || e.Status != tt.status || e.Code != tt.code || e.Message != tt.message || e.Model != "openai/m1" {
				t.Errorf("got %+v", e)
			}
			if all := fmt.Sprintf("%v %+v %#v", err, err, e); strings.Contains(all, key) {
				t.Errorf("the key is in %s", all)
			}
			if n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tests := []struct {
			header http.Header
			want   time.Duration
		}{
			{http.Header{}, 0},
			{http.Header{"Retry-After": {"7"}}, 7 * time.Second},
			{http.Header{"Retry-After": {"1.5"}}, 1500 * time.Millisecond},
			{http.Header{"Retry-After": {"-7"}}, 0},
			{http.Header{"Retry-After": {"NaN"}}, 0},
			{http.Header{"Retry-After": {"soon"}}, 0},
			{http.Header{"Retry-After": {"1e300"}}, 24 * time.Hour},
			{http.Header{"Retry-After": {"9"}, "Retry-After-Ms": {"250"}}, 250 * time.Millisecond},
			{http.Header{"Retry-After": {"9"}, "Retry-After-Ms": {"x"}}, 9 * time.Second},
			{http.Header{"Retry-After": {time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat)}}, 90 * time.Second},
			{http.Header{"Retry-After": {time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)}}, 0},
		}
		for _, tt := range tests {
			m := newModel(t, openai.Options{Transport: transport(func(*http.Request) (*http.Response, error) {
				return respond(429, tt.header, ""), nil
			})})
			_, err := m.Generate(t.Context(), request(), nil)
			if e, ok := errors.AsType[*model.Error](err); !ok || e.RetryAfter != tt.want {
				t.Errorf("%v: %v, want %v", tt.header, e, tt.want)
			}
		}
	})
}

// waiting is a body that sends one event each time the clock has advanced.
type waiting struct {
	ctx    context.Context
	pause  time.Duration
	pieces []string
}

func (b *waiting) Read(p []byte) (int, error) {
	if len(b.pieces) == 0 {
		return 0, io.EOF
	}
	select {
	case <-time.After(b.pause):
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
	n := copy(p, b.pieces[0])
	if b.pieces[0] = b.pieces[0][n:]; b.pieces[0] == "" {
		b.pieces = b.pieces[1:]
	}
	return n, nil
}

func (b *waiting) Close() error { return nil }

func TestStall(t *testing.T) {
	slow := func(before, between time.Duration) transport {
		return func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(before):
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
			res := respond(200, nil, "")
			res.Body = &waiting{r.Context(), between, []string{sse(delta(`{"content":"a"}`)), sse(delta(`{"content":"b"}`)), sse(finish("stop"))}}
			return res, nil
		}
	}
	tests := []struct {
		name            string
		before, between time.Duration
		kind            model.Kind
		took            time.Duration
	}{
		{"slow but alive", 59 * time.Second, 59 * time.Second, "", 4 * 59 * time.Second},
		{"silent before", 61 * time.Second, 0, model.KindTimeout, time.Minute},
		{"silent between", 30 * time.Second, 61 * time.Second, model.KindTimeout, 90 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(t, openai.Options{Transport: slow(tt.before, tt.between)})
				begin := time.Now()
				// The reader's own time is not the server's silence.
				reading := time.Duration(0)
				_, err := m.Generate(t.Context(), request(), func(model.Delta) {
					time.Sleep(2 * time.Minute)
					reading += 2 * time.Minute
				})
				if model.KindOf(err) != tt.kind || (err == nil) != (tt.kind == "") {
					t.Errorf("got %v", err)
				}
				if took := time.Since(begin) - reading; took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, openai.Options{Transport: transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Generate(ctx, request(), nil)
		if model.KindOf(err) != model.KindTimeout || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("deadline: %v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		_, err = m.Generate(ctx, request(), nil)
		if model.KindOf(err) != model.KindUnknown || !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
	})
}

func TestUnreachable(t *testing.T) {
	ts := httptest.NewServer(http.NotFoundHandler())
	ts.Close()
	m := newModel(t, openai.Options{BaseURL: ts.URL, Key: secret.New("k", "sk-123456")})
	if _, err := m.Generate(t.Context(), request(), nil); model.KindOf(err) != model.KindUnavailable || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("refused: %v", err)
	}
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	m = newModel(t, openai.Options{BaseURL: tls.URL})
	_, err := m.Generate(t.Context(), request(), nil)
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindUnknown || e.Hint == "" {
		t.Errorf("certificate: %v", err)
	}
}

func TestLongResponse(t *testing.T) {
	for _, body := range []string{
		strings.Repeat(sse(delta(`{"content":"`+strings.Repeat("x", 1000)+`"}`)), 1000),
		"data: " + strings.Repeat("x", 1_000_000),
	} {
		m := newModel(t, openai.Options{MaxBytes: 100_000, Transport: transport(func(*http.Request) (*http.Response, error) {
			return respond(200, nil, body), nil
		})})
		_, err := m.Generate(t.Context(), request(), nil)
		if model.KindOf(err) != model.KindUnknown || !strings.Contains(err.Error(), "longer than 100000 bytes") {
			t.Errorf("got %v", err)
		}
	}
}
