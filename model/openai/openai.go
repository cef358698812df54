// Package openai speaks OpenAI's Chat Completions with the official SDK, to
// OpenAI itself or to any server with the same protocol. It reads no
// environment variable and never retries: the caller decides that.
package openai

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/secret"
)

// Defaults of Options.
const (
	DefaultBaseURL      = "https://api.openai.com/v1"
	DefaultStallTimeout = 60 * time.Second
	DefaultMaxBytes     = 32 << 20
)

// Options configure a model. Only Model is required.
type Options struct {
	BaseURL string       // up to and including "/v1"; empty for DefaultBaseURL
	Model   string       // as the server names it
	Key     secret.Value // sent as a bearer token; none is sent when zero
	Vendor  string       // the first half of Name; empty for "openai"

	// StallTimeout is the longest silence of the server, before and during a
	// reply; 0 for DefaultStallTimeout. The whole reply has no limit but ctx.
	StallTimeout time.Duration
	// MaxBytes bounds what is read of one response; 0 for DefaultMaxBytes.
	MaxBytes int64

	// LegacyMaxTokens sends the output cap as max_tokens, for servers that do
	// not know max_completion_tokens.
	LegacyMaxTokens bool
	// NoStreamUsage leaves out stream_options, for servers that refuse it.
	// Usage is then unknown.
	NoStreamUsage bool

	// Header is added to each request, for gateways that need it.
	Header http.Header
	// Transport carries the requests. Nil: a transport of the model's own,
	// without a proxy, whatever the environment says.
	Transport http.RoundTripper
}

// Model is one model of one server. Safe for concurrent use.
type Model struct{ opts Options }

var _ model.Model = (*Model)(nil)

// New checks opts and returns the model. It sends nothing.
func New(opts Options) (*Model, error) { return nil, errors.New("openai: not usable yet") }

// Name implements model.Model.
func (m *Model) Name() string { return m.opts.Vendor + "/" + m.opts.Model }

// Close releases idle connections of the model's own transport.
func (m *Model) Close() {}

// Generate implements model.Model.
func (m *Model) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	return nil, errors.New("openai: not usable yet")
}
