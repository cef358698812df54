package opensandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
	"github.com/rein-sh/rein/secret"
)

// Killing what is gone is success, and killing goes on until it is gone.
func TestKill(t *testing.T) {
	s := &opensandboxtest.Server{Slow: 2}
	p := open(t, serve(t, s), nil)
	sb := create(t, p, spec())
	s.Once(opensandboxtest.Delete, opensandboxtest.Lose)
	s.Once(opensandboxtest.Delete, opensandboxtest.Answer(404, "text/html", "<html><h1>404 Not Found</h1></html>"))
	s.Once(opensandboxtest.Delete, opensandboxtest.Refuse(409, "KUBERNETES::INVALID_STATE", "busy", nil))
	s.Once(opensandboxtest.Delete, opensandboxtest.Refuse(500, "DOCKER::SANDBOX_DELETE_FAILED", "removal is already in progress", nil))
	if err := p.Kill(t.Context(), sb.ID()); err != nil {
		t.Error(err)
	}
	for _, id := range []string{sb.ID(), "never-was", "", "../x"} {
		if err := p.Kill(t.Context(), id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	s.Once(opensandboxtest.Delete, opensandboxtest.Refuse(403, "X::NO", "not yours", nil))
	if err := p.Kill(t.Context(), "other"); sandbox.KindOf(err) != sandbox.KindDenied {
		t.Errorf("%v", err)
	}
}

// Only the server says that a sandbox is gone. Of an ingress with nothing behind
// it, or of another server's router, it is not known.
func TestKillBehindGateway(t *testing.T) {
	page := opensandboxtest.Answer(404, "text/html", "<html><h1>404 Not Found</h1></html>")
	for name, fault := range map[string]opensandboxtest.Fault{
		"page":     page,
		"410 page": opensandboxtest.Answer(410, "text/html", ""),
		"router":   opensandboxtest.Answer(404, "application/json", `{"detail":"Not Found"}`),
		"no pod":   opensandboxtest.Refuse(404, "KUBERNETES::POD_IP_NOT_AVAILABLE", "not yet", nil),
	} {
		t.Run(name, func(t *testing.T) {
			s := &opensandboxtest.Server{}
			dir := t.TempDir()
			p := open(t, serve(t, s), func(o *opensandbox.Options) { o.StateDir = dir })
			sb := create(t, p, spec())
			for range 200 {
				s.Once(opensandboxtest.Get, fault)
				s.Once(opensandboxtest.Delete, fault)
			}
			err := error(&sandbox.Error{Kind: sandbox.KindTimeout})
			for most := 500 * time.Millisecond; most < 20*time.Second && sandbox.KindOf(err) == sandbox.KindTimeout; most *= 4 { // a busy machine may answer later
				ctx, cancel := context.WithTimeout(t.Context(), most)
				_, err = p.Get(ctx, sb.ID())
				cancel()
			}
			if sandbox.KindOf(err) != sandbox.KindUnavailable {
				t.Errorf("get: %v of kind %s", err, sandbox.KindOf(err))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if err := p.Kill(ctx, sb.ID()); err == nil {
				t.Error("the kill is said to have worked")
			}
			if _, err := os.Stat(filepath.Join(dir, "opensandbox", sb.ID()+".json")); s.Alive() != 1 || err != nil {
				t.Errorf("%d sandboxes, the record: %v", s.Alive(), err)
			}
			s.Clear()
		})
	}
}

// A request without a deadline ends, however often the server asks to wait.
func TestWaitWithoutDeadline(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	sb := create(t, p, spec())
	start := time.Now()
	for _, status := range []int{429, 503} {
		s.Once(opensandboxtest.Get, opensandboxtest.Refuse(status, "X::BUSY", "busy", http.Header{"Retry-After": {"1"}}))
		s.Once(opensandboxtest.Get, opensandboxtest.Refuse(status, "X::BUSY", "busy", http.Header{"Retry-After": {"3600"}}))
		_, err := p.Get(context.WithoutCancel(t.Context()), sb.ID())
		wantRefusal(t, err, sandbox.KindUnavailable, "asks to wait 1h")
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}

// Requests that change nothing are made again.
func TestRepeated(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	sb := create(t, p, spec())
	for _, fault := range []opensandboxtest.Fault{
		opensandboxtest.Lose, opensandboxtest.Gateway(502), opensandboxtest.Gateway(404), opensandboxtest.Gateway(410), opensandboxtest.Refuse(503, "X::Y", "busy", nil),
		opensandboxtest.Answer(200, "application/json", `{"id":`), opensandboxtest.Refuse(429, "", "", http.Header{"Retry-After": {"0"}}),
	} {
		s.Once(opensandboxtest.Get, fault)
		if info, err := p.Get(t.Context(), sb.ID()); err != nil || info.ID != sb.ID() {
			t.Errorf("%+v, %v", info, err)
		}
	}
	s.Once(opensandboxtest.Renew, opensandboxtest.Lose)
	until := time.Now().Add(20 * time.Minute)
	end, err := p.Renew(t.Context(), sb.ID(), until)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "end", end, until)
}

// An answer without bounds is not read without bounds, and one about another
// sandbox is none.
func TestHostileAnswers(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	sb := create(t, p, spec())
	long := `{"id":"` + strings.Repeat("x", 9<<20) + `"}`
	for range 5 {
		s.Once(opensandboxtest.Get, opensandboxtest.Answer(200, "application/json", long))
	}
	if _, err := p.Get(t.Context(), sb.ID()); sandbox.KindOf(err) != sandbox.KindUnavailable || len(err.Error()) > 500 {
		t.Errorf("%.200v", err)
	}
	s.Once(opensandboxtest.Get, opensandboxtest.Answer(200, "application/json", `{"id":"another","status":{"state":"Running"}}`))
	if _, err := p.Get(t.Context(), sb.ID()); sandbox.KindOf(err) != sandbox.KindInternal {
		t.Errorf("%v", err)
	}
	s.Once(opensandboxtest.Get, opensandboxtest.Answer(200, "application/json",
		fmt.Sprintf(`{"id":%q,"status":{"state":"Hibernating"},"createdAt":"2026-01-02T03:04:05","expiresAt":null}`, sb.ID())))
	info, err := p.Get(t.Context(), sb.ID())
	if err != nil || info.State != "Hibernating" || info.CreatedAt.IsZero() || !info.ExpiresAt.IsZero() {
		t.Errorf("%+v, %v", info, err)
	}
}

// A listing goes through all pages; what moves between them is there once, and
// what others made, or the filter let through, is not.
func TestPages(t *testing.T) {
	s := &opensandboxtest.Server{}
	p := open(t, serve(t, s), nil)
	item := func(id, run string) map[string]any {
		return map[string]any{"id": id, "status": map[string]string{"state": "Running"}, "createdAt": "2026-01-02T03:04:05Z",
			"metadata": map[string]string{"rein.sh/made-by": "rein", "run": run}}
	}
	for i, items := range [][]map[string]any{{item("a", "1"), item("b", "1")}, {item("b", "1"), item("c", "2"), item("d", "1")}} {
		b, err := json.Marshal(map[string]any{"items": items, "pagination": map[string]any{"hasNextPage": i == 0}})
		if err != nil {
			t.Fatal(err)
		}
		s.Once(opensandboxtest.List, opensandboxtest.Answer(200, "application/json", string(b)))
	}
	infos, err := p.List(t.Context(), map[string]string{"run": "1"})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, i := range infos {
		ids = append(ids, i.ID)
	}
	if got := strings.Join(ids, " "); got != "a b d" {
		t.Errorf("listed %q", got)
	}
}

// A listing without bounds is refused, in whatever direction it has none, and not
// asked for again.
func TestListingWithoutBounds(t *testing.T) {
	many := func(n int, item, more string) string {
		return `{"items":[` + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + `],"pagination":{"hasNextPage":` + more + `}}`
	}
	fat := `{"id":"a","metadata":{"x":"` + strings.Repeat("x", 4<<20) + `"}}`
	for name, c := range map[string]struct {
		page  string
		asked int
	}{
		"sandboxes": {many(201, `{}`, "false"), 1},
		"a million": {many(1_000_000, `{}`, "true"), 1},
		"pages":     {many(0, "", "true"), 101},
		"bytes":     {many(1, fat, "true"), 4},
	} {
		t.Run(name, func(t *testing.T) {
			s := &opensandboxtest.Server{}
			p := open(t, serve(t, s), nil)
			for range c.asked {
				s.Once(opensandboxtest.List, opensandboxtest.Answer(200, "application/json", c.page))
			}
			infos, err := p.List(t.Context(), nil)
			wantRefusal(t, err, sandbox.KindTooLarge, "")
			if n := s.Count(opensandboxtest.List); n != c.asked || len(infos) > 0 {
				t.Errorf("asked %d times, want %d; %d sandboxes", n, c.asked, len(infos))
			}
		})
	}
}

// What is wrong with the server is said before a sandbox is asked for.
func TestProbe(t *testing.T) {
	s := &opensandboxtest.Server{Skew: 20 * time.Minute}
	h := serve(t, s)
	report, err := open(t, h, nil).Probe(t.Context())
	if err != nil || !report.Usable || report.Has(sandbox.CapCallIDs) || report.Has(sandbox.CapNetworkRecord) || !report.Has(sandbox.CapNetworkDeny) {
		t.Errorf("%+v, %v", report, err)
	}
	if text := fmt.Sprint(report.Problems); !strings.Contains(text, "20m0s ahead") || !strings.Contains(text, "server's execd alone") {
		t.Errorf("problems %s", text)
	}
	report, err = open(t, h, func(o *opensandbox.Options) { o.Execd, o.AcceptWeakEgress = program(t), true }).Probe(t.Context())
	if err != nil || !report.Has(sandbox.CapCallIDs) || report.Has(sandbox.CapNetworkDeny) {
		t.Errorf("%+v, %v", report, err)
	}
	for name, change := range map[string]func(*opensandbox.Options){
		"no key":    func(o *opensandbox.Options) { o.Key = secret.Value{} },
		"wrong key": func(o *opensandbox.Options) { o.Key = secret.New("key", "wrong") },
		"no server": func(o *opensandbox.Options) { o.URL = "http://127.0.0.1:1" },
	} {
		report, err := open(t, h, change).Probe(t.Context())
		if err != nil || report.Usable || len(report.Problems) != 1 || !report.Problems[0].Fatal || report.Problems[0].Remedy == "" {
			t.Errorf("%s: %+v, %v", name, report.Problems, err)
		}
	}
	if s.Count(opensandboxtest.Create) != 0 {
		t.Error("a sandbox was made")
	}
}

// Options that make no sense are refused when they are given.
func TestOptions(t *testing.T) {
	for name, o := range map[string]opensandbox.Options{
		"no url":          {StateDir: "/s"},
		"no scheme":       {URL: "localhost:8080", StateDir: "/s"},
		"password":        {URL: "http://u:p@h", StateDir: "/s"},
		"query":           {URL: "http://h?x=1", StateDir: "/s"},
		"relative state":  {URL: "http://h", StateDir: "s"},
		"endpoint scheme": {URL: "http://h", StateDir: "/s", EndpointScheme: "ws"},
	} {
		if _, err := opensandbox.New(o); sandbox.KindOf(err) != sandbox.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
