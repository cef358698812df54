package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// Replayed is what came of replaying a run.
type Replayed struct {
	RunID string `json:"run_id"`
	// Same is true when the same calls were made and withheld, with the same
	// verdicts, and the work ended for the same reason.
	Same bool `json:"same"`
	// Requests, Replies and Calls are how many of each were done again.
	Requests int `json:"requests"`
	Replies  int `json:"replies"`
	Calls    int `json:"calls"`
	// Recorded and Replayed are the reasons for which the work ended.
	Recorded Reason `json:"recorded_reason"`
	Replayed Reason `json:"replayed_reason"`
	// Brake is the limit that stopped the work, in the replay.
	Brake *Brake `json:"brake,omitempty"`
	// Differences are where the replay did not do what is on record: the first,
	// since all that follows it follows from it, and that of the end.
	Differences []Difference `json:"differences"`
	// Changed is true when the options are not those the run began with.
	Changed bool `json:"options_changed"`
}

// Replay has w do again what is on record of the run in dir: it is answered with
// the replies and results of then, and nothing is asked, executed or written. o
// gives the task, the limits and what else the worker looks at; no provider is
// used. head, if not empty, is what the audit log should end with.
//
// A record that is incomplete, or that was altered, is an error; differences are
// not.
func Replay(ctx context.Context, dir, head string, o Options, w Resumer) (*Replayed, error) {
	o.worker = workedBy(w)
	rec, err := verified(dir, head)
	if err != nil {
		return nil, err
	}
	switch {
	case !rec.start.Transcript:
		return nil, &ResumeError{RunID: rec.runID, what: "replayed", Reason: "it kept no transcript (--no-transcript), so what was said is not known"}
	case rec.created == nil || !rec.worked():
		return nil, &ResumeError{RunID: rec.runID, what: "replayed", Reason: "its work had not begun, so there is nothing to replay"}
	}
	o.ID, o.TraceID, o.Events = rec.runID, rec.traceID, nil
	r := &runner{o: o, dir: dir, started: rec.begun, finished: make(chan struct{})}
	r.log = audit.New(io.Discard, audit.Options{})
	r.report = &Report{Calls: Calls{ByTool: map[string]int{}}}
	r.follows(rec)
	r.past.shift = time.Since(rec.begun)
	r.past.strict = true
	if r.tree, err = budget.NewTree(o.Limits, budget.TreeOptions{Now: r.past.clock}); err != nil {
		return nil, err
	}
	out, err := r.redrive(ctx, w, rec)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if _, off := errors.AsType[*OffRecordError](err); err != nil && !off && rec.outcome == nil {
		return nil, err
	}
	res := r.replayed(rec, out)
	res.Changed = rec.start.Options != o.fingerprint()
	return res, nil
}

// Replayable says why the run that ended with rep cannot be replayed, if it cannot:
// *ResumeError.
func Replayable(rep *Report) error {
	if rep.Agent == nil {
		return nil
	}
	return &ResumeError{RunID: rep.RunID, what: "replayed", Reason: "its agent, " + rep.Agent.Name + ", is a program of others: what it decided is not on record, only its requests and its end",
		hint: "rein runs report " + rep.RunID + " says what they were"}
}

// verified reads the record of a run whose audit log is as it was written.
func verified(dir, head string) (*record, error) {
	f, err := os.Open(filepath.Join(dir, AuditFile))
	if err != nil {
		return nil, err
	}
	v := audit.Verify(f, head)
	if err := f.Close(); err != nil {
		return nil, err
	}
	if !v.OK() && v.State != audit.Torn {
		return nil, &ResumeError{what: "replayed", Reason: "its audit log was altered: " + v.Reason, hint: "rein runs verify says more"}
	}
	return readRecord(dir)
}

