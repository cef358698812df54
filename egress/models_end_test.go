package egress_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/inference"
)

// streamed is pinged's answer as a stream, in two pieces.
var streamed = [2]string{
	`data: {"id":"1","object":"chat.completion.chunk","model":"demo","choices":[{"index":0,"delta":{"role":"assistant","content":"pong"},"finish_reason":null}]}` + "\n\n",
	`data: {"id":"1","object":"chat.completion.chunk","model":"demo","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" +
		`data: {"id":"1","object":"chat.completion.chunk","model":"demo","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":40}}}` + "\n\n" +
		"data: [DONE]\n\n",
}

var streamPinged = strings.Replace(pinged, `"model"`, `"stream":true, "stream_options":{"include_usage":true}, "model"`, 1)

// packers are the content codings of answers.
var packers = map[string]func(io.Writer) io.WriteCloser{
	"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"br":   func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
	"zstd": func(w io.Writer) io.WriteCloser {
		z, err := zstd.NewWriter(w)
		if err != nil {
			panic(err) // of options that there are not
		}
		return z
	},
}

// Usage is read from answers however they are packed, and over each HTTP.
func TestModelsAnswersArePacked(t *testing.T) {
	t.Parallel()
	for coding, packer := range packers {
		for _, route := range []string{throughDoor, throughTLS} {
			t.Run(coding+" "+route[:5], func(t *testing.T) {
				t.Parallel()
				v := &vendor{answer: func(w http.ResponseWriter, r *http.Request) {
					if got := r.Header.Get("Accept-Encoding"); got != coding {
						http.Error(w, "it takes "+got, http.StatusNotAcceptable)
						return
					}
					kind, text := "application/json", ponged
					if r.Header.Get("Accept") == "text/event-stream" {
						kind, text = "text/event-stream", streamed[0]+streamed[1]
					}
					w.Header().Set("Content-Type", kind)
					w.Header().Set("Content-Encoding", coding)
					z := packer(w)
					io.WriteString(z, text)
					z.Close()
				}}
				m := meteredTo(t, v, "", nil)
				m.client.Transport.(*http.Transport).DisableCompression = true
				if res, text := m.post(t, route+chatPath, pinged, "Accept-Encoding", coding); res.StatusCode != 200 || text != ponged {
					t.Errorf("%s: %q", res.Status, text)
				}
				if res, text := m.post(t, route+chatPath, streamPinged, "Accept-Encoding", coding, "Accept", "text/event-stream"); res.StatusCode != 200 || text != streamed[0]+streamed[1] {
					t.Errorf("%s: %q", res.Status, text)
				}
				for _, e := range m.meter.wait(t, 2) {
					if (e.Usage != inference.Usage{Known: true, Input: 100, Cached: 40, Output: 20}) || e.Cut {
						t.Errorf("the meter was told %+v", e)
					}
				}
			})
		}
	}
}

// held is a vendor that sends the first piece of a stream, and then waits.
func held() (v *vendor, first chan struct{}, gone chan struct{}, release chan bool) {
	first, gone, release = make(chan struct{}, 1), make(chan struct{}, 1), make(chan bool)
	v = &vendor{answer: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, streamed[0])
		_ = http.NewResponseController(w).Flush()
		first <- struct{}{}
		select {
		case whole := <-release:
			if !whole {
				panic(http.ErrAbortHandler)
			}
			io.WriteString(w, streamed[1])
		case <-r.Context().Done():
			gone <- struct{}{}
		}
	}}
	return v, first, gone, release
}

// begin asks for a stream, and returns when its first piece is here.
func (m *metered) begin(ctx context.Context, t testing.TB, route string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", route+chatPath, strings.NewReader(streamPinged))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+m.placeholder)
	res, err := m.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	b := make([]byte, len(streamed[0]))
	if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != streamed[0] {
		t.Fatalf("%v: %q", err, b)
	}
	return res
}

// However a stream ends, the meter is told once, and the vendor is not left to go
// on alone.
func TestModelsStreamsEnd(t *testing.T) {
	t.Parallel()
	for _, route := range []string{throughDoor, throughTLS} {
		for name, end := range map[string]func(m *metered, cancel func(), release chan bool, gone chan struct{}){
			"whole":          func(_ *metered, _ func(), release chan bool, _ chan struct{}) { release <- true },
			"the server":     func(_ *metered, _ func(), release chan bool, _ chan struct{}) { release <- false },
			"the client":     func(_ *metered, cancel func(), _ chan bool, gone chan struct{}) { cancel(); <-gone },
			"the budget's":   func(m *metered, _ func(), _ chan bool, gone chan struct{}) { m.gateway.EndModels(); <-gone },
			"the owner":      func(m *metered, _ func(), _ chan bool, gone chan struct{}) { m.gateway.Open(false); <-gone },
			"the gateway":    func(m *metered, _ func(), _ chan bool, gone chan struct{}) { m.gateway.Close(); <-gone },
			"denied by rule": func(m *metered, _ func(), _ chan bool, gone chan struct{}) { m.gateway.SetPolicy(nil); <-gone },
		} {
			t.Run(route[:5]+" "+name, func(t *testing.T) {
				t.Parallel()
				v, first, gone, release := held()
				m := meteredTo(t, v, "", nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				res := m.begin(ctx, t, route)
				<-first
				end(m, cancel, release, gone)
				rest, err := io.ReadAll(res.Body)
				e := m.meter.wait(t, 1)[0]
				if name == "whole" {
					if err != nil || string(rest) != streamed[1] || e.Cut || e.Usage.Output != 20 {
						t.Errorf("%v: %q; the meter was told %+v", err, rest, e)
					}
					return
				}
				if err == nil || !e.Cut || !e.Sent || e.Status != 200 {
					t.Errorf("%v: %q; the meter was told %+v", err, rest, e)
				}
			})
		}
	}
}

// A client that goes while it is asked for does not leave what was granted behind.
func TestModelsClientGoneBefore(t *testing.T) {
	t.Parallel()
	v := &vendor{}
	asked := make(chan struct{})
	m := meteredTo(t, v, "", func(o *egress.Options) {
		o.Meter.(*budgets).grant = func(ctx context.Context, _ inference.Ask) (inference.Grant, error) {
			close(asked)
			<-ctx.Done()
			return inference.Grant{Output: 1}, nil
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	r, err := http.NewRequestWithContext(ctx, "POST", throughDoor+chatPath, strings.NewReader(pinged))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+m.placeholder)
	if res, err := m.client.Do(r); err == nil {
		res.Body.Close()
		t.Errorf("it was answered %s", res.Status)
	}
	if e := m.meter.wait(t, 1)[0]; e.Sent || e.Cut {
		t.Errorf("the meter was told %+v", e)
	}
	v.none(t, "of a client that has gone")
}

// An upstream takes the place of the host, under its own name, and what it says of
// elsewhere is the client's to judge.
func TestModelsUpstream(t *testing.T) {
	t.Parallel()
	v := &vendor{answer: func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "responses") {
			http.Redirect(w, r, "https://elsewhere.example.com/", http.StatusTemporaryRedirect)
			return
		}
		io.WriteString(w, ponged)
	}}
	up := httptest.NewServer(v)
	t.Cleanup(up.Close)
	m := meteredTo(t, &vendor{}, up.URL+"/served/v1", func(o *egress.Options) { o.Models[0].Base = "/v1" })
	m.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if res, text := m.post(t, throughDoor+chatPath, pinged); res.StatusCode != 200 || text != ponged {
		t.Fatalf("%s: %s; %+v", res.Status, text, m.rec.all())
	}
	r, _ := v.one(t)
	if r.URL.Path != "/served/v1/chat/completions" || r.Host != strings.TrimPrefix(up.URL, "http://") || r.Header.Get("Authorization") != "Bearer "+modelKey {
		t.Errorf("what came is for %s%s: %v", r.Host, r.URL, r.Header)
	}
	if res, _ := m.post(t, throughDoor+"/v1/responses", `{"model":"demo","input":"ping","store":false}`); res.StatusCode != 307 || res.Header.Get("Location") != "https://elsewhere.example.com/" {
		t.Errorf("%s, to %q", res.Status, res.Header.Get("Location"))
	}
	if res, _ := m.post(t, throughDoor+"/v1beta/models/demo:generateContent", `{"contents":[]}`); res.StatusCode != 403 {
		t.Errorf("what is not below the base: %s", res.Status)
	}
}

// Where no secret is bound, what a request has of credentials goes nowhere.
func TestModelsWithoutSecret(t *testing.T) {
	t.Parallel()
	v := &vendor{}
	m := meteredTo(t, v, "", func(o *egress.Options) { o.Vault = nil })
	if res, text := m.post(t, throughDoor+chatPath, pinged, "Authorization", "Bearer "+modelKey, "X-Api-Key", modelKey, "Idempotency-Key", "7"); res.StatusCode != 200 {
		t.Fatalf("%s: %s", res.Status, text)
	}
	r, _ := v.one(t)
	if r.Header.Get("Authorization")+r.Header.Get("X-Api-Key") != "" || r.Header.Get("Idempotency-Key") != "7" {
		t.Errorf("what came has %v", r.Header)
	}
}

// Many at once are each counted once, and leave nothing behind.
func TestModelsAtOnce(t *testing.T) {
	t.Parallel()
	const many = 100
	v := &vendor{}
	m := meteredTo(t, v, "", nil)
	var all sync.WaitGroup
	for i := range many {
		route := []string{throughDoor, throughTLS}[i%2]
		client := inside(t, m.ns, &tls.Config{RootCAs: m.trust}) // which dials once, and not for another
		all.Go(func() {
			r, err := http.NewRequest("POST", route+chatPath, bytes.NewReader(fmt.Appendf(nil, `{"model":"demo","messages":[{"role":"user","content":"%d"}]}`, i)))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+m.placeholder)
			res, err := client.Do(r)
			if text := body(t, res, err); err == nil && (res.StatusCode != 200 || text != ponged) {
				t.Errorf("%s: %s", res.Status, text)
			}
		})
	}
	all.Wait()
	var out int64
	for _, e := range m.meter.wait(t, many) {
		out += e.Usage.Output
	}
	if out != 20*many {
		t.Errorf("%d tokens were counted", out)
	}
}
