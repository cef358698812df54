package replay

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
	"github.com/rein-sh/rein/secret"
)

// Open makes a client of one vendor from what all of them take.
type Open func(wire.Options) (model.Model, error)

// transport answers without a server.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// streams makes a client whose every request is answered with body.
func (open Open) streams(body string) (model.Model, error) {
	return open(wire.Options{Model: "m1", MaxBytes: 1 << 16, Transport: transport(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
	})})
}

// Refuses checks that a client is not made from options that are wrong, and
// sends no request that is.
func Refuses(t *testing.T, open Open) {
	t.Helper()
	const key = "a-key-of-a-test"
	for _, change := range []func(*wire.Options){
		func(o *wire.Options) { o.Model = "" },
		func(o *wire.Options) { o.Model = "a\nb" },
		func(o *wire.Options) { o.BaseURL = "models.example/v1" },
		func(o *wire.Options) { o.BaseURL = "ftp://models.example" },
		func(o *wire.Options) { o.BaseURL = "https:///v1" },
		func(o *wire.Options) { o.BaseURL = "https://models.example/%" + key },
		func(o *wire.Options) { o.BaseURL = "https://user:" + key + "@models.example" },
		func(o *wire.Options) { o.BaseURL = "https://models.example?key=" + key },
		func(o *wire.Options) { o.Key = secret.New("k", key+"\n") },
		func(o *wire.Options) { o.StallTimeout = -1 },
		func(o *wire.Options) { o.MaxBytes = -1 },
	} {
		o := wire.Options{Model: "m1"}
		change(&o)
		if _, err := open(o); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%v", err)
		}
	}
	m, err := open(wire.Options{Model: "m1", Transport: transport(func(*http.Request) (*http.Response, error) {
		t.Error("sent")
		return nil, io.EOF
	})})
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range []*model.Request{
		{MaxOutputTokens: 1, Messages: []model.Message{{Role: "wizard"}}},
		{MaxOutputTokens: 1, Tools: []model.ToolDef{{Name: "f", Schema: json.RawMessage("[]")}}},
	} {
		if _, err := m.Generate(t.Context(), req, nil); model.KindOf(err) != model.KindInvalid {
			t.Errorf("got %v", err)
		}
	}
}

// Sent is the request in which a client returns a message of its own, the text
// "hi" and a call of f, once with each of these as its Opaque.
func Sent(t *testing.T, open Open, opaque ...string) string {
	t.Helper()
	req := Request()
	for _, o := range opaque {
		Answer(req, &model.Reply{Message: model.Message{
			Role: model.RoleAssistant, Text: "hi", Calls: []model.ToolCall{{ID: "a", Name: "f", Arguments: "{}"}}, Opaque: json.RawMessage(o),
		}})
	}
	var sent string
	m, err := open(wire.Options{Model: "m1", Transport: transport(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		sent = string(body)
		return nil, errors.Join(io.ErrUnexpectedEOF, err)
	})})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = m.Generate(t.Context(), req, nil) // only what it sends is asked for
	return sent
}

// Fuzz checks that whatever a server sends, the answer is a reply that ended and
// can be returned, or an error. It begins with the responses kept in dir.
func Fuzz(f *testing.F, dir string, open Open, more ...string) {
	f.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.http"))
	if err != nil || len(names) == 0 {
		f.Fatalf("no traffic in %s: %v", dir, err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		_, body, _ := strings.Cut(string(data), "\n\n")
		f.Add(body)
	}
	for _, body := range more {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		m, err := open.streams(body)
		if err != nil {
			t.Fatal(err)
		}
		req := Request()
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
		ids := map[string]bool{}
		for _, c := range reply.Message.Calls {
			if c.ID == "" || c.Name == "" || ids[c.ID] {
				t.Fatalf("calls %+v", reply.Message.Calls)
			}
			ids[c.ID] = true
		}
		Answer(req, reply)
		if _, err := m.Generate(t.Context(), req, nil); model.KindOf(err) == model.KindInvalid {
			t.Fatalf("%+v cannot be returned: %v", reply, err)
		}
	})
}
