package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run/workspace"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/tool"
)

// Bounds of what goes on after a run's work has ended.
const (
	// SaveTimeout bounds bringing the outputs out.
	SaveTimeout = 2 * time.Minute
	// SalvageTimeout bounds it when the run was interrupted.
	SalvageTimeout = 20 * time.Second
	// workerGrace is how long a worker may take to return once its context has
	// ended. One that does not is left behind, and the sandbox destroyed under it.
	workerGrace = 30 * time.Second
)

// Do makes a sandbox, lets w work in it, judges and saves what it did, and
// destroys the sandbox, whatever happens: w's success or failure, a panic, a
// limit, the end of ctx. Saving and destroying go on after ctx has ended, for
// a bounded time.
//
// The report is returned and written whenever the run's directory could be
// made, also beside an error. An error means that the machinery failed; a run
// that failed, was stopped or was not accepted is a report with its Reason.
func Do(ctx context.Context, o Options, w Worker) (*Report, error) {
	o.worker = workedBy(w)
	r, err := begin(&o)
	if err != nil {
		return nil, err
	}
	r.emit(Event{Kind: EventStart, Text: r.o.ID})
	for _, notice := range r.o.Notices {
		r.warn("%s", notice)
	}
	ctx, traced := r.traced(ctx)
	r.outside = ctx
	out, err := r.run(ctx, w)
	r.withdraw(ctx)
	return traced(r.end(out, err))
}

type runner struct {
	o       Options
	dir     string
	started time.Time
	log     *audit.Log
	talk    *transcript // nil without one
	past    *Past       // nil in a new run
	had     bool        // a workspace, in a run that is only on record
	renewed time.Time   // the end the record has
	summed  atomic.Pointer[summed]
	tree    *budget.Tree
	events  sync.Mutex
	outside context.Context // that the caller ends; nil in a replay

	inputs  *workspace.Tree // nil without a workspace
	there   standing        // in the working directory before they came
	box     *sandbox.Sandbox
	renewer *renewer
	meter   *meter // nil without Options.Metered

	desk   *desk   // what other processes see of it
	mirror *mirror // nil without an output directory

	mu         sync.Mutex
	report     *Report
	reached    *sandbox.Sandbox // box, for other goroutines
	judging    *sandbox.Sandbox // the checks' own; nil without one
	renewing   *renewer         // renewer, for other goroutines
	calling    []call           // under way
	asks       *approval.Gate   // nil: nobody is asked anything
	opened     []NetworkChange  // that the worker has come to
	tools      []*tool.Set      // that the worker took
	background []string         // call ids of which something may still run
	spills     []tool.Spill
	lost       error // the sandbox ended by itself
	guarded    bool  // what is protected was looked at
	breached   []pair
	decided    bool                      // how the work ended
	noisy      error                     // something of the worker's may run on
	retries    int                       // how often failed checks were told
	passed     []CheckResult             // in a round after which nothing has happened
	entered    sync.Once                 // what the image started was looked at
	former     map[string][]secret.Value // of secrets, before the one in Target.Spec, that requests may have

	// One caller finishes, and the others wait for a channel: that lets the
	// simulated time of a test go on, which a sync.Once does not.
	rounding  atomic.Pointer[chan struct{}] // closed when the round that is judged is; nil: none is
	finishing atomic.Bool
	finished  chan struct{} // closed when that is over
	said      string        // what it came to, in a sentence
	failed    error         // what of it failed
}

// errNoProgress ends the work of a run whose sandbox is not renewed.
var errNoProgress = errors.New("nothing new came out since the sandbox was last renewed")

// panicError is a panic of a worker, or of our own code, as an error.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

func caught(err *error) {
	if v := recover(); v != nil {
		*err = &panicError{value: v, stack: debug.Stack()}
	}
}

