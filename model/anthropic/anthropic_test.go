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

var (
	update  = flag.Bool("update", false, "rewrite what the clients make of kept traffic")
	record  = flag.String("record", "", "model to keep responses of")
	keyFile = flag.String("key-file", "", "file with the vendor's key, for -record")
	baseURL = flag.String("url", "", "the server to ask, for -record; empty for the vendor's")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The responses in testdata are made after platform.claude.com/docs and the
// SDK's types.
func TestReplay(t *testing.T) {
	replay.Run(t, "testdata", *update, func(url string) (model.Model, error) {
		return anthropic.New(anthropic.Options{BaseURL: url, Model: "claude-opus-5-5", Key: secret.New("anthropic", "a-key-of-a-test"), Effort: "medium"})
	})
}

// TestRecord keeps responses of the vendor's: go test -run TestRecord -record
// MODEL -key-file FILE, then -update.
func TestRecord(t *testing.T) { replay.Record(t, "testdata", *record, *keyFile, *baseURL, open) }
