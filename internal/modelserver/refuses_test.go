package modelserver_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rein-sh/rein/internal/modelserver"
	"github.com/rein-sh/rein/model/script"
)

// Requests that each vendor refuses are refused, in its own shape.
func TestRefusesOnEveryWire(t *testing.T) {
	const (
		responses = "/v1/responses"
		messages  = "/v1/messages"
		gemini    = "/v1beta/models/demo:generateContent"
	)
	srv, _ := serve(t, "steps: [{text: hello}]", modelserver.Options{})
	tests := []struct{ name, path, body, want string }{
		{"no JSON", responses, `{"model":`, "not JSON of the protocol"},
		{"no input", responses, `{"model":"x"}`, "needs a model and an input"},
		{"input of another type", responses, `{"model":"x","input":5}`, "not JSON of the protocol"},
		{"cap too small", responses, `{"model":"x","input":"a","max_output_tokens":15}`, "Expected a value \\u003e= 16, but got 15"},
		{"role", responses, `{"model":"x","input":[{"role":"wizard","content":"y"}]}`, "'wizard' at input[0].role"},
		{"type", responses, `{"model":"x","input":[{"type":"spell"}]}`, "'spell' at input[0].type"},
		{"result without call", responses, `{"model":"x","input":[{"type":"function_call_output","call_id":"a","output":"y"}]}`, "No tool call found for function call output with call_id a"},
		{"call without result", responses, `{"model":"x","input":[{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}]}`, "No tool output found for function call a"},
		{"result too late", responses, `{"model":"x","input":[{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"role":"user","content":"x"}]}`, "No tool output found for function call a"},
		{"id twice", responses, `{"model":"x","input":[{"type":"function_call","call_id":"a"},{"type":"function_call","call_id":"a"}]}`, "Duplicate or missing 'call_id'"},
		{"reasoning not stored", responses, `{"model":"x","input":[{"type":"reasoning","id":"rs_1"}]}`, "Item with id 'rs_1' not found"},
		{"reasoning alone", responses, `{"model":"x","input":[{"type":"reasoning","id":"rs_1","encrypted_content":"e"}]}`, "without its required following item"},
		{"reasoning before the user", responses, `{"model":"x","input":[{"type":"reasoning","id":"rs_1","encrypted_content":"e"},{"role":"user","content":"x"}]}`, "without its required following item"},
		{"tool", responses, `{"model":"x","input":"a","tools":[{"type":"function"}]}`, "'tools[0].name'"},

		{"no JSON", messages, `{"model":`, "not JSON of the protocol"},
		{"no cap", messages, `{"model":"x","messages":[{"role":"user","content":"a"}]}`, "max_tokens: Field required"},
		{"cap of zero", messages, `{"model":"x","max_tokens":0,"messages":[{"role":"user","content":"a"}]}`, "max_tokens: must be greater"},
		{"no model", messages, `{"max_tokens":9}`, "model: Field required"},
		{"no messages", messages, `{"model":"x","max_tokens":9}`, "at least one message"},
		{"assistant first", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"assistant","content":"a"}]}`, "first message must use"},
		{"role", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"tool","content":"a"}]}`, "messages.1.role"},
		{"empty text", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":" "}]}`, "non-whitespace text"},
		{"no content", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":[]}]}`, "non-empty content"},
		{"no content of the assistant", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[]}]}`, "non-empty content"},
		{"unknown block", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":[{"type":"spell"}]}]}`, "messages.0.content.0.type"},
		{"result without call", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}]}`, "unexpected `tool_use_id`"},
		{"call without result", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":"b"}]}`, "without `tool_result` blocks immediately after: a"},
		{"call at the end", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}]}`, "without `tool_result` blocks immediately after: a"},
		{"result after text", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"text","text":"b"},{"type":"tool_result","tool_use_id":"a"}]}]}`, "must come before other content"},
		{"id twice", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"a","input":{}},{"type":"tool_use","id":"a","input":{}}]}]}`, "must be unique"},
		{"odd id", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"a b","input":{}}]}]}`, "should match pattern"},
		{"input", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"a","input":"x"}]}]}`, "valid dictionary"},
		{"unsigned thinking", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]}]}`, "thinking.signature: Field required"},
		{"false thinking", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"y"}]},{"role":"user","content":"b"}]}`, "not what was signed"},
		{"calls without tools", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}]}`, "must define tools"},
		{"schema", messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"}],"tools":[{"name":"f","input_schema":{}}]}`, "tools.0.custom.input_schema.type"},

		{"no JSON", gemini, `{"contents":`, "not JSON of the protocol"},
		{"no contents", gemini, `{}`, "contents is not specified"},
		{"no parts", gemini, `{"contents":[{"role":"user"}]}`, "parts must not be empty"},
		{"empty part", gemini, `{"contents":[{"role":"user","parts":[{}]}]}`, "one initialized field"},
		{"role", gemini, `{"contents":[{"role":"assistant","parts":[{"text":"a"}]}]}`, "valid role: user, model"},
		{"response without call", gemini, `{"contents":[{"role":"user","parts":[{"functionResponse":{"name":"f","response":{}}}]}]}`, "number of function response parts"},
		{"call without response", gemini, `{"contents":[{"role":"user","parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"name":"f"}}]},{"role":"user","parts":[{"text":"b"}]}]}`, "number of function response parts"},
		{"call at the end", gemini, `{"contents":[{"role":"user","parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"name":"f"}}]}]}`, "number of function response parts"},
		{"call first", gemini, `{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f"}}]}]}`, "immediately after a user turn"},
		{"another's response", gemini, `{"contents":[{"role":"user","parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"name":"f"}}]},{"role":"user","parts":[{"functionResponse":{"name":"g","response":{}}}]}]}`, "does not answer"},
		{"method", "/v1beta/models/demo:embedContent", `{}`, "no method embedContent"},
		{"stream of an array", "/v1beta/models/demo:streamGenerateContent", `{}`, "only alt=sse"},
	}
	for _, tt := range tests {
		t.Run(tt.path+" "+tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, tt.path, strings.NewReader(tt.body))
			r.Header.Set("Anthropic-Version", "2026-10-21")
			w := httptest.NewRecorder()
			srv.ServeHTTP(w, r)
			body, err := io.ReadAll(w.Result().Body)
			if err != nil {
				t.Fatal(err)
			}
			if w.Code < 400 || w.Code >= 500 || !strings.Contains(string(body), tt.want) {
				t.Errorf("%d %s, want %s", w.Code, body, tt.want)
			}
			var shape struct {
				Type  string
				Error struct {
					Type, Message string
					Code          any
				}
			}
			if err := json.Unmarshal(body, &shape); err != nil || shape.Error.Message == "" {
				t.Errorf("%s is no error of a vendor: %v", body, err)
			}
			if anthropic := tt.path == messages; anthropic != (shape.Type == "error") {
				t.Errorf("%s is another vendor's error", body)
			}
		})
	}
	if status, body := post(t, srv, messages, `{"model":"x","max_tokens":9,"messages":[{"role":"user","content":"a"}]}`); status != 400 || !strings.Contains(body, "anthropic-version: header is required") {
		t.Errorf("no version: %d %s", status, body)
	}
}

