package gemini_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/gemini"
	"github.com/rein-sh/rein/model/wire"
	"github.com/rein-sh/rein/model/wire/replay"
)

func open(o wire.Options) (model.Model, error) {
	return gemini.New(gemini.Options{BaseURL: o.BaseURL, Model: o.Model, Key: o.Key, StallTimeout: o.StallTimeout, MaxBytes: o.MaxBytes, Transport: o.Transport})
}

func TestRefuses(t *testing.T) { replay.Refuses(t, open) }

// Opaque of another vendor, or that does not fit the message, is not trusted.
func TestForeignOpaque(t *testing.T) {
	sent := replay.Sent(t, open, `5`, `{}`, `{"gemini":5}`, `{"gemini":[{"text":99}]}`, `{"gemini":[{"text":-1},{"call":0}]}`,
		`{"gemini":[{"text":2},{"call":7}]}`, `{"gemini":[{"text":2},{"call":0},{"call":0}]}`, `{"gemini":[{"text":3},{"text":-1},{"call":0}]}`, `{"other":[{"text":2}]}`)
	if n := strings.Count(sent, `"hi"`); n != 9 {
		t.Errorf("%d texts in %s", n, sent)
	}
	if n := strings.Count(sent, `"name":"f"`); n < 9 {
		t.Errorf("%d calls in %s", n, sent)
	}
}

func FuzzStream(f *testing.F) { replay.Fuzz(f, "testdata", open) }

// answer is a transport that answers everything with a stream.
type answer string

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(string(a)))}, nil
}

// What is wrong with the caller is not taken for the server's fault.
func TestCallersPanic(t *testing.T) {
	m, err := gemini.New(gemini.Options{Model: "m1", Transport: answer(`data: {"candidates":[{"content":{"parts":[{"text":"hi"}]}}]}` + "\n\n")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if p := recover(); p != "mine" {
			t.Errorf("recovered %v", p)
		}
	}()
	_, err = m.Generate(t.Context(), replay.Request(), func(model.Delta) { panic("mine") })
	t.Errorf("no panic: %v", err)
}
