package anthropic_test

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
	"github.com/rein-sh/rein/model/anthropic"
	"github.com/rein-sh/rein/model/wire/replay"
	"github.com/rein-sh/rein/secret"
)

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func streaming(body string, more func(*anthropic.Options)) (*anthropic.Model, error) {
	o := anthropic.Options{Model: "m1", MaxBytes: 1 << 16, Transport: transport(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
	})}
	if more != nil {
		more(&o)
	}
	return anthropic.New(o)
}

func TestNewRefuses(t *testing.T) {
	for _, change := range []func(*anthropic.Options){
		func(o *anthropic.Options) { o.Model = "" },
		func(o *anthropic.Options) { o.Model = "a\nb" },
		func(o *anthropic.Options) { o.BaseURL = "ftp://models.example" },
		func(o *anthropic.Options) { o.BaseURL = "https://user:a-key-of-a-test@models.example" },
		func(o *anthropic.Options) { o.BaseURL = "https://models.example?key=a-key-of-a-test" },
		func(o *anthropic.Options) { o.Key = secret.New("k", "a-key-of-a-test\n") },
		func(o *anthropic.Options) { o.StallTimeout = -1 },
		func(o *anthropic.Options) { o.MaxBytes = -1 },
	} {
		if m, err := streaming("", change); err == nil || m != nil || strings.Contains(err.Error(), "a-key-of-a-test") {
			t.Errorf("%v", err)
		}
	}
}

func TestBadRequestsAreNotSent(t *testing.T) {
	m, err := anthropic.New(anthropic.Options{Model: "m1", Transport: transport(func(*http.Request) (*http.Response, error) {
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

// Opaque of another vendor, or that does not fit the message, is not trusted.
func TestForeignOpaque(t *testing.T) {
	req := replay.Request()
	for _, opaque := range []string{
		"5", "{}", "{\"anthropic\":5}", "{\"anthropic\":[{\"text\":99}]}", "{\"anthropic\":[{\"text\":-1},{\"call\":0}]}", "{\"anthropic\":[{\"text\":2},{\"call\":7}]}",
		"{\"anthropic\":[{\"text\":2},{\"call\":0},{\"call\":0}]}", "{\"other\":[{\"text\":2}]}",
	} {
		replay.Answer(req, &model.Reply{Message: model.Message{
			Role: model.RoleAssistant, Text: "hi", Calls: []model.ToolCall{{ID: "a", Name: "f", Arguments: "{}"}}, Opaque: json.RawMessage(opaque),
		}})
	}
	var sent string
	m, err := streaming("", func(o *anthropic.Options) {
		o.Transport = transport(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			sent = string(body)
			return nil, errors.Join(io.ErrUnexpectedEOF, err)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = m.Generate(t.Context(), req, nil) // only what it sends is asked for
	if n := strings.Count(sent, "\"hi\""); n != 8 {
		t.Errorf("%d texts in %s", n, sent)
	}
	if n := strings.Count(sent, "\"name\":\"f\""); n < 8 {
		t.Errorf("%d calls in %s", n, sent)
	}
}

// Whatever a server sends, the answer is a reply that ended or an error.
func FuzzStream(f *testing.F) {
	names, err := filepath.Glob("testdata/*.http")
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
		m, err := streaming(body, nil)
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
		ids := map[string]bool{}
		for _, c := range reply.Message.Calls {
			if c.ID == "" || c.Name == "" || ids[c.ID] {
				t.Fatalf("calls %+v", reply.Message.Calls)
			}
			ids[c.ID] = true
		}
		// It can be sent back.
		replay.Answer(req, reply)
		if _, err := m.Generate(t.Context(), req, nil); model.KindOf(err) == model.KindInvalid {
			t.Fatalf("%+v cannot be returned: %v", reply, err)
		}
	})
}
