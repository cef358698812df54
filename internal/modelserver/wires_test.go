package modelserver_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/internal/modelserver"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/anthropic"
	"github.com/rein-sh/rein/model/gemini"
	"github.com/rein-sh/rein/model/openai"
	"github.com/rein-sh/rein/model/script"
	"github.com/rein-sh/rein/secret"
)

// settings are what tests change of a client.
type settings struct {
	key       secret.Value
	stall     time.Duration
	transport http.RoundTripper
}

// wires are the protocols, each with the client that speaks it.
var wires = []struct {
	name string
	open func(url string, s settings) (model.Model, error)
}{
	{"chat", func(url string, s settings) (model.Model, error) {
		return openai.New(openai.Options{BaseURL: url + "/v1", Model: "demo", Key: s.key, StallTimeout: s.stall, Transport: s.transport})
	}},
	{"responses", func(url string, s settings) (model.Model, error) {
		return openai.New(openai.Options{BaseURL: url + "/v1", Model: "demo", API: openai.Responses, Key: s.key, StallTimeout: s.stall, Transport: s.transport})
	}},
	{"anthropic", func(url string, s settings) (model.Model, error) {
		return anthropic.New(anthropic.Options{BaseURL: url, Model: "demo", Key: s.key, StallTimeout: s.stall, Transport: s.transport})
	}},
	{"gemini", func(url string, s settings) (model.Model, error) {
		return gemini.New(gemini.Options{BaseURL: url, Model: "demo", Key: s.key, StallTimeout: s.stall, Transport: s.transport})
	}},
}

// onEveryWire runs a test against the same script on each wire.
func onEveryWire(t *testing.T, src string, opts modelserver.Options, test func(t *testing.T, wire string, srv *modelserver.Server, open func(settings) model.Model)) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			srv, url := serve(t, src, opts)
			test(t, w.name, srv, func(s settings) model.Model {
				t.Helper()
				m, err := w.open(url, s)
				if err != nil {
					t.Fatal(err)
				}
				if c, ok := m.(interface{ Close() }); ok {
					t.Cleanup(c.Close)
				}
				return m
			})
		})
	}
}

const thinking = `
name: demo
steps:
  - name: look
    text: "I look — at both."
    calls:
      - {name: a, tool: run_command, arguments: {command: "echo <a> && echo \"b\"", n: 3}}
      - {name: b, tool: read_file, arguments: {path: "${{ task }}.txt"}, expect: {stdout: {contains: data}}}
    usage: {input: 100, cached_input: 40, output: 20, reasoning: 5}
  - name: again
    calls:
      - {tool: run_command, arguments: {}}
    usage: {input: 200, output: 30, reasoning: 10}
  - name: done
    text: "a said ${{ a.stdout }}, b said ${{ b.stdout }}"
    usage: {input: 300, output: 30, reasoning: 10}
  - name: more
    text: "more of ${{ a.stdout }}"
`

