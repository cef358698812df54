package run_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
)

// foreign is a provider whose sandboxes have an execd like OpenSandbox's.
type foreign struct {
	sandbox.Provider
	t *testing.T
}

func (p foreign) Endpoint(ctx context.Context, id string, port int) (sandbox.Endpoint, error) {
	ep, err := p.Provider.Endpoint(ctx, id, port)
	if err != nil {
		return ep, err
	}
	to, err := url.Parse(ep.BaseURL)
	if err != nil {
		return ep, err
	}
	link := &http.Transport{DialContext: ep.DialContext, DisableKeepAlives: true}
	server := httptest.NewServer(opensandboxtest.Execd{Daemon: &httputil.ReverseProxy{Transport: link, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			for k, v := range ep.Header {
				r.Out.Header[http.CanonicalHeaderKey(k)] = v
			}
		}}})
	p.t.Cleanup(server.Close)
	return sandbox.Endpoint{BaseURL: server.URL}, nil
}

// What another execd does not do is said in the report: also that what the agent
// left running could not be ended before the checks, which are judged all the same.
func TestWhatAnotherExecdLacks(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Provider = foreign{o.Provider, t}
	o.Accept = []run.Check{{Argv: []string{"test", "a  b", "=", "a  b"}}}
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		if f := s.Sandbox().Features(); f.Clear || f.CallIDs {
			t.Errorf("it is rein's: %+v", f)
		}
		shell(t, ctx, s, "echo x")
		return done("")
	})
	if rep.Accepted != run.Yes || len(rep.Checks) != 1 || !rep.Checks[0].Passed {
		t.Errorf("%s: %+v; %s", rep.Accepted, rep.Checks, rep.Error)
	}
	told := strings.Join(rep.Warnings, "\n")
	for _, lack := range []string{"call_ids", "caps", "spill", "stderr_in_sessions", "clear: what got away from a command the agent ran may still run while the work is judged",
		"argv: checks and narrow tools are started by the sandbox's shell", "confine"} {
		if !strings.Contains(told, lack) {
			t.Errorf("no word of %q in %q", lack, told)
		}
	}
}

// Rein's own lacks nothing.
func TestNothingIsLackingInReinsOwn(t *testing.T) {
	t.Parallel()
	rep := do(t, options(t), func(context.Context, *run.Session) (run.Outcome, error) { return done("") })
	if told := strings.Join(rep.Warnings, "\n"); strings.Contains(told, "lacks") {
		t.Error(told)
	}
}
