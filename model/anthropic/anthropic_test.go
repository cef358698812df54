package anthropic_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/anthropic"
	"github.com/rein-sh/rein/model/wire/replay"
	"github.com/rein-sh/rein/secret"
)

var update = flag.Bool("update", false, "rewrite what the clients make of kept traffic")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The responses in testdata are made after platform.claude.com/docs and the
// SDK's types.
func TestReplay(t *testing.T) {
	replay.Run(t, "testdata", *update, func(url string) (model.Model, error) {
		return anthropic.New(anthropic.Options{BaseURL: url, Model: "claude-opus-5-5", Key: secret.New("anthropic", "a-key-of-a-test"), Effort: "medium"})
	})
}
