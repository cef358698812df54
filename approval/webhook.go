package approval

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/rein-sh/rein/secret"
)

// Headers of a webhook's requests and answers.
const (
	HeaderNonce     = "Rein-Nonce"
	HeaderTimestamp = "Rein-Timestamp" // Unix seconds
	HeaderSignature = "Rein-Signature" // v1= and 64 hexadecimal digits
)

// Bounds of a webhook.
const (
	maxReply   = 64 << 10
	maxSkew    = 5 * time.Minute
	minKey     = 16 // bytes of the key
	pollEvery  = 2 * time.Second
	requestMax = time.Minute
)

// WebhookOptions say where a webhook is. URL and Key are required.
type WebhookOptions struct {
	// URL is https, or http to a loopback address. It must hold no password.
	URL string
	// Key signs requests and answers; at least 16 bytes.
	Key secret.Value
	// Transport is http.DefaultTransport when nil.
	Transport http.RoundTripper
}

// Webhook asks over HTTP. The question is posted as JSON:
//
//	{"type": "approval", "question": {…}}
//
// with a fresh nonce, the time and a signature. The answer is
//
//	200 {"id": "…", "nonce": "…", "decision": "approve" or "deny",
//	     "scope": "once" or "run", "by": "…", "reason": "…", "command": "…"}
//
// where id is the question's and nonce the request's; scope, by, reason and
// command, which replaces the question's, may be left out. 202 means that there
// is no answer yet: the question is then posted again, with another nonce, two seconds
// later. One that cannot be reached, 429 and 5xx are an [UndeliveredError].
// Redirects are not followed.
//
// A signature is "v1=" and the hexadecimal HMAC-SHA256, under the key, of
//
//	request (or answer) NEWLINE timestamp NEWLINE nonce NEWLINE body
//
// with the first word in the direction's place, so that a request that comes back is no answer. An answer
// carries the timestamp and signature headers for itself; its timestamp may be five minutes off. An answer
// that is not signed so, or is to another nonce or question, is none.
type Webhook struct {
	url    string
	key    secret.Value
	client *http.Client
}

// CheckWebhookURL says why an address cannot be a webhook's; nil: it can.
func CheckWebhookURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "":
		return errors.New("approval: the webhook's address is no address with a host")
	case u.User != nil:
		return errors.New("approval: the webhook's address holds credentials; the key signs instead")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return errors.New("approval: a webhook that is not on this host is https")
	case u.Scheme != "https" && u.Scheme != "http":
		return errors.New("approval: the webhook's address is no https address")
	}
	return nil
}

