package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/telemetry"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func recorder(t *testing.T, content bool) (*telemetry.Recorder, *tracetest.SpanRecorder, *metric.ManualReader) {
	t.Helper()
	spans, reader := tracetest.NewSpanRecorder(), metric.NewManualReader()
	r, err := telemetry.New(telemetry.Options{
		Tracers: trace.NewTracerProvider(trace.WithSpanProcessor(spans), trace.WithIDGenerator(telemetry.IDs{})),
		Meters:  metric.NewMeterProvider(metric.WithReader(reader)), Content: content,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, spans, reader
}

const traceID = "0123456789abcdef0123456789abcdef"

// record makes the spans of a small run.
func record(r *telemetry.Recorder) {
	m := secret.NewMasker(secret.New("key", "hunter2hunter2"))
	ctx, root := r.Run(context.Background(), telemetry.Run{ID: "01", TraceID: traceID, Model: "gemini/g-1", Task: "the task"})
	req := &model.Request{System: "be good", MaxOutputTokens: 99, Messages: []model.Message{{Role: model.RoleUser, Text: "hunter2hunter2"}}}
	chat, span := r.Chat(ctx, "gemini/g-1", req, m)
	span.Replied(chat, &model.Reply{ID: "r1", Model: "g-1-x", Stop: model.StopToolCalls, Usage: model.Usage{Known: true, Input: 7, Output: 3}}, nil, m)
	chat, span = r.Chat(ctx, "gemini/g-1", req, m)
	span.Replied(chat, nil, &model.Error{Kind: model.KindRateLimit, Message: "slow down"}, m)
	chat, span = r.Chat(ctx, "gemini/g-1", req, m)
	span.Replied(chat, nil, errors.New("what is this"), m)
	_, span = r.Tool(ctx, "run_command", "call_1", "m1", "box", []byte(`{"command":"echo hunter2hunter2"}`), m)
	three := 3
	span.Called(telemetry.Called{ExitCode: &three, Result: "the result"})
	_, span = r.Tool(ctx, "run_command", "call_2", "m2", "box", nil, m)
	span.Called(telemetry.Called{Timeout: true})
	chat, span = r.Metered(ctx, telemetry.Metered{Model: "openai/o-1", Host: "api.example.org", MaxOutput: 77, CallID: "call_3", SandboxID: "box"})
	span.MeteredEnded(chat, model.Usage{Known: true, Input: 11, Output: 5, CachedInput: 4}, 200, "")
	chat, span = r.Metered(ctx, telemetry.Metered{Model: "openai/o-1", Host: "api.example.org"})
	span.MeteredEnded(chat, model.Usage{}, 429, "429")
	_, span = r.Sandbox(ctx, "kill", "local", "box")
	span.SandboxEnded("box", "unavailable")
	root.RunEnded(telemetry.Ended{Reason: "budget", Failed: true, ExitCode: 4, Message: "the task is stopped", AuditHead: "9:abc"})
}

func dump(spans []trace.ReadOnlySpan) string {
	var b strings.Builder
	for _, s := range spans {
		b.WriteString(s.Name() + " " + s.SpanContext().TraceID().String() + " " + s.Status().Description + " ")
		for _, a := range s.Attributes() {
			b.WriteString(string(a.Key) + "=" + a.Value.Emit() + " ")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestSpans(t *testing.T) {
	r, spans, reader := recorder(t, false)
	record(r)
	got := dump(spans.Ended())
	for _, want := range []string{
		"chat g-1 " + traceID, "gen_ai.operation.name=chat gen_ai.provider.name=gcp.gemini gen_ai.request.model=g-1 gen_ai.request.max_tokens=99",
		`gen_ai.response.model=g-1-x gen_ai.response.id=r1 gen_ai.response.finish_reasons=["tool_call"] gen_ai.usage.input_tokens=7 gen_ai.usage.output_tokens=3`,
		"error.type=rate_limit", "error.type=unknown", "execute_tool run_command", "gen_ai.tool.call.id=m1 rein.call_id=call_1 rein.sandbox.id=box", "process.exit.code=3",
		"chat o-1 " + traceID, "gen_ai.provider.name=openai gen_ai.request.model=o-1 server.address=api.example.org gen_ai.request.max_tokens=77 rein.call_id=call_3 rein.sandbox.id=box",
		"http.response.status_code=200 gen_ai.usage.input_tokens=11 gen_ai.usage.output_tokens=5 gen_ai.usage.cache_read.input_tokens=4", "http.response.status_code=429 error.type=429",
		"error.type=timeout", "sandbox kill", "error.type=unavailable", "invoke_agent rein " + traceID, "rein.audit.head=9:abc", "error.type=budget",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	for _, said := range []string{"task", "hunter2", "be good", "the result", "echo"} {
		if strings.Contains(got, said) {
			t.Errorf("%q was sent:\n%s", said, got)
		}
	}
	for _, s := range spans.Ended() {
		if root := s.Name() == "invoke_agent rein"; root == s.Parent().IsValid() {
			t.Errorf("%s: parent %v", s.Name(), s.Parent())
		}
	}
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &rm); err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, m := range rm.ScopeMetrics[0].Metrics {
		switch h := m.Data.(type) {
		case metricdata.Histogram[int64]:
			for _, p := range h.DataPoints {
				counts[m.Name] += p.Count
			}
		case metricdata.Histogram[float64]:
			for _, p := range h.DataPoints {
				counts[m.Name] += p.Count
			}
		}
	}
	if counts["gen_ai.client.token.usage"] != 4 || counts["gen_ai.client.operation.duration"] != 5 {
		t.Errorf("metrics: %v", counts)
	}
}

func TestContentIsMasked(t *testing.T) {
	r, spans, _ := recorder(t, true)
	record(r)
	got := dump(spans.Ended())
	for _, want := range []string{"the task", "be good", "the result", `gen_ai.input.messages=[{"role":"user"`, "gen_ai.tool.call.arguments="} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "hunter2") {
		t.Errorf("a secret was sent:\n%s", got)
	}
}

// Without a collector nothing is allocated.
func TestNilRecorder(t *testing.T) {
	req, ctx := &model.Request{}, context.Background()
	if n := testing.AllocsPerRun(100, func() { act(ctx, req) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func act(ctx context.Context, req *model.Request) {
	var r *telemetry.Recorder
	chat, span := r.Chat(ctx, "vendor/model", req, nil)
	span.Replied(chat, nil, nil, nil)
	_, span = r.Tool(ctx, "run_command", "c", "m", "s", nil, nil)
	span.Called(telemetry.Called{})
}

func BenchmarkNilRecorder(b *testing.B) {
	req, ctx := &model.Request{}, context.Background()
	for b.Loop() {
		act(ctx, req)
	}
}