func TestSameConversationOnEveryWire(t *testing.T) {
	onEveryWire(t, thinking, modelserver.Options{}, func(t *testing.T, wire string, srv *modelserver.Server, open func(settings) model.Model) {
		m := open(settings{})
		req := request("x")
		var deltas []model.Delta
		reply, err := m.Generate(t.Context(), req, func(d model.Delta) { deltas = append(deltas, d) })
		if err != nil {
			t.Fatal(err)
		}
		want := &model.Reply{
			Message: model.Message{Role: model.RoleAssistant, Text: "I look — at both.", Calls: []model.ToolCall{
				{ID: "call_1_1", Name: "run_command", Arguments: `{"command":"echo <a> && echo \"b\"","n":3}`},
				{ID: "call_1_2", Name: "read_file", Arguments: `{"path":"x.txt"}`},
			}},
			Stop:  model.StopToolCalls,
			Usage: model.Usage{Known: true, Input: 100, CachedInput: 40, Output: 20, Reasoning: 5},
			Model: "demo", ID: "script-1",
		}
		got := *reply
		got.Message.Opaque = nil
		got.Message.Calls = nil
		for _, c := range reply.Message.Calls { // Gemini's have no order
			var args any
			if err := json.Unmarshal([]byte(c.Arguments), &args); err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(args); err != nil {
				t.Fatal(err)
			}
			c.Arguments = strings.TrimSpace(b.String())
			got.Message.Calls = append(got.Message.Calls, c)
		}
		if diff := cmp.Diff(want, &got); diff != "" {
			t.Error(diff)
		}
		text, names, thought := "", "", ""
		for _, d := range deltas {
			text += d.Text
			names += d.CallName + " "
			thought += d.Reasoning
		}
		if text != want.Message.Text || strings.Join(strings.Fields(names), " ") != "run_command read_file" {
			t.Errorf("emitted %q, %q", text, names)
		}
		if shows := wire != "chat"; shows != (thought == "Next is the step look.") || shows != (reply.Message.Opaque != nil) {
			t.Errorf("thought %q, opaque %s", thought, reply.Message.Opaque)
		}

		// What was thought comes back as it was, over three requests.
		answer(req, reply, "<untrusted>\n"+`{"stdout":"A"}`+"\n</untrusted>", "<untrusted>\n"+`{"stdout":"data"}`+"\n</untrusted>")
		reply, err = m.Generate(t.Context(), req, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(reply.Message.Calls) != 1 || reply.Message.Text != "" || reply.Message.Calls[0].Arguments != "{}" || reply.Usage.Reasoning != 10 {
			t.Errorf("second reply %+v", reply)
		}
		answer(req, reply, "{}")
		if reply, err = m.Generate(t.Context(), req, nil); err != nil || reply.Message.Text != "a said A, b said data" || reply.Stop != model.StopEnd {
			t.Fatalf("third reply %+v, %v", reply, err)
		}
		req.Messages = append(req.Messages, reply.Message, model.Message{Role: model.RoleUser, Text: "and?"})
		if reply, err = m.Generate(t.Context(), req, nil); err != nil || reply.Message.Text != "more of A" {
			t.Fatalf("fourth reply %+v, %v", reply, err)
		}

		// Without it, or with that of another reply, the server refuses.
		if wire == "chat" {
			return
		}
		kept := req.Messages[1].Opaque
		req.Messages[1].Opaque = nil
		if _, err := m.Generate(t.Context(), req, nil); model.KindOf(err) != model.KindInvalid || !strings.Contains(err.Error(), "without the signed thinking") {
			t.Errorf("without: %v", err)
		}
		proof := kept[strings.LastIndex(string(kept), "=")-20 : strings.LastIndex(string(kept), "=")-10]
		req.Messages[1].Opaque = json.RawMessage(strings.Replace(string(kept), string(proof), strings.Repeat("A", len(proof)), 1))
		if _, err := m.Generate(t.Context(), req, nil); model.KindOf(err) != model.KindInvalid || !strings.Contains(err.Error(), "not what was signed") {
			t.Errorf("changed: %v", err)
		}
	})
}

// Every client classifies its vendor's errors the same.
func TestSameFaultsOnEveryWire(t *testing.T) {
	tests := []struct {
		fault   string
		kind    model.Kind
		retry   time.Duration
		emitted bool
	}{
		{"{kind: rate_limit, retry_after: 2s}", model.KindRateLimit, 2 * time.Second, false},
		{"{kind: rate_limit, retry_after: 1500ms}", model.KindRateLimit, 1500 * time.Millisecond, false},
		{"overloaded", model.KindOverloaded, 0, false},
		{"unavailable", model.KindUnavailable, 0, false},
		{"auth", model.KindAuth, 0, false},
		{"forbidden", model.KindForbidden, 0, false},
		{"quota", model.KindQuota, 0, false},
		{"not_found", model.KindNotFound, 0, false},
		{"context", model.KindContext, 0, false},
		{"invalid", model.KindInvalid, 0, false},
		{"cut", model.KindCut, 0, true},
		{"{kind: cut, clean: true}", model.KindCut, 0, true},
		{"{kind: cut, at: start}", model.KindUnavailable, 0, false},
		{"stall", model.KindTimeout, 0, true},
		{"{kind: stall, at: start}", model.KindTimeout, 0, false},
		{"{kind: stall, for: 10ms}", "", 0, true},
		{"{kind: stall, for: 10ms, at: start}", "", 0, true},
		{"garbage", model.KindUnknown, 0, true},
		{"{kind: garbage, at: start}", model.KindUnknown, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			onEveryWire(t, faulty(tt.fault), modelserver.Options{}, func(t *testing.T, _ string, srv *modelserver.Server, open func(settings) model.Model) {
				var s settings
				if tt.kind == model.KindTimeout {
					s.stall = 300 * time.Millisecond
				}
				if e := suffer(t, srv, open(s), tt.kind, tt.emitted); e != nil && (e.RetryAfter != tt.retry || !tt.emitted && e.Status >= 400 && e.Code == "") {
					t.Errorf("code %q, retry after %v", e.Code, e.RetryAfter)
				}
			})
		})
	}
}

