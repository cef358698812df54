package modelserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"go.uber.org/goleak"

	"github.com/rein-sh/rein/internal/modelserver"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/openai"
	"github.com/rein-sh/rein/model/script"
	"github.com/rein-sh/rein/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve plays src on a real listener.
func serve(t *testing.T, src string, opts modelserver.Options) (*modelserver.Server, string) {
	t.Helper()
	s, err := script.Load([]byte(src), "demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	srv := modelserver.New(s, opts)
	ts := httptest.NewServer(srv)
	t.Cleanup(ts.Close)
	t.Cleanup(srv.Close)
	return srv, ts.URL
}

// client is the model behind url.
func client(t *testing.T, url string, change func(*openai.Options)) model.Model {
	t.Helper()
	o := openai.Options{BaseURL: url + "/v1", Model: "demo"}
	if change != nil {
		change(&o)
	}
	m, err := openai.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func request(task string) *model.Request {
	return &model.Request{
		System:          "You are under test.",
		Messages:        []model.Message{{Role: model.RoleUser, Text: task}},
		Tools:           []model.ToolDef{{Name: "run_command", Schema: json.RawMessage(`{"type":"object"}`)}},
		MaxOutputTokens: 1000,
	}
}

func answer(req *model.Request, reply *model.Reply, contents ...string) {
	results := model.Message{Role: model.RoleTool}
	for i, c := range reply.Message.Calls {
		results.Results = append(results.Results, model.ToolResult{ID: c.ID, Name: c.Name, Content: contents[i]})
	}
	req.Messages = append(req.Messages, reply.Message, results)
}

const conversation = `
name: demo
steps:
  - name: look
    text: "I look — at both."
    calls:
      - {name: a, tool: run_command, arguments: {command: "echo <a> && echo \"b\""}}
      - {name: b, tool: read_file, arguments: {path: "${{ task }}.txt"}, expect: {stdout: {contains: data}}}
    usage: {input: 100, cached_input: 40, output: 20, reasoning: 5}
  - name: done
    text: "a said ${{ a.stdout }}, b said ${{ b.stdout }}"
`

func TestConversation(t *testing.T) {
	srv, url := serve(t, conversation, modelserver.Options{})
	m := client(t, url, nil)
	req := request("x")
	var deltas []model.Delta
	reply, err := m.Generate(t.Context(), req, func(d model.Delta) { deltas = append(deltas, d) })
	if err != nil {
		t.Fatal(err)
	}
	want := &model.Reply{
		Message: model.Message{Role: model.RoleAssistant, Text: "I look — at both.", Calls: []model.ToolCall{
			{ID: "call_1_1", Name: "run_command", Arguments: `{"command":"echo <a> && echo \"b\""}`},
			{ID: "call_1_2", Name: "read_file", Arguments: `{"path":"x.txt"}`},
		}},
		Stop:  model.StopToolCalls,
		Usage: model.Usage{Known: true, Input: 100, CachedInput: 40, Output: 20, Reasoning: 5},
		Model: "demo", ID: "script-1",
	}
	if diff := cmp.Diff(want, reply); diff != "" {
		t.Error(diff)
	}
	text, names := "", ""
	for _, d := range deltas {
		text += d.Text
		names += d.CallName + " "
	}
	if text != want.Message.Text || strings.Join(strings.Fields(names), " ") != "run_command read_file" {
		t.Errorf("emitted %q, %q", text, names)
	}
	answer(req, reply, "<untrusted>\n"+`{"stdout":"A"}`+"\n</untrusted>", "<untrusted>\n"+`{"stdout":"data"}`+"\n</untrusted>")
	reply, err = m.Generate(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	if reply.Message.Text != "a said A, b said data" || reply.Stop != model.StopEnd || !reply.Usage.Known {
		t.Errorf("second reply %+v", reply)
	}
	seen := srv.Seen()
	if seen.Count != 2 || !json.Valid(seen.Body) || !strings.Contains(string(seen.Body), `"max_completion_tokens":1000`) {
		t.Errorf("seen %d, %s", seen.Count, seen.Body)
	}
}

func TestFailedExpectation(t *testing.T) {
	_, url := serve(t, conversation, modelserver.Options{})
	m := client(t, url, nil)
	req := request("x")
	reply, err := m.Generate(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer(req, reply, "{}", `{"stdout":"nothing"}`)
	_, err = m.Generate(t.Context(), req, nil)
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Kind != model.KindInvalid || e.Code != script.CodeFailed ||
		!strings.Contains(e.Message, `step "look", call "b" (read_file): stdout: expected it to contain "data", saw "nothing"`) {
		t.Errorf("got %v", err)
	}
}

func TestConversationsAtOnce(t *testing.T) {
	_, url := serve(t, strings.Replace(conversation, "    text: \"I look", "    faults: [rate_limit, cut]\n    text: \"I look", 1), modelserver.Options{})
	m := client(t, url, nil)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			req := request(fmt.Sprintf("task%d", i))
			for _, kind := range []model.Kind{model.KindRateLimit, model.KindCut} {
				if _, err := m.Generate(t.Context(), req, nil); model.KindOf(err) != kind {
					t.Errorf("%d: %v, want %s", i, err, kind)
				}
			}
			reply, err := m.Generate(t.Context(), req, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if got := reply.Message.Calls[1].Arguments; got != fmt.Sprintf(`{"path":"task%d.txt"}`, i) {
				t.Errorf("%d: %s", i, got)
			}
			answer(req, reply, fmt.Sprintf(`{"stdout":"%d"}`, i), `{"stdout":"data"}`)
			if reply, err = m.Generate(t.Context(), req, nil); err != nil || !strings.HasPrefix(reply.Message.Text, fmt.Sprintf("a said %d,", i)) {
				t.Errorf("%d: %v %v", i, reply, err)
			}
		})
	}
	wg.Wait()
}

func TestFaults(t *testing.T) {
	tests := []struct {
		fault   string
		kind    model.Kind
		status  int
		code    string
		retry   time.Duration
		emitted bool
	}{
		{"{kind: rate_limit, retry_after: 2s}", model.KindRateLimit, 429, "rate_limit_exceeded", 2 * time.Second, false},
		{"{kind: rate_limit, retry_after: 1500ms}", model.KindRateLimit, 429, "rate_limit_exceeded", 1500 * time.Millisecond, false},
		{"overloaded", model.KindOverloaded, 503, "overloaded", 0, false},
		{"unavailable", model.KindUnavailable, 500, "server_error", 0, false},
		{"auth", model.KindAuth, 401, "invalid_api_key", 0, false},
		{"forbidden", model.KindForbidden, 403, "unsupported_country_region_territory", 0, false},
		{"quota", model.KindQuota, 429, "insufficient_quota", 0, false},
		{"not_found", model.KindNotFound, 404, "model_not_found", 0, false},
		{"context", model.KindContext, 400, "context_length_exceeded", 0, false},
		{"invalid", model.KindInvalid, 400, "invalid_value", 0, false},
		{"cut", model.KindCut, 0, "", 0, true},
		{"{kind: cut, clean: true}", model.KindCut, 0, "", 0, true},
		{"{kind: cut, at: start}", model.KindUnavailable, 0, "", 0, false},
		{"stall", model.KindTimeout, 0, "", 0, true},
		{"{kind: stall, at: start}", model.KindTimeout, 0, "", 0, false},
		{"{kind: stall, for: 10ms}", "", 0, "", 0, true},
		{"{kind: stall, for: 10ms, at: start}", "", 0, "", 0, true},
		{"garbage", model.KindUnknown, 0, "", 0, true},
		{"{kind: garbage, at: start}", model.KindUnknown, 0, "", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			t.Parallel()
			srv, url := serve(t, faulty(tt.fault), modelserver.Options{})
			m := client(t, url, func(o *openai.Options) {
				if tt.kind == model.KindTimeout {
					o.StallTimeout = 300 * time.Millisecond
				}
			})
			if e := suffer(t, srv, m, tt.kind, tt.emitted); e != nil && (e.Status != tt.status || e.Code != tt.code || e.RetryAfter != tt.retry) {
				t.Errorf("status %d, code %q, retry after %v", e.Status, e.Code, e.RetryAfter)
			}
		})
	}
}

// faulty is a script whose only step has a fault.
func faulty(fault string) string {
	return "steps: [{text: 'a text that is of some length', calls: [{tool: run_command}], faults: [" + fault + "]}]"
}

// suffer asks for the faulty step, which is to fail so, once and not more often,
// and for it again. It returns the error.
func suffer(t *testing.T, srv *modelserver.Server, m model.Model, kind model.Kind, emits bool) *model.Error {
	t.Helper()
	emitted := 0
	reply, err := m.Generate(t.Context(), request("x"), func(model.Delta) { emitted++ })
	if model.KindOf(err) != kind || (reply == nil) != (kind != "") {
		t.Fatalf("got %v, %v; want kind %q", reply, err, kind)
	}
	if emitted > 0 != emits {
		t.Errorf("emitted %d pieces", emitted)
	}
	if srv.Seen().Count != 1 {
		t.Errorf("%d requests, want 1: nothing is retried", srv.Seen().Count)
	}
	if reply, err := m.Generate(t.Context(), request("x"), nil); err != nil || reply.Message.Text != "a text that is of some length" {
		t.Errorf("asked again: %v, %v", reply, err)
	}
	e, _ := errors.AsType[*model.Error](err)
	return e
}

func TestOddReplies(t *testing.T) {
	_, url := serve(t, `
steps:
  - {name: empty, text: "", usage: none}
  - name: odd
    calls:
      - {tool: rum_command, arguments: {}}
      - {tool: run_command, raw_arguments: '{"command": '}
  - {text: "Half a", stop: length}
  - {text: "I cannot do that.", stop: refusal}
`, modelserver.Options{})
	m := client(t, url, nil)
	req := request("x")
	reply, err := m.Generate(t.Context(), req, nil)
	if err != nil || reply.Stop != model.StopEnd || reply.Message.Text != "" || reply.Usage.Known {
		t.Fatalf("empty: %+v, %v", reply, err)
	}
	reply, err = m.Generate(t.Context(), req, nil)
	if err != nil || len(reply.Message.Calls) != 2 || reply.Message.Calls[0].Name != "rum_command" || reply.Message.Calls[1].Arguments != `{"command": ` {
		t.Fatalf("odd calls: %+v, %v", reply, err)
	}
	answer(req, reply, "a", "b")
	reply, err = m.Generate(t.Context(), req, nil)
	if err != nil || reply.Stop != model.StopLength || reply.Message.Text != "Half a" {
		t.Fatalf("length: %+v, %v", reply, err)
	}
	req.Messages = append(req.Messages, reply.Message, model.Message{Role: model.RoleUser, Text: "go on"})
	reply, err = m.Generate(t.Context(), req, nil)
	if err != nil || reply.Stop != model.StopRefusal || reply.Message.Text != "I cannot do that." {
		t.Fatalf("refusal: %+v, %v", reply, err)
	}
}

func TestKey(t *testing.T) {
	srv, url := serve(t, "steps: [{text: hello}]", modelserver.Options{Key: secret.New("model", "right-key-123")})
	for _, key := range []string{"", "wrong-key-123", "right-key-1234"} {
		m := client(t, url, func(o *openai.Options) { o.Key = secret.New("model", key) })
		if _, err := m.Generate(t.Context(), request("x"), nil); model.KindOf(err) != model.KindAuth {
			t.Errorf("key %q: %v", key, err)
		}
	}
	if srv.Seen().Count != 3 || srv.Seen().Body != nil {
		t.Errorf("seen %+v", srv.Seen())
	}
	m := client(t, url, func(o *openai.Options) { o.Key = secret.New("model", "right-key-123") })
	if _, err := m.Generate(t.Context(), request("x"), nil); err != nil {
		t.Error(err)
	}
}

// The SDK as anybody else uses it, without streaming.
func TestWholeReplies(t *testing.T) {
	_, url := serve(t, strings.Replace(conversation, "    text: \"I look", "    faults: [cut, {kind: cut, at: start}, {kind: cut, clean: true}, garbage, rate_limit, {kind: stall, for: 1ms}]\n    text: \"I look", 1), modelserver.Options{})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	chat := sdk.NewChatCompletionService(option.WithBaseURL(url+"/v1"), option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{Transport: transport}))
	params := sdk.ChatCompletionNewParams{
		Model:    "any",
		Messages: []sdk.ChatCompletionMessageParamUnion{sdk.DeveloperMessage("a"), sdk.UserMessage([]sdk.ChatCompletionContentPartUnionParam{sdk.TextContentPart("x"), sdk.TextContentPart("y")})},
		Tools:    []sdk.ChatCompletionToolUnionParam{sdk.ChatCompletionFunctionTool(sdk.FunctionDefinitionParam{Name: "run_command"})},
	}
	for i := range 5 {
		if _, err := chat.New(t.Context(), params); err == nil {
			t.Errorf("request %d: no error", i+1)
		}
	}
	c, err := chat.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	msg := c.Choices[0].Message
	if c.Model != "any" || c.Choices[0].FinishReason != "tool_calls" || msg.Content != "I look — at both." || len(msg.ToolCalls) != 2 ||
		msg.ToolCalls[1].Function.Arguments != `{"path":"xy.txt"}` || c.Usage.TotalTokens != 120 || c.Usage.PromptTokensDetails.CachedTokens != 40 {
		t.Errorf("got %s", c.RawJSON())
	}
}

