package sandbox_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
)

// A call whose stream is cut is asked about, and not run again.
func TestVerifyAfterCut(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	go func() {
		f.wait(t, "started")
		f.provider.cut(false)
	}()
	r, err := f.Run(t.Context(), sandbox.Command{CallID: "c", Shell: "echo ran >> runs; touch started; sleep 0.3; echo done; exit 4"})
	if err != nil || r.ExitCode == nil || *r.ExitCode != 4 || out(r) != "done\n" {
		t.Fatalf("result %+v, error %v", r, err)
	}
	if c, err := f.ReadFile(t.Context(), "runs", sandbox.ReadOptions{}); err != nil || string(c.Data) != "ran\n" {
		t.Errorf("runs %q, %v", c.Data, err)
	}
	if _, o := last[sandbox.CallOutcome](t, f, audit.KindCallOutcome); !o.Verified || *o.ExitCode != 4 {
		t.Errorf("outcome %+v", o)
	}
}

// Streamed output that was lost is an error that says where all of it is.
func TestCutStream(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	go func() {
		f.wait(t, "started")
		f.provider.cut(false)
	}()
	var got bytes.Buffer
	r, err := f.Run(t.Context(), sandbox.Command{CallID: "c", Stdout: &got, Shell: "touch started; sleep 0.3; echo lost; exit 4"})
	if sandbox.KindOf(err) != sandbox.KindUnavailable || !strings.Contains(sandbox.HintOf(err), "/c") {
		t.Errorf("error %v, hint %q", err, sandbox.HintOf(err))
	}
	if r.ExitCode == nil || *r.ExitCode != 4 || r.Stdout.Bytes != 5 || got.Len() != 0 {
		t.Errorf("result %+v, output %q", r, got.String())
	}
}

// While execd cannot be reached it is not known what became of a call: the
// answer waits, and comes when it can be reached again.
func TestVerifyWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	go func() {
		f.wait(t, "started")
		f.provider.cut(true)
		time.AfterFunc(300*time.Millisecond, f.provider.accept)
	}()
	r, err := f.Run(t.Context(), sandbox.Command{CallID: "c", Shell: "touch started; sleep 0.1; exit 6"})
	if err != nil || r.ExitCode == nil || *r.ExitCode != 6 {
		t.Fatalf("result %+v, error %v", r, err)
	}
}

// A request that never arrived has run nothing.
func TestNeverBegan(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.provider.cut(true)
	time.AfterFunc(200*time.Millisecond, f.provider.accept)
	_, err := f.Run(t.Context(), sandbox.Command{CallID: "c", Shell: "touch ran"})
	if sandbox.KindOf(err) != sandbox.KindUnavailable || !strings.Contains(err.Error(), "never began") {
		t.Errorf("error %v", err)
	}
	if _, err := f.Stat(t.Context(), "ran", sandbox.Access{}); sandbox.KindOf(err) != sandbox.KindNotFound {
		t.Errorf("it ran: %v", err)
	}
}

// gateway is before the daemons of a provider. It cuts off the answer to every
// command, and answers the next questions for a command's status itself.
type gateway struct {
	sandbox.Provider
	t       *testing.T
	answers atomic.Int32
	body    string
}

func (g *gateway) Endpoint(ctx context.Context, id string, port int) (sandbox.Endpoint, error) {
	ep, err := g.Provider.Endpoint(ctx, id, port)
	if err != nil {
		return ep, err
	}
	inner, err := url.Parse(ep.BaseURL)
	if err != nil {
		return ep, err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(inner) },
		Transport:     &http.Transport{DialContext: ep.DialContext, DisableKeepAlives: true},
		FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/command" && r.Method == http.MethodPost:
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case strings.HasPrefix(r.URL.Path, "/command/status/") && g.answers.Add(-1) >= 0:
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, g.body)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	g.t.Cleanup(srv.Close)
	ep.BaseURL, ep.DialContext = srv.URL, nil
	return ep, nil
}

