package openai_test

import (
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/openai"
	"github.com/rein-sh/rein/model/wire/replay"
	"github.com/rein-sh/rein/secret"
)

var update = flag.Bool("update", false, "rewrite what the clients make of kept traffic")

// The responses in testdata are made after platform.openai.com/docs, DeepSeek's
// api-docs.deepseek.com and the SDK's types.
func TestReplay(t *testing.T) {
	for _, api := range []openai.API{openai.ChatCompletions, openai.Responses} {
		t.Run(string(api), func(t *testing.T) {
			replay.Run(t, "testdata/"+string(api), *update, func(url string) (model.Model, error) {
				return openai.New(openai.Options{BaseURL: url + "/v1", Model: "gpt-5.2", API: api, Key: secret.New("openai", "a-key-of-a-test"), Effort: "medium"})
			})
		})
	}
}

// Whatever a server sends, the answer is a reply that ended or an error.
func FuzzResponses(f *testing.F) {
	names, err := filepath.Glob("testdata/responses/*.http")
	if err != nil || len(names) == 0 {
		f.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		_, body, _ := strings.Cut(string(data), "\n\n")
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		m, err := openai.New(openai.Options{Model: "m1", API: openai.Responses, MaxBytes: 1 << 16, Transport: transport(func(*http.Request) (*http.Response, error) {
			return respond(200, nil, body), nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		req := replay.Request()
		reply, err := m.Generate(t.Context(), req, nil)
		if (reply == nil) == (err == nil) {
			t.Fatalf("got %v, %v", reply, err)
		}
		if err != nil {
			if model.KindOf(err) == "" {
				t.Fatalf("no *model.Error: %v", err)
			}
			return
		}
		replay.Answer(req, reply)
		if _, err := m.Generate(t.Context(), req, nil); model.KindOf(err) == model.KindInvalid {
			t.Fatalf("%+v cannot be returned: %v", reply, err)
		}
	})
}

// Items that do not say what the message says are not sent.
func TestForeignItems(t *testing.T) {
	var sent string
	m := newModel(t, openai.Options{API: openai.Responses, Effort: openai.EffortOff, Transport: transport(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		sent = string(body)
		return respond(500, nil, ""), err
	})})
	req := replay.Request()
	for _, opaque := range []string{
		"5", "{}", `{"openai.responses":5}`, `{"openai.responses":[5]}`, `{"openai.responses":[{"type":"message","content":[{"text":"ho"}]}]}`,
		`{"openai.responses":[{"type":"message","content":[{"text":"hi"}]}]}`, `{"anthropic":[]}`,
	} {
		replay.Answer(req, &model.Reply{Message: model.Message{
			Role: model.RoleAssistant, Text: "hi", Calls: []model.ToolCall{{ID: "a", Name: "f", Arguments: "{}"}}, Opaque: json.RawMessage(opaque),
		}})
	}
	_, _ = m.Generate(t.Context(), req, nil) // only what it sends is asked for
	if strings.Count(sent, `"content":"hi"`) != 7 || strings.Count(sent, `"name":"f"`) != 7 || strings.Contains(sent, `"ho"`) {
		t.Errorf("sent %s", sent)
	}
	if strings.Contains(sent, "reasoning") {
		t.Errorf("sent something about reasoning: %s", sent)
	}
}
