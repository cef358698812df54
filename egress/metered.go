package egress

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
)

const reasonClosed = "the owner of this sandbox that had it has gone, or there was none"

// maxEndedError bounds what is said of an end, in bytes.
const maxEndedError = 200

// metered is one request to a host of models that a model answers, from its
// judgement to its end. It is of one goroutine.
type metered struct {
	w     *web
	call  inference.Call
	ask   *inference.Request
	begun time.Time
	end   func(inference.Ended) // nil: nothing was granted

	sent   atomic.Bool // of the request, something
	status int         // of the answer
	answer *inference.Answer
	whole  bool   // the answer's body has come to its end
	failed string // why there is no answer, or no more of it
}

// meteredKey is where the context of a request has its *metered.
type meteredKey struct{}

func meteredOf(r *http.Request) *metered {
	m, _ := r.Context().Value(meteredKey{}).(*metered)
	return m
}

// serveModel carries a request to a host of models, which was judged by its head.
func (w *web) serveModel(rw http.ResponseWriter, r *http.Request, grant *vault.Grant) {
	m := &metered{w: w, begun: time.Now()}
	m.call, _ = w.f.model.call(r.Method, requestPath(r))
	switch {
	case w.f.gateway.opts.Meter == nil:
		m.refuse(rw, r, string(inference.StopClosed), reasonClosed)
		return
	case m.call.API == "":
		r.Body, r.Trailer = http.NoBody, nil
		w.carry(rw, r, grant)
		return
	}
	body, err := w.readBody(r)
	defer body.release()
	if err == nil {
		err = grant.Look(body.plain)
	}
	if err == nil && packed(r) && !grant.Changes() {
		err = grant.Look(body.raw) // which may have more than what comes out of it
	}
	if err != nil {
		w.fail(rw, r, err)
		return
	}
	defer m.settle()
	out, ok := m.begin(rw, r, body)
	if !ok {
		return
	}
	body.send(r, out, grant.Changes())
	r = r.WithContext(context.WithValue(r.Context(), meteredKey{}, m))
	w.carry(rw, r, grant)
}

// begin judges a request by its body and asks for what it may come to. It returns
// the body to be sent, or has refused the request.
func (m *metered) begin(rw http.ResponseWriter, r *http.Request, body *kept) (out []byte, ok bool) {
	w, g := m.w, m.w.f.gateway
	target := requestPath(r)
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	kind := "" // several are none: who reads which is not known
	if list := r.Header.Values("Content-Type"); len(list) == 1 {
		kind = list[0]
	}
	ask, err := g.models.read(r, m.call, target, kind, body, w.f.model.Rules)
	if over, is := errors.AsType[*refusal](err); is {
		w.fail(rw, r, over)
		return nil, false
	}
	if err != nil {
		code := inference.RefuseForm
		if no, is := errors.AsType[*inference.Refusal](err); is {
			code = no.Code
		}
		m.refuse(rw, r, string(code), err.Error())
		return nil, false
	}
	if m.ask = ask; ask.Free {
		return ask.Body(0), true
	}
	most, likely, turn := g.models.counter.Input(ask)
	grant, end, err := g.opts.Meter.Begin(r.Context(), inference.Ask{Host: w.f.model.Name, API: m.call.API, Model: ask.Model, Stream: ask.Stream,
		Input: most, Likely: likely, Output: ask.Output, Least: ask.LeastOf(r.Header), Turn: turn, CallID: w.f.awaitOwner()})
	switch {
	case r.Context().Err() != nil: // the client has gone
		if end != nil && err == nil && grant.Stop == nil {
			end(inference.Ended{DurationMS: m.lasted()})
		}
		panic(http.ErrAbortHandler)
	case err != nil:
		m.refuse(rw, r, string(inference.StopClosed), reasonClosed)
		return nil, false
	case grant.Stop != nil:
		m.refuse(rw, r, string(grant.Stop.Code), grant.Stop.Reason)
		return nil, false
	}
	m.end = end
	if grant.Output < max(1, ask.LeastOf(r.Header)) { // who keeps the budget does not know of Least
		m.refuse(rw, r, string(inference.StopBudget), "its vendor answers no such request with the tokens that are left")
		return nil, false
	}
	return ask.Body(grant.Output), true
}