// run does everything between the record's beginning and its end. The sandbox
// is gone when it returns, or the report says that it may not be.
func (r *runner) run(ctx context.Context, w Worker) (out Outcome, err error) {
	defer caught(&err)
	work, cancel := r.tree.Context(ctx)
	defer cancel()
	work, stop := context.WithCancelCause(work)
	defer stop(nil)
	defer r.serve(stop)()
	if r.o.Metered != nil {
		r.meter = newMeter(work, r, stop)
	}

	if err := r.scan(work); err != nil {
		return r.unready(ctx, work, Misused, "the workspace could not be read", "the workspace was read", err)
	}
	defer r.closeInputs()
	if err := r.create(work); err != nil {
		return r.unready(ctx, work, reasonOf(err, Failed), "the sandbox could not be created", "the sandbox was made", err)
	}
	defer r.destroy(ctx)
	if err := errors.Join(r.copyIn(work), r.keepInputs(), r.openOutput(work)); err != nil {
		return r.unready(ctx, work, reasonOf(err, Failed), "the inputs could not be copied in", "the inputs were copied in", err)
	}
	defer r.closeOutput()
	defer r.keepFresh(work)()
	ended := r.renewer.start(work, stop)
	out, err = r.work(work, w)
	r.meter.end()
	stop(nil)
	<-ended
	out = r.explain(ctx, work, out, err)
	r.recordOutcome(out)
	r.conclude(ctx, out)
	return out, err
}

// unready is the outcome of a run in which the worker has not begun: of one that
// was interrupted that is no error.
func (r *runner) unready(ctx, work context.Context, why Reason, detail, during string, err error) (Outcome, error) {
	out := r.explain(ctx, work, Outcome{Reason: why, Detail: detail}, err)
	if out.Reason != Interrupted {
		return out, err
	}
	if out.Detail == interrupted {
		out.Detail += " while " + during
	}
	if canceled(err) {
		err = nil
	}
	return out, err
}

func (r *runner) closeOutput() {
	if err := r.mirror.close(); err != nil {
		r.warn("the output directory could not be closed: %v", err)
	}
}

// work lets the worker work, and waits for it only a while once its time is over.
func (r *runner) work(ctx context.Context, w Worker) (Outcome, error) {
	var res struct {
		out Outcome
		err error
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer caught(&res.err)
		res.out, res.err = w.Work(ctx, &Session{r})
	}()
	if !awaited(ctx, done) && !r.outlasts(done) {
		return Outcome{Reason: Failed, Detail: "the worker did not stop when it was told to"}, context.Cause(ctx)
	}
	return res.out, res.err
}

// awaited waits for done, when ctx has ended only for workerGrace, and reports
// whether it has come.
func awaited(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	grace := time.NewTimer(workerGrace)
	defer grace.Stop()
	select {
	case <-done:
		return true
	case <-grace.C:
		return false
	}
}

// outlasts waits for a worker that has the run judge its work, or said by a call that
// it was done: what the run does then goes on after the work's time, has bounds of
// its own, and what comes of it is the worker's to record.
func (r *runner) outlasts(done <-chan struct{}) bool {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for finished := false; ; {
		switch judged := r.rounding.Load(); {
		case judged != nil:
			<-*judged
		case r.finishing.Load() && !finished:
			<-r.finished
			finished = true
		default:
			return false
		}
		if awaited(over, done) {
			return true
		}
	}
}

func (r *runner) create(ctx context.Context) error {
	spec := r.spec()
	spec.Network = r.networkNow()
	lease := r.o.Lease.Lease(r.o.Limits, time.Now(), r.tree.Deadline())
	spec.TTL = lease.TTL()
	labels := map[string]string{LabelRun: r.o.ID}
	maps.Copy(labels, spec.Labels)
	spec.Labels = labels
	r.emit(Event{Kind: EventSandbox, Text: "creating a sandbox of " + r.o.Provider.Name()})
	start := time.Now()
	ctx, span := r.o.Telemetry.Sandbox(ctx, "create", r.o.Provider.Name(), "")
	box, err := sandbox.Create(ctx, r.o.Provider, spec, sandbox.Options{Log: r.log, Masker: r.o.Masker, RunID: r.o.ID, TraceID: r.o.TraceID, Ask: r.askHost, Meter: r.metering()})
	r.report.Time.CreateMS = time.Since(start).Milliseconds()
	if err != nil {
		span.SandboxEnded("", failureOf(err))
		return err
	}
	span.SandboxEnded(box.ID(), "")
	r.took(box)
	r.report.Cleanup = Cleanup{Error: "not tried"}
	info := box.Info()
	r.describe(info)
	r.warnAbsent(box.Features(), info)
	for _, n := range info.Notes {
		r.warn("%s", n)
	}
	r.renewer = newRenewer(r, lease)
	r.mu.Lock()
	r.renewing = r.renewer
	r.mu.Unlock()
	r.renewer.born(ctx, info.ExpiresAt)
	r.emit(Event{Kind: EventSandbox, Text: info.ID + " is ready"})
	return nil
}

