package sandbox

import (
	"context"
	"time"

	"github.com/rein-sh/rein/audit"
)

// CommandStatus is the state of one command.
type CommandStatus struct {
	CallID  string
	Running bool
	// LogPath is the file inside the sandbox with a background command's
	// output; Bytes and Lines are its length so far.
	LogPath      string
	Bytes, Lines int64
	// Result is set when the command has ended.
	Result *Result
}

// Status is what is known of a command, running or ended. KindNotFound when
// the sandbox has no such call. It is recorded when it tells the outcome of a
// background command for the first time.
func (s *Sandbox) Status(ctx context.Context, callID string) (CommandStatus, error) {
	if err := s.reachable(ctx, "status"); err != nil {
		return CommandStatus{}, err
	}
	ctx, cancel := bounded(ctx, DefaultOpTimeout)
	defer cancel()
	st, err := s.client.Status(ctx, callID)
	if err != nil {
		return CommandStatus{}, s.fault(ctx, "status", callID, err)
	}
	cs := CommandStatus{CallID: callID, Running: st.Running, LogPath: logPathOf(st)}
	if st.Rein != nil {
		cs.Bytes, cs.Lines = st.Rein.Bytes, st.Rein.Lines
	}
	if st.Running {
		return cs, nil
	}
	r := Result{CallID: callID, SandboxID: s.id, Outcome: outcomeOf(st), Known: true, LogPath: cs.LogPath}
	err = s.conclude(ctx, &r)
	cs.Result = &r
	return cs, err
}

// Wait returns the result of a command, when it has ended or when ctx ends.
// Ending the wait never interrupts the command.
func (s *Sandbox) Wait(ctx context.Context, callID string) (Result, error) {
	if err := s.reachable(ctx, "wait"); err != nil {
		return Result{}, err
	}
	st, err := s.await(ctx, callID, false)
	if err != nil {
		return Result{CallID: callID, SandboxID: s.id}, err
	}
	r := Result{CallID: callID, SandboxID: s.id, Outcome: outcomeOf(st), Known: true, LogPath: logPathOf(st)}
	return r, s.conclude(ctx, &r)
}

// conclude records the outcome of a command that was left running, once, and
// masks r.
func (s *Sandbox) conclude(ctx context.Context, r *Result) error {
	var err error
	if s.settle(r.CallID) {
		outcome := callOutcome(Command{Tool: "wait"}, *r, nil)
		var anchorErr error
		r.Network, anchorErr = s.network(ctx, r.CallID, s.networkSeen(), &outcome)
		outcome.explain(r.CallID, nil)
		err = also(anchorErr, s.append(audit.KindCallOutcome, r.CallID, outcome))
		s.finish(r.CallID)
	}
	s.mask(r)
	return err
}

// settle takes it upon the caller to record the outcome of a command, and
// reports whether nobody else has.
func (s *Sandbox) settle(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.settled[id]
	s.settled[id] = true
	return !was
}

// leave says that a command runs on, and that its outcome is still to come.
func (s *Sandbox) leave(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.settled, id)
	s.spans.leave(id)
}

// begin and finish say when a command runs.
func (s *Sandbox) begin(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spans.begin(id, time.Now())
}

func (s *Sandbox) finish(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spans.finish(id, time.Now())
}

// Logs returns output of a background command from the byte at cursor, both
// streams in the order they came, and the cursor to go on from: at most
// execd.MaxLog bytes, none when there is no more yet. The bytes are exact and
// not masked. KindConflict for a command that keeps no log.
func (s *Sandbox) Logs(ctx context.Context, callID string, cursor int64) ([]byte, int64, error) {
	var data []byte
	next := cursor
	err := s.file(ctx, Access{CallID: callID}, FileIntent{Op: "logs", Path: callID}, func(ctx context.Context, o *FileOutcome) (err error) {
		data, next, err = s.client.Logs(ctx, callID, cursor)
		o.Bytes = int64(len(data))
		return err
	})
	return data, next, err
}

// Interrupt ends a command: SIGTERM to all of it, then SIGKILL, and returns when
// it has ended. A command that has ended already is success; KindNotFound when
// there is no such call.
func (s *Sandbox) Interrupt(ctx context.Context, callID string) error {
	if err := s.reachable(ctx, "interrupt"); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx, DefaultOpTimeout)
	defer cancel()
	return s.interrupt(ctx, callID)
}
