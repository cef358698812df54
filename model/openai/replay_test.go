package openai_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/openai"
	"github.com/rein-sh/rein/model/wire"
	"github.com/rein-sh/rein/model/wire/replay"
	"github.com/rein-sh/rein/secret"
)

var (
	update  = flag.Bool("update", false, "rewrite what the clients make of kept traffic")
	record  = flag.String("record", "", "model to keep responses of")
	keyFile = flag.String("key-file", "", "file with the vendor's key, for -record")
	baseURL = flag.String("url", "", "the server to ask, for -record; empty for the vendor's")
)

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

// chat and items make clients of the two protocols.
func chat(o wire.Options) (model.Model, error)  { return speaking(openai.ChatCompletions, o) }
func items(o wire.Options) (model.Model, error) { return speaking(openai.Responses, o) }

func speaking(api openai.API, o wire.Options) (model.Model, error) {
	return openai.New(openai.Options{BaseURL: o.BaseURL, Model: o.Model, Key: o.Key, API: api, StallTimeout: o.StallTimeout, MaxBytes: o.MaxBytes, Transport: o.Transport})
}

func TestRefuses(t *testing.T) {
	for name, open := range map[string]replay.Open{"chat": chat, "responses": items} {
		t.Run(name, func(t *testing.T) { replay.Refuses(t, open) })
	}
}

func FuzzStream(f *testing.F) {
	replay.Fuzz(f, "testdata/chat", chat,
		sse(delta(`{"content":"Hi"}`), finish("stop"), `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, "[DONE]"),
		sse(delta(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":"{}"}},{"index":0,"id":"y","function":{"name":"g"}}]}`), finish("tool_calls")),
		sse(`{"error":{"message":"slow","code":429}}`),
		"event: error\ndata: {\"error\":\"x\"}\n\n: comment\n\ndata:[DONE]\n\n",
		"data: {\"choices\":[{\"index\":0,\ndata: \"delta\":{},\"finish_reason\":\"length\"}]}\n\n")
}

func FuzzResponses(f *testing.F) { replay.Fuzz(f, "testdata/responses", items) }

// Items that do not say what the message says are not sent.
func TestForeignItems(t *testing.T) {
	sent := replay.Sent(t, func(o wire.Options) (model.Model, error) {
		return openai.New(openai.Options{Model: o.Model, Transport: o.Transport, API: openai.Responses, Effort: openai.EffortOff})
	}, `5`, `{}`, `{"openai.responses":5}`, `{"openai.responses":[5]}`, `{"openai.responses":[{"type":"message","content":[{"text":"ho"}]}]}`,
		`{"openai.responses":[{"type":"message","content":[{"text":"hi"}]}]}`, `{"anthropic":[]}`)
	if strings.Count(sent, `"content":"hi"`) != 7 || strings.Count(sent, `"name":"f"`) != 7 || strings.Contains(sent, `"ho"`) {
		t.Errorf("sent %s", sent)
	}
	if strings.Contains(sent, "reasoning") {
		t.Errorf("sent something about reasoning: %s", sent)
	}
}

// TestRecord keeps responses of the vendor's: go test -run TestRecord -record
// MODEL -key-file FILE, then -update.
func TestRecord(t *testing.T) {
	for name, open := range map[string]replay.Open{"chat": chat, "responses": items} {
		t.Run(name, func(t *testing.T) { replay.Record(t, "testdata/"+name, *record, *keyFile, *baseURL, open) })
	}
}
