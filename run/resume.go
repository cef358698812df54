package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/sandbox"
)

// ResumeError says why a run cannot be resumed or replayed.
type ResumeError struct {
	RunID  string
	Reason string
	hint   string
	what   string // that cannot be done; empty: to go on with it
}

func (e *ResumeError) Error() string {
	what := " cannot be " + cmp.Or(e.what, "taken up") + ": "
	if e.RunID == "" {
		return "the run" + what + e.Reason
	}
	return "run " + e.RunID + what + e.Reason
}

// Hint says what to do instead.
func (e *ResumeError) Hint() string { return e.hint }

// Resumer is a Worker that can go on where another process was ended.
type Resumer interface {
	Worker
	// Resume is Work in a run of which past is on record. It does that again,
	// answered from past, and then goes on.
	Resume(ctx context.Context, s *Session, past *Past) (Outcome, error)
}

// Resume goes on with the run o.ID, whose process was ended without a chance to
// end it: killed, or with its machine's power. o must be what Do was given.
//
// Of any number of processes that try, one goes on: whoever holds the audit log
// while there is no report. It continues the log, the transcript and the
// budgets; the wall clock has run on. A call that was under way is asked about
// by its id. Where the sandbox is gone, the report says what was saved and what
// is lost; where the work had not begun, the run begins anew, in another sandbox.
//
// A run that cannot be resumed is a *ResumeError, and nothing has changed.
func Resume(ctx context.Context, o Options, w Resumer) (*Report, error) {
	o.worker = workedBy(w)
	r, rec, err := reopen(o)
	if err != nil {
		return nil, err
	}
	r.emit(Event{Kind: EventStart, Text: r.o.ID + ", resumed"})
	for _, notice := range r.o.Notices {
		r.warn("%s", notice)
	}
	ctx, traced := r.traced(ctx)
	r.outside = ctx
	out, err := r.resume(ctx, w, rec)
	r.withdraw(ctx)
	return traced(r.end(out, err))
}

// reopen takes a run's record up where it ends.
func reopen(o Options) (_ *runner, _ *record, err error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	if _, err := ulid.ParseStrict(o.ID); err != nil {
		return nil, nil, &UsageError{Field: "id", Reason: err.Error(), hint: "name the run"}
	}
	if o.Limits == (budget.Limits{}) {
		o.Limits = budget.Standard()
	}
	r := &runner{o: o, dir: filepath.Join(o.StateDir, "runs", o.ID), finished: make(chan struct{})}
	if err := r.claim(); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.talk.close(), r.log.Close())
		}
	}()
	rec, err := readRecord(r.dir)
	if err != nil {
		return nil, nil, err
	}
	if err := rec.resumable(o); err != nil {
		return nil, nil, err
	}
	r.o.TraceID, r.started = rec.traceID, rec.begun
	r.follows(rec)
	r.desk = &desk{r: r}
	now := func() time.Time { return rec.begun }
	r.tree, err = budget.NewTree(o.Limits, budget.TreeOptions{Warn: r.warnLimit, Now: func() time.Time { return now() }})
	if err != nil {
		return nil, nil, err
	}
	now = func() time.Time { return r.past.clock() } // of the past there is by then
	if r.talk, err = openTranscript(filepath.Join(r.dir, transcriptFile), o.Masker, rec); err != nil {
		return nil, nil, err
	}
	r.skeleton()
	r.report.NetworkChanges, r.report.Revocations = rec.network, rec.revoked
	return r, rec, r.recordResumption(rec)
}

// claim takes the audit log, which one process can have, and makes sure that
// the run has not ended meanwhile.
func (r *runner) claim() (err error) {
	over := &ResumeError{RunID: r.o.ID, Reason: "it has ended", hint: "rein runs report " + r.o.ID}
	reported := func() bool {
		_, err := os.Lstat(filepath.Join(r.dir, reportFile))
		return err == nil
	}
	if reported() {
		return over
	}
	r.log, err = audit.Open(filepath.Join(r.dir, AuditFile), audit.Options{Masker: r.o.Masker, Sync: r.o.SyncRecords, ContinueTorn: true})
	switch {
	case audit.ErrorKindOf(err) == audit.ErrorLocked:
		return &ResumeError{RunID: r.o.ID, Reason: "another process works on it", hint: "wait until that has ended"}
	case err != nil:
		return err
	case reported():
		return errors.Join(over, r.log.Close())
	}
	return nil
}

