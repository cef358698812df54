package execd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/secret"
)

// Options say how a Client reaches a daemon.
type Options struct {
	// BaseURL is scheme, host and path prefix, without a trailing slash.
	BaseURL string
	// Header is sent with every request.
	Header http.Header
	// Token is sent in TokenHeader; empty when Header has it or none is needed.
	Token secret.Value
	// DialContext, when set, is used instead of the network. The environment's
	// proxies are never used.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client speaks execd's API. It is safe for concurrent use. Nothing is retried:
// the caller knows what may be done twice. Errors of the daemon are *Error;
// others are errors of the connection, and after them the outcome is unknown.
type Client struct {
	opts atomic.Pointer[Options]
	http *http.Client
}

// NewClient returns a client. It connects with the first request; Close
// releases its connections.
func NewClient(opts Options) *Client {
	c := &Client{}
	c.opts.Store(tidy(opts))
	idle := remoteIdle
	if opts.DialContext != nil {
		idle = dialledIdle
	}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if dial := c.opts.Load().DialContext; dial != nil {
				return dial(ctx, network, address)
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     idle,
		DisableCompression:  true,     // lengths and ranges are of the file
		ReadBufferSize:      16 << 10, // kept by each connection, also idle ones of a thousand runs
	}
	c.http = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return c
}

// How long connections are kept for the next request. Each costs some 50 KiB
// here, as much at its other end, and a model often takes longer to answer: where
// Options.DialContext leads to this machine, another one costs next to nothing.
const (
	remoteIdle  = 90 * time.Second
	dialledIdle = time.Second
)

func tidy(opts Options) *Options {
	opts.BaseURL = strings.TrimSuffix(opts.BaseURL, "/")
	return &opts
}

// Relocate has later requests reach the daemon in another way: the address of a
// sandbox may change when it is resumed.
func (c *Client) Relocate(opts Options) {
	c.opts.Store(tidy(opts))
	c.http.CloseIdleConnections()
}

// Close releases idle connections. Requests under way are not affected.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// send makes a request and returns the response if its status is a success.
func (c *Client) send(ctx context.Context, method, route string, query url.Values, contentType string, body io.Reader) (*http.Response, error) {
	u := c.opts.Load().BaseURL + route
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, fmt.Errorf("execd: %w", err)
	}
	return c.do(req, contentType)
}

func (c *Client) do(req *http.Request, contentType string) (*http.Response, error) {
	opts := c.opts.Load()
	maps.Copy(req.Header, opts.Header)
	if !opts.Token.IsZero() {
		req.Header.Set(TokenHeader, opts.Token.Reveal())
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("execd: %w", err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer resp.Body.Close()
		return nil, responseError(resp)
	}
	return resp, nil
}

// maxErrorBody bounds what is read of an error's body.
const maxErrorBody = 64 << 10

// responseError reads {code, message}; other daemons also send {"error":…} and
// plain text.
func responseError(resp *http.Response) error {
	e := &Error{Status: resp.StatusCode}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil && len(b) == 0 {
		e.Message = resp.Status
		return e
	}
	var body struct {
		Code, Message, Error string
	}
	if json.Unmarshal(b, &body) == nil && (body.Code != "" || body.Message != "" || body.Error != "") {
		e.Code, e.Message = body.Code, body.Message
		if e.Message == "" {
			e.Message = body.Error
		}
		return e
	}
	if e.Message = strings.ToValidUTF8(strings.TrimSpace(string(b)), "\uFFFD"); e.Message == "" {
		e.Message = resp.Status
	}
	return e
}

// maxAnswer bounds a JSON answer, in bytes: that of a listing of some 200,000
// files. A daemon in a sandbox is not trusted to know an end.
const maxAnswer = 64 << 20

// call makes a request with a JSON body (nil: none) and decodes the answer into
// out (nil: none). An answer longer than maxAnswer is an *Error with
// CodeTooLarge, although the request may have been carried out.
func (c *Client) call(ctx context.Context, method, route string, query url.Values, in, out any) error {
	var body io.Reader
	var contentType string
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("execd: %w", err)
		}
		body, contentType = bytes.NewReader(b), "application/json"
	}
	resp, err := c.send(ctx, method, route, query, contentType, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		io.Copy(io.Discard, io.LimitReader(resp.Body, maxErrorBody)) // so that the connection is used again
		return nil
	}
	answer := &io.LimitedReader{R: resp.Body, N: maxAnswer}
	if resp.ContentLength > maxAnswer {
		answer.N = 0
	}
	err = json.NewDecoder(answer).Decode(out)
	switch {
	case err != nil && answer.N == 0:
		return &Error{Status: http.StatusRequestEntityTooLarge, Code: CodeTooLarge,
			Message: fmt.Sprintf("the answer to %s %s is longer than %d bytes", method, route, maxAnswer)}
	case err != nil:
		return fmt.Errorf("execd: answer to %s %s: %w", method, route, err)
	}
	return nil
}

