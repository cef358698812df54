// Package openai speaks OpenAI's Chat Completions and Responses with the
// official SDK, to OpenAI itself or to any server with the same protocol.
//
// It reads no environment variable, uses no proxy it was not given, follows no
// redirect, and never retries: the caller decides that. The key is sent to the
// configured server only and is in no error.
package openai

import (
	"context"
	"fmt"
	"net/http"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
	"github.com/rein-sh/rein/secret"
)

// Defaults of Options.
const (
	DefaultBaseURL      = "https://api.openai.com/v1"
	DefaultVendor       = "openai"
	DefaultStallTimeout = wire.DefaultStallTimeout
	DefaultMaxBytes     = wire.DefaultMaxBytes
)

// API is one of OpenAI's protocols.
type API string

// The protocols. The zero value is ChatCompletions, which most servers speak.
const (
	ChatCompletions API = "chat"
	Responses       API = "responses"
)

// EffortOff is the Effort of models that do not reason.
const EffortOff = "off"

// Options configure a model. Only Model is required.
type Options struct {
	BaseURL string       // up to and including "/v1"; empty for DefaultBaseURL
	Model   string       // as the server names it
	Key     secret.Value // sent as a bearer token; none is sent when zero
	Vendor  string       // the first half of Name; empty for DefaultVendor
	API     API          // empty for ChatCompletions

	// Effort is how much the model is to reason, in the vendor's words, such as
	// "low", "medium" or "high". Empty leaves it to the vendor; EffortOff sends
	// nothing about reasoning, for models that know none and refuse it.
	Effort string

	// StallTimeout is the longest silence of the server, before and during a
	// reply; 0 for DefaultStallTimeout. The whole reply has no limit but ctx.
	StallTimeout time.Duration
	// MaxBytes bounds what is read of one response; 0 for DefaultMaxBytes.
	MaxBytes int64

	// LegacyMaxTokens sends the output cap as max_tokens, for servers that do
	// not know max_completion_tokens. Chat Completions only.
	LegacyMaxTokens bool
	// NoStreamUsage leaves out stream_options, for servers that refuse it.
	// Usage is then unknown, unless the server tells unasked. Chat Completions
	// only.
	NoStreamUsage bool

	// Header is added to each request, for gateways that need it.
	Header http.Header
	// Transport carries the requests. Nil: a transport of the model's own,
	// without a proxy, whatever the environment says.
	Transport http.RoundTripper
}

// Model is one model of one server. Safe for concurrent use.
type Model struct {
	opts      Options
	link      *wire.Link
	chat      sdk.ChatCompletionService
	responses responses.ResponseService
}

var _ model.Model = (*Model)(nil)

// New checks opts and returns the model. It sends nothing.
func New(opts Options) (*Model, error) {
	if opts.BaseURL == "" {
		opts.BaseURL = DefaultBaseURL
	}
	if opts.Vendor == "" {
		opts.Vendor = DefaultVendor
	}
	if opts.API == "" {
		opts.API = ChatCompletions
	}
	if opts.API != ChatCompletions && opts.API != Responses {
		return nil, fmt.Errorf("openai: no API %q", opts.API)
	}
	link, err := wire.NewLink(wire.Options{
		BaseURL: opts.BaseURL, Model: opts.Model, Vendor: opts.Vendor, Key: opts.Key,
		StallTimeout: opts.StallTimeout, MaxBytes: opts.MaxBytes, Header: opts.Header, Transport: opts.Transport,
	}, refusal)
	if err != nil {
		return nil, fmt.Errorf("openai: %w", err)
	}
	options := []option.RequestOption{
		option.WithBaseURL(opts.BaseURL), option.WithMaxRetries(0), option.WithHTTPClient(link.Client()),
	}
	if !opts.Key.IsZero() {
		options = append(options, option.WithAPIKey(opts.Key.Reveal()))
	}
	// The services, unlike the SDK's client, take nothing from OPENAI_* variables.
	return &Model{
		opts: opts, link: link,
		chat:      sdk.NewChatCompletionService(options...),
		responses: responses.NewResponseService(options...),
	}, nil
}

// Name implements model.Model.
func (m *Model) Name() string { return m.link.Name() }

// Close releases idle connections of the model's own transport.
func (m *Model) Close() { m.link.Close() }

// Generate implements model.Model. It always streams.
func (m *Model) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	if emit == nil {
		emit = func(model.Delta) {}
	}
	if m.opts.API == Responses {
		return m.respond(ctx, req, emit)
	}
	return m.complete(ctx, req, emit)
}

// complete speaks Chat Completions.
func (m *Model) complete(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	params, err := m.params(req)
	if err != nil {
		return nil, m.link.Invalid(err)
	}
	call := m.link.Begin(ctx)
	defer call.End()
	acc := accumulator{emit: emit, link: m.link, turn: len(req.Messages)}
	if err := wire.Each(call, m.chat.NewStreaming(call.Context(), params), acc.add, failure); err != nil {
		return nil, err
	}
	return acc.finish()
}