// redrive has the worker do again what is on record, and nothing else.
func (r *runner) redrive(ctx context.Context, w Resumer, rec *record) (Outcome, error) {
	p := r.past
	p.strict = true
	if r.box == nil {
		box, err := sandbox.OnRecord(r.o.Provider, *rec.created, sandbox.Options{Log: r.log, Masker: r.o.Masker, RunID: r.o.ID, TraceID: r.o.TraceID})
		if err != nil {
			return Outcome{}, err
		}
		r.box, r.renewer = box, newRenewer(r, budget.Lease{})
		defer func() { r.box, r.renewer = nil, nil }()
	}
	if rec.inputs != nil && r.inputs == nil {
		if data, err := readKept(r.dir, inputsFile); err == nil {
			var k keptInputs
			r.had = json.Unmarshal(data, &k) == nil && k.Workspace != nil
		}
	}
	r.renewed = rec.created.ExpiresAt
	parent, interrupt := context.WithCancel(ctx)
	defer interrupt()
	work, stop := context.WithCancelCause(parent)
	defer stop(nil)
	if at, end := rec.ending(interrupt, stop); end != nil && p.stop == nil {
		p.stopAt, p.stop = at, func() bool { end(); return true }
	}
	p.settle()
	out, err := r.work(work, resumed{w, p})
	return r.explain(parent, work, out, err), err
}

// stopped finds where the work was ended for the limit of the wall clock, or because
// the sandbox got no more time, if it was: after how many entries. What came after
// the first of them did not end it.
func (rec *record) stopped(limits budget.Limits) (at int, cause error) {
	for i, s := range rec.said {
		switch s.kind {
		case audit.KindBrake:
			if b := timedOut(s.data, limits); b != nil {
				return rec.executed(i), b
			}
		case audit.KindHalt:
			var h halt
			if json.Unmarshal(s.data, &h) == nil {
				return rec.executed(i), h.cause()
			}
		}
	}
	n := len(rec.said)
	if n > 0 && !rec.said[n-1].call.Executed { // the process may have been ended before it recorded the brake
		e := rec.said[n-1].call.Error
		if b := keptFrom(e, limits); b != nil {
			return rec.executed(n), b
		}
		if cause := endedBefore(e); cause != nil && rec.outcome == nil {
			return rec.executed(n), cause
		}
	}
	return 0, nil
}

// runEnded begins what a call says that was not executed since the run had ended.
const runEnded = "the run has ended"

// Ended is why no call is executed any more once the work was ended, from outside, by
// cause.
func Ended(cause error) string {
	if haltOf(cause) == nil {
		return runEnded
	}
	return runEnded + ": " + cause.Error()
}

// endedError ends the work of a run once more that had ended before its process did,
// which had not recorded that.
type endedError struct{ why string } // empty: it was interrupted

func (e *endedError) Error() string { return cmp.Or(e.why, interrupted) }

// endedBefore is what the work was ended by, where that kept a call from being
// executed, and else nil.
func endedBefore(e *tool.Error) error {
	why, ok := e.NotExecuted()
	if !ok || !strings.HasPrefix(why, runEnded) {
		return nil
	}
	if why = strings.TrimPrefix(strings.TrimPrefix(why, runEnded), ": "); why == errNoProgress.Error() {
		return errNoProgress
	}
	return &endedError{why}
}

// keptFrom is the limit of the wall clock, where that kept a call from being executed,
// and else nil.
func keptFrom(e *tool.Error, limits budget.Limits) *budget.Breach {
	b := &budget.Breach{Limit: budget.LimitWallTime, Used: int64(limits.MaxWallTime), Max: int64(limits.MaxWallTime), Flag: budget.LimitWallTime.Flag()}
	what, _, _ := strings.Cut(b.Error(), ":")
	if e == nil || e.Code != tool.CodeBudget || !strings.HasPrefix(e.Message, what+":") {
		return nil
	}
	return b
}

