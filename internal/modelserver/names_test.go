package modelserver_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rein-sh/rein/internal/modelserver"
)

// A server that is told which models there are refuses others, each vendor in
// its own words, and lists those.
func TestNamesOfModels(t *testing.T) {
	t.Parallel()
	srv, _ := serve(t, "steps: [{text: hello}]", modelserver.Options{Models: []string{"one", "two"}})
	ask := func(method, path, body string) (int, string) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Anthropic-Version", "2026-10-21")
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for _, tt := range []struct{ path, body, refusal string }{
		{"/v1/chat/completions", `{"model":"NAME","messages":[{"role":"user","content":"a"}]}`, `"code":"model_not_found"`},
		{"/v1/responses", `{"model":"NAME","input":"a"}`, `"code":"model_not_found"`},
		{"/v1/messages", `{"model":"NAME","max_tokens":9,"messages":[{"role":"user","content":"a"}]}`, `"type":"not_found_error"`},
		{"/v1beta/models/NAME:generateContent", `{"contents":[{"parts":[{"text":"a"}]}]}`, `"status":"NOT_FOUND"`},
	} {
		for name, status := range map[string]int{"one": 200, "two": 200, "tow": 404} {
			code, body := ask(http.MethodPost, strings.Replace(tt.path, "NAME", name, 1), strings.Replace(tt.body, "NAME", name, 1))
			if code != status || status == 404 && !strings.Contains(body, tt.refusal) {
				t.Errorf("%s of %s: %d %s", tt.path, name, code, body)
			}
		}
	}
	if code, body := ask(http.MethodGet, "/v1/models", ""); code != 200 || !strings.Contains(body, `"id":"one"`) || !strings.Contains(body, `"id":"two"`) {
		t.Errorf("%d %s", code, body)
	}
}