// resumable says why a run cannot be resumed with these options, if it cannot.
func (rec *record) resumable(o Options) error {
	switch {
	case rec.start.Agent != nil:
		return &ResumeError{RunID: o.ID, Reason: "its agent, " + rec.start.Agent.Name + ", is a program of others, and what it printed since rein was killed nobody has read", hint: "begin a new run; its sandbox ends by itself: rein sandbox ls"}
	case !rec.start.Transcript:
		return &ResumeError{RunID: o.ID, Reason: "it kept no transcript (--no-transcript), so what was said is not known",
			hint: "its sandbox ends by itself; rein sandbox ls"}
	case rec.start.Options != o.fingerprint():
		return &ResumeError{RunID: o.ID, Reason: "the options are not those it began with",
			hint: "undo what has changed in the configuration since, or begin a new run"}
	case rec.worked() && rec.inputs != nil && rec.inputs.Hash == "":
		return &ResumeError{RunID: o.ID, Reason: "its inputs are not on record"}
	}
	return nil
}

// Resumption is one time that a run was resumed.
type Resumption struct {
	At time.Time `json:"at"`
	// Silent is how long nothing was recorded before that.
	SilentMS int64 `json:"silent_ms"`
	// Head is the end of the audit log as it was found.
	Head audit.Head `json:"head"`
}

// resumptionRecord is the data of audit.KindRunResumed.
type resumptionRecord struct {
	Resumption
	PID     int `json:"pid"`
	Entries int `json:"transcript_entries"`
	// Dropped is how many bytes of the transcript's end had not been recorded.
	Dropped int64 `json:"transcript_dropped_bytes,omitempty"`
	// Call had begun, and its result is not on record.
	Call string `json:"call,omitempty"`
}

func (r *runner) recordResumption(rec *record) error {
	again := Resumption{At: time.Now(), SilentMS: time.Since(rec.last).Milliseconds(), Head: rec.head}
	r.report.Resumed = append(rec.resumed, again)
	text := fmt.Sprintf("the run was resumed: the process that had begun it was ended, and nothing was recorded for %s", time.Duration(again.SilentMS)*time.Millisecond)
	r.report.Warnings = append(r.report.Warnings, text)
	r.emit(Event{Kind: EventWarning, Text: text})
	_, err := r.log.Append(audit.Entry{Kind: audit.KindRunResumed, RunID: r.o.ID, TraceID: r.o.TraceID, SandboxID: rec.sandboxID(),
		Data: resumptionRecord{Resumption: again, PID: os.Getpid(), Entries: rec.entries, Dropped: rec.surplus, Call: rec.call}})
	return err
}

func (rec *record) sandboxID() string {
	if rec.created == nil {
		return ""
	}
	return rec.created.ID
}

// resume goes on from what is on record.
func (r *runner) resume(ctx context.Context, w Resumer, rec *record) (out Outcome, err error) {
	defer caught(&err)
	if !rec.worked() && rec.outcome == nil && rec.judged == nil && !rec.ended {
		if err := r.clear(ctx, map[string]string{LabelRun: r.o.ID}); err != nil {
			return r.explain(ctx, ctx, Outcome{Reason: Failed, Detail: "what was left of the run could not be removed"}, err), err
		}
		r.past = nil
		r.changedAgain(rec)
		return r.run(ctx, w)
	}
	r.reopenOutput(ctx, rec)
	defer r.closeOutput()
	if rec.killed || rec.ended {
		return r.compose(ctx, w, rec, nil)
	}
	work, cancel := r.tree.Context(ctx)
	defer cancel()
	work, stop := context.WithCancelCause(work)
	defer stop(nil)
	defer r.serve(stop)()
	if err := r.reach(ctx, rec); err != nil {
		return r.compose(ctx, w, rec, err)
	}
	defer r.destroy(ctx)
	r.secretsAgain(ctx)
	defer r.keepFresh(work)()
	r.clearBeside(ctx, rec)
	if err := errors.Join(r.restoreInputs(*rec.inputs), r.removeHalves()); err != nil {
		return r.explain(ctx, work, Outcome{Reason: Failed, Detail: "the inputs are no longer known"}, err), err
	}
	defer r.closeInputs()
	if r.mirror != nil {
		r.mirror.update()
	}
	out, err = r.goOn(ctx, work, stop, w, rec)
	r.conclude(ctx, out)
	return out, err
}

// goOn has the worker go on, unless it had ended.
func (r *runner) goOn(ctx, work context.Context, stop context.CancelCauseFunc, w Resumer, rec *record) (Outcome, error) {
	renewed := make(chan struct{})
	go func() { // what was progress is known at the end of the record
		defer close(renewed)
		select {
		case <-work.Done():
		case <-r.past.live:
			<-r.renewer.start(work, stop)
		}
	}()
	if rec.outcome != nil {
		again, err := r.again(ctx, w, rec)
		stop(nil)
		<-renewed
		return again, err
	}
	r.renewed = rec.created.ExpiresAt
	r.past.settle()
	out, err := r.work(work, resumed{w, r.past})
	stop(nil)
	<-renewed
	out = r.explain(ctx, work, out, err)
	r.recordOutcome(out)
	return out, err
}

