// Package telemetry tells an OpenTelemetry collector what a run does: spans and
// metrics with the names of the GenAI semantic conventions. It uses the API
// only; whoever wants anything sent brings providers of an SDK.
//
// A nil *Recorder records nothing and costs next to nothing, and so do the nil
// *Spans it makes. What was said (tasks, messages, arguments, results) is left
// out unless Options.Content asks for it. All methods may be called
// concurrently.
package telemetry

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"
)

// scope names this package in what is sent.
const scope = "github.com/rein-sh/rein"

// Options of a Recorder.
type Options struct {
	Tracers trace.TracerProvider
	Meters  metric.MeterProvider
	// Content also sends what was said, masked by its sender.
	Content bool
}

// Recorder makes the spans and metrics of runs.
type Recorder struct {
	tracer   trace.Tracer
	tokens   metric.Int64Histogram
	duration metric.Float64Histogram
	content  bool
}

// The bounds that the conventions advise.
var (
	tokenBounds    = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
	durationBounds = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
)

// New returns a recorder. Both providers are needed.
func New(o Options) (*Recorder, error) {
	meter := o.Meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
	tokens, err := meter.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"),
		metric.WithDescription("Number of input and output tokens used."), metric.WithExplicitBucketBoundaries(tokenBounds...))
	if err != nil {
		return nil, err
	}
	duration, err := meter.Float64Histogram("gen_ai.client.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("GenAI operation duration."), metric.WithExplicitBucketBoundaries(durationBounds...))
	if err != nil {
		return nil, err
	}
	return &Recorder{tracer: o.Tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)), tokens: tokens, duration: duration, content: o.Content}, nil
}

// Content reports whether what was said is wanted.
func (r *Recorder) Content() bool { return r != nil && r.content }

// Span is one act that is under way. A nil Span is none.
type Span struct {
	r     *Recorder
	span  trace.Span
	start time.Time
	base  []attribute.KeyValue // of its metrics, too
}

func (r *Recorder) begin(ctx context.Context, name string, kind trace.SpanKind, base, more []attribute.KeyValue) (context.Context, *Span) {
	ctx, span := r.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(base...), trace.WithAttributes(more...))
	return ctx, &Span{r: r, span: span, start: time.Now(), base: base}
}

// end ends the span; failure names the kind of what failed, "" for nothing.
func (s *Span) end(failure, message string, more ...attribute.KeyValue) {
	s.span.SetAttributes(more...)
	if failure != "" {
		s.span.SetAttributes(semconv.ErrorTypeKey.String(failure))
		s.span.SetStatus(codes.Error, message)
	}
	s.span.End()
}

// some keeps the attributes that have a value.
func some(list ...attribute.KeyValue) []attribute.KeyValue {
	out := list[:0]
	for _, a := range list {
		switch a.Value.Type() {
		case attribute.STRING:
			if a.Value.AsString() == "" {
				continue
			}
		case attribute.INT64:
			if a.Value.AsInt64() == 0 {
				continue
			}
		}
		out = append(out, a)
	}
	return out
}

// vendors are names of ours that the conventions know by another.
var vendors = map[string]string{"openai-responses": "openai", "gemini": "gcp.gemini"}

// split takes a model's "vendor/name" apart.
func split(model string) (vendor, name string) {
	vendor, name, ok := strings.Cut(model, "/")
	if !ok {
		return "", model
	}
	if known, ok := vendors[vendor]; ok {
		vendor = known
	}
	return vendor, name
}

// IDs gives a run's root span the trace id of the run. It is the IDGenerator of
// an SDK's tracer provider.
type IDs struct{}

type traceKey struct{}

// withTrace remembers the trace id for the root span begun next.
func withTrace(ctx context.Context, id string) context.Context {
	trace, err := trace.TraceIDFromHex(id)
	if err != nil {
		return ctx // the SDK makes one
	}
	return context.WithValue(ctx, traceKey{}, trace)
}

// NewIDs is asked for the ids of a root span.
func (IDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, ok := ctx.Value(traceKey{}).(trace.TraceID)
	if !ok {
		rand.Read(id[:]) // never fails
	}
	return id, IDs{}.NewSpanID(ctx, id)
}

// NewSpanID is asked for the id of any other span.
func (IDs) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	rand.Read(id[:]) // never fails
	return id
}
