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
// the gateway's door, where it is judged and metered, than without rein: from the
// same runtime behind a veth pair and the kernel's NAT. Who is not root has no
// such network, and the host is what is compared with.
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
var modelWays = []string{"an answer in JSON", "a stream of events"}

// asked is how long they took.
type asked [2]timings

// add adds half of what another took.
func (a *asked) add(half asked) {
	for i, t := range half {
		a[i].P50, a[i].P99 = a[i].P50+t.P50/2, a[i].P99+t.P99/2
	}
}

// models measures calls of models from a sandbox, beside the same without rein.
func models(ctx context.Context, c config) error {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		return err
	}
	s := &http.Server{Handler: http.HandlerFunc(serveModel)}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }() // until it is closed
	defer func() { s.Close(); <-done }()
	port := l.Addr().(*net.TCPAddr).Port
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\ncalls of a model, %d KB each\tfrom the host p50\twithout rein p50\tp99\tthrough the gateway p50\tp99\tmore p50\n", modelRequest>>10)
	extra := time.Duration(0)
	for _, r := range runtimes {
		host, plain, ours, err := c.modelCalls(ctx, r.runtime, port)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		for i, answer := range modelWays {
			more := ours[i].P50 - plain[i].P50
			extra = max(extra, more)
			fmt.Fprintf(w, "%s: %s\t%v\t%v\t%v\t%v\t%v\t%v\n", r.name, answer, short(host[i].P50), short(plain[i].P50), short(plain[i].P99),
				short(ours[i].P50), short(ours[i].P99), short(more))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Printf("target: under %v more for a call through the gateway than without rein (%s), p50: %v\n", maxModelExtra, plainNetwork(), short(extra))
	return nil
}

// plainNetwork is what "without rein" means here.
func plainNetwork() string {
	if canVeth() {
		return "the same runtime behind a veth pair and the kernel's NAT"
	}
	return "from the host; root could compare with the same runtime"
}

// canVeth reports whether networks without rein can be made.
func canVeth() bool { return os.Geteuid() == 0 && available("nft") && available("ip") }

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

// modelCalls has the server asked from the host, from the runtime without rein
// and from a sandbox, all in two halves, so that what else the machine does meets
// all of them.
func (c config) modelCalls(ctx context.Context, runtime string, port int) (host, plain, ours asked, err error) {
	direct := fmt.Sprintf("http://127.0.0.1:%d", port)
	b, err := c.modelBox(ctx, runtime, direct)
	if err != nil {
		return host, plain, ours, err
	}
	defer func() { err = errors.Join(err, b.end(context.WithoutCancel(ctx))) }()
	inside := func(ctx context.Context, args ...string) (string, error) { return b.client(ctx, args...) }
	for range 2 {
		near, err := askBoth(ctx, direct)
		if err != nil {
			return host, plain, ours, err
		}
		without := near
		if canVeth() {
			if without, err = c.withoutRein(ctx, runtime, port); err != nil {
				return host, plain, ours, err
			}
		}
		with, err := askFrom(ctx, inside, fmt.Sprintf("http://%s:%d/%s", egress.Gateway4, egress.ModelPort, modelsName))
		if err != nil {
			return host, plain, ours, err
		}
		host.add(near)
		plain.add(without)
		ours.add(with)
	}
	return host, plain, ours, nil
}

// withoutRein has the server asked from a runtime behind a veth pair.
func (c config) withoutRein(ctx context.Context, runtime string, port int) (t asked, err error) {
	network := c.vethGVisorWay
	if runtime == "runc" {
		network = vethWay
	}
	y, err := network(ctx, port)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, y.end()) }()
	return askFrom(ctx, y.run, "http://"+y.at)
}

// askFrom has this program ask a server from where run runs it.
func askFrom(ctx context.Context, run func(context.Context, ...string) (string, error), url string) (t asked, err error) {
	out, err := run(ctx, modelsMode, url)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal([]byte(out), &t); err != nil {
		return t, fmt.Errorf("the client said %q: %w", out, err)
	}
	return t, nil
}

// modelsClient is this program there: it prints timings of calls.
func modelsClient(args []string) error {
	if len(args) != 1 {
		return errors.New("the client takes a URL")
	}
	t, err := askBoth(context.Background(), args[0])
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(t)
}

// askBoth times calls with each kind of answer.
func askBoth(ctx context.Context, url string) (t asked, err error) {
	for i, stream := range []bool{false, true} {
		if t[i], err = askModels(ctx, url, stream); err != nil {
			return t, fmt.Errorf("%s: %w", modelWays[i], err)
		}
	}
	return t, nil
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
