package wire_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
	"github.com/rein-sh/rein/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "a-key-of-a-test"

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func link(t *testing.T, o wire.Options) *wire.Link {
	t.Helper()
	if o.BaseURL == "" {
		o.BaseURL = "https://models.example"
	}
	if o.Model == "" {
		o.Model = "m1"
	}
	o.Vendor, o.Key = "acme", secret.New("acme", key)
	l, err := wire.NewLink(o, func(_ int, body []byte) wire.Refusal { return wire.Refusal{Message: string(body)} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// ask sends one request and reads all of its response.
func ask(t *testing.T, l *wire.Link, url string) (string, error) {
	t.Helper()
	c := l.Begin(t.Context())
	defer c.End()
	r, err := http.NewRequestWithContext(c.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := l.Client().Do(r)
	if err != nil {
		return "", c.Failure(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), c.Failure(err)
}

func respond(status int, mediaType, body string) transport {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {mediaType}}, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

func TestResponses(t *testing.T) {
	tests := []struct {
		name, mediaType, body string
		status                int
		kind                  model.Kind
		message, hint         string
	}{
		{"stream", "text/event-stream", "data: x\n\n", 200, "", "", ""},
		{"stream without a type", "", "data: x\n\n", 200, "", "", ""},
		{"page", "text/html; charset=utf-8", "<html>", 200, model.KindUnknown, "the server answered with a web page instead of a reply", "is not that of an API"},
		{"error under a good status", "application/json", "busy " + key, 200, model.KindUnknown, "busy [secret:acme]", ""},
		{"JSON", "application/json", "", 200, model.KindUnknown, "the server answered a stream request with plain JSON", "does not stream"},
		{"page of an error", "text/html", "<html>" + key, 404, model.KindNotFound, "Not Found", "a web server answered"},
		{"JSON of an error", "application/problem+json", "words " + key, 404, model.KindNotFound, "words [secret:acme]", "check the model's name"},
		{"text of an error", "text/plain", "words", 401, model.KindAuth, "words", "check the key"},
		{"image", "image/png", "words", 403, model.KindForbidden, "Forbidden", "the key may not"},
		{"payment", "text/plain", "pay", 402, model.KindQuota, "pay", "credit"},
		{"redirect", "text/plain", "", 308, model.KindUnknown, "the server redirects, which is not followed", "set the base URL"},
		{"long", "text/plain", strings.Repeat("x", 1<<20), 500, model.KindUnavailable, strings.Repeat("x", 1000) + "…", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := link(t, wire.Options{Transport: respond(tt.status, tt.mediaType, tt.body)})
			body, err := ask(t, l, "https://models.example/v1")
			if tt.kind == "" {
				if err != nil || body != tt.body {
					t.Errorf("%q, %v", body, err)
				}
				return
			}
			e, ok := errors.AsType[*model.Error](err)
			if !ok || e.Kind != tt.kind || e.Status != tt.status || e.Message != tt.message || !strings.Contains(e.Hint, tt.hint) {
				t.Fatalf("%+v", err)
			}
			if strings.Contains(fmt.Sprintf("%v %+v %#v", e, e, e), key) {
				t.Errorf("the key is in %#v", e)
			}
		})
	}
}

// An SDK that sends a request again, or with a context of its own, fails.
func TestOneRequestEach(t *testing.T) {
	n := 0
	l := link(t, wire.Options{Transport: transport(func(*http.Request) (*http.Response, error) {
		n++
		return nil, io.ErrUnexpectedEOF
	})})
	c := l.Begin(t.Context())
	defer c.End()
	for _, ctx := range []context.Context{c.Context(), c.Context(), t.Context()} {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://models.example", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Client().Do(r); err == nil {
			t.Error("no error")
		}
	}
	if n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestHeader(t *testing.T) {
	var sent http.Header
	l := link(t, wire.Options{Header: http.Header{"x-team": {"a", "b"}}, Transport: transport(func(r *http.Request) (*http.Response, error) {
		sent = r.Header
		return respond(200, "", "")(r)
	})})
	c := l.Begin(t.Context())
	defer c.End()
	r, err := http.NewRequestWithContext(c.Context(), http.MethodPost, "https://models.example", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+wire.NoKey)
	r.Header.Set("X-Goog-Api-Key", wire.NoKey)
	r.Header.Set("X-Kept", "yes")
	res, err := l.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if len(sent["X-Team"]) != 2 || sent.Get("X-Kept") != "yes" || sent.Get("Authorization")+sent.Get("X-Goog-Api-Key") != "" {
		t.Errorf("sent %v", sent)
	}
}

// A proxy that is named is used; the environment names none.
func TestProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://env.invalid:1")
	t.Setenv("HTTPS_PROXY", "http://env.invalid:1")
	var asked string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: x\n\n")
	}))
	defer proxy.Close()
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	own := wire.NewTransport(u)
	defer own.CloseIdleConnections()
	if body, err := ask(t, link(t, wire.Options{Transport: own}), "http://models.example/v1/x"); err != nil || body != "data: x\n\n" {
		t.Errorf("%q, %v", body, err)
	}
	if asked != "http://models.example/v1/x" {
		t.Errorf("the proxy was asked for %q", asked)
	}
	if body, err := ask(t, link(t, wire.Options{}), strings.Replace(proxy.URL, "127.0.0.1", "0.0.0.0", 1)); err != nil || body != "data: x\n\n" {
		t.Errorf("without a proxy: %q, %v", body, err)
	}
}

func TestUnreachable(t *testing.T) {
	ts := httptest.NewTLSServer(nil)
	defer ts.Close()
	_, err := ask(t, link(t, wire.Options{}), ts.URL)
	e, ok := errors.AsType[*model.Error](err)
	if _, cert := errors.AsType[*tls.CertificateVerificationError](err); !ok || e.Kind != model.KindUnknown || !strings.Contains(e.Hint, "not trusted") || !cert {
		t.Errorf("untrusted: %+v", err)
	}
	plain := httptest.NewServer(nil)
	defer plain.Close()
	_, err = ask(t, link(t, wire.Options{}), strings.Replace(plain.URL, "http", "https", 1))
	if e, ok := errors.AsType[*model.Error](err); !ok || !strings.Contains(e.Hint, "is the base URL http") {
		t.Errorf("no TLS: %+v", err)
	}
	_, err = ask(t, link(t, wire.Options{Transport: transport(func(*http.Request) (*http.Response, error) {
		return nil, errors.New("dial " + key + ": refused")
	})}), "https://models.example")
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindUnavailable || e.Message != "dial [secret:acme]: refused" || strings.Contains(errors.Unwrap(e).Error(), key) {
		t.Errorf("refused: %+v", err)
	}
}

func TestIdentify(t *testing.T) {
	l := link(t, wire.Options{})
	calls := []model.ToolCall{{Name: "a"}, {ID: "x", Name: "b"}, {ID: "x", Name: "c"}, {ID: "call_3_1", Name: "d"}}
	if err := l.Identify(3, calls); err != nil {
		t.Fatal(err)
	}
	if calls[0].ID != "call_3_2" || calls[1].ID != "x" || calls[2].ID != "call_3_3" || calls[3].ID != "call_3_1" {
		t.Errorf("%+v", calls)
	}
	if err := l.Identify(3, []model.ToolCall{{ID: "x"}}); model.KindOf(err) != model.KindUnknown {
		t.Errorf("no name: %v", err)
	}
	if err := l.Identify(3, make([]model.ToolCall, wire.MaxCalls+1)); model.KindOf(err) != model.KindUnknown {
		t.Errorf("too many: %v", err)
	}
}