// NewWebhook returns a webhook's channel.
func NewWebhook(o WebhookOptions) (*Webhook, error) {
	if err := CheckWebhookURL(o.URL); err != nil {
		return nil, err
	}
	if len(o.Key.Reveal()) < minKey {
		return nil, fmt.Errorf("approval: the webhook's key has less than %d bytes", minKey)
	}
	return &Webhook{url: o.URL, key: o.Key, client: &http.Client{
		Transport:     o.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Name implements Channel.
func (w *Webhook) Name() string { return "webhook" }

// Ask implements Channel.
func (w *Webhook) Ask(ctx context.Context, q Question) (Decision, error) {
	body, err := json.Marshal(webhookRequest{Type: "approval", Question: q})
	if err != nil {
		return Decision{}, err
	}
	for {
		d, later, err := w.post(ctx, q, body)
		if !later {
			return d, err
		}
		timer := time.NewTimer(pollEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return Decision{}, ctx.Err()
		}
	}
}

type webhookRequest struct {
	Type     string   `json:"type"`
	Question Question `json:"question"`
}

// webhookReply is the body of an answer.
type webhookReply struct {
	ID       string `json:"id"`
	Nonce    string `json:"nonce"`
	Decision string `json:"decision"`
	Scope    string `json:"scope"`
	By       string `json:"by"`
	Reason   string `json:"reason"`
	Command  string `json:"command"`
}

// post asks once. Later says that it was delivered, and is not yet answered.
func (w *Webhook) post(ctx context.Context, q Question, body []byte) (d Decision, later bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	var random [16]byte
	rand.Read(random[:]) // never fails
	nonce := hex.EncodeToString(random[:])
	now := strconv.FormatInt(time.Now().Unix(), 10)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return d, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(HeaderNonce, nonce)
	req.Header.Set(HeaderTimestamp, now)
	req.Header.Set(HeaderSignature, Sign(w.key, "request", now, nonce, body))
	var sent atomic.Bool
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) { sent.Store(info.Err == nil) },
	}))
	resp, err := w.client.Do(req)
	switch {
	case err == nil:
	case sent.Load() && ctx.Err() != nil: // it has the question, and takes its time
		return d, true, nil
	default:
		return d, false, unreached(err)
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	switch {
	case resp.StatusCode == http.StatusAccepted:
		return d, true, nil
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return d, false, &UndeliveredError{fmt.Errorf("it answered %s", resp.Status)}
	case resp.StatusCode != http.StatusOK:
		return d, false, fmt.Errorf("it answered %s", resp.Status)
	case err != nil && ctx.Err() != nil:
		return d, true, nil
	case err != nil:
		return d, false, unreached(err)
	case len(reply) > maxReply:
		return d, false, fmt.Errorf("its answer has more than %d bytes", maxReply)
	}
	if err := w.signed(resp.Header, nonce, reply); err != nil {
		return d, false, err
	}
	d, err = parseReply(reply, q.ID, nonce)
	return d, false, err
}

// unreached is a request that got no answer, without the webhook's address,
// whose path or query may be secret.
func unreached(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return &UndeliveredError{fmt.Errorf("its address could not be reached: %w", err)}
}

// signed checks an answer's time and signature.
func (w *Webhook) signed(h http.Header, nonce string, body []byte) error {
	stamp := h.Get(HeaderTimestamp)
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return errors.New("its answer has no timestamp")
	}
	if skew := time.Since(time.Unix(seconds, 0)); skew > maxSkew || skew < -maxSkew {
		return errors.New("its answer's timestamp is more than five minutes off")
	}
	if !hmac.Equal([]byte(h.Get(HeaderSignature)), []byte(Sign(w.key, "answer", stamp, nonce, body))) {
		return errors.New("its answer is not signed with the key")
	}
	return nil
}

// parseReply reads an answer that is known to be signed.
func parseReply(body []byte, id, nonce string) (Decision, error) {
	var r webhookReply
	if !utf8.Valid(body) {
		return Decision{}, errors.New("its answer is no UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return Decision{}, fmt.Errorf("its answer is none: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Decision{}, errors.New("something follows its answer")
	}
	switch {
	case r.ID != id || r.Nonce != nonce:
		return Decision{}, errors.New("its answer is to another question")
	case r.Decision != "approve" && r.Decision != "deny":
		return Decision{}, fmt.Errorf("its decision %q is neither approve nor deny", short(r.Decision))
	case r.Scope != "" && r.Scope != "once" && r.Scope != "run":
		return Decision{}, fmt.Errorf("its scope %q is neither once nor run", short(r.Scope))
	case len(r.By) > 200 || len(r.Reason) > 2000:
		return Decision{}, errors.New("its by has more than 200 bytes, or its reason more than 2000")
	}
	by := "webhook"
	if r.By != "" {
		by += " " + r.By
	}
	return Decision{Approve: r.Decision == "approve", ForRun: r.Scope == "run", Command: r.Command, By: by, Reason: r.Reason}, nil
}

// Sign is the signature of a request or an answer.
func Sign(key secret.Value, direction, timestamp, nonce string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(key.Reveal()))
	fmt.Fprintf(mac, "%s\n%s\n%s\n", direction, timestamp, nonce)
	mac.Write(body)
	return "v1=" + hex.EncodeToString(mac.Sum(nil))
}
