package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/model/script"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// otlp is a collector of OpenTelemetry.
type otlp struct {
	mu      sync.Mutex
	spans   []*tracepb.Span
	metrics []string
	service string
	headers http.Header
}

func (o *otlp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body)
	}
	data, err := io.ReadAll(body)
	if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "no protobuf", http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.headers = r.Header
	var spans collecttrace.ExportTraceServiceRequest
	var metrics collectmetrics.ExportMetricsServiceRequest
	switch r.URL.Path {
	case "/base/v1/traces":
		err = proto.Unmarshal(data, &spans)
	case "/base/v1/metrics":
		err = proto.Unmarshal(data, &metrics)
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	for _, rs := range spans.ResourceSpans {
		for _, a := range rs.Resource.Attributes {
			if a.Key == "service.name" {
				o.service = a.Value.GetStringValue()
			}
		}
		for _, s := range rs.ScopeSpans {
			o.spans = append(o.spans, s.Spans...)
		}
	}
	for _, rm := range metrics.ResourceMetrics {
		for _, s := range rm.ScopeMetrics {
			for _, m := range s.Metrics {
				o.metrics = append(o.metrics, m.Name)
			}
		}
	}
}

const demoScript = `
name: small
steps:
  - calls:
      - tool: run_command
        arguments: {command: "echo hi; exit 3"}
  - text: done
`

// tell does a small run in memory and tells the collector that c names.
func tell(t *testing.T, c config.Telemetry, env environment) (rep *run.Report, stderr string, took time.Duration) {
	t.Helper()
	var errs bytes.Buffer
	a := &app{env: env, out: newOutput(io.Discard), err: newOutput(&errs)}
	col, err := a.openCollector(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	s, err := script.Load([]byte(demoScript), "script")
	if err != nil {
		t.Fatal(err)
	}
	w, err := agent.New(agent.Options{Model: s.Model()})
	if err != nil {
		t.Fatal(err)
	}
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	defer m.Close()
	rep, err = run.Do(t.Context(), run.Options{Task: "the task", Provider: m, StateDir: filepath.Join(t.TempDir(), "s"), Limits: budget.Quick(), Model: "script/script", Telemetry: col.record()}, w)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	col.end(a.err, nil)
	return rep, errs.String(), time.Since(start)
}

func textOf(s *tracepb.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

func TestTelemetryReachesACollector(t *testing.T) {
	o := &otlp{}
	server := httptest.NewServer(o)
	defer server.Close()
	rep, stderr, _ := tell(t, config.Telemetry{Endpoint: server.URL + "/base", Headers: map[string]config.Key{"x-team": {Env: "TEAM"}}}, environment{"TEAM": "the blue one"})
	if stderr != "" {
		t.Errorf("stderr: %s", stderr)
	}
	names := map[string]int{}
	for _, s := range o.spans {
		names[s.Name]++
		if id := hex.EncodeToString(s.TraceId); id != rep.TraceID {
			t.Errorf("%s: trace %s, not the run's %s", s.Name, id, rep.TraceID)
		}
		if s.Name == "invoke_agent rein" && (textOf(s, "rein.audit.head") != rep.AuditHead.String() || textOf(s, "gen_ai.conversation.id") != rep.RunID || len(s.ParentSpanId) != 0) {
			t.Errorf("root: %v", s.Attributes)
		}
	}
	for name, n := range map[string]int{"invoke_agent rein": 1, "chat small": 2, "execute_tool run_command": 1, "sandbox create": 1, "sandbox kill": 1} {
		if names[name] != n {
			t.Errorf("%d spans %s in %v", names[name], name, names)
		}
	}
	if got := strings.Join(o.metrics, " "); !strings.Contains(got, "gen_ai.client.token.usage") || !strings.Contains(got, "gen_ai.client.operation.duration") {
		t.Errorf("metrics: %s", got)
	}
	if o.service != "rein" || o.headers.Get("X-Team") != "the blue one" {
		t.Errorf("service %q, headers %v", o.service, o.headers)
	}
}

// A collector that cannot be reached, or never answers, costs a bounded time
// and one line.
func TestTelemetryWithoutACollector(t *testing.T) {
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	for name, l := range map[string]net.Listener{"refused": refused, "mute": mute} {
		rep, stderr, took := tell(t, config.Telemetry{Endpoint: "http://" + l.Addr().String()}, environment{})
		if rep.Reason != run.Done || took > sendTimeout+5*time.Second {
			t.Errorf("%s: %s; sending took %s", name, rep.Reason, took)
		}
		if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "rein: not all telemetry could be sent to http://") {
			t.Errorf("%s: stderr: %q", name, stderr)
		}
	}
}

func TestTelemetryIsOffUnlessNamed(t *testing.T) {
	a := &app{env: environment{}, err: newOutput(io.Discard)}
	for _, env := range []environment{{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}} {
		a.env = env
		if col, err := a.openCollector(context.Background(), config.Telemetry{}); col != nil || err != nil || col.record() != nil {
			t.Errorf("%v: %v, %v", env, col, err)
		}
	}
}
