package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// foreign is a provider whose execd has nothing of rein's, and that notes the
// variables of the commands.
type foreign struct {
	sandbox.Provider
	t    *testing.T
	mu   sync.Mutex
	sent []map[string]string
}

func (f *foreign) Endpoint(ctx context.Context, id string, port int) (sandbox.Endpoint, error) {
	ep, err := f.Provider.Endpoint(ctx, id, port)
	if err != nil {
		return ep, err
	}
	base, err := url.Parse(ep.BaseURL)
	if err != nil {
		return ep, err
	}
	transport := &http.Transport{DialContext: ep.DialContext}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(base) }}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/rein/features" {
			http.NotFound(w, r)
			return
		}
		if r.URL.Path == "/command" {
			f.note(r)
		}
		proxy.ServeHTTP(w, r)
	}))
	f.t.Cleanup(func() { h.CloseClientConnections(); h.Close(); transport.CloseIdleConnections() })
	return sandbox.Endpoint{BaseURL: h.URL, Header: ep.Header}, nil
}

func (f *foreign) note(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var req execd.RunRequest
	if err := json.Unmarshal(body, &req); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, req.Envs)
}

// Another's execd is told to start commands quietly, but not over what the
// sandbox or the command sets, and not where that is not known.
func TestQuietUnderAnothersExecd(t *testing.T) {
	t.Parallel()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	defer m.Close()
	f := &foreign{Provider: m, t: t}
	o := sandbox.Options{Log: audit.New(&bytes.Buffer{}, audit.Options{})}
	made := map[string]string{"PAGER": "less"}
	box, err := sandbox.Create(t.Context(), f, sandbox.Spec{TTL: time.Minute, Env: made}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { box.Kill(context.Background()); box.Close() }()
	if box.Features().CallIDs {
		t.Fatal("it is rein's execd")
	}
	run := func(s *sandbox.Sandbox) map[string]string {
		t.Helper()
		r, err := s.Run(t.Context(), sandbox.Command{Shell: `echo "$CI $PAGER"`, Env: map[string]string{"CI": "mine"}})
		if err != nil || out(r) != "mine less\n" {
			t.Errorf("%q, %v", out(r), err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.sent[len(f.sent)-1]
	}
	quiet := func(env map[string]string, want bool) {
		t.Helper()
		_, pager := env["PAGER"]
		if (env["NO_COLOR"] == "1") != want || (env["TERM"] == "dumb") != want || env["CI"] != "mine" || pager {
			t.Errorf("%v", env)
		}
	}
	quiet(run(box), true)
	for _, known := range []map[string]string{made, nil} {
		o.Env = known
		again, err := sandbox.Attach(t.Context(), f, box.ID(), o)
		if err != nil {
			t.Fatal(err)
		}
		quiet(run(again), known != nil)
		again.Close()
	}
}
