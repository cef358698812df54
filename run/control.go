package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run/control"
)

// ControlRecord is the data of audit.KindControl: what somebody did to the run.
type ControlRecord struct {
	Method   control.Method   `json:"method"`
	ID       string           `json:"id,omitempty"`   // of the question
	Hash     string           `json:"hash,omitempty"` // of what it is about, as who answers has it
	Decision control.Decision `json:"decision,omitempty"`
	Scope    control.Scope    `json:"scope,omitempty"`
	Reason   string           `json:"reason,omitempty"`
	UID      uint32           `json:"uid"`
	PID      int32            `json:"pid"`
}

// errStopped ends the work of a run that was told to stop.
var errStopped = errors.New("it was told to stop")

// desk is a run as its control socket shows it.
type desk struct {
	r    *runner
	stop context.CancelCauseFunc

	// changing is held while a limit is changed and recorded, so that the record
	// has the changes in their order.
	changing sync.Mutex

	mu      sync.Mutex
	doing   string
	waiting string
	ending  bool
}

// serve answers other processes until the returned function is called. stop ends
// the work. A run that cannot be asked works all the same.
func (r *runner) serve(stop context.CancelCauseFunc) (end func()) {
	r.desk.stop = stop
	if !r.o.Control {
		return func() {}
	}
	s, err := control.Serve(r.dir, r.desk)
	if err != nil {
		r.warn("the run cannot be asked, changed or stopped by other processes: %v", err)
		return func() {}
	}
	return func() {
		r.desk.mu.Lock()
		r.desk.ending = true
		r.desk.mu.Unlock()
		if err := s.Close(); err != nil {
			r.warn("the control socket could not be closed: %v", err)
		}
	}
}

// Dir is the run's directory on this host.
func (s *Session) Dir() string { return s.r.dir }

// note keeps what an event says of what the run does now.
func (d *desk) note(e Event) {
	if d == nil {
		return
	}
	doing, waiting := "", ""
	switch e.Kind {
	case EventStart:
		doing = "beginning"
	case EventSandbox:
		if doing = "in the sandbox"; e.Text != "" {
			doing = e.Text
		}
	case EventInputs, EventOutputs, EventCleanup:
		doing = e.Text
	case EventStep:
		doing = fmt.Sprintf("asking the model, step %d", e.Step)
	case EventCall:
		if e.Call != nil {
			doing = "running " + e.Call.Tool
			if e.Call.Summary != "" {
				doing += ": " + e.Call.Summary
			}
		}
	case EventResult:
		doing = fmt.Sprintf("going on after step %d", e.Step)
	case EventWait:
		doing, waiting = "waiting", e.Text
	case EventCheck:
		doing = "checking: " + e.Text
	default:
		return // pieces of text and warnings change nothing
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.doing, d.waiting = doing, waiting
}

// answered says that a question about a host, which came up during something else,
// is not waited for any more.
func (d *desk) answered() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting != "" {
		d.doing, d.waiting = "going on", ""
	}
}

// Status implements control.Handler.
func (d *desk) Status(context.Context) (control.Status, error) {
	r := d.r
	u := r.tree.Usage()
	s := control.Status{RunID: r.o.ID, PID: os.Getpid(), Task: r.o.Masker.String(r.o.Task), StartedAt: r.started, Deadline: r.tree.Deadline(),
		Steps: u.Steps, Calls: u.ToolCalls, Tokens: u.Tokens, CostUSD: u.Cost.Float(), Pending: len(d.questions())}
	for _, l := range r.tree.Limits().List() {
		s.Limits = append(s.Limits, control.Limit{Name: l.Limit, Amount: l.Amount, Value: l.Value})
	}
	r.mu.Lock()
	s.SandboxID = r.report.SandboxID
	r.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Doing, s.Waiting = r.o.Masker.String(d.doing), r.o.Masker.String(d.waiting)
	if s.Pending > 0 {
		s.Waiting = cmp.Or(s.Waiting, fmt.Sprintf("an answer to %d question(s)", s.Pending))
	}
	return s, nil
}

// open refuses what would come too late.
func (d *desk) open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ending {
		return &control.Error{Code: control.CodeEnding, Message: "the run is about to end"}
	}
	return nil
}

// record is for what is not about a call.
func (d *desk) record(kind audit.Kind, data any) error { return d.r.recordAside(kind, "", data) }

func (d *desk) questions() []approval.Question {
	d.r.mu.Lock()
	q := d.r.asks
	d.r.mu.Unlock()
	if q == nil {
		return nil
	}
	return q.Pending()
}

// Pending implements control.Handler.
func (d *desk) Pending(context.Context) ([]control.Pending, error) {
	var list []control.Pending
	for _, q := range d.questions() {
		list = append(list, control.Pending{ID: q.ID, Kind: string(q.Kind), CallID: q.CallID, Tool: q.Tool, Text: q.Text, Cwd: q.Cwd, Env: q.Env, Files: q.Files, Why: q.Why, Hash: q.Hash,
			Hidden: q.Hidden, Cut: q.Cut, Since: q.Asked, Expires: q.Expires})
	}
	return list, nil
}

// Approve implements control.Handler. The gate records the answer itself; here
// it is recorded whose it was.
func (d *desk) Approve(_ context.Context, by control.Peer, a control.Answer) error {
	if err := d.open(); err != nil {
		return err
	}
	d.r.mu.Lock()
	q := d.r.asks
	d.r.mu.Unlock()
	absent := &control.Error{Code: control.CodeNotFound, Message: "no question " + a.ID + " waits for an answer", Advice: "rein runs approve " + d.r.o.ID + " lists what waits"}
	if q == nil {
		return absent
	}
	if err := d.record(audit.KindControl, ControlRecord{Method: control.MethodApprove, ID: a.ID, Hash: a.Hash, Decision: a.Decision, Scope: a.Scope, Reason: a.Reason, UID: by.UID, PID: by.PID}); err != nil {
		return err
	}
	err := q.Resolve(a.ID, a.Hash, approval.Decision{Approve: a.Decision == control.Approve, ForRun: a.Scope == control.ForRun, By: fmt.Sprintf("uid %d", by.UID), Reason: a.Reason})
	switch {
	case errors.Is(err, approval.ErrNotPending):
		return absent
	case errors.Is(err, approval.ErrAnother):
		return &control.Error{Code: control.CodeChanged, Message: "question " + a.ID + " is not about what was answered", Advice: absent.Advice}
	}
	return err
}

// Stop implements control.Handler.
func (d *desk) Stop(_ context.Context, by control.Peer, reason string) error {
	if err := d.open(); err != nil {
		return err
	}
	if err := d.record(audit.KindControl, ControlRecord{Method: control.MethodStop, Reason: reason, UID: by.UID, PID: by.PID}); err != nil {
		return err
	}
	why := fmt.Errorf("%w by uid %d", errStopped, by.UID)
	if reason != "" {
		why = fmt.Errorf("%w: %s", why, reason)
	}
	d.stop(why)
	return nil
}
