package sandboxtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/sandbox"
)

// modelCases are about hosts of models. The server is of this process, on loopback,
// and takes the place of a host that there is not.
func modelCases() []Case {
	needs := caps(sandbox.CapExec, sandbox.CapProcesses, sandbox.CapModels)
	tools := []string{"bash", "cat"}
	return []Case{
		{Name: "models/refused where nobody meters", run: modelsRefused},
		{Name: "models/metered", Needs: needs, Programs: tools, run: modelsMetered},
		{Name: "models/nothing else", Needs: needs, Programs: tools, run: modelsNothingElse},
		{Name: "models/owner gone", Needs: needs, Programs: tools, run: modelsOwnerGone},
	}
}

const modelsHost = "models.rein.test"

// modelsAt is a host whose requests a server takes.
func modelsAt(url string) []inference.Host {
	return []inference.Host{{Name: modelsHost, Upstream: url, Rules: inference.Rules{Models: []string{"suite"}},
		Calls: []inference.Call{{Methods: []string{"POST"}, Path: "/v1/chat/completions", API: inference.Chat}}}}
}

// budget is a meter that grants a number of requests.
type budget struct {
	mu    sync.Mutex
	left  int
	asks  []inference.Ask
	ended []inference.Ended
}

func (b *budget) Begin(_ context.Context, a inference.Ask) (inference.Grant, func(inference.Ended), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asks = append(b.asks, a)
	if b.left == 0 {
		return inference.Grant{Stop: &inference.Stop{Code: inference.StopBudget, Reason: "the budget of the suite is spent"}}, nil, nil
	}
	b.left--
	return inference.Grant{Output: 77}, func(e inference.Ended) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ended = append(b.ended, e)
	}, nil
}

// have reports how many ended.
func (b *budget) have(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ended) == n
}

// vendor is a server of models, which notes what it is asked.
func vendor(e *env, held <-chan struct{}) (url string, bodies chan string) {
	bodies = make(chan string, 16)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // what came is noted
		bodies <- r.URL.Path + " " + string(b)
		w.Header().Set("Content-Type", "application/json")
		if held != nil {
			_ = http.NewResponseController(w).Flush() // who waits is the client
			select {
			case <-held:
			case <-r.Context().Done():
				return
			}
		}
		fmt.Fprint(w, `{"id":"1","object":"chat.completion","model":"suite","choices":[{"index":0,"message":{"role":"assistant","content":"pong"},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}`)
	}))
	e.Cleanup(s.Close)
	return s.URL, bodies
}

// metering is a sandbox that may ask a server, metered by b.
func (e *env) metering(url string, b *budget) {
	e.Helper()
	spec := e.suite.spec()
	spec.Models = modelsAt(url)
	o := sandbox.Options{Log: record()}
	if b != nil {
		o.Meter = b
	}
	sb, err := sandbox.Create(e.Context(), e.suite.provider, spec, o)
	e.must(err)
	e.Sandbox = sb
	e.Cleanup(func() {
		defer sb.Close()
		if err := sb.Kill(context.Background()); err != nil {
			e.Errorf("kill %s: %v", sb.ID(), err)
		}
	})
}

// asking is a shell text that asks a model through the door, and prints the answer.
func asking(path, body string) string {
	head := fmt.Sprintf(`POST %s HTTP/1.1\r\nHost: door\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n`, path, len(body))
	return dial(egress.Gateway4, egress.ModelPort) + fmt.Sprintf(" && printf '%%b%%s' '%s' '%s' >&3 && cat <&3", head, body)
}

const askSuite = `{"model":"suite","messages":[{"role":"user","content":"ping"}]}`

// modelsRefused: a provider that cannot meter makes no such sandbox, and faults of
// hosts are found before anything is made.
func modelsRefused(e *env) {
	spec := e.suite.spec()
	spec.Models = modelsAt("http://127.0.0.1:9")
	if !e.suite.report.Has(sandbox.CapModels) {
		_, err := sandbox.Create(e.Context(), e.suite.provider, spec, sandbox.Options{Log: record()})
		e.wantKind(err, sandbox.KindUnsupported)
	}
	for _, upstream := range []string{"127.0.0.1:9", "ftp://127.0.0.1/", "http://user:password@127.0.0.1/", "http://127.0.0.1/?a=b"} {
		spec.Models = modelsAt(upstream)
		_, err := sandbox.Create(e.Context(), e.suite.provider, spec, sandbox.Options{Log: record()})
		e.wantKind(err, sandbox.KindInvalid)
		if err != nil && strings.Contains(err.Error(), "password@") {
			e.Errorf("the error repeats a password: %v", err)
		}
	}
}

