package telemetry

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/secret"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"
)

// Chat begins the span of one request to the model that is named "vendor/name".
func (r *Recorder) Chat(ctx context.Context, m string, req *model.Request, masker *secret.Masker) (context.Context, *Span) {
	if r == nil {
		return ctx, nil
	}
	vendor, name := split(m)
	base := some(semconv.GenAIOperationNameChat, semconv.GenAIProviderNameKey.String(vendor), semconv.GenAIRequestModel(name))
	more := []attribute.KeyValue{semconv.GenAIRequestMaxTokens(req.MaxOutputTokens)}
	if r.content {
		more = append(more, semconv.GenAIInputMessagesKey.String(masked(masker, conversation(req.Messages))),
			semconv.GenAISystemInstructionsKey.String(masked(masker, encode([]part{{Type: "text", Content: req.System}}))))
	}
	return r.begin(ctx, "chat "+name, trace.SpanKindClient, base, more)
}

// Replied ends the span of a request. A request that failed has no reply.
func (s *Span) Replied(ctx context.Context, reply *model.Reply, err error, masker *secret.Masker) {
	if s == nil {
		return
	}
	if err != nil || reply == nil {
		failure := string(model.KindOf(err))
		if failure == "" {
			failure = string(model.KindUnknown)
		}
		s.counted(ctx, model.Usage{}, semconv.ErrorTypeKey.String(failure))
		s.end(failure, "")
		return
	}
	more := some(semconv.GenAIResponseModel(reply.Model), semconv.GenAIResponseID(reply.ID), semconv.GenAIResponseFinishReasons(finish(reply.Stop)))
	more = append(more, s.counted(ctx, reply.Usage, some(semconv.GenAIResponseModel(reply.Model))...)...)
	if s.r.content {
		m := saidOf(reply.Message)
		m.FinishReason = finish(reply.Stop)
		more = append(more, semconv.GenAIOutputMessagesKey.String(masked(masker, messages(m))))
	}
	s.end("", "", more...)
}

// counted records the metrics of a request that has ended, with more attributes than
// its span began with, and returns the attributes of what the vendor counted.
func (s *Span) counted(ctx context.Context, u model.Usage, more ...attribute.KeyValue) []attribute.KeyValue {
	base := metric.WithAttributes(append(s.base[:len(s.base):len(s.base)], more...)...)
	s.r.duration.Record(ctx, time.Since(s.start).Seconds(), base)
	if !u.Known {
		return nil
	}
	s.r.tokens.Record(ctx, u.Input, base, metric.WithAttributes(semconv.GenAITokenTypeInput))
	s.r.tokens.Record(ctx, u.Output, base, metric.WithAttributes(semconv.GenAITokenTypeOutput))
	return append([]attribute.KeyValue{semconv.GenAIUsageInputTokens(int(u.Input)), semconv.GenAIUsageOutputTokens(int(u.Output))},
		some(semconv.GenAIUsageCacheReadInputTokens(int(u.CachedInput)), semconv.GenAIUsageCacheCreationInputTokens(int(u.CacheWrite)))...)
}

// Tool begins the span of one tool call. callID is rein's, modelID the model's.
func (r *Recorder) Tool(ctx context.Context, name, callID, modelID, sandboxID string, arguments []byte, masker *secret.Masker) (context.Context, *Span) {
	if r == nil {
		return ctx, nil
	}
	base := some(semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(name), semconv.GenAIToolType("function"),
		semconv.GenAIToolCallID(modelID), attribute.String("rein.call_id", callID), attribute.String("rein.sandbox.id", sandboxID))
	var more []attribute.KeyValue
	if r.content {
		more = append(more, semconv.GenAIToolCallArgumentsKey.String(masked(masker, string(arguments))))
	}
	return r.begin(ctx, "execute_tool "+name, trace.SpanKindInternal, base, more)
}

// Called is how a tool call ended.
type Called struct {
	OK       bool
	ExitCode *int
	Timeout  bool
	Failure  string // the code of the error, "" without one
	Bytes    int64  // of output
	Result   string // sent as content only; masked
}

// Called ends the span of a tool call. A command's own exit code is no error
// of the call.
func (s *Span) Called(c Called) {
	if s == nil {
		return
	}
	more := []attribute.KeyValue{attribute.Bool("rein.ok", c.OK), attribute.Int64("rein.output_bytes", c.Bytes)}
	if c.ExitCode != nil {
		more = append(more, semconv.ProcessExitCode(*c.ExitCode))
	}
	if s.r.content {
		more = append(more, semconv.GenAIToolCallResultKey.String(c.Result))
	}
	if c.Failure == "" && c.Timeout {
		c.Failure = "timeout"
	}
	s.end(c.Failure, "", more...)
}

// said is a message in the conventions' JSON.
type said struct {
	Role         string `json:"role"`
	Parts        []part `json:"parts"`
	FinishReason string `json:"finish_reason,omitempty"`
}

type part struct {
	Type      string `json:"type"` // text, tool_call, tool_call_response
	Content   string `json:"content,omitempty"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments,omitempty"`
	Response  string `json:"response,omitempty"`
}

func saidOf(m model.Message) said {
	out := said{Role: string(m.Role)}
	if m.Text != "" {
		out.Parts = append(out.Parts, part{Type: "text", Content: m.Text})
	}
	for _, c := range m.Calls {
		out.Parts = append(out.Parts, part{Type: "tool_call", ID: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	for _, r := range m.Results {
		out.Parts = append(out.Parts, part{Type: "tool_call_response", ID: r.ID, Response: r.Content})
	}
	return out
}

func conversation(list []model.Message) string {
	out := make([]said, len(list))
	for i, m := range list {
		out[i] = saidOf(m)
	}
	return messages(out...)
}

func messages(list ...said) string { return encode(list) }

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil { // strings always encode
		panic(err)
	}
	return string(data)
}

func masked(m *secret.Masker, text string) string { return m.String(text) }

// finish is a reason to stop, as the conventions name it.
func finish(s model.StopReason) string {
	switch s {
	case model.StopEnd:
		return "stop"
	case model.StopToolCalls:
		return "tool_call"
	case model.StopRefusal:
		return "content_filter"
	}
	return string(s)
}
