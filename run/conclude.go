package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/sandbox"
)

// Values of Report.Accepted.
const (
	Yes       = "yes"
	No        = "no"
	Unchecked = "unchecked" // there were no checks
	Unclear   = "unknown"   // the checks were not, or could not be, run
)

// reasonOf is the reason a failure of the machinery gives, or other. A sandbox
// that is denied, as with an image that is not allowed, was asked for wrongly;
// so was one that cannot be made as it was asked for.
func reasonOf(err error, other Reason) Reason {
	e, ok := errors.AsType[*sandbox.Error](err)
	switch {
	case !ok:
	case e.Kind == sandbox.KindInvalid, e.Kind == sandbox.KindUnsupported, e.Kind == sandbox.KindHost,
		e.Kind == sandbox.KindDenied && e.Op == "create":
		return Misused
	case e.Kind == sandbox.KindLost:
		return Lost
	}
	return other
}

// unjudged is what is said of the work before it is judged, and for good when
// it never is.
func (o *Options) unjudged() string {
	if len(o.Accept) > 0 || len(o.Protect) > 0 {
		return Unclear
	}
	return Unchecked
}

// interrupted is the detail of a run that was, from outside.
const interrupted = "it was interrupted"

// explain says why the work really ended: a brake, the user or the loss of the
// sandbox come before what the worker makes of it.
func (r *runner) explain(parent, work context.Context, out Outcome, err error) Outcome {
	cause := context.Cause(work)
	if err == nil {
		err = r.finishError()
	}
	breach, braked := errors.AsType[*budget.Breach](err)
	if !braked && out.Reason != Done {
		breach, braked = errors.AsType[*budget.Breach](cause)
	}
	halted := cause
	if haltOf(halted) == nil {
		halted = err // of work that was ended as it is on record
	}
	renewal, notRenewed := errors.AsType[*renewError](halted)
	ended, endedThen := errors.AsType[*endedError](halted)
	r.mu.Lock()
	lost, before := r.lost, r.report.Brake
	r.decided = true
	r.mu.Unlock()
	switch {
	case braked:
		r.brake(breach)
		out.Reason, out.Detail, out.Hint = OverBudget, breach.Error(), ""
	case before != nil && out.Reason != Done: // and the worker never came back from its last turn
		out.Reason, out.Detail, out.Hint = OverBudget, before.stopped(), ""
	case errors.Is(cause, errStopped) && out.Reason != Done:
		out.Reason, out.Detail, out.Hint = Interrupted, cause.Error(), ""
	case errors.Is(cause, errOpen) && out.Reason != Done:
		out.Reason, out.Detail, out.Hint = Failed, cause.Error(), ""
	case parent.Err() != nil && out.Reason != Done:
		out.Reason, out.Detail, out.Hint = Interrupted, interrupted, ""
	case endedThen && ended.why == "" && out.Reason != Done:
		out.Reason, out.Detail, out.Hint = Interrupted, interrupted, ""
	case endedThen && out.Reason != Done:
		out.Reason, out.Detail, out.Hint = Failed, ended.why, ""
	case errors.Is(halted, errNoProgress) && out.Reason != Done:
		out.Reason, out.Detail, out.Hint = NoProgress, errNoProgress.Error(), "where work is silent for long, --ttl gives the sandbox a longer life before it is renewed"
	case notRenewed && out.Reason != Done:
		out.Reason, out.Detail, out.Hint = Failed, renewal.Error(), ""
	case lost != nil, sandbox.KindOf(err) == sandbox.KindLost, out.Reason != Done && sandbox.KindOf(cause) == sandbox.KindLost:
		out.Reason, out.Hint = Lost, ""
		if lost == nil {
			lost = err
		}
		if out.Detail == "" && lost != nil {
			out.Detail = lost.Error()
		}
	case out.Reason == "":
		out.Reason = Failed
	}
	return out
}

// finishError is what failed in finishing, if it is over.
func (r *runner) finishError() error {
	select {
	case <-r.finished:
		return r.failed
	default:
		return nil
	}
}

// Stopped tells the report which limit stopped the work. A worker that stops
// for a *budget.Breach and goes on to a last answer says so with it. What a worker
// reaches that was left behind, after it is decided how the work ended, did not
// stop it, and is a warning.
func (s *Session) Stopped(b *budget.Breach) {
	s.r.mu.Lock()
	late := s.r.decided
	s.r.mu.Unlock()
	if late {
		s.r.warn("after the work had ended: %v", b)
		return
	}
	s.r.brake(b)
}

func (r *runner) brake(b *budget.Breach) {
	r.mu.Lock()
	known := r.report.Brake != nil
	if !known {
		r.report.Brake = &Brake{Limit: string(b.Limit), Used: b.Format(b.Used), Max: b.Format(b.Max), Flag: b.Flag}
		if b.Kept > 0 {
			r.report.Brake.Kept = b.Format(b.Kept)
		}
		if b.Needed > 0 {
			r.report.Brake.Needed = b.Format(b.Needed)
		}
	}
	brake := *r.report.Brake
	r.mu.Unlock()
	if known {
		return
	}
	if r.past.Binding() {
		return
	}
	r.emit(Event{Kind: EventBrake, Text: brake.String()})
	if err := r.record(audit.KindBrake, "", brake); err != nil {
		r.warn("%v", err)
	}
}

