// Package gemini speaks the Gemini API's streamGenerateContent with Google's
// SDK.
//
// It uses no environment variable and no application default credentials, no
// proxy it was not given, follows no redirect, and never retries: the caller
// decides that. The key is sent to the configured server only and is in no
// error. (The SDK looks at GOOGLE_API_KEY and GEMINI_API_KEY when a model is
// made. Neither is used, but where both are set it says so in the standard log.)
package gemini

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"strings"
	"time"

	"google.golang.org/genai"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
	"github.com/rein-sh/rein/secret"
)

// Defaults of Options.
const (
	DefaultBaseURL = "https://generativelanguage.googleapis.com"
	DefaultVendor  = "gemini"
	DefaultVersion = "v1beta" // of the API
)

// EffortOff is the Effort that asks for nothing, like the empty one.
const EffortOff = "off"

// Options configure a model. Only Model is required.
type Options struct {
	BaseURL string       // may end with the API's version, such as "/v1beta"; empty for DefaultBaseURL
	Model   string       // as the server names it
	Key     secret.Value // sent as x-goog-api-key; none is sent when zero
	Vendor  string       // the first half of Name; empty for DefaultVendor

	// Effort is how much the model is to think: the vendor's thinking level,
	// "minimal", "low", "medium" or "high". Empty and EffortOff leave it to the
	// vendor.
	Effort string

	// StallTimeout is the longest silence of the server, before and during a
	// reply; 0 for wire.DefaultStallTimeout. The whole reply has no limit but
	// ctx.
	StallTimeout time.Duration
	// MaxBytes bounds what is read of one response; 0 for wire.DefaultMaxBytes.
	MaxBytes int64

	// Header is added to each request, for gateways that need it.
	Header http.Header
	// Transport carries the requests. Nil: a transport of the model's own,
	// without a proxy, whatever the environment says.
	Transport http.RoundTripper
}

// Model is one model of one server. Safe for concurrent use.
type Model struct {
	opts   Options
	link   *wire.Link
	models *genai.Models
}

var _ model.Model = (*Model)(nil)

var version = regexp.MustCompile(`^v[0-9]+(alpha|beta)?[0-9]*$`)

// New checks opts and returns the model. It sends nothing.
func New(opts Options) (*Model, error) {
	if opts.BaseURL == "" {
		opts.BaseURL = DefaultBaseURL
	}
	if opts.Vendor == "" {
		opts.Vendor = DefaultVendor
	}
	if strings.ContainsAny(opts.Model, "?&#%:") || strings.Contains(opts.Model, "..") {
		return nil, fmt.Errorf("gemini: %q is no name of a model", opts.Model)
	}
	base, apiVersion := strings.TrimSuffix(opts.BaseURL, "/"), DefaultVersion
	if last := path.Base(base); version.MatchString(last) {
		base, apiVersion = strings.TrimSuffix(base, "/"+last), last
	}
	link, err := wire.NewLink(wire.Options{
		BaseURL: base, Model: opts.Model, Vendor: opts.Vendor, Key: opts.Key,
		StallTimeout: opts.StallTimeout, MaxBytes: opts.MaxBytes, Header: opts.Header, Transport: opts.Transport,
	}, refusal)
	if err != nil {
		return nil, fmt.Errorf("gemini: %w", err)
	}
	key := wire.NoKey // or the SDK would look for one
	if !opts.Key.IsZero() {
		key = opts.Key.Reveal()
	}
	client, err := genai.NewClient(context.Background(), &genai.ClientConfig{
		APIKey: key, Backend: genai.BackendGeminiAPI, HTTPClient: link.Client(),
		HTTPOptions: genai.HTTPOptions{BaseURL: base + "/", APIVersion: apiVersion},
	})
	if err != nil {
		return nil, errors.New("gemini: the SDK refuses the options") // its text holds all of them, with the key
	}
	return &Model{opts: opts, link: link, models: client.Models}, nil
}

// Name implements model.Model.
func (m *Model) Name() string { return m.link.Name() }

// Close releases idle connections of the model's own transport.
func (m *Model) Close() { m.link.Close() }

// Generate implements model.Model. It always streams.
//
// A call that the model wrote so badly that the vendor withholds it is an
// error of KindCut: asked again, models mostly do better.
func (m *Model) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	contents, config, err := m.params(req)
	if err != nil {
		return nil, m.link.Invalid(err)
	}
	if emit == nil {
		emit = func(model.Delta) {}
	}
	call := m.link.Begin(ctx)
	defer call.End()
	acc := accumulator{emit: emit, link: m.link, turn: len(req.Messages)}
	if err := m.stream(call, contents, config, acc.add); err != nil {
		return nil, err
	}
	return acc.finish()
}

// stream hands over the chunks of a reply. The SDK panics when a field is of
// another type than it thinks, which is for a server to choose.
func (m *Model) stream(call *wire.Call, contents []*genai.Content, config *genai.GenerateContentConfig, add func(*genai.GenerateContentResponse) error) (err error) {
	ours := false
	defer func() {
		if ours { // or it is a panic of our caller's
			return
		}
		if p := recover(); p != nil {
			err = m.link.Errorf("a chunk is not of the protocol: %v", p)
		}
	}()
	for chunk, err := range m.models.GenerateContentStream(call.Context(), m.opts.Model, contents, config) {
		if err != nil {
			return failure(call, err)
		}
		ours = true
		err = add(chunk)
		ours = false
		if err != nil {
			return err
		}
	}
	return failure(call, nil)
}

// failure is what ended a stream; nil for its proper end.
func failure(call *wire.Call, err error) error {
	if e, ok := errors.AsType[genai.APIError](err); ok {
		text, _ := json.Marshal(map[string]any{"error": e}) // came as JSON
		return call.InStream(e.Code, text)
	}
	return call.Failure(err)
}
