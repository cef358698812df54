package wire

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/internal/retryafter"
	"github.com/rein-sh/rein/model"
)

var (
	errStalled = errors.New("the server was silent for too long")
	errTooLong = errors.New("the response is too long")
)

// maxErrorBody is how much is read of a response that is not a reply.
const maxErrorBody = 64 << 10

// Call is one request and its response. It ends a response that is silent too
// long or says too much.
type Call struct {
	link   *Link
	outer  context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	sent   atomic.Bool

	body io.ReadCloser
	left int64
	// broken is set when reading the body failed before its end.
	broken error
}

// Context is the request's.
func (c *Call) Context() context.Context { return c.ctx }

// End stops the clock and whatever is still under way.
func (c *Call) End() {
	c.timer.Stop()
	c.cancel(nil)
}

// accept takes a response that is a stream and turns every other one into an
// error. The clock runs while the reader waits for bytes, not while it works
// on them.
func (c *Call) accept(res *http.Response) (*http.Response, error) {
	c.timer.Stop()
	c.body = res.Body
	res.Body = (*body)(c)
	mediaType, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	page := mediaType == "text/html" || mediaType == "application/xhtml+xml"
	if res.StatusCode == http.StatusOK && mediaType != "application/json" && !page {
		return res, nil
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // of a broken one the status says enough
	_ = res.Body.Close()
	if c.broken != nil {
		text = nil
	}
	e := &model.Error{Model: c.link.Name(), Status: res.StatusCode}
	switch {
	case res.StatusCode >= 300 && res.StatusCode < 400:
		e.Kind, e.Message = model.KindUnknown, "the server redirects, which is not followed"
		e.Hint = "set the base URL to where it redirects"
	case res.StatusCode == http.StatusOK && page:
		e.Kind, e.Message = model.KindUnknown, "the server answered with a web page instead of a reply"
		e.Hint = "the base URL " + c.link.opts.BaseURL + " is not that of an API"
	case res.StatusCode == http.StatusOK:
		e.Kind, e.Message = model.KindUnknown, "the server answered a stream request with plain JSON"
		e.Hint = "the server does not stream, or the base URL is another API's"
		if r := c.link.refuse(res.StatusCode, text); r.Message != "" { // an error under a good status
			e.Kind, e.Code, e.Message, e.Hint = cmp.Or(r.Kind, model.KindUnknown), c.link.Clean(r.Code), c.link.Clean(r.Message), r.Hint
		}
	default:
		if mediaType != "" && mediaType != "text/plain" && !strings.HasSuffix(mediaType, "json") {
			text = nil // not for people to read, and not of the protocol
		}
		c.link.refused(e, text, mediaType, retryafter.Header(res.Header, time.Now()))
		if page && e.Kind == model.KindNotFound {
			e.Hint = "a web server answered, not an API; check the base URL " + c.link.opts.BaseURL
		}
	}
	return nil, e
}

// refused fills in what a vendor said of an error with a status. asked is the
// wait that its headers ask for.
func (l *Link) refused(e *model.Error, text []byte, mediaType string, asked time.Duration) {
	r := l.refuse(e.Status, text)
	if r.Message == "" && mediaType == "text/plain" {
		r.Message = string(text)
	}
	e.Kind, e.Code, e.Message, e.Hint = r.Kind, l.Clean(r.Code), l.Clean(r.Message), r.Hint
	if e.Kind == "" {
		e.Kind = KindOfStatus(e.Status)
	}
	if e.Message == "" {
		e.Message = http.StatusText(e.Status)
	}
	e.RetryAfter = cmp.Or(asked, r.RetryAfter, retryafter.Text(string(text)))
	e.Reset = resetOf(e, r.Reset, string(text))
	if e.Hint != "" {
		return
	}
	switch e.Kind {
	case model.KindAuth:
		e.Hint = "check the key and that it belongs to " + l.opts.BaseURL
	case model.KindNotFound:
		e.Hint = "check the model's name and the base URL " + l.opts.BaseURL
	case model.KindForbidden:
		e.Hint = "the key may not use this model, or not from here"
	case model.KindQuota:
		e.Hint = "the account has no credit left, or its spending limit is reached"
	}
}

// resetOf is when what is used up is there again: as the vendor's package, its
// words, or (of a quota) the wait it asks for say.
func resetOf(e *model.Error, known time.Time, text string) time.Time {
	if e.Kind != model.KindQuota && e.Kind != model.KindRateLimit {
		return time.Time{}
	}
	now := time.Now()
	if at := retryafter.Reset(text, now); known.IsZero() && !at.IsZero() {
		return at
	}
	if known.IsZero() && e.RetryAfter > 0 && e.Kind == model.KindQuota {
		return now.Add(e.RetryAfter).UTC()
	}
	return known
}

// KindOfStatus classifies by HTTP status alone.
func KindOfStatus(status int) model.Kind {
	switch status {
	case http.StatusTooManyRequests:
		return model.KindRateLimit
	case http.StatusUnauthorized:
		return model.KindAuth
	case http.StatusPaymentRequired:
		return model.KindQuota
	case http.StatusForbidden:
		return model.KindForbidden
	case http.StatusNotFound:
		return model.KindNotFound
	case http.StatusRequestEntityTooLarge:
		return model.KindContext
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return model.KindTimeout
	case http.StatusServiceUnavailable, 529:
		return model.KindOverloaded
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity:
		return model.KindInvalid
	}
	if status >= 500 {
		return model.KindUnavailable
	}
	return model.KindUnknown
}

// InStream is an error that came as an event, which has no status of its own:
// status is the one that says the same, 0 for none.
func (c *Call) InStream(status int, text []byte) error {
	e := &model.Error{Model: c.link.Name(), Status: status}
	c.link.refused(e, text, "", 0)
	e.Status = http.StatusOK
	return e
}

// Failure is what ended a request or its reply other than a vendor's word: the
// caller, the clock, the connection. err is the SDK's, nil for a stream that
// ended without one. It returns nil when nothing of that happened and err is
// nil, and a malformed reply for any other err.
func (c *Call) Failure(err error) error {
	if known, ok := errors.AsType[*model.Error](err); ok {
		return known
	}
	e := &model.Error{Kind: model.KindUnknown, Model: c.link.Name()}
	switch {
	case c.outer.Err() != nil && (err != nil || c.broken != nil):
		e.Err = c.outer.Err()
		if errors.Is(e.Err, context.DeadlineExceeded) {
			e.Kind = model.KindTimeout
		}
		return e
	case errors.Is(context.Cause(c.ctx), errStalled):
		e.Kind, e.Err = model.KindTimeout, errStalled
		e.Message = fmt.Sprintf("nothing came for %v", c.link.opts.StallTimeout)
		return e
	case errors.Is(c.broken, errTooLong) || errors.Is(err, bufio.ErrTooLong):
		e.Message = fmt.Sprintf("the response is longer than %d bytes", c.link.opts.MaxBytes)
		return e
	case c.broken != nil:
		e.Kind, e.Err = model.KindCut, c.broken
		e.Message = "the connection broke in the middle of the reply"
		return e
	case err == nil:
		return nil
	}
	if c.body == nil {
		return c.unreachable(e, err)
	}
	e.Message = "the reply is malformed: an event is not JSON of the protocol"
	return e
}

// unreachable is for requests without a response.
func (c *Call) unreachable(e *model.Error, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	e.Kind, e.Message, e.Err = model.KindUnavailable, c.link.Clean(err.Error()), cleaned{err, c.link.Clean(err.Error())}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		e.Kind = model.KindUnknown
		e.Hint = "the server's certificate is not trusted here"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		e.Kind = model.KindUnknown
		e.Hint = "the server does not speak TLS there: is the base URL http, not https?"
	}
	return e
}

// cleaned is a cause whose text has no key in it.
type cleaned struct {
	err  error
	text string
}

func (c cleaned) Error() string { return c.text }
func (c cleaned) Unwrap() error { return c.err }

// body is a call's response. To its reader a broken one only ends, so that no
// SDK makes its own sense of that; Failure knows.
type body Call

func (b *body) Read(p []byte) (int, error) {
	if b.broken != nil {
		return 0, io.EOF
	}
	if b.left == 0 {
		b.broken = errTooLong
		return 0, io.EOF
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	b.timer.Reset(b.link.opts.StallTimeout)
	n, err := b.body.Read(p)
	b.timer.Stop()
	b.left -= int64(n)
	if err != nil && err != io.EOF {
		b.broken, err = err, io.EOF
	}
	return n, err
}

func (b *body) Close() error {
	_ = b.body.Close() // all that mattered has been read
	return nil
}