// end completes, records and writes the report.
func (r *runner) end(out Outcome, err error) (*Report, error) {
	if p, ok := errors.AsType[*panicError](err); ok {
		out = Outcome{Reason: Failed, Detail: fmt.Sprintf("panic: %v", p.value)}
	}
	r.mu.Lock() // a worker that was left behind may still count
	defer r.mu.Unlock()
	rep := r.report
	rep.Reason, rep.Answer, rep.Composed = out.Reason, out.Answer, out.Composed
	err = errors.Join(err, r.finishError())
	if rep.Reason == Done {
		switch {
		case rep.Accepted == No:
			rep.Reason = Refused
		case rep.Accepted == Unclear, err != nil, !rep.Cleanup.OK:
			rep.Reason = Failed
		}
	}
	rep.ExitCode = rep.Reason.ExitCode()
	rep.Hint = out.Hint
	if err != nil {
		rep.Error, rep.Hint = err.Error(), cmp.Or(hintOf(err), out.Hint)
	}
	rep.ModelHosts = modelHosts(r.o.Target.Spec.Models)
	rep.Secrets = given(r.o.Target.Spec.Secrets)
	rep.NetworkRules = says(networkWith(r.o.Target.Spec.Network, rep.NetworkChanges))
	usage := r.tree.Usage()
	rep.Steps, rep.Models = usage.Steps, r.meter.list()
	rep.EndedAt = time.Now()
	rep.Time.TotalMS = rep.EndedAt.Sub(rep.StartedAt).Milliseconds()
	rep.Time.WaitingMS = usage.Waiting.Milliseconds()
	rep.Time.WorkingMS = rep.Time.TotalMS - rep.Time.WaitingMS
	rep.Conclusion = conclusion(rep, out)
	rep.Provenance.Outputs = produced(rep)
	sum, rec := r.reportHash()
	rec = errors.Join(rec, r.record(audit.KindRunEnd, "", runEnd{Reason: rep.Reason, ExitCode: rep.ExitCode, Accepted: rep.Accepted, Breaches: breaches(rep.Protected),
		Steps: rep.Steps, Calls: rep.Calls, Tokens: rep.Tokens, Time: rep.Time, Cleanup: rep.Cleanup,
		Patch: rep.Patch, Artifacts: len(rep.Artifacts), Provenance: rep.Provenance, Report: sum}))
	rep.AuditHead = r.log.Head()
	written, werr := r.write()
	r.emit(Event{Kind: EventEnd, Text: rep.Conclusion})
	return written, errors.Join(machinery(err), rec, werr, r.talk.close(), r.log.Close())
}

// machinery keeps the errors that are not already what Reason says.
func machinery(err error) error {
	if _, ok := errors.AsType[*budget.Breach](err); ok {
		return nil
	}
	if _, ok := errors.AsType[*endedError](err); ok {
		return nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, errNoProgress) || errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// canceled reports whether an error says nothing but that a context was, in all
// that is joined to it.
func canceled(err error) bool {
	if err == context.Canceled {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return canceled(e.Unwrap())
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !canceled(err) })
	}
	return false
}

// runEnd is the data of audit.KindRunEnd.
type runEnd struct {
	Reason     Reason     `json:"reason"`
	ExitCode   int        `json:"exit_code"`
	Accepted   string     `json:"accepted"`
	Breaches   []string   `json:"breaches,omitempty"` // of protected files, the first maxTold
	Steps      int        `json:"steps"`
	Calls      Calls      `json:"calls"`
	Tokens     Tokens     `json:"tokens"`
	Time       Times      `json:"time"`
	Cleanup    Cleanup    `json:"cleanup"`
	Patch      *PatchInfo `json:"patch,omitempty"`
	Artifacts  int        `json:"artifacts"`
	Provenance Provenance `json:"provenance"`
	// Report is the SHA-256 of report.json without its audit_head, its members in
	// the order of their names.
	Report string `json:"report_sha256,omitempty"`
}

// hinter is an error that says what to do about it.
type hinter interface {
	error
	Hint() string
}

// hintOf is what an error, or one that it wraps, says is to be done; "" when none
// does.
func hintOf(err error) string {
	if h := sandbox.HintOf(err); h != "" {
		return h
	}
	if h, ok := errors.AsType[hinter](err); ok {
		return h.Hint()
	}
	return ""
}

// conclusion is the whole run in a sentence.
func conclusion(rep *Report, out Outcome) string {
	var s string
	switch rep.Reason {
	case Done:
		s = "Done and accepted"
		if rep.Accepted == Unchecked {
			s = "Done; there were no checks, so nothing but the agent says so"
		}
	case Refused:
		s = "The agent says it is done, but that was not accepted: " + refusal(rep)
	case OverBudget:
		s = "Stopped by a limit: " + strings.TrimPrefix(out.Detail, "stopped by ")
	case NoProgress:
		s = "Stopped because " + out.Detail
	case Interrupted:
		s = "Interrupted"
		if when, ok := strings.CutPrefix(out.Detail, interrupted); ok {
			s += when
		} else if out.Detail != "" {
			s += ": " + out.Detail
		}
	case Lost:
		s = "The sandbox was lost: " + out.Detail
	case NoModel:
		s = "The model is not available: " + out.Detail
	case NeedsHuman:
		s = "A person has to decide: " + out.Detail
	case Stuck:
		s = "Stuck: " + out.Detail
	default:
		s = "Failed"
		if out.Detail != "" {
			s += ": " + out.Detail
		}
	}
	if rep.Reason != Done && rep.Reason != Refused {
		switch rep.Accepted {
		case Yes:
			s += "; the checks passed all the same"
		case No:
			s += "; the checks did not pass"
		}
	}
	if !rep.Cleanup.OK {
		s += "; the sandbox may still be there"
	}
	return strings.TrimSuffix(s, ".") + "."
}

// refusal names what was not accepted.
func refusal(rep *Report) string {
	for _, p := range rep.Protected {
		if !p.Unchanged {
			return "it " + p.breach()
		}
	}
	for _, c := range rep.Checks {
		if !c.Passed {
			return "the check " + c.Name + " failed"
		}
	}
	return "a check failed"
}
