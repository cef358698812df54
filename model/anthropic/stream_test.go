package anthropic_test

import (
	"strings"
	"testing"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/anthropic"
	"github.com/rein-sh/rein/model/wire"
	"github.com/rein-sh/rein/model/wire/replay"
)

func open(o wire.Options) (model.Model, error) {
	return anthropic.New(anthropic.Options{BaseURL: o.BaseURL, Model: o.Model, Key: o.Key, StallTimeout: o.StallTimeout, MaxBytes: o.MaxBytes, Transport: o.Transport})
}

func TestRefuses(t *testing.T) { replay.Refuses(t, open) }

// Opaque of another vendor, or that does not fit the message, is not trusted.
func TestForeignOpaque(t *testing.T) {
	sent := replay.Sent(t, open, `5`, `{}`, `{"anthropic":5}`, `{"anthropic":[{"text":99}]}`, `{"anthropic":[{"text":-1},{"call":0}]}`,
		`{"anthropic":[{"text":2},{"call":7}]}`, `{"anthropic":[{"text":2},{"call":0},{"call":0}]}`, `{"anthropic":[{"text":3},{"text":-1},{"call":0}]}`, `{"other":[{"text":2}]}`)
	if n := strings.Count(sent, `"hi"`); n != 9 {
		t.Errorf("%d texts in %s", n, sent)
	}
	if n := strings.Count(sent, `"name":"f"`); n < 9 {
		t.Errorf("%d calls in %s", n, sent)
	}
}

func FuzzStream(f *testing.F) { replay.Fuzz(f, "testdata", open) }
