package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
	"github.com/rein-sh/rein/secret"
)

// The target: what a model call on a connection that is kept takes longer through
// the gateway's door, where it is judged and metered, than from the host.
const (
	maxModelExtra = 2 * time.Millisecond
	modelCalls    = 400
	modelWarm     = 20       // calls before those that count
	modelRequest  = 50 << 10 // bytes of a request
	modelEvents   = 20       // of a stream

	modelsMode = "models-client"
	modelsName = "models.bench.test"
)

// modelWays are the answers that are waited for.
var modelWays = []struct {
	name   string
	stream bool
}{{"an answer in JSON", false}, {"a stream of events", true}}

// models measures calls of models from a sandbox, beside the same from the host.
func models(ctx context.Context, c config) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &http.Server{Handler: http.HandlerFunc(serveModel)}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }() // until it is closed
	defer func() { s.Close(); <-done }()
	direct := "http://" + l.Addr().String()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\ncalls of a model, %d KB each\tfrom the host p50\tp99\tthrough the gateway p50\tp99\tmore p50\n", modelRequest>>10)
	extra := time.Duration(0)
	for _, r := range runtimes {
		b, err := c.modelBox(ctx, r.runtime, direct)
		if err != nil {
			return err
		}
		for _, y := range modelWays {
			host, inside, err := b.modelCalls(ctx, direct, y.stream)
			if err != nil {
				return errors.Join(fmt.Errorf("%s: %s: %w", r.name, y.name, err), b.end(context.WithoutCancel(ctx)))
			}
			more := inside.P50 - host.P50
			extra = max(extra, more)
			fmt.Fprintf(w, "%s: %s\t%v\t%v\t%v\t%v\t%v\n", r.name, y.name, short(host.P50), short(host.P99), short(inside.P50), short(inside.P99), short(more))
		}
		if err := b.end(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Printf("target: under %v more for a call through the gateway than from the host, p50: %v\n", maxModelExtra, short(extra))
	return nil
}

func short(d time.Duration) time.Duration { return d.Round(time.Microsecond) }

// everything is a meter that grants all.
type everything struct{}

func (everything) Begin(context.Context, inference.Ask) (inference.Grant, func(inference.Ended), error) {
	return inference.Grant{Output: 1000}, func(inference.Ended) {}, nil
}

// modelBox is a sandbox whose models the server is, with a key that it does not
// have.
func (c config) modelBox(ctx context.Context, runtime, upstream string) (box, error) {
	spec := sandbox.Spec{
		Models: []inference.Host{{Name: modelsName, Upstream: upstream, Rules: inference.Rules{Models: []string{"bench"}},
			Calls: []inference.Call{{Methods: []string{"POST"}, Path: "/v1/chat/completions", API: inference.Chat}}}},
		Secrets: []vault.Secret{{Name: "bench", Value: secret.New("bench", "rein_BenchBenchBenchBenchBenchBench0123"), Variable: secretVariable,
			Use: []vault.Binding{{Host: modelsName, As: vault.Bearer}}}}}
	return c.clientBoxFor(ctx, runtime, local.Options{}, spec, sandbox.Options{Log: audit.New(io.Discard, audit.Options{}), Meter: everything{}})
}

// modelCalls has the server asked from the host and from the sandbox, both in two
// halves, so that what else the machine does meets both.
func (b box) modelCalls(ctx context.Context, direct string, stream bool) (host, inside timings, err error) {
	door := fmt.Sprintf("http://%s:%d/%s", egress.Gateway4, egress.ModelPort, modelsName)
	for range 2 {
		one, err := askModels(ctx, direct, stream)
		if err != nil {
			return host, inside, err
		}
		out, err := b.client(ctx, modelsMode, door, strconv.FormatBool(stream))
		if err != nil {
			return host, inside, err
		}
		var other timings
		if err := json.Unmarshal([]byte(out), &other); err != nil {
			return host, inside, fmt.Errorf("the client said %q: %w", out, err)
		}
		host.P50, host.P99 = host.P50+one.P50/2, host.P99+one.P99/2
		inside.P50, inside.P99 = inside.P50+other.P50/2, inside.P99+other.P99/2
	}
	return host, inside, nil
}

// modelsClient is this program inside: it prints timings of calls.
func modelsClient(args []string) error {
	if len(args) != 2 {
		return errors.New("the client takes a URL, and whether answers are streams")
	}
	t, err := askModels(context.Background(), args[0], args[1] == "true")
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(t)
}

// askModels times calls on one connection, from the request to the end of the
// answer.
func askModels(ctx context.Context, url string, stream bool) (t timings, err error) {
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	body := fmt.Sprintf(`{"model":"bench","stream":%v,"max_completion_tokens":100,"messages":[{"role":"user","content":%q}]}`, stream, strings.Repeat("word ", modelRequest/5))
	var took []time.Duration
	for i := range modelWarm + modelCalls/2 {
		start := time.Now()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			return t, err
		}
		req.Header.Set("Content-Type", "application/json")
		if key := os.Getenv(secretVariable); key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			return t, err
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(got), "total_tokens") {
			return t, fmt.Errorf("%s: %s: %.300s: %w", url, res.Status, got, err)
		}
		if i >= modelWarm {
			took = append(took, time.Since(start))
		}
	}
	slices.Sort(took)
	t.P50, t.P99 = took[len(took)/2], took[len(took)*99/100]
	return t, nil
}

// serveModel is a model that answers at once.
func serveModel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	const usage = `"usage":{"prompt_tokens":12000,"completion_tokens":20,"total_tokens":12020}`
	if !strings.Contains(string(body[:min(100, len(body))]), `"stream":true`) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"1","object":"chat.completion","model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"done"},"finish_reason":"stop"}],%s}`, usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w).Flush
	for range modelEvents {
		fmt.Fprint(w, `data: {"id":"1","object":"chat.completion.chunk","model":"bench","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}`+"\n\n")
		_ = flush() // fails when the client has gone
	}
	fmt.Fprintf(w, `data: {"id":"1","object":"chat.completion.chunk","model":"bench","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n"+
		`data: {"id":"1","object":"chat.completion.chunk","model":"bench","choices":[],%s}`+"\n\ndata: [DONE]\n\n", usage)
}