// took makes box the run's sandbox.
func (r *runner) took(box *sandbox.Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.box, r.reached = box, box
}

// LabelRun is the label that names a sandbox's run.
const LabelRun = "rein.run"

// conclude finishes a run whose worker has not: with the checks, unless there
// is nothing left to check.
func (r *runner) conclude(ctx context.Context, out Outcome) {
	switch out.Reason {
	case Lost:
		r.once(func() {
			r.network(context.WithoutCancel(ctx))
		})
	case Interrupted:
		r.close(ctx, SalvageTimeout, nil)
	case Done, Misused:
		r.close(ctx, SaveTimeout, r.o.Accept)
	default:
		if !r.renewer.progress.Since() {
			r.renewer.spend()
		}
		r.close(ctx, SaveTimeout, r.o.Accept)
	}
}

// close saves the outputs, runs the checks and destroys the sandbox, once.
// Every caller waits until it is over.
func (r *runner) close(ctx context.Context, save time.Duration, checks []Check) (string, error) {
	r.once(func() {
		defer r.destroy(ctx)
		shielded := context.WithoutCancel(ctx)
		defer caught(&r.failed)
		r.renewer.halt()
		r.renewer.extend(shielded, quietTimeout+save+checksTime(checks))
		save = min(save, r.renewer.life())
		r.quiet(shielded)
		saving, cancel := context.WithTimeout(shielded, save)
		err := r.save(saving)
		cancel()
		r.putBack(shielded)
		r.failed = errors.Join(err, r.accept(shielded, checks))
		r.network(shielded)
		r.recordJudged()
	})
	return r.said, r.failed
}

// once has the first caller finish, and every other wait until that is over.
func (r *runner) once(finish func()) {
	if !r.finishing.CompareAndSwap(false, true) {
		<-r.finished
		return
	}
	defer close(r.finished)
	finish()
}

// destroy ends the sandbox and makes sure of it. It may be called again.
func (r *runner) destroy(ctx context.Context) {
	if r.box == nil || r.report.Cleanup.OK {
		return
	}
	r.emit(Event{Kind: EventCleanup, Text: "destroying the sandbox"})
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.KillTimeout)
	defer cancel()
	c := Cleanup{}
	id := r.box.ID()
	ctx, span := r.o.Telemetry.Sandbox(ctx, "kill", r.o.Provider.Name(), id)
	err := r.box.Kill(ctx)
	span.SandboxEnded(id, failureOf(err))
	_, asked := r.o.Provider.Get(ctx, id)
	switch {
	case sandbox.KindOf(asked) == sandbox.KindNotFound:
		c.OK, c.Verified = true, "provider "+r.o.Provider.Name()+" says there is no such sandbox"
	case err != nil:
		c.Error = err.Error()
	case asked != nil:
		c.Error = "it could not be verified: " + asked.Error()
	default:
		c.Error = "the provider still lists it"
	}
	if !c.OK {
		c.Remedy = "rein sandbox kill " + id
	}
	if err := r.box.Close(); err != nil {
		r.warn("the connections to the sandbox could not be closed: %v", err)
	}
	r.mu.Lock()
	r.report.Cleanup = c
	r.report.Time.CleanupMS = time.Since(start).Milliseconds()
	r.mu.Unlock()
	if c.OK {
		r.emit(Event{Kind: EventCleanup, Text: "the sandbox is gone"})
	} else {
		r.emit(Event{Kind: EventWarning, Text: "the sandbox may still be there: " + c.Error})
	}
}
