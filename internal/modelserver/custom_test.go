package modelserver_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rein-sh/rein/internal/modelserver"
	"github.com/rein-sh/rein/model/script"
)

// serveScript is a server of a script.
func serveScript(t *testing.T, src string) (*modelserver.Server, func(path, body string) (int, string)) {
	t.Helper()
	sc, err := script.Load([]byte(src), "s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	handler := modelserver.New(sc, modelserver.Options{})
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return handler, func(path, body string) (int, string) {
		t.Helper()
		r, err := srv.Client().Post(srv.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		said, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(said)
	}
}

const patching = `
steps:
  - calls: [{tool: apply_patch, raw_arguments: "*** Begin Patch"}]
    usage: {input: 100, cached_input: 40, output: 7}
  - text: done
    usage: {input: 120, output: 3}
`

// A tool that takes plain text is called with it, wherever it was offered.
func TestCustomTools(t *testing.T) {
	t.Parallel()
	const tool = `{"type":"custom","name":"apply_patch","format":{"type":"text"}}`
	offers := map[string]string{
		"tools":       `"input":[{"role":"user","content":"go"}],"tools":[` + tool + `,{"type":"web_search"}]`,
		"a namespace": `"input":[{"role":"user","content":"go"}],"tools":[{"type":"namespace","name":"functions","tools":[` + tool + `]}]`,
		"an item":     `"input":[{"type":"additional_tools","role":"developer","tools":[` + tool + `]},{"role":"user","content":"go"}]`,
	}
	for where, offer := range offers {
		_, post := serveScript(t, patching)
		status, said := post("/v1/responses", `{"model":"m",`+offer+`}`)
		if status != http.StatusOK || !strings.Contains(said, `"input":"*** Begin Patch"`) || !strings.Contains(said, `"type":"custom_tool_call"`) {
			t.Errorf("%s: %d %s", where, status, said)
		}
		_, said = post("/v1/responses", `{"model":"m","stream":true,`+offer+`}`)
		for _, want := range []string{"event: response.custom_tool_call_input.delta", "event: response.custom_tool_call_input.done", "event: response.completed"} {
			if !strings.Contains(said, want) {
				t.Errorf("%s: no %q in %s", where, want, said)
			}
		}
	}
}

// The call and its result come back as items of their own.
func TestCustomToolResults(t *testing.T) {
	t.Parallel()
	handler, post := serveScript(t, patching)
	const begin = `{"model":"m","tools":[{"type":"custom","name":"apply_patch"}],"input":[{"role":"user","content":"go"}`
	const call = `,{"type":"custom_tool_call","call_id":"c","name":"apply_patch","input":"*** Begin Patch"}`
	if status, said := post("/v1/responses", begin+call+`]}`); status != http.StatusBadRequest || !strings.Contains(said, "No tool output") {
		t.Errorf("a call without its result: %d %s", status, said)
	}
	post("/v1/responses", begin+`]}`)
	status, said := post("/v1/responses", begin+call+`,{"type":"custom_tool_call_output","call_id":"c","output":"Success"}]}`)
	if status != http.StatusOK || !strings.Contains(said, `"text":"done"`) {
		t.Errorf("%d %s", status, said)
	}
	seen := handler.Seen()
	if seen.Count != 3 || len(seen.Served) != 2 {
		t.Errorf("seen %+v", seen)
	}
}

func TestUnnamedToolsAreRefused(t *testing.T) {
	t.Parallel()
	_, post := serveScript(t, patching)
	for _, tool := range []string{`{"type":"custom"}`, `{"type":"function"}`, `{"name":"f"}`, `{"type":"namespace","name":"n","tools":[{"type":"function"}]}`} {
		if status, said := post("/v1/responses", `{"model":"m","input":"go","tools":[`+tool+`]}`); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", tool, status, said)
		}
	}
}

// Counting tokens takes no turn of the script.
func TestCountTokens(t *testing.T) {
	t.Parallel()
	handler, post := serveScript(t, patching)
	for path, want := range map[string]string{
		"/v1/messages/count_tokens":    `{"input_tokens":4}`,
		"/v1beta/models/m:countTokens": `{"totalTokens":4}`,
	} {
		if status, said := post(path, `{"contents":[]}`); status != http.StatusOK || strings.TrimSpace(said) != want {
			t.Errorf("%s: %d %s", path, status, said)
		}
	}
	if seen := handler.Seen(); seen.Count != 0 || len(seen.Served) != 0 {
		t.Errorf("seen %+v", seen)
	}
}

// A harness may speak in the middle of a conversation, where it says that it does.
func TestSystemMessages(t *testing.T) {
	t.Parallel()
	sc, err := script.Load([]byte("steps: [{text: done}]"), "s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	handler := modelserver.New(sc, modelserver.Options{})
	for beta, want := range map[string]int{"": http.StatusBadRequest, "effort-2025-11-24,mid-conversation-system-2026-04-07": http.StatusOK} {
		r := httptest.NewRequest(http.MethodPost, "/v1/messages",
			strings.NewReader(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"go"},{"role":"system","content":"be brief"}]}`))
		r.Header.Set("Anthropic-Version", "2023-06-01")
		r.Header.Set("Anthropic-Beta", beta)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: %d %s", beta, w.Code, w.Body)
		}
	}
}