// read judges a request. So many at a time: a body that is judged takes many times
// its bytes.
func (m *models) read(r *http.Request, call inference.Call, target, kind string, body *kept, rules inference.Rules) (*inference.Request, error) {
	if err := inference.ReadHeader(call.API, r.Header, rules); err != nil {
		return nil, err
	}
	select {
	case m.reading <- struct{}{}:
		defer func() { <-m.reading }()
	case <-r.Context().Done():
		panic(http.ErrAbortHandler) // the client has gone
	}
	ask, err := inference.Read(call, target, kind, body.plain, rules)
	if err == nil {
		err = body.hold(ask.Held())
	}
	return ask, err
}

// refuse records that the request must not go on, and tells the client in its
// vendor's words.
func (m *metered) refuse(rw http.ResponseWriter, r *http.Request, code, reason string) {
	v := policy.Verdict{Proto: policy.HTTPS, Rule: ruleModel + code, Reason: reason}
	if m.call.API == "" {
		m.w.refuse(rw, r, &refusal{v})
		return
	}
	m.w.f.deny(v)
	status, fields, body := inference.Refuse(m.call.API, inference.Stop{Code: inference.StopCode(code), Reason: reason}, m.ask != nil && m.ask.Stream)
	h := rw.Header()
	for name, values := range fields {
		h[name] = values
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	rw.WriteHeader(status)
	_, _ = rw.Write(body) // fails when the client has gone
}

// watch notes when something of the request goes out.
func (m *metered) watch(out *http.Request) *http.Request {
	sent := func() { m.sent.Store(true) }
	return out.WithContext(httptrace.WithClientTrace(out.Context(), &httptrace.ClientTrace{
		WroteHeaders: sent, WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil {
				sent()
			}
		}}))
}

// answered has the usage read from an answer, as it passes.
func (m *metered) answered(resp *http.Response) error {
	m.status = resp.StatusCode
	kind := resp.Header.Get("Content-Type")
	if coding := resp.Header.Values("Content-Encoding"); len(coding) > 0 { // of a type that is no text
		plain, err := m.w.vault().Decode(coding, resp.Body)
		if err != nil {
			return err
		}
		resp.Body = plain
		resp.Header.Del("Content-Encoding")
	}
	resp.Header.Del("Content-Length") // the end is told when it has been counted
	resp.ContentLength = -1
	m.answer = inference.NewAnswer(m.call.API, m.ask.Stream, kind)
	resp.Body = &read{resp.Body, m}
	return nil
}

// read is the body of an answer.
type read struct {
	io.ReadCloser
	m *metered
}

func (b *read) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	_, _ = b.m.answer.Write(p[:n]) // never fails
	switch {
	case errors.Is(err, io.EOF):
		b.m.whole = true
	case err != nil:
		b.m.failed = toldOf(err)
	}
	return n, err
}

// settle says what became of the request, once.
func (m *metered) settle() {
	e := inference.Ended{Status: m.status, Sent: m.sent.Load(), Error: m.failed, DurationMS: m.lasted()}
	if e.Cut = e.Sent; m.answer != nil {
		u, complete, code := m.answer.End(!m.whole)
		e.Usage, e.Cut, e.Error = u, !complete, code
		if e.Cut {
			e.Error = cmp.Or(code, m.failed)
		}
		if !m.ask.Free {
			m.w.f.gateway.models.counter.Answered(m.ask, u)
		}
	}
	if m.end == nil { // it costs nothing
		return
	}
	if len(e.Error) > maxEndedError {
		e.Error = e.Error[:maxEndedError]
	}
	m.end(e)
}

