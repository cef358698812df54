package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/execd"
)

// How often a running call is looked after.
const (
	progressEvery = 500 * time.Millisecond // counts for Command.Progress
	lookEvery     = 10 * time.Second       // whether the sandbox is still there
	startGrace    = 2 * time.Second        // for a cancelled request to have reached execd
	longestPoll   = 500 * time.Millisecond
)

// watch interrupts the command when ctx ends or a writer fails, and gives up on
// the stream when that does not end it, the sandbox is lost, or the command
// should have ended long ago: a connection may fall silent without breaking. It
// returns when done is closed; looking ends then, too, and with it what is being
// asked.
func (c *call) watch(ctx, looking context.Context, done <-chan struct{}, giveUp context.CancelCauseFunc) {
	s := c.sandbox
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	overdue := time.NewTimer(c.patience())
	defer overdue.Stop()
	var progress <-chan time.Time
	if c.command.Progress != nil && s.features.CallIDs && !c.streaming() {
		t := time.NewTicker(progressEvery)
		defer t.Stop()
		progress = t.C
	}
	for {
		select {
		case <-done:
			return
		case <-c.broken:
			c.stop(ctx, done)
			giveUp(c.writeErr)
			return
		case <-ctx.Done():
			c.stop(ctx, done)
			giveUp(context.Cause(ctx))
			return
		case <-overdue.C:
			giveUp(errors.New("nothing came although its timeout is over"))
			return
		case <-progress:
			short, cancel := context.WithTimeout(looking, VerifyTimeout)
			st, err := s.client.Status(short, c.id)
			cancel()
			if err == nil && st.Rein != nil && !isClosed(done) {
				c.command.Progress(st.Rein.Bytes)
			}
		case <-look.C:
			short, cancel := context.WithTimeout(looking, VerifyTimeout)
			info, err := s.provider.Get(short, s.id)
			cancel()
			if KindOf(err) == KindNotFound || err == nil && info.State == StateLost {
				giveUp(errors.New("the sandbox has ended"))
				return
			}
		}
	}
}

