package opensandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/rein-sh/rein/internal/retryafter"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// client speaks the lifecycle API. It never follows redirects, which could
// carry the key elsewhere, and uses no proxy of the environment.
type client struct {
	base  *url.URL
	key   secret.Value
	http  *http.Client
	clock *clock
}

func newClient(base *url.URL, key secret.Value, dial func(context.Context, string, string) (net.Conn, error)) *client {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	t := &http.Transport{DialContext: dial, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 30 * time.Second, MaxIdleConnsPerHost: 16}
	return &client{base: base, key: key, clock: &clock{}, http: &http.Client{Transport: t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// maxAnswer bounds what is read of an answer, in bytes; a page of a listing has
// at most pageSize sandboxes.
const maxAnswer = 8 << 20

// Bounds of one request that answers at once, and of a connection for it.
const (
	requestTimeout = 30 * time.Second
	dialTimeout    = 10 * time.Second
)

// answer is an error that the server itself gave: it says what became of the
// request.
type answer struct {
	Status  int
	Code    string
	Message string
	// Wait is what its headers ask for; 0 when they do not.
	Wait time.Duration
}

func (a *answer) Error() string {
	switch {
	case a.Code != "" && a.Message != "":
		return fmt.Sprintf("%s (%s)", a.Message, a.Code)
	case a.Code != "" || a.Message != "":
		return a.Code + a.Message
	}
	return fmt.Sprintf("HTTP status %d %s", a.Status, http.StatusText(a.Status))
}

// unsent is a failure before anything was sent: the request has had no effect.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// unclear is a failure that leaves open what became of the request: the reply
// was lost, or is no reply of the server's own.
type unclear struct{ error }

func (u unclear) Unwrap() error { return u.error }

// do makes one request. in and out may be nil. Errors are *answer, unsent,
// unclear or errTooMany.
func (c *client) do(ctx context.Context, method, path string, query url.Values, in, out any) error {
	u := *c.base
	u.Path += "/v1" + path
	u.RawQuery = query.Encode()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return unsent{err}
		}
		body = bytes.NewReader(b)
	}
	sent := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent = true }})
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return unsent{err}
	}
	req.Header.Set("Accept", "application/json")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if !c.key.IsZero() {
		req.Header.Set(keyHeader, c.key.Reveal())
	}
	started := time.Now()
	resp, err := c.http.Do(req)
	switch {
	case err != nil && !sent:
		return unsent{err}
	case err != nil:
		return unclear{err}
	}
	defer resp.Body.Close()
	c.clock.heard(resp.Header.Get("Date"), started, time.Now())
	return c.read(resp, out)
}

// read takes the answer apart.
func (c *client) read(resp *http.Response, out any) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return refusal(resp, b)
	}
	switch {
	case err != nil:
		return unclear{fmt.Errorf("reading the answer: %w", err)}
	case len(b) > maxAnswer:
		return unclear{fmt.Errorf("the answer is longer than %d bytes", maxAnswer)}
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(b, out); errors.Is(err, errTooMany) {
		return err
	} else if err != nil {
		return unclear{fmt.Errorf("the answer is not what OpenSandbox sends: %w", err)}
	}
	return nil
}

// refusal reads an error: {code, message}, or the {detail} of the framework
// beneath the server. A gateway's own page is neither. With a status that a
// gateway has of its own, as while what is behind it restarts, it leaves open
// whether the request went through, and says nothing of any sandbox.
func refusal(resp *http.Response, body []byte) error {
	a := &answer{Status: resp.StatusCode, Wait: retryafter.Header(resp.Header, time.Now())}
	var wire struct {
		Code, Message string
		Detail        json.RawMessage
	}
	known := json.Unmarshal(body, &wire) == nil
	a.Code, a.Message = shorten(wire.Code), shorten(wire.Message)
	if a.Message == "" {
		a.Message = detail(wire.Detail)
	}
	worded := known && (a.Code != "" || a.Message != "")
	if !worded && (a.Status >= 500 || a.Status == http.StatusNotFound || a.Status == http.StatusGone) {
		return unclear{a}
	}
	return a
}

// noSandbox reports whether the server itself says that there is no such sandbox
// (DOCKER::SANDBOX_NOT_FOUND and the like). Its framework's {"detail": "Not
// Found"}, a pod without an address yet and a gateway's page are 404 too.
func noSandbox(err error) bool {
	a, ok := errors.AsType[*answer](err)
	return ok && (a.Status == http.StatusNotFound || a.Status == http.StatusGone) && strings.HasSuffix(a.Code, "NOT_FOUND")
}

// misdirected reports whether the request met something that knows nothing of
// sandboxes: another address, or a gateway with nothing behind it.
func misdirected(err error) bool {
	a, ok := errors.AsType[*answer](err)
	return ok && (a.Status == http.StatusNotFound || a.Status == http.StatusGone) && (a.Code == "" || strings.HasPrefix(a.Code, "GENERAL::"))
}

// detail is the text of {"detail": "…"} or {"detail": [{loc, msg}]}.
func detail(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return shorten(text)
	}
	var items []struct {
		Loc []any  `json:"loc"`
		Msg string `json:"msg"`
	}
	if json.Unmarshal(raw, &items) != nil {
		return ""
	}
	var parts []string
	for _, i := range items {
		var loc []string
		for _, l := range i.Loc {
			loc = append(loc, fmt.Sprint(l))
		}
		parts = append(parts, strings.Join(loc, ".")+": "+i.Msg)
	}
	return shorten(strings.Join(parts, "; "))
}

// maxMessage bounds what is kept of a message of the server's.
const maxMessage = 500

func shorten(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	if r := []rune(s); len(r) > maxMessage {
		return string(r[:maxMessage]) + "…"
	}
	return s
}

