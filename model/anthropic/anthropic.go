// Package anthropic speaks Anthropic's Messages with the official SDK.
//
// It reads no environment variable and no profile of the SDK's, uses no proxy
// it was not given, follows no redirect, and never retries: the caller decides
// that. The key is sent to the configured server only and is in no error.
package anthropic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
	"github.com/rein-sh/rein/secret"
)

// Defaults of Options.
const (
	DefaultBaseURL = "https://api.anthropic.com"
	DefaultVendor  = "anthropic"
)

// EffortOff is the Effort that asks for nothing, like the empty one.
const EffortOff = "off"

// Options configure a model. Only Model is required.
type Options struct {
	BaseURL string       // without "/v1", which is taken off; empty for DefaultBaseURL
	Model   string       // as the server names it
	Key     secret.Value // sent as a bearer token, as the SDK does; none is sent when zero
	Vendor  string       // the first half of Name; empty for DefaultVendor

	// Effort is how much the model is to think, in the vendor's words: "low",
	// "medium", "high", "xhigh" or "max". The model then decides when to think.
	// Empty and EffortOff leave it to the vendor.
	Effort string
	// NoCache leaves out the request to cache the conversation so far, for
	// servers that do not know it.
	NoCache bool

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
	opts     Options
	link     *wire.Link
	messages sdk.MessageService
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
	opts.BaseURL = strings.TrimSuffix(strings.TrimSuffix(opts.BaseURL, "/"), "/v1")
	link, err := wire.NewLink(wire.Options{
		BaseURL: opts.BaseURL, Model: opts.Model, Vendor: opts.Vendor, Key: opts.Key,
		StallTimeout: opts.StallTimeout, MaxBytes: opts.MaxBytes, Header: opts.Header, Transport: opts.Transport,
	}, refusal)
	if err != nil {
		return nil, fmt.Errorf("anthropic: %w", err)
	}
	options := []option.RequestOption{
		option.WithBaseURL(opts.BaseURL + "/"), option.WithMaxRetries(0), option.WithHTTPClient(link.Client()),
		option.WithoutOpenTelemetry(), // which would ask the environment what to record
		option.WithOpenTelemetryPropagation(false),
	}
	if !opts.Key.IsZero() {
		options = append(options, option.WithAPIKey(opts.Key.Reveal()))
	}
	// The service, unlike the SDK's client, takes nothing from ANTHROPIC_*
	// variables and profiles.
	return &Model{opts: opts, link: link, messages: sdk.NewMessageService(options...)}, nil
}

// Name implements model.Model.
func (m *Model) Name() string { return m.link.Name() }

// Close releases idle connections of the model's own transport.
func (m *Model) Close() { m.link.Close() }

// Generate implements model.Model. It always streams.
//
// A reply that the vendor paused, or that filled the model's context window,
// has the reason StopLength: it is to be gone on with.
func (m *Model) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	params, err := m.params(req)
	if err != nil {
		return nil, m.link.Invalid(err)
	}
	if emit == nil {
		emit = func(model.Delta) {}
	}
	call := m.link.Begin(ctx)
	defer call.End()
	acc := accumulator{emit: emit, link: m.link, turn: len(req.Messages)}
	if err := wire.Each(call, m.messages.NewStreaming(call.Context(), params), acc.add, failure); err != nil {
		return nil, err
	}
	return acc.finish()
}

// failure is what ended a stream; nil for its proper end.
func failure(call *wire.Call, err error) error {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		text := []byte(e.RawJSON())
		return call.InStream(statusOf(parseDetail(text).Type), text)
	}
	return call.Failure(err)
}
