package lab

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/lab/leak"
)

// What each of the vendor's answers to a model says that it has come to, in tokens.
const (
	a6Input  = 10
	a6Output = 5
)

// vendor is a server on the host's loopback that stands for three vendors, and
// keeps what it was sent. It greets whoever has the key.
type vendor struct {
	hosts []vendorHost      // by their first segment of the path
	keys  map[string]string // by the same
	url   string
	agent http.Handler  // answers what is no probe's; nil: that is answered as all
	late  chan struct{} // closed when the late answer may go
	came  chan struct{} // closed when the request for it has come

	mu      sync.Mutex
	arrived []arrival
	models  int // requests with the key that a model answered
}

// arrival is a request that has reached the vendor.
type arrival struct {
	line string // method and path
	text string // the whole, as it came
	body int    // where in text the body begins
	at   string // the vendor's host
	key  bool   // it had the key
}

func newVendor(hosts []vendorHost, keys map[string]string) *vendor {
	return &vendor{hosts: hosts, keys: keys, late: make(chan struct{}), came: make(chan struct{})}
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head, _ := httputil.DumpRequest(r, false) // what there is of it is kept
	body, _ := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	at, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	i := slices.IndexFunc(v.hosts, func(h vendorHost) bool { return h.at == at })
	key := v.keys[at]
	good := i >= 0 && v.hosts[i].given(r) == key
	others := v.agent != nil && r.Header.Get(leak.ProbeField) == ""
	asks := good && !others && r.Method == http.MethodPost
	v.mu.Lock()
	v.arrived = append(v.arrived, arrival{line: r.Method + " " + r.URL.RequestURI(), text: string(head) + string(body), body: len(head), at: at, key: good})
	if asks {
		v.models++
	}
	v.mu.Unlock()
	if good && others {
		r.Body = io.NopCloser(bytes.NewReader(body))
		http.StripPrefix("/"+at, v.agent).ServeHTTP(w, r)
		return
	}
	w.Header().Set(leak.VendorField, "yes")
	if !good {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintln(w, `{"error":{"message":"no key","type":"invalid_request_error","code":"invalid_api_key"}}`)
		return
	}
	v.answer(w, r, path, body, key)
}