// timedOut is the brake on record when its limit is that of the wall clock, and else
// nil.
func timedOut(data json.RawMessage, limits budget.Limits) *budget.Breach {
	var brake Brake
	if json.Unmarshal(data, &brake) != nil || brake.Limit != string(budget.LimitWallTime) {
		return nil
	}
	of := func(amount string, other time.Duration) int64 {
		if d, err := time.ParseDuration(amount); err == nil {
			return int64(d)
		}
		return int64(other)
	}
	return &budget.Breach{Limit: budget.LimitWallTime, Used: of(brake.Used, limits.MaxWallTime),
		Max: of(brake.Max, limits.MaxWallTime), Kept: of(brake.Kept, 0), Flag: brake.Flag}
}

// ending says when the work was ended from outside otherwise, if it was, and how
// that is done again.
func (rec *record) ending(interrupt func(), stop context.CancelCauseFunc) (at int, again func()) {
	if rec.outcome == nil {
		return 0, nil
	}
	at = rec.executed(len(rec.said))
	switch rec.outcome.Reason {
	case Interrupted:
		return at, interrupt
	case NoProgress:
		return at, func() { stop(errNoProgress) }
	case Lost:
		return at, func() {
			stop(&sandbox.Error{Kind: sandbox.KindLost, Op: "renew", Err: errors.New(rec.outcome.Detail)})
		}
	}
	return 0, nil
}

// executed is at without the calls before it that were not executed, which they
// were not because the work had ended.
func (rec *record) executed(at int) int {
	for at > 0 && (!rec.said[at-1].entry() || rec.said[at-1].kind == audit.KindTool && !rec.said[at-1].call.Executed) {
		at--
	}
	return at
}

// follows makes the run's past that of the record.
func (r *runner) follows(rec *record) {
	p := rec.past()
	r.past, p.between = p, r.between
	if at, cause := rec.stopped(r.o.Limits); cause != nil {
		p.stopAt, p.stop = at, func() bool { p.end(cause); return false }
	}
}

// follow takes what is on record between the worker's entries.
func (r *runner) follow(s saying) error {
	switch s.kind {
	case audit.KindSandboxRenewed:
		var o sandbox.LifecycleOutcome
		if err := json.Unmarshal(s.data, &o); err != nil {
			return err
		}
		if o.OK && o.ExpiresAt.After(r.renewed) {
			r.renewed = o.ExpiresAt
			r.renewer.progress.Renewed()
		}
	case audit.KindLimit:
		var c LimitChange
		if err := json.Unmarshal(s.data, &c); err != nil {
			return err
		}
		r.limitChanged(c)
		_, err := r.tree.SetLimit(c.Name, c.Amount)
		return err
	case audit.KindNetworkSet:
		var c NetworkChange
		if err := json.Unmarshal(s.data, &c); err != nil {
			return err
		}
		r.networkChanged(c)
	case audit.KindRound:
		var v Verdict
		if err := json.Unmarshal(s.data, &v); err != nil {
			return err
		}
		r.retries = v.Round
	}
	return nil
}

// replayed compares the ends.
func (r *runner) replayed(rec *record, out Outcome) *Replayed {
	p := r.past
	res := &Replayed{RunID: rec.runID, Replayed: out.Reason, Brake: r.report.Brake, Differences: []Difference{}}
	step := 0
	for _, s := range p.said[:p.at] {
		switch s.kind {
		case audit.KindModelRequest:
			res.Requests++
		case audit.KindModelReply:
			res.Replies++
		case audit.KindTool:
			res.Calls++
		}
		step = max(step, s.step)
	}
	if p.off != nil {
		res.Differences = append(res.Differences, *p.off)
	} else if s, ok := p.next(); ok {
		res.Differences = append(res.Differences, Difference{Step: s.step, Recorded: s.what(), Replayed: fmt.Sprintf("the end (%s)", out.Reason)})
	}
	if rec.outcome != nil {
		res.Recorded = rec.outcome.Reason
		if res.Recorded != out.Reason {
			res.Differences = append(res.Differences, Difference{Step: step, Recorded: "the end (" + string(res.Recorded) + ")", Replayed: "the end (" + string(out.Reason) + ")"})
		}
	}
	res.Same = len(res.Differences) == 0
	return res
}