func TestOddRepliesOnEveryWire(t *testing.T) {
	onEveryWire(t, `
steps:
  - {name: empty, text: "", usage: none}
  - name: odd
    calls:
      - {tool: rum_command, arguments: {}}
      - {tool: run_command, raw_arguments: '{"command": '}
  - {text: "Half a", stop: length}
  - {name: cut-call, calls: [{tool: run_command, arguments: {command: "echo a long command"}}], stop: length}
  - {text: "I cannot do that.", stop: refusal}
`, modelserver.Options{}, func(t *testing.T, wire string, _ *modelserver.Server, open func(settings) model.Model) {
		m := open(settings{})
		req := request("x")
		reply, err := m.Generate(t.Context(), req, nil)
		if err != nil || reply.Stop != model.StopEnd || reply.Message.Text != "" || reply.Usage.Known {
			t.Fatalf("empty: %+v, %v", reply, err)
		}
		// An agent may keep the empty reply: no vendor must be sent it in a way it refuses.
		req.Messages = append(req.Messages, reply.Message, model.Message{Role: model.RoleUser, Text: "say something"})
		reply, err = m.Generate(t.Context(), req, nil)
		if err != nil || len(reply.Message.Calls) != 2 || reply.Message.Calls[0].Name != "rum_command" ||
			wire != "gemini" && reply.Message.Calls[1].Arguments != `{"command": ` {
			t.Fatalf("odd calls: %+v, %v", reply, err)
		}
		answer(req, reply, "a", "")
		reply, err = m.Generate(t.Context(), req, nil)
		if err != nil || reply.Stop != model.StopLength || reply.Message.Text != "Half a" {
			t.Fatalf("length: %+v, %v", reply, err)
		}
		req.Messages = append(req.Messages, reply.Message, model.Message{Role: model.RoleUser, Text: "go on"})
		reply, err = m.Generate(t.Context(), req, nil)
		if err != nil || reply.Stop != model.StopLength || len(reply.Message.Calls) != 1 {
			t.Fatalf("cut call: %+v, %v", reply, err)
		}
		answer(req, reply, "not executed")
		reply, err = m.Generate(t.Context(), req, nil)
		if err != nil || reply.Stop != model.StopRefusal || reply.Message.Text != "I cannot do that." {
			t.Fatalf("refusal: %+v, %v", reply, err)
		}
	})
}

