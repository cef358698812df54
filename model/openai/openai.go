// Package openai speaks OpenAI's Chat Completions with the official SDK, to
// OpenAI itself or to any server with the same protocol.
//
// It reads no environment variable, uses no proxy it was not given, follows no
// redirect, and never retries: the caller decides that. The key is sent to the
// configured server only and is in no error.
package openai

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/secret"
)

// Defaults of Options.
const (
	DefaultBaseURL      = "https://api.openai.com/v1"
	DefaultVendor       = "openai"
	DefaultStallTimeout = 60 * time.Second
	DefaultMaxBytes     = 32 << 20
)

// Options configure a model. Only Model is required.
type Options struct {
	BaseURL string       // up to and including "/v1"; empty for DefaultBaseURL
	Model   string       // as the server names it
	Key     secret.Value // sent as a bearer token; none is sent when zero
	Vendor  string       // the first half of Name; empty for DefaultVendor

	// StallTimeout is the longest silence of the server, before and during a
	// reply; 0 for DefaultStallTimeout. The whole reply has no limit but ctx.
	StallTimeout time.Duration
	// MaxBytes bounds what is read of one response; 0 for DefaultMaxBytes.
	MaxBytes int64

	// LegacyMaxTokens sends the output cap as max_tokens, for servers that do
	// not know max_completion_tokens.
	LegacyMaxTokens bool
	// NoStreamUsage leaves out stream_options, for servers that refuse it.
	// Usage is then unknown, unless the server tells unasked.
	NoStreamUsage bool

	// Header is added to each request, for gateways that need it.
	Header http.Header
	// Transport carries the requests. Nil: a transport of the model's own,
	// without a proxy, whatever the environment says.
	Transport http.RoundTripper
}

// Model is one model of one server. Safe for concurrent use.
type Model struct {
	opts    Options
	service sdk.ChatCompletionService
	own     *http.Transport // nil when Options.Transport is set
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
	if opts.StallTimeout == 0 {
		opts.StallTimeout = DefaultStallTimeout
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	m := &Model{opts: opts}
	transport := opts.Transport
	if transport == nil {
		m.own = newTransport()
		transport = m.own
	}
	options := []option.RequestOption{
		option.WithBaseURL(opts.BaseURL),
		option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
	}
	if !opts.Key.IsZero() {
		options = append(options, option.WithAPIKey(opts.Key.Reveal()))
	}
	for name, values := range opts.Header {
		for i, v := range values {
			if i == 0 {
				options = append(options, option.WithHeader(name, v))
			} else {
				options = append(options, option.WithHeaderAdd(name, v))
			}
		}
	}
	// The service, unlike the SDK's client, takes nothing from OPENAI_* variables.
	m.service = sdk.NewChatCompletionService(options...)
	return m, nil
}

func (o Options) check() error {
	u, err := url.Parse(o.BaseURL)
	switch {
	case o.Model == "":
		return errors.New("openai: no model is named")
	case o.StallTimeout < 0 || o.MaxBytes < 0:
		return errors.New("openai: a limit is negative")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		// Not with the parser's text: an odd URL may hold a key.
		return errors.New("openai: the base URL is not an http or https URL")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("openai: the base URL must have no user, query or fragment")
	case strings.ContainsFunc(o.Key.Reveal(), func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return fmt.Errorf("openai: the key %s has characters no key has; is there a line end or a space in it?", o.Key)
	}
	return nil
}

// newTransport differs from http.DefaultTransport in what it must not do: take
// a proxy from the environment.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 15 * time.Second,
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     90 * time.Second,
	}
}

// Name implements model.Model.
func (m *Model) Name() string { return m.opts.Vendor + "/" + m.opts.Model }

// Close releases idle connections of the model's own transport.
func (m *Model) Close() {
	if m.own != nil {
		m.own.CloseIdleConnections()
	}
}

// Generate implements model.Model. It always streams.
func (m *Model) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	params, err := m.params(req)
	if err != nil {
		return nil, &model.Error{Kind: model.KindInvalid, Model: m.Name(), Err: err}
	}
	if emit == nil {
		emit = func(model.Delta) {}
	}
	w := newWatch(ctx, m.opts.StallTimeout, m.opts.MaxBytes)
	defer w.stop()

	stream := m.service.NewStreaming(w.ctx, params, option.WithMiddleware(
		func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			res, err := next(r)
			if err != nil {
				return nil, err
			}
			return m.accept(w, res)
		}))
	acc := accumulator{emit: emit, model: m.Name(), turn: len(req.Messages)}
	for stream.Next() {
		chunk := stream.Current()
		if err := acc.add(&chunk); err != nil {
			_ = stream.Close() // what matters has already gone wrong
			return nil, err
		}
	}
	if err := stream.Err(); err != nil {
		return nil, m.failure(ctx, w, err)
	}
	return acc.finish()
}