// What the clients do not ask for, others do: replies in one piece.
func TestWholeRepliesOnEveryWire(t *testing.T) {
	for _, tt := range []struct{ path, body, want string }{
		{"/v1/responses", `{"model":"x","include":["reasoning.encrypted_content"],"input":[{"role":"developer","content":"d"},{"type":"message","role":"user","content":[{"type":"input_text","text":"x"}]}],"tools":[{"type":"function","name":"run_command"}]}`,
			`"encrypted_content":`},
		{"/responses", `{"model":"x","input":"x","tools":[{"type":"function","name":"run_command"}]}`, `"summary_text"`},
		{"/v1/messages", `{"model":"x","max_tokens":9,"system":"s","messages":[{"role":"user","content":"x"}],"tools":[{"name":"run_command","input_schema":{"type":"object"}}]}`, `"signature":`},
		{"/v1beta/models/demo:generateContent", `{"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"parts":[{"text":"x"}]}],"tools":[{"functionDeclarations":[{"name":"run_command"}]}]}`, `"thoughtSignature":`},
	} {
		srv, _ := serve(t, thinking, modelserver.Options{})
		r := httptest.NewRequest(http.MethodPost, tt.path, strings.NewReader(tt.body))
		r.Header.Set("Anthropic-Version", "2026-10-21")
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, r)
		body := w.Body.String()
		if w.Code != 200 || !json.Valid([]byte(body)) || !strings.Contains(body, tt.want) || !strings.Contains(body, "x.txt") || !strings.Contains(body, "look — at") {
			t.Errorf("%s: %d %s", tt.path, w.Code, body)
		}
	}
}

func FuzzWires(f *testing.F) {
	paths := []string{"/v1/responses", "/v1/messages", "/v1beta/models/demo:generateContent"}
	f.Add(0, `{"model":"x","stream":true,"input":[{"role":"user","content":"a"},{"type":"reasoning","encrypted_content":"e"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"{}"}]}`)
	f.Add(1, `{"model":"x","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"b"}]}]}]}`)
	f.Add(2, `{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"output":"b"}}}]}]}`)
	s, err := script.Load([]byte(conversation), "demo.yaml")
	if err != nil {
		f.Fatal(err)
	}
	srv := modelserver.New(s, modelserver.Options{})
	f.Fuzz(func(t *testing.T, path int, body string) {
		r := httptest.NewRequest(http.MethodPost, paths[(path%3+3)%3], strings.NewReader(body))
		r.Header.Set("Anthropic-Version", "2026-10-21")
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, r)
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Errorf("status %d", w.Code)
		}
	})
}