// The last turn of an agent that may call nothing any more offers no tools.
func TestClosingOnEveryWire(t *testing.T) {
	onEveryWire(t, thinking+"final: That was all.\n", modelserver.Options{}, func(t *testing.T, _ string, _ *modelserver.Server, open func(settings) model.Model) {
		m := open(settings{})
		req := request("x")
		reply, err := m.Generate(t.Context(), req, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer(req, reply, "{}", `{"stdout":"data"}`)
		req.Tools = nil
		req.Messages = append(req.Messages, model.Message{Role: model.RoleUser, Text: "Say how far you got."})
		if reply, err = m.Generate(t.Context(), req, nil); err != nil || reply.Message.Text != "That was all." || reply.Stop != model.StopEnd {
			t.Errorf("%+v, %v", reply, err)
		}
	})
}

func TestFailedExpectationOnEveryWire(t *testing.T) {
	onEveryWire(t, conversation, modelserver.Options{}, func(t *testing.T, _ string, _ *modelserver.Server, open func(settings) model.Model) {
		m := open(settings{})
		req := request("x")
		reply, err := m.Generate(t.Context(), req, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer(req, reply, "{}", `{"stdout":"nothing"}`)
		_, err = m.Generate(t.Context(), req, nil)
		e, ok := errors.AsType[*model.Error](err)
		if !ok || e.Kind != model.KindInvalid || e.Code != script.CodeFailed || !strings.Contains(e.Message, `expected it to contain "data", saw "nothing"`) {
			t.Errorf("got %v", err)
		}
	})
}

func TestKeyOnEveryWire(t *testing.T) {
	const right = "right-key-123"
	onEveryWire(t, "steps: [{text: hello}]", modelserver.Options{Key: secret.New("model", right)}, func(t *testing.T, _ string, srv *modelserver.Server, open func(settings) model.Model) {
		for _, key := range []string{"", "wrong-key-123", "right-key-1234"} {
			if _, err := open(settings{key: secret.New("model", key)}).Generate(t.Context(), request("x"), nil); model.KindOf(err) != model.KindAuth {
				t.Errorf("key %q: %v", key, err)
			}
		}
		if srv.Seen().Count != 3 || srv.Seen().Body != nil {
			t.Errorf("seen %+v", srv.Seen())
		}
		if _, err := open(settings{key: secret.New("model", right)}).Generate(t.Context(), request("x"), nil); err != nil {
			t.Error(err)
		}
	})
}

// Whatever the environment says, nothing of it is used.
func TestHostileEnvironmentOnEveryWire(t *testing.T) {
	for _, name := range []string{
		"OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_WEBHOOK_SECRET",
		"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "ANTHROPIC_CONFIG_DIR", "ANTHROPIC_WEBHOOK_SIGNING_KEY",
		"ANTHROPIC_FEDERATION_RULE_ID", "ANTHROPIC_ORGANIZATION_ID", "ANTHROPIC_IDENTITY_TOKEN", "ANTHROPIC_WORKSPACE_ID",
		"GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_APPLICATION_CREDENTIALS",
	} {
		t.Setenv(name, "env-secret-value")
	}
	for name, value := range map[string]string{
		"OPENAI_CUSTOM_HEADERS": "X-Env: env-secret-value", "ANTHROPIC_CUSTOM_HEADERS": "X-Env: env-secret-value",
		"OPENAI_BASE_URL": "http://env.invalid/v1", "ANTHROPIC_BASE_URL": "http://env.invalid", "GOOGLE_GEMINI_BASE_URL": "http://env.invalid",
		"GOOGLE_VERTEX_BASE_URL": "http://env.invalid", "GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_GENAI_USE_ENTERPRISE": "true",
		"ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE": "content", "GOOGLE_GENAI_REPLAYS_DIRECTORY": "/nowhere",
		"HTTP_PROXY": "http://env.invalid:1", "HTTPS_PROXY": "http://env.invalid:1", "ALL_PROXY": "http://env.invalid:1", "NO_PROXY": "",
		"http_proxy": "http://env.invalid:1", "https_proxy": "http://env.invalid:1", "all_proxy": "http://env.invalid:1", "no_proxy": "",
	} {
		t.Setenv(name, value)
	}
	for _, w := range wires {
		_, url := serve(t, "steps: [{text: hello}]", modelserver.Options{})
		for _, key := range []secret.Value{{}, secret.New("model", "configured-key")} {
			var sent http.Header
			own := &http.Transport{}
			t.Cleanup(own.CloseIdleConnections)
			m, err := w.open(url, settings{key: key, transport: watched(func(r *http.Request) (*http.Response, error) {
				sent = r.Header.Clone()
				return own.RoundTrip(r)
			})})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Generate(t.Context(), request("x"), nil); err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
			for name, values := range sent {
				if text := strings.Join(values, " "); strings.Contains(text, "env") || strings.Contains(text, "secret-value") {
					t.Errorf("%s sends %s: %s", w.name, name, text)
				}
			}
			carried := sent.Get("Authorization") + sent.Get("X-Goog-Api-Key") + sent.Get("X-Api-Key")
			if key.IsZero() && carried != "" || !key.IsZero() && !strings.HasSuffix(carried, key.Reveal()) {
				t.Errorf("%s sends the key %q", w.name, carried)
			}
		}
	}
}

type watched func(*http.Request) (*http.Response, error)

func (f watched) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