// resumed is a Resumer with its past, as a Worker.
type resumed struct {
	Resumer
	past *Past
}

func (w resumed) Work(ctx context.Context, s *Session) (Outcome, error) {
	ctx, end := w.past.shield(ctx)
	defer end(context.Canceled)
	return w.Resume(ctx, s, w.past)
}

// reach is attach, repeated while the provider or the sandbox may answer later.
func (r *runner) reach(ctx context.Context, rec *record) error {
	for attempt := 1; ; attempt++ {
		err := r.attach(ctx, rec)
		kind := sandbox.KindOf(err)
		if err == nil || attempt == attachAttempts || kind != sandbox.KindUnavailable && kind != sandbox.KindTimeout {
			return err
		}
		pause := time.NewTimer(time.Duration(attempt) * attachPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// The sandbox of a run is asked for so often, with pauses that grow by that.
const (
	attachAttempts = 4
	attachPause    = 2 * time.Second
)

// attaching is how a sandbox that the run has made is taken up.
func (r *runner) attaching() sandbox.Options {
	o := sandbox.Options{Log: r.log, Masker: r.o.Masker, RunID: r.o.ID, TraceID: r.o.TraceID, Env: r.o.Target.Spec.Env, Ask: r.askHost}
	if o.Env == nil {
		o.Env = map[string]string{}
	}
	return o
}

// attach takes the run's sandbox up, with the end it has.
func (r *runner) attach(ctx context.Context, rec *record) error {
	box, err := sandbox.Attach(ctx, r.o.Provider, rec.created.ID, r.attaching())
	if err != nil {
		return err
	}
	r.took(box)
	r.report.Cleanup = Cleanup{Error: "not tried"}
	info := box.Info()
	r.describe(info)
	lease := r.o.Lease.Lease(r.o.Limits, rec.created.CreatedAt, rec.deadline(r.o.Limits))
	if !info.ExpiresAt.IsZero() {
		lease.End = info.ExpiresAt
	}
	r.renewer = newRenewer(r, lease)
	r.emit(Event{Kind: EventSandbox, Text: info.ID + " is still there"})
	return r.networkAgain(ctx, rec)
}

// networkAgain puts in force what was by the record, where it was changed.
func (r *runner) networkAgain(ctx context.Context, rec *record) error {
	if !rec.steered {
		return nil
	}
	_, err := r.box.SetNetwork(ctx, r.networkNow())
	return err
}

// deadline is when the run's wall clock ends, by the limit that was last in force.
func (rec *record) deadline(l budget.Limits) time.Time {
	wall := l.MaxWallTime
	for _, s := range rec.said {
		var c LimitChange
		if s.kind == audit.KindLimit && json.Unmarshal(s.data, &c) == nil && c.Name == budget.LimitWallTime {
			wall = time.Duration(c.Amount)
		}
	}
	return rec.begun.Add(wall)
}

// clear destroys what was made for a run whose work never began.
func (r *runner) clear(ctx context.Context, labels map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, sandbox.KillTimeout)
	defer cancel()
	left, err := r.o.Provider.List(ctx, labels)
	if err != nil {
		return err
	}
	for _, info := range left {
		box, err := sandbox.Attach(ctx, r.o.Provider, info.ID, r.attaching())
		if err != nil {
			err = r.o.Provider.Kill(ctx, info.ID) // it may not have got so far as to answer
		} else {
			err = errors.Join(box.Kill(ctx), box.Close())
		}
		if err != nil && sandbox.KindOf(err) != sandbox.KindNotFound {
			return err
		}
	}
	return nil
}

// removeHalves removes what was brought out before the run was ended: all of it
// is brought out again.
func (r *runner) removeHalves() error {
	var errs []error
	for _, name := range []string{patchFile, artifactsDir, outputDir, NetworkFile} {
		if err := os.RemoveAll(filepath.Join(r.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// changedAgain takes what a person changed, in a run that is begun anew.
func (r *runner) changedAgain(rec *record) {
	for _, s := range rec.said {
		if s.kind == audit.KindLimit || s.kind == audit.KindNetworkSet {
			r.between(s)
		}
	}
}

// between takes what is on record between the worker's entries.
func (r *runner) between(s saying) {
	if err := r.follow(s); err != nil {
		r.warn("the record cannot be followed: %v", err)
	}
}

// gone is said of outputs that were never saved.
func gone(why error) string {
	switch kind := sandbox.KindOf(why); {
	case why == nil:
		return "the sandbox was destroyed before its outputs were saved"
	case kind == sandbox.KindNotFound || kind == sandbox.KindLost:
		return fmt.Sprintf("the sandbox was gone when the run was resumed, and what had not been saved is lost: %v", why)
	}
	return fmt.Sprintf("the sandbox could not be reached when the run was resumed, and was given up: what had not been saved is lost: %v", why)
}