func TestModels(t *testing.T) {
	_, url := serve(t, conversation, modelserver.Options{})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	models := sdk.NewModelService(option.WithBaseURL(url+"/v1"), option.WithHTTPClient(&http.Client{Transport: transport}))
	page, err := models.List(t.Context())
	if err != nil || len(page.Data) != 1 || page.Data[0].ID != "demo" {
		t.Errorf("got %+v, %v", page, err)
	}
}

func post(t *testing.T, h http.Handler, path, body string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	data, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(data)
}

func TestRefusesWhatTheVendorRefuses(t *testing.T) {
	srv, _ := serve(t, "steps: [{text: hello}]", modelserver.Options{})
	tests := []struct{ name, path, body, want string }{
		{"path", "/v1/completions", `{}`, "Invalid URL (POST /v1/completions)"},
		{"no JSON", "/v1/chat/completions", `{"model":`, "not JSON of the protocol"},
		{"no messages", "/v1/chat/completions", `{"model":"x"}`, "needs a model and at least one message"},
		{"role", "/v1/chat/completions", `{"model":"x","messages":[{"role":"wizard","content":"y"}]}`, `messages[0] has the unknown role \"wizard\"`},
		{"content", "/v1/chat/completions", `{"model":"x","messages":[{"role":"user","content":5}]}`, "not JSON of the protocol"},
		{"result without call", "/v1/chat/completions", `{"model":"x","messages":[{"role":"tool","tool_call_id":"a","content":"y"}]}`, "must answer a call of the message before"},
		{"call without result", "/v1/chat/completions",
			`{"model":"x","messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}]}`, "1 are missing"},
		{"result too late", "/v1/chat/completions",
			`{"model":"x","messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},{"role":"user","content":"x"}]}`, "messages[1] comes too early"},
		{"id twice", "/v1/chat/completions",
			`{"model":"x","messages":[{"role":"assistant","tool_calls":[{"id":"a"},{"id":"a"}]}]}`, "the same id"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, body := post(t, srv, tt.path, tt.body)
			if status < 400 || status >= 500 || !strings.Contains(body, tt.want) || !json.Valid([]byte(body)) {
				t.Errorf("%d %s, want %s", status, body, tt.want)
			}
		})
	}
	if status, body := post(t, srv, "/v1/chat/completions", strings.Repeat(" ", modelserver.MaxBody+1)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("large body: %d %s", status, body)
	}
	// The prefix is optional, and null is an empty content.
	if status, body := post(t, srv, "/chat/completions", `{"model":"x","messages":[{"role":"user","content":null}]}`); status != 200 || !strings.Contains(body, `"content":"hello"`) {
		t.Errorf("%d %s", status, body)
	}
}