// answer answers whoever has the key.
func (v *vendor) answer(w http.ResponseWriter, r *http.Request, path string, body []byte, key string) {
	var req struct {
		Stream bool `json:"stream"`
	}
	_ = json.Unmarshal(body, &req) // a list of models has none
	said, order := leak.WelcomeWord, r.Header.Get(leak.OrderField)
	if form, ok := strings.CutPrefix(order, "echo "); ok {
		said += " you sent " + map[string]string{"plain": key, "stream": key, "base64": base64.StdEncoding.EncodeToString([]byte("key " + key)),
			"hexadecimal": hex.EncodeToString([]byte(key)), "percent": url.QueryEscape(key)}[form] + ", thank you"
		if form == "field" {
			w.Header().Set("Lab-Echo", key)
		}
	}
	if order == "late" {
		close(v.came)
		select {
		case <-v.late:
		case <-r.Context().Done():
		}
	}
	if req.Stream || strings.Contains(path, ":stream") {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range streams(path, said) {
			if kind, ok := e["type"]; ok {
				fmt.Fprintf(w, "event: %s\n", kind)
			}
			fmt.Fprintf(w, "data: %s\n\n", encode(e))
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintln(w, encode(replies(path, said)))
}

type object = map[string]any

var chatUsage = object{"prompt_tokens": a6Input, "completion_tokens": a6Output, "total_tokens": a6Input + a6Output}

// streams says a text in pieces, in the vendor's protocol.
func streams(path, said string) []object {
	usage := object{"input_tokens": a6Input, "output_tokens": a6Output, "total_tokens": a6Input + a6Output}
	switch {
	case strings.HasSuffix(path, "responses"):
		return []object{{"type": "response.output_text.delta", "delta": said}, {"type": "response.completed", "response": object{"id": "r", "status": "completed", "usage": usage}}}
	case strings.HasSuffix(path, "messages"):
		return []object{{"type": "message_start", "message": object{"id": "m", "type": "message", "role": "assistant", "usage": object{"input_tokens": a6Input, "output_tokens": 1}}},
			{"type": "content_block_delta", "index": 0, "delta": object{"type": "text_delta", "text": said}},
			{"type": "message_delta", "delta": object{"stop_reason": "end_turn"}, "usage": object{"output_tokens": a6Output}}, {"type": "message_stop"}}
	case strings.Contains(path, ":stream"):
		return []object{replies(strings.Replace(path, ":streamG", ":g", 1), said)}
	}
	return []object{{"id": "c", "object": "chat.completion.chunk", "model": "lab", "choices": []object{{"index": 0, "delta": object{"content": said}, "finish_reason": "stop"}}},
		{"id": "c", "object": "chat.completion.chunk", "model": "lab", "choices": []object{}, "usage": chatUsage}}
}

// replies says a text in the vendor's protocol.
func replies(path, said string) object {
	usage := object{"input_tokens": a6Input, "output_tokens": a6Output, "total_tokens": a6Input + a6Output}
	switch {
	case strings.HasSuffix(path, "models"):
		return object{"object": "list", "data": []object{{"id": said, "object": "model"}}}
	case strings.HasSuffix(path, "responses"):
		return object{"id": "r", "object": "response", "status": "completed", "usage": usage,
			"output": []object{{"type": "message", "role": "assistant", "content": []object{{"type": "output_text", "text": said}}}}}
	case strings.HasSuffix(path, "messages"):
		return object{"id": "m", "type": "message", "role": "assistant", "content": []object{{"type": "text", "text": said}}, "stop_reason": "end_turn", "usage": object{"input_tokens": a6Input, "output_tokens": a6Output}}
	case strings.Contains(path, ":generateContent"):
		return object{"candidates": []object{{"content": object{"role": "model", "parts": []object{{"text": said}}}, "finishReason": "STOP"}},
			"usageMetadata": object{"promptTokenCount": a6Input, "candidatesTokenCount": a6Output, "totalTokenCount": a6Input + a6Output}}
	}
	return object{"id": "c", "object": "chat.completion", "model": "lab", "usage": chatUsage,
		"choices": []object{{"index": 0, "message": object{"role": "assistant", "content": said}, "finish_reason": "stop"}}}
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // it is our own
	}
	return string(b)
}

// with are the arrivals that hold a text.
func (v *vendor) with(text string) (list []arrival) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, a := range v.arrived {
		if strings.Contains(a.text, text) {
			list = append(list, a)
		}
	}
	return list
}

// all is every arrival, and how many of them models answered.
func (v *vendor) all() ([]arrival, int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.arrived), v.models
}

// gauge is a meter that counts, and has an end.
type gauge struct {
	mu      sync.Mutex
	left    int  // requests that may begin; with bounded
	bounded bool // there is a limit
	open    int  // begun, and not ended
	ended   int
	refused int
	tokens  int64
	unknown int // ended without a usage
}

// Begin implements inference.Meter.
func (g *gauge) Begin(_ context.Context, a inference.Ask) (inference.Grant, func(inference.Ended), error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bounded && g.left <= 0 {
		g.refused++
		return inference.Grant{Stop: &inference.Stop{Code: inference.StopBudget, Reason: "the tokens of this experiment are spent"}}, nil, nil
	}
	g.left--
	g.open++
	output := a.Output
	if output < 1 || output > 64 {
		output = 64
	}
	return inference.Grant{Output: output}, g.end, nil
}

func (g *gauge) end(e inference.Ended) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open--
	g.ended++
	g.tokens += e.Usage.Input + e.Usage.Output
	if !e.Usage.Known {
		g.unknown++
	}
}

// limit lets n more requests begin.
func (g *gauge) limit(n int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left, g.bounded = n, true
	return nil
}

func (g *gauge) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprintf("%d requests ended, %d open, %d refused, %d tokens, %d without a usage", g.ended, g.open, g.refused, g.tokens, g.unknown)
}
