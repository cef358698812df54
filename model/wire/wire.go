// Package wire is the connection between a model's client and its vendor: one
// HTTP request, watched until its reply has ended, and what its failures are.
// What is said on it is the business of the vendors' packages.
//
// It reads no environment variable, uses no proxy it was not given, follows no
// redirect and never retries. A key goes to the configured server only and is
// in no error.
package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/secret"
)

// Defaults of Options.
const (
	DefaultStallTimeout = 60 * time.Second
	DefaultMaxBytes     = 32 << 20
)

// Options are what every vendor's client is made from.
type Options struct {
	BaseURL string // absolute, http or https, without user, query and fragment
	Model   string // as the server names it
	Vendor  string // the first half of Link.Name
	Key     secret.Value

	// StallTimeout is the longest silence of the server, before and during a
	// reply; 0 for DefaultStallTimeout. The whole reply has no limit but ctx.
	StallTimeout time.Duration
	// MaxBytes bounds what is read of one response; 0 for DefaultMaxBytes.
	MaxBytes int64
	// Header is added to each request, for gateways that need it.
	Header http.Header
	// Transport carries the requests. Nil: NewTransport(nil).
	Transport http.RoundTripper
}

// NoKey is given to an SDK that insists on a key where there is none. It is
// never sent.
const NoKey = "there-is-no-key"

// Refusal is what a vendor says in an error's body.
type Refusal struct {
	Kind    model.Kind // "" for KindOfStatus
	Code    string
	Message string
	Hint    string
	// RetryAfter is what the body asks for, apart from its words; a header wins
	// over it.
	RetryAfter time.Duration
	// Reset is when what is used up is there again, if the body does not say
	// so in words.
	Reset time.Time
}

// Link carries the requests of one model. Safe for concurrent use.
type Link struct {
	opts   Options
	refuse func(status int, body []byte) Refusal
	client *http.Client
	own    *http.Transport // nil when Options.Transport is set
}

// NewLink checks opts. refuse reads the body of a response that is not a reply,
// bounded to 64 KiB; its text need not be cleaned.
func NewLink(opts Options, refuse func(status int, body []byte) Refusal) (*Link, error) {
	if opts.StallTimeout == 0 {
		opts.StallTimeout = DefaultStallTimeout
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	l := &Link{opts: opts, refuse: refuse}
	if opts.Transport == nil {
		l.own = NewTransport(nil)
		l.opts.Transport = l.own
	}
	l.client = &http.Client{
		Transport:     (*carrier)(l),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return l, nil
}

func (o Options) check() error {
	u, err := url.Parse(o.BaseURL)
	switch {
	case o.Model == "":
		return errors.New("no model is named")
	case strings.ContainsFunc(o.Model, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return fmt.Errorf("%q is no name of a model", o.Model)
	case o.StallTimeout < 0 || o.MaxBytes < 0:
		return errors.New("a limit is negative")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		// Not with the parser's text: an odd URL may hold a key.
		return errors.New("the base URL is not an http or https URL")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("the base URL must have no user, query or fragment")
	case strings.ContainsFunc(o.Key.Reveal(), func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return fmt.Errorf("the key %s has characters no key has; is there a line end or a space in it?", o.Key)
	}
	return nil
}

// NewTransport is a transport of its own, with a proxy only when one is given.
// It differs from http.DefaultTransport in that: the environment has no say.
func NewTransport(proxy *url.URL) *http.Transport {
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 15 * time.Second,
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     90 * time.Second,
	}
	if proxy != nil {
		t.Proxy = http.ProxyURL(proxy)
	}
	return t
}

// Name is "vendor/model".
func (l *Link) Name() string { return l.opts.Vendor + "/" + l.opts.Model }

// Client is for the vendor's SDK. Its requests must have the context of a Call
// of this link; a response that is not a stream comes out as the error it is.
func (l *Link) Client() *http.Client { return l.client }

// Close releases idle connections of the link's own transport.
func (l *Link) Close() {
	if l.own != nil {
		l.own.CloseIdleConnections()
	}
}

// Errorf is a reply that broke the protocol.
func (l *Link) Errorf(format string, args ...any) error {
	return &model.Error{Kind: model.KindUnknown, Model: l.Name(), Message: l.Clean("the reply is malformed: " + fmt.Sprintf(format, args...))}
}

// Invalid is a request that was not sent, since it cannot be said.
func (l *Link) Invalid(err error) error {
	return &model.Error{Kind: model.KindInvalid, Model: l.Name(), Err: err}
}

// Cut is a reply without its end.
func (l *Link) Cut() error {
	return &model.Error{Kind: model.KindCut, Model: l.Name(), Message: "the reply ended without a finish reason"}
}

// Clean bounds a vendor's text and keeps the key out of it.
func (l *Link) Clean(s string) string {
	if key := l.opts.Key; !key.IsZero() {
		s = strings.ReplaceAll(s, key.Reveal(), key.String())
	}
	const most = 1000
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(strings.TrimSpace(s), "")
}

// carrier is the transport under the SDK.
type carrier Link

// RoundTrip sends one request, once.
func (c *carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	call, ok := r.Context().Value(callKey{}).(*Call)
	if !ok || !call.sent.CompareAndSwap(false, true) {
		// An SDK that repeats a request does what only the caller may.
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, errAgain
	}
	r = r.Clone(r.Context())
	for name, values := range r.Header {
		if len(values) > 0 && strings.HasSuffix(values[0], NoKey) {
			r.Header.Del(name)
		}
	}
	for name, values := range c.opts.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	res, err := c.opts.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	return call.accept(res)
}

var errAgain = errors.New("a request was about to be sent twice")

type callKey struct{}

// Begin starts one request and its clock. End must be called.
func (l *Link) Begin(ctx context.Context) *Call {
	c := &Call{link: l, outer: ctx, left: l.opts.MaxBytes}
	inner, cancel := context.WithCancelCause(ctx)
	c.cancel = cancel
	c.ctx = context.WithValue(inner, callKey{}, c)
	c.timer = time.AfterFunc(l.opts.StallTimeout, func() { cancel(errStalled) })
	return c
}