// Ping returns nil when the daemon answers.
func (c *Client) Ping(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/ping", nil, nil, nil)
}

// Features says which of rein's additions the daemon honours. One without the
// route honours none, which is not an error.
func (c *Client) Features(ctx context.Context) (Features, error) {
	var f Features
	err := c.call(ctx, http.MethodGet, "/rein/features", nil, nil, &f)
	if e, ok := err.(*Error); ok && e.Status == http.StatusNotFound {
		return Features{}, nil
	}
	return f, err
}

// PortOwner returns the id of the command that holds a TCP socket, "" when none
// does.
func (c *Client) PortOwner(ctx context.Context, s Socket) (string, error) {
	o, err := c.Owner(ctx, s)
	return o.ID, err
}

// Owner returns all that is known of who holds a TCP socket.
func (c *Client) Owner(ctx context.Context, s Socket) (PortOwner, error) {
	q := url.Values{"local": {fmt.Sprint(s.Local.Port())}}
	if s.Local.IsValid() && s.Remote.IsValid() {
		q = url.Values{"local": {s.Local.String()}, "remote": {s.Remote.String()}}
	}
	var o PortOwner
	err := c.call(ctx, http.MethodGet, "/rein/port", q, nil, &o)
	return o, err
}

// Pause stops every process of commands and returns when none runs any more.
// Until Resume the daemon refuses everything else with CodeConflict, and output
// that is being streamed stands still. The timeouts of commands go on.
func (c *Client) Pause(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/rein/pause", nil, nil, nil)
}

// Resume undoes Pause.
func (c *Client) Resume(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/rein/resume", nil, nil, nil)
}

// Clear ends every process that commands, sessions, terminals and the image's
// entrypoint have started, whatever it did to get away, and returns when none is
// left. CodeNotFound from a daemon that is not ours.
func (c *Client) Clear(ctx context.Context) (Cleared, error) {
	var out Cleared
	err := c.call(ctx, http.MethodPost, "/rein/clear", nil, nil, &out)
	return out, err
}

// Metrics returns the sandbox's use of its resources.
func (c *Client) Metrics(ctx context.Context) (Metrics, error) {
	var m Metrics
	err := c.call(ctx, http.MethodGet, "/metrics", nil, nil, &m)
	return m, err
}

// Status returns what is known of a command; CodeCommandNotFound (or status
// 404) when the daemon does not know the id.
func (c *Client) Status(ctx context.Context, id string) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, "/command/status/"+url.PathEscape(id), nil, nil, &s)
	return s, err
}

// Interrupt ends a running command and everything it started. Our daemon
// answers when it has ended, and with CodeConflict when it had ended before.
func (c *Client) Interrupt(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/command", url.Values{"id": {id}}, nil, nil)
}

// MaxLog is how much of a log one call of Logs returns.
const MaxLog = 1 << 20

// Logs returns at most MaxLog bytes of a background command's log from the
// byte cursor on, and the cursor to go on from. No bytes means that there are
// none yet.
func (c *Client) Logs(ctx context.Context, id string, cursor int64) ([]byte, int64, error) {
	q := url.Values{"cursor": {fmt.Sprint(cursor)}, "limit": {fmt.Sprint(MaxLog)}}
	resp, err := c.send(ctx, http.MethodGet, "/command/"+url.PathEscape(id)+"/logs", q, "", nil)
	if err != nil {
		return nil, cursor, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, MaxLog))
	if err != nil {
		return nil, cursor, fmt.Errorf("execd: logs of %s: %w", id, err)
	}
	// The cursor is a byte offset, so it follows from what was read; a daemon
	// that knows no limit would give one that is too far.
	return b, cursor + int64(len(b)), nil
}
