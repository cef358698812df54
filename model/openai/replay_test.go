package openai_test

import (
	"flag"
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