// modelsMetered: a request is asked for before, its cap is written, what it came to
// is told, and one that is not granted goes nowhere.
func modelsMetered(e *env) {
	url, bodies := vendor(e, nil)
	b := &budget{left: 1}
	e.metering(url, b)
	if out := stdout(e.run(asking("/"+modelsHost+"/v1/chat/completions", askSuite))); !strings.Contains(out, "200 OK") || !strings.Contains(out, "pong") {
		e.Fatalf("the model answered %q", out)
	}
	if got := <-bodies; !strings.HasPrefix(got, "/v1/chat/completions ") || !strings.Contains(got, "77") {
		e.Errorf("the vendor was asked %s", got)
	}
	e.eventually(10*time.Second, "the end is told", func() bool { return b.have(1) })
	if a := b.asks[0]; a.Host != modelsHost || a.API != inference.Chat || a.Model != "suite" || a.Input < 1 {
		e.Errorf("it was asked for %+v", a)
	}
	if n := b.ended[0]; n.Status != 200 || !n.Sent || n.Cut || n.Usage != (inference.Usage{Known: true, Input: 11, Output: 7}) {
		e.Errorf("its end is %+v", n)
	}
	if out := stdout(e.run(asking("/"+modelsHost+"/v1/chat/completions", askSuite))); strings.Contains(out, "200 OK") || !strings.Contains(out, "budget of the suite") {
		e.Errorf("what was not granted was answered %q", out)
	}
	if len(bodies) > 0 {
		e.Errorf("what was not granted was sent: %s", <-bodies)
	}
}

// modelsNothingElse: neither another path nor another host is reached.
func modelsNothingElse(e *env) {
	url, bodies := vendor(e, nil)
	b := &budget{left: 9}
	e.metering(url, b)
	for _, path := range []string{"/" + modelsHost + "/v1/files", "/" + modelsHost + "/v1/chat/completions/../files", "/other.rein.test/v1/chat/completions"} {
		if out := stdout(e.run(asking(path, askSuite))); !strings.Contains(out, "403") {
			e.Errorf("%s was answered %q", path, out)
		}
	}
	if len(bodies)+len(b.asks) > 0 {
		e.Errorf("%d requests went out, and %d were asked for", len(bodies), len(b.asks))
	}
	if !e.suite.report.Has(sandbox.CapNetworkRecord) {
		return
	}
	log, err := sandbox.NetworkRecords(e.Context(), e.suite.provider, e.ID(), 0)
	e.must(err)
	rules := map[string]int{}
	for _, r := range log.Records {
		if r.Verdict == "deny" && strings.HasPrefix(r.Rule, "models.") {
			rules[r.Rule] += r.Count
		}
	}
	e.equal("the refusals recorded", fmt.Sprint(rules), "map[models.host:1 models.path:2]")
}

// modelsOwnerGone: a request that is under way is cut when who keeps the budget
// goes, who is told of its end, and no other begins.
func modelsOwnerGone(e *env) {
	url, bodies := vendor(e, make(chan struct{}))
	b := &budget{left: 9}
	e.metering(url, b)
	other := e.attach(e.suite.provider) // who keeps no budget
	done := make(chan sandbox.Result, 1)
	go func() {
		r, _ := other.Run(e.Context(), sandbox.Command{Shell: asking("/"+modelsHost+"/v1/chat/completions", askSuite), Timeout: e.scale(30 * time.Second)})
		done <- r // its error is that of a result without output
	}()
	<-bodies
	e.must(e.Sandbox.Close())
	if out := stdout(<-done); strings.Contains(out, "pong") {
		e.Errorf("the request went on: %q", out)
	}
	e.eventually(10*time.Second, "the end is told", func() bool { return b.have(1) })
	if n := b.ended[0]; !n.Sent || !n.Cut {
		e.Errorf("its end is %+v", n)
	}
	r, err := other.Run(e.Context(), sandbox.Command{Shell: asking("/"+modelsHost+"/v1/chat/completions", askSuite), Timeout: e.scale(30 * time.Second)})
	e.must(err)
	if out := stdout(r); strings.Contains(out, "200 OK") || !strings.Contains(out, "nobody keeps the budget") || len(bodies) > 0 {
		e.Errorf("a request without an owner was answered %q, and %d were sent", out, len(bodies))
	}
}