func TestCloseEndsStalls(t *testing.T) {
	s, err := script.Load([]byte("steps: [{text: hello, faults: [{kind: stall, at: start}]}]"), "demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	srv := modelserver.New(s, modelserver.Options{})
	arrived := make(chan struct{})
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		srv.ServeHTTP(w, r)
	}))
	defer ts.Close()
	m := client(t, ts.URL, nil)
	got := make(chan error)
	go func() {
		_, err := m.Generate(context.WithoutCancel(t.Context()), request("x"), nil)
		got <- err
	}()
	<-arrived
	srv.Close()
	srv.Close()
	if err := <-got; model.KindOf(err) != model.KindUnavailable {
		t.Errorf("got %v", err)
	}
}

func FuzzChat(f *testing.F) {
	f.Add(`{"model":"x","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"stream":true}`)
	f.Add(`{"model":"x","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"{}"}],"tools":[{}]}`)
	s, err := script.Load([]byte(conversation), "demo.yaml")
	if err != nil {
		f.Fatal(err)
	}
	srv := modelserver.New(s, modelserver.Options{})
	f.Fuzz(func(t *testing.T, body string) {
		status, _ := post(t, srv, "/v1/chat/completions", body)
		if status != http.StatusOK && status != http.StatusBadRequest {
			t.Errorf("status %d", status)
		}
	})
}
