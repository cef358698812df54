package run

import (
	"context"
	"strconv"
	"strings"

	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/telemetry"
)

// Telemetry makes spans of what the worker does; it may be nil, which makes none.
func (s *Session) Telemetry() *telemetry.Recorder { return s.r.o.Telemetry }

// traced begins the run's span. The function returned ends it with the report.
func (r *runner) traced(ctx context.Context) (context.Context, func(*Report, error) (*Report, error)) {
	about := telemetry.Run{
		ID: r.o.ID, TraceID: r.o.TraceID, Model: r.o.Model, Version: r.o.Version, Target: r.o.Target.Name, Task: r.o.Masker.String(r.o.Task),
	}
	if agent := r.o.Agent; agent != nil {
		about.Agent, about.AgentVersion = agent.Name, agent.Version
	}
	ctx, span := r.o.Telemetry.Run(ctx, about)
	return ctx, func(rep *Report, err error) (*Report, error) {
		span.RunEnded(telemetry.Ended{
			Reason: string(rep.Reason), Failed: rep.Reason != Done, ExitCode: rep.ExitCode, Accepted: rep.Accepted,
			Message: rep.Conclusion, Answer: rep.Answer, Steps: rep.Steps, Calls: rep.Calls.Total,
			Input: rep.Tokens.Input, Output: rep.Tokens.Output, CostUSD: rep.Tokens.CostUSD, AuditHead: rep.AuditHead.String(),
		})
		return rep, err
	}
}

// metered begins the span of a request of the sandbox to a model, capped at output
// tokens. The function returned ends it with what became of it.
func (r *runner) metered(ctx context.Context, a inference.Ask, output int64) func(inference.Ended) {
	vendor, _, _ := strings.Cut(r.o.Model, "/")
	r.mu.Lock()
	sandboxID := ""
	if r.reached != nil {
		sandboxID = r.reached.ID()
	}
	r.mu.Unlock()
	ctx, span := r.o.Telemetry.Metered(ctx, telemetry.Metered{
		Model: vendor + "/" + a.Model, Host: a.Host, MaxOutput: output, CallID: a.CallID, SandboxID: sandboxID,
	})
	return func(e inference.Ended) {
		u := e.Usage
		span.MeteredEnded(ctx, model.Usage{Known: u.Known, Input: u.Input, CachedInput: u.Cached, CacheWrite: u.Written, Output: u.Output}, e.Status, meteredFailure(e))
	}
}

// meteredFailure is the kind of what failed, "" for nothing: a code of HTTP, or how
// far the answer came.
func meteredFailure(e inference.Ended) string {
	switch {
	case e.Status >= 400:
		return strconv.Itoa(e.Status)
	case e.Cut:
		return "cut"
	case e.Status == 0:
		return "no_answer"
	}
	return ""
}

// failureOf is the kind of a failure of the machinery, "" for none.
func failureOf(err error) string {
	if err == nil {
		return ""
	}
	if k := sandbox.KindOf(err); k != "" {
		return string(k)
	}
	return string(sandbox.KindInternal)
}
