package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"
)

// Run is what is known of a run at its beginning.
type Run struct {
	ID, TraceID string
	Model       string // "vendor/name"
	Version     string // of rein
	// Agent is a program that works by itself, in a cage, and its version; empty: rein.
	Agent, AgentVersion string
	Target              string
	Task                string // sent as content only; masked
}

// Ended is what came of a run.
type Ended struct {
	Reason   string
	Failed   bool
	ExitCode int
	Accepted string
	Message  string // the conclusion
	Answer   string // sent as content only

	Steps, Calls  int
	Input, Output int64
	CostUSD       float64
	// AuditHead is the end of the audit log: with it a collector's operator can
	// tell that the log was not cut.
	AuditHead string
}

// Run begins the root span of a run, "invoke_agent rein" or that of the agent in the
// cage, under the run's trace id.
func (r *Recorder) Run(ctx context.Context, run Run) (context.Context, *Span) {
	if r == nil {
		return ctx, nil
	}
	vendor, name := split(run.Model)
	agent, version := "rein", run.Version
	if run.Agent != "" {
		agent, version = run.Agent, run.AgentVersion
	}
	base := some(
		semconv.GenAIOperationNameInvokeAgent, semconv.GenAIProviderNameKey.String(vendor), semconv.GenAIRequestModel(name),
		semconv.GenAIAgentName(agent), semconv.GenAIAgentVersionKey.String(version),
		semconv.GenAIConversationID(run.ID), attribute.String("rein.target", run.Target))
	var more []attribute.KeyValue
	if r.content {
		more = append(more, semconv.GenAIInputMessagesKey.String(messages(said{Role: "user", Parts: []part{{Type: "text", Content: run.Task}}})))
	}
	return r.begin(withTrace(ctx, run.TraceID), "invoke_agent "+agent, trace.SpanKindInternal, base, more)
}

// RunEnded ends the span of a run.
func (s *Span) RunEnded(e Ended) {
	if s == nil {
		return
	}
	failure := ""
	if e.Failed {
		failure = e.Reason
	}
	more := []attribute.KeyValue{
		attribute.String("rein.reason", e.Reason), attribute.Int("rein.exit_code", e.ExitCode), attribute.String("rein.accepted", e.Accepted),
		attribute.Int("rein.steps", e.Steps), attribute.Int("rein.calls", e.Calls), attribute.Float64("rein.cost_usd", e.CostUSD),
		attribute.String("rein.audit.head", e.AuditHead),
		semconv.GenAIUsageInputTokens(int(e.Input)), semconv.GenAIUsageOutputTokens(int(e.Output)),
	}
	if s.r.content {
		more = append(more, semconv.GenAIOutputMessagesKey.String(messages(said{Role: "assistant", Parts: []part{{Type: "text", Content: e.Answer}}, FinishReason: "stop"})))
	} else {
		e.Message = "" // it may quote what was said
	}
	s.end(failure, e.Message, more...)
}

// Sandbox begins the span of one act of a provider: "sandbox create" or "sandbox
// kill".
func (r *Recorder) Sandbox(ctx context.Context, op, provider, id string) (context.Context, *Span) {
	if r == nil {
		return ctx, nil
	}
	return r.begin(ctx, "sandbox "+op, trace.SpanKindClient, some(
		attribute.String("rein.sandbox.provider", provider), attribute.String("rein.sandbox.id", id)), nil)
}

// SandboxEnded ends such a span. failure names the kind of what failed, "" for
// nothing; id is the sandbox's, if it was not known before.
func (s *Span) SandboxEnded(id, failure string) {
	if s == nil {
		return
	}
	s.end(failure, "", some(attribute.String("rein.sandbox.id", id))...)
}
