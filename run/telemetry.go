package run

import (
	"context"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/telemetry"
)

// Telemetry makes spans of what the worker does; it may be nil, which makes none.
func (s *Session) Telemetry() *telemetry.Recorder { return s.r.o.Telemetry }

// traced begins the run's span. The function returned ends it with the report.
func (r *runner) traced(ctx context.Context) (context.Context, func(*Report, error) (*Report, error)) {
	ctx, span := r.o.Telemetry.Run(ctx, telemetry.Run{
		ID: r.o.ID, TraceID: r.o.TraceID, Model: r.o.Model, Version: r.o.Version, Target: r.o.Target.Name, Task: r.o.Masker.String(r.o.Task),
	})
	return ctx, func(rep *Report, err error) (*Report, error) {
		span.RunEnded(telemetry.Ended{
			Reason: string(rep.Reason), Failed: rep.Reason != Done, ExitCode: rep.ExitCode, Accepted: rep.Accepted,
			Message: rep.Conclusion, Answer: rep.Answer, Steps: rep.Steps, Calls: rep.Calls.Total,
			Input: rep.Tokens.Input, Output: rep.Tokens.Output, CostUSD: rep.Tokens.CostUSD, AuditHead: rep.AuditHead.String(),
		})
		return rep, err
	}
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