// Repetition of requests: full jitter, so that many clients do not come back at
// once.
const (
	tries     = 5
	firstWait = 200 * time.Millisecond
	mostWait  = 5 * time.Second
)

// patience is how long a request whose context has no end takes, all its
// repetitions and the listing it is a part of with it: a server may ask again and
// again to wait, or send one byte a second.
const patience = sandbox.DefaultOpTimeout

// again makes a request that may be made more than once. It is repeated when
// it was not sent, when the server asks for it, and when its reply was lost.
func (c *client) again(ctx context.Context, method, path string, query url.Values, in, out any) error {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	for try := 1; ; try++ {
		short, cancel := context.WithTimeout(ctx, requestTimeout)
		err := c.do(short, method, path, query, in, out)
		cancel()
		if err == nil || ctx.Err() != nil || !temporary(err) {
			return err
		}
		if asked := asksToWait(err); try >= tries && asked == 0 || !pause(ctx, try, asked) {
			return err
		}
	}
}

// bounded gives ctx an end if it has none.
func bounded(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, most)
}

// temporary reports whether a request that may be repeated should be.
func temporary(err error) bool {
	if _, ok := errors.AsType[unclear](err); ok {
		return true
	}
	if a, ok := errors.AsType[*answer](err); ok {
		switch a.Status {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	return !errors.Is(err, errTooMany)
}

func asksToWait(err error) time.Duration {
	if a, ok := errors.AsType[*answer](err); ok {
		return a.Wait
	}
	return 0
}

// pause waits before the next try: as long as the server asks, or with full
// jitter. It returns false, at once, when ctx ends before.
func pause(ctx context.Context, try int, asked time.Duration) bool {
	wait := asked
	if wait == 0 {
		wait = rand.N(min(firstWait<<min(try-1, 8), mostWait))
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= wait {
		return false
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// fault makes a *sandbox.Error of what a request gave.
func (p *Provider) fault(ctx context.Context, op, subject string, err error) error {
	if err == nil || sandbox.KindOf(err) != "" {
		return err
	}
	e := &sandbox.Error{Op: op, Subject: subject, Err: err}
	a, answered := errors.AsType[*answer](err)
	switch {
	case errors.Is(err, errTooMany):
		e.Kind = sandbox.KindTooLarge
	case ctx.Err() != nil && !answered:
		e.Kind, e.Err = sandbox.KindTimeout, context.Cause(ctx)
	case answered && misdirected(a):
		e.Kind, e.Hint = sandbox.KindUnavailable, "what answers at "+p.server.base.Host+" is not the lifecycle API: is the address right, and the server up behind it?"
	case answered:
		e.Kind, e.Hint = kindOf(a), hintOf(a)
	default:
		e.Kind, e.Hint = sandbox.KindUnavailable, "is the server at "+p.server.base.Host+" up, and reachable from here?"
	}
	return e
}

// kindOf says what kind of failure an answer is.
func kindOf(a *answer) sandbox.Kind {
	if refusesPolicy(a) {
		return sandbox.KindUnsupported
	}
	switch a.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestedRangeNotSatisfiable:
		if strings.HasSuffix(a.Code, "NOT_SUPPORTED") {
			return sandbox.KindUnsupported
		}
		return sandbox.KindInvalid
	case http.StatusUnauthorized, http.StatusForbidden:
		return sandbox.KindDenied
	case http.StatusNotFound, http.StatusGone:
		if noSandbox(a) {
			return sandbox.KindNotFound
		}
		return sandbox.KindUnavailable
	case http.StatusConflict:
		return sandbox.KindConflict
	case http.StatusRequestEntityTooLarge:
		return sandbox.KindTooLarge
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return sandbox.KindUnsupported
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return sandbox.KindUnavailable
	}
	return sandbox.KindHost
}

// refusesPolicy reports whether the server, as it is set up, takes no network
// policy: with Docker's host network or a network of its own, or without an
// image for the sidecar.
func refusesPolicy(a *answer) bool {
	text := strings.ToLower(a.Message)
	return a.Status == http.StatusBadRequest && (strings.Contains(text, "networkpolicy") || strings.Contains(text, "network_mode") || strings.Contains(text, "egress.image") || strings.Contains(text, "credentialproxy"))
}

func hintOf(a *answer) string {
	switch {
	case refusesPolicy(a):
		return `every sandbox is made with the network rule "default: deny": in the server's configuration set network_mode = "bridge" under [docker], and image = "…" and mode = "dns+nft" under [egress]`
	case a.Status == http.StatusUnauthorized:
		return "the server wants an API key: name where it is under key: of the target"
	case strings.Contains(a.Code, "QUOTA"):
		return "a quota of the server is used up"
	case a.Status == http.StatusForbidden:
		return "the API key may not do this"
	case a.Wait > 0 && kindOf(a) == sandbox.KindUnavailable:
		return fmt.Sprintf("the server asks to wait %v", a.Wait)
	case strings.HasSuffix(a.Code, "POD_READY_TIMEOUT"):
		return "the sandbox was not ready in the server's time: is there room for it, and can its image be pulled?"
	case strings.HasSuffix(a.Code, "IMAGE_PULL_FAILED"):
		return "check the image's name, and that the server may pull it"
	case strings.HasSuffix(a.Code, "INVALID_PARAMETER") && strings.Contains(strings.ToLower(a.Message), "timeout"):
		return "give a shorter --ttl, or raise max_sandbox_timeout_seconds of the server"
	case a.Status == http.StatusMovedPermanently || a.Status == http.StatusFound || a.Status == http.StatusTemporaryRedirect || a.Status == http.StatusPermanentRedirect:
		return "the address redirects; give the one that answers itself"
	}
	return ""
}
