package telemetry

import (
	"context"

	"github.com/rein-sh/rein/model"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"
)

// Metered is a request of a program inside a sandbox to a model, as the gateway lets
// it through. What it says is not read and never sent.
type Metered struct {
	Model     string // "vendor/name"
	Host      string // as the sandbox calls it
	MaxOutput int64  // the cap it is sent with, in tokens
	CallID    string // the command that asks, where that is known
	SandboxID string
}

// Metered begins the span of such a request.
func (r *Recorder) Metered(ctx context.Context, m Metered) (context.Context, *Span) {
	if r == nil {
		return ctx, nil
	}
	vendor, name := split(m.Model)
	base := some(semconv.GenAIOperationNameChat, semconv.GenAIProviderNameKey.String(vendor), semconv.GenAIRequestModel(name), semconv.ServerAddress(m.Host))
	more := some(semconv.GenAIRequestMaxTokens(int(m.MaxOutput)), attribute.String("rein.call_id", m.CallID), attribute.String("rein.sandbox.id", m.SandboxID))
	return r.begin(ctx, "chat "+name, trace.SpanKindClient, base, more)
}

// MeteredEnded ends it. failure names the kind of what failed, "" for nothing;
// status is that of the answer's HTTP, 0 without one.
func (s *Span) MeteredEnded(ctx context.Context, u model.Usage, status int, failure string) {
	if s == nil {
		return
	}
	var kind []attribute.KeyValue
	if failure != "" {
		kind = append(kind, semconv.ErrorTypeKey.String(failure))
	}
	s.end(failure, "", append(some(semconv.HTTPResponseStatusCode(status)), s.counted(ctx, u, kind...)...)...)
}