// Only execd says that a call never began. A 404 of a gateway, or of the server
// behind it, says nothing of calls: it is asked again.
func TestGatewaysPageIsNoCall(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"page":    "<h1>404 Not Found</h1>",
		"server":  `{"code":"DOCKER::SANDBOX_NOT_FOUND","message":"Sandbox not found."}`,
		"message": `{"message":"no Route matched with those values"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			g := &gateway{Provider: f.memory, t: t, body: body}
			sb, err := sandbox.Attach(t.Context(), g, f.ID(), sandbox.Options{Log: audit.New(f.log, audit.Options{})})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { sb.Close() })
			g.answers.Store(6)
			r, err := sb.Run(t.Context(), sandbox.Command{CallID: "c", Shell: "echo ran >> runs; exit 4"})
			if err != nil || r.ExitCode == nil || *r.ExitCode != 4 || g.answers.Load() >= 0 {
				t.Errorf("result %+v, error %v, %d answers left", r.Outcome, err, g.answers.Load())
			}
			g.answers.Store(6)
			if r, err := sb.Wait(t.Context(), "c"); err != nil || *r.ExitCode != 4 {
				t.Errorf("result %+v, error %v", r.Outcome, err)
			}
			if c, err := sb.ReadFile(t.Context(), "runs", sandbox.ReadOptions{}); err != nil || string(c.Data) != "ran\n" {
				t.Errorf("runs %q, %v", c.Data, err)
			}
			if _, err := sb.Wait(t.Context(), "never"); sandbox.KindOf(err) != sandbox.KindNotFound {
				t.Errorf("a call that there was not: %v", err)
			}
		})
	}
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.provider.tried(sandbox.NetworkRecord{Proto: "tcp", Address: "192.0.2.1", Port: 80, Verdict: "deny", Reason: "before", Count: 1})
	again, err := sandbox.Attach(t.Context(), f.provider, f.ID(), sandbox.Options{Log: audit.New(f.log, audit.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if r, err := again.Run(t.Context(), sandbox.Command{Shell: "true"}); err != nil || len(r.Network) != 0 {
		t.Errorf("a call is charged with what was tried before: %+v, %v", r.Network, err)
	}
	f.provider.tried(sandbox.NetworkRecord{Proto: "dns", Name: "example.org", Verdict: "deny", Reason: "no rule", Count: 3})
	r, err := again.Run(t.Context(), sandbox.Command{CallID: "c2", Shell: "exit 1"})
	if err != nil || len(r.Network) != 1 || r.Network[0].Name != "example.org" {
		t.Fatalf("network %+v, %v", r.Network, err)
	}
	_, o := last[sandbox.CallOutcome](t, f, audit.KindCallOutcome)
	if len(o.Network) != 1 || o.Network[0].Count != 3 || o.Why != "exit code 1; denied dns example.org (no rule)" {
		t.Errorf("outcome %+v", o)
	}
	record, anchor := last[sandbox.NetworkAnchor](t, f, audit.KindNetwork)
	if record.CallID != "c2" || anchor.Last != 2 || anchor.Head == "" {
		t.Errorf("anchor %+v of call %q", anchor, record.CallID)
	}
	n := len(f.records(t))
	if _, err := again.Run(t.Context(), sandbox.Command{Shell: "true"}); err != nil {
		t.Fatal(err)
	}
	if got := f.records(t)[n:]; len(got) != 2 {
		t.Errorf("a head that has not changed was anchored again: %d records", len(got))
	}
}

// The outcome of a background command is recorded once, when it is learnt.
func TestBackgroundRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	r, err := f.Run(t.Context(), sandbox.Command{CallID: "bg", Shell: "echo x; exit 2", Background: true})
	if err != nil || !r.Background || r.LogPath == "" {
		t.Fatalf("result %+v, %v", r, err)
	}
	for range 2 {
		if r, err := f.Wait(t.Context(), "bg"); err != nil || r.ExitCode == nil || *r.ExitCode != 2 {
			t.Fatalf("result %+v, %v", r, err)
		}
	}
	if _, err := f.Status(t.Context(), "bg"); err != nil {
		t.Fatal(err)
	}
	if got := f.kinds(t, audit.KindCallIntent); got != "call.intent call.outcome call.outcome" {
		t.Errorf("records are %s", got)
	}
	if _, o := last[sandbox.CallOutcome](t, f, audit.KindCallOutcome); o.Background || o.ExitCode == nil || *o.ExitCode != 2 {
		t.Errorf("outcome %+v", o)
	}
	// That of one in the foreground is recorded by Run alone.
	if _, err := f.Run(t.Context(), sandbox.Command{CallID: "fg", Shell: "true"}); err != nil {
		t.Fatal(err)
	}
	n := len(f.records(t))
	if _, err := f.Status(t.Context(), "fg"); err != nil || len(f.records(t)) != n {
		t.Errorf("%d records more, %v", len(f.records(t))-n, err)
	}
}