func (m *metered) lasted() int64 { return time.Since(m.begun).Milliseconds() }

// The bounds of bodies: of one, packed and unpacked, and of all that are held for
// the sandbox, in bytes.
const (
	maxBody  = 32 << 20
	maxKept  = 256 << 20
	bodyStep = 64 << 10

	maxReading = 4 // bodies that are judged at a time
)

// kept is the body of a request, read to its end.
type kept struct {
	raw, plain []byte // the same where it came unpacked
	models     *models
	taken      int64
}

// hold takes memory for the request; beyond maxKept there is none.
func (k *kept) hold(n int64) error {
	if k.models.kept.Add(n) > maxKept {
		k.models.kept.Add(-n)
		return overLimit("bodies", "requests to models with %d bytes are being carried", maxKept)
	}
	k.taken += n
	return nil
}

// release gives back what the body took.
func (k *kept) release() { k.models.kept.Add(-k.taken) }

// packed reports whether the body of a request came with a coding.
func packed(r *http.Request) bool { return r.Header.Values("Content-Encoding") != nil }

// send has the request carry out, or what came where that is the same.
func (k *kept) send(r *http.Request, out []byte, exchanged bool) {
	changed := len(out) != len(k.plain) || len(out) > 0 && &out[0] != &k.plain[0]
	switch {
	case packed(r) && !changed && !exchanged:
		out = k.raw
	case packed(r):
		r.Header.Del("Content-Encoding")
	}
	if changed {
		for _, name := range []string{"Content-Md5", "Digest", "Content-Digest", "Repr-Digest"} {
			r.Header.Del(name)
		}
	}
	r.Header.Del("Expect") // the body is here
	r.Header.Set("Content-Length", strconv.Itoa(len(out)))
	r.Body, r.ContentLength, r.TransferEncoding, r.Trailer = io.NopCloser(bytes.NewReader(out)), int64(len(out)), nil, nil
}

// readBody reads the whole body of a request, and unpacks it.
func (w *web) readBody(r *http.Request) (*kept, error) {
	k := &kept{models: w.f.gateway.models}
	var err error
	if k.raw, err = k.read(r.Body, r.ContentLength); err != nil {
		return k, err
	}
	k.plain = k.raw
	coding := r.Header.Values("Content-Encoding")
	if len(coding) == 0 {
		return k, nil
	}
	unreadable := func(err error) error {
		return &refusal{policy.Verdict{Proto: policy.HTTPS, Rule: ruleModelBody, Reason: "the body cannot be unpacked: " + clip(err.Error())}}
	}
	in, err := w.vault().Decode(coding, io.NopCloser(bytes.NewReader(k.raw)))
	if err != nil {
		return k, unreadable(err)
	}
	defer in.Close()
	k.plain, err = k.read(in, -1)
	if _, ok := errors.AsType[*refusal](err); err != nil && !ok {
		err = unreadable(err)
	}
	return k, err
}

// read reads to the end, within the bounds, what is said to have so many bytes, or
// a negative number where nothing is said. What goes beyond is a *refusal.
func (k *kept) read(in io.Reader, said int64) ([]byte, error) {
	var b bytes.Buffer
	if said > 0 {
		b.Grow(int(min(said, bodyStep)) + bytes.MinRead) // it looks for the end, too
	}
	for {
		if b.Len() > maxBody {
			return nil, &refusal{policy.Verdict{Proto: policy.HTTPS, Rule: ruleModelBody, Reason: "the body has more than " + strconv.Itoa(maxBody) + " bytes"}}
		}
		if err := k.hold(bodyStep); err != nil {
			return nil, err
		}
		n, err := io.CopyN(&b, in, bodyStep)
		switch {
		case errors.Is(err, io.EOF):
			return b.Bytes(), nil
		case err != nil:
			return nil, err
		case n == 0:
			return nil, io.ErrNoProgress
		}
	}
}