// patience is how long a command can take: its timeout, which execd keeps, and
// what ending it may take there.
func (c *call) patience() time.Duration { return c.command.Timeout + InterruptTimeout }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// stop interrupts the command, once it is known to execd, and waits for the end
// of its stream. A command that its daemon ends with its stream needs no more
// than that.
func (c *call) stop(ctx context.Context, done <-chan struct{}) {
	if c.nameless() {
		return
	}
	select {
	case <-c.started:
	case <-done:
		return
	case <-time.After(startGrace): // it may have begun all the same
	}
	ctx, cancel := shielded(ctx, InterruptTimeout)
	defer cancel()
	c.interrupted = c.sandbox.interrupt(ctx, c.id) == nil // recorded there; verify asks what came of it
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// interrupt ends a command by id. One that has ended already is success.
func (s *Sandbox) interrupt(ctx context.Context, id string) error {
	err := s.client.Interrupt(ctx, id)
	if e, ok := errors.AsType[*execd.Error](err); ok && e.Code == execd.CodeConflict {
		err = nil
	}
	err = s.fault(ctx, "interrupt", id, err)
	return also(err, s.append(audit.KindInterrupt, id, Interrupted{OK: err == nil, Failure: failure(err)}))
}

// verify finds out what became of a call whose stream ended early. It asks; it
// never runs the command again.
//
// Who has ended ctx waits for the outcome, but not as long as a sandbox that is
// silent would take: VerifyTimeout, after stop has had its time.
func (c *call) verify(ctx context.Context, r Result, cut error) (Result, error) {
	s, ended := c.sandbox, ctx.Err() != nil
	if ended {
		var cancel context.CancelFunc
		ctx, cancel = shielded(ctx, VerifyTimeout)
		defer cancel()
	}
	if lost := s.lost(ctx, "run"); lost != nil {
		if e, ok := errors.AsType[*Error](lost); ok && e.Kind == KindNotFound { // by now: it was there when the call began
			lost = &Error{Kind: KindLost, Op: "run", Subject: s.id, Err: e.Err}
		}
		return r, lost
	}
	if !s.features.CallIDs {
		return r, &Error{Kind: KindTimeout, Op: "run", Subject: c.id, Err: cut, Hint: c.unasked()}
	}
	c.verified = true
	within, cancel := context.WithTimeout(ctx, max(c.patience()-time.Since(c.begun), VerifyTimeout))
	defer cancel()
	st, err := s.await(within, c.id, c.command.Background)
	if err != nil && within.Err() != nil && !ended { // else it was interrupted
		short, cancel := shielded(ctx, InterruptTimeout)
		defer cancel()
		if interruptErr := s.interrupt(short, c.id); interruptErr == nil {
			st, err = s.await(short, c.id, c.command.Background)
		}
	}
	if unknownCommand(err) {
		return r, &Error{Kind: KindUnavailable, Op: "run", Subject: c.id, Err: fmt.Errorf("it never began: %w", cut),
			Hint: "it can be run again with the same call id"}
	}
	if err != nil {
		if KindOf(err) == KindLost {
			return r, err
		}
		return r, &Error{Kind: KindTimeout, Op: "run", Subject: c.id, Err: fmt.Errorf("what became of it is not known: %w", cut)}
	}
	if st.Running { // in the background
		return r, nil
	}
	c.ended = true
	r.Outcome, r.LogPath = outcomeOf(st), logPathOf(st)
	if c.streaming() && c.bytes < r.Stdout.Bytes+r.Stderr.Bytes && c.writeErr == nil && !ended {
		hint := ""
		if r.Spill != nil {
			hint = "all of it is in " + r.Spill.Path + " inside the sandbox"
		}
		return r, &Error{Kind: KindUnavailable, Op: "run", Subject: c.id, Err: fmt.Errorf("the output is incomplete: %w", cut), Hint: hint}
	}
	return r, nil
}

// outcomeOf is the outcome in a status; another daemon says only the code.
func outcomeOf(st execd.Status) execd.Outcome {
	if st.Rein != nil && st.Rein.Outcome != nil {
		return *st.Rein.Outcome
	}
	o := execd.Outcome{StartedAt: st.StartedAt}
	if st.ExitCode != nil && *st.ExitCode >= 0 {
		o.ExitCode = st.ExitCode
	}
	if st.FinishedAt != nil {
		o.DurationMS = st.FinishedAt.Sub(st.StartedAt).Milliseconds()
	}
	return o
}

func logPathOf(st execd.Status) string {
	if st.Rein != nil {
		return st.Rein.LogPath
	}
	return ""
}

// await asks for a command's status until it has ended, or only once when begun
// is enough. While execd cannot be reached it goes on asking for VerifyTimeout.
func (s *Sandbox) await(ctx context.Context, id string, begun bool) (execd.Status, error) {
	lastAnswer, missing := time.Now(), 0
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, longestPoll) {
		short, cancel := context.WithTimeout(ctx, DefaultOpTimeout)
		st, err := s.client.Status(short, id)
		cancel()
		e, answered := errors.AsType[*execd.Error](err)
		switch {
		case err == nil && (begun || !st.Running):
			return st, nil
		case err == nil:
			lastAnswer, missing = time.Now(), 0
		case unknownCommand(err):
			// A request that was cut off may still be on its way to the start.
			if missing++; missing > 3 {
				return st, s.fault(ctx, "wait", id, err)
			}
		case answered && !undecided(e), ctx.Err() != nil, time.Since(lastAnswer) > VerifyTimeout:
			return st, s.fault(ctx, "wait", id, err)
		default:
			if lost := s.lost(ctx, "wait"); lost != nil {
				return st, lost
			}
		}
		select {
		case <-ctx.Done():
			return st, s.fault(ctx, "wait", id, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

func (s *Sandbox) logPath(ctx context.Context, id string) (string, error) {
	if !s.features.CallIDs {
		return "", nil
	}
	short, cancel := bounded(ctx, DefaultOpTimeout)
	defer cancel()
	st, err := s.client.Status(short, id)
	return logPathOf(st), s.fault(short, "run", id, err)
}
