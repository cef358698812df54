package sandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/execd"
)

// TerminalOptions are what a terminal runs.
type TerminalOptions struct {
	Command string            // shell text; empty: an interactive shell
	Cwd     string            // empty: the sandbox's working directory
	Env     map[string]string // added to the sandbox's environment
}

// OpenTerminal makes a terminal and returns its id. Its program starts when it
// is first attached to, and goes on when nobody is, until it ends, is closed, or
// the sandbox ends. KindUnsupported without CapPTY, KindUnavailable when there
// are execd.MaxTerminals. Under an execd that is not rein's Env is
// KindUnsupported.
func (s *Sandbox) OpenTerminal(ctx context.Context, o TerminalOptions, a Access) (string, error) {
	sum := sha256.Sum256([]byte(o.Command))
	in := TerminalRecord{Op: "open", Command: s.summary(o.Command), SHA256: hex.EncodeToString(sum[:]), Cwd: o.Cwd, Env: names(o.Env)}
	cwd := o.Cwd
	if !s.features.PTY {
		if len(o.Env) > 0 { // they would be left out without a word
			return "", &Error{Kind: KindUnsupported, Op: "open terminal", Err: errors.New("this sandbox's execd takes no variables for a terminal"),
				Hint: "export them in its command"}
		}
		cwd = cmp.Or(cwd, s.Info().Cwd)
	}
	err := s.terminal(ctx, a, &in, func(ctx context.Context) (err error) {
		in.Terminal, err = s.client.CreateTerminal(ctx, execd.TerminalRequest{Command: o.Command, Cwd: cwd, Envs: o.Env})
		return absentRoute(err, execd.CodeNotFound, "NOT_SUPPORTED")
	})
	return in.Terminal, err
}

// CloseTerminal ends a terminal and everything that runs in it. KindNotFound
// when it is gone already.
func (s *Sandbox) CloseTerminal(ctx context.Context, id string, a Access) error {
	in := TerminalRecord{Op: "close", Terminal: id}
	return s.terminal(ctx, a, &in, func(ctx context.Context) error { return s.client.DeleteTerminal(ctx, id) })
}

// TerminalStatus says whether a terminal's program runs. It changes nothing and
// is not recorded.
func (s *Sandbox) TerminalStatus(ctx context.Context, id string) (execd.TerminalStatus, error) {
	if err := s.reachable(ctx, "terminal status"); err != nil {
		return execd.TerminalStatus{}, err
	}
	ctx, cancel := bounded(ctx, DefaultOpTimeout)
	defer cancel()
	st, err := s.client.TerminalStatus(ctx, id)
	return st, s.fault(ctx, "terminal status", id, err)
}

func (s *Sandbox) terminal(ctx context.Context, a Access, r *TerminalRecord, act func(context.Context) error) error {
	r.Tool = a.tool()
	return s.recorded(ctx, a, recording{op: r.Op + " terminal", subject: &r.Terminal, ending: &r.Ending, data: r,
		intent: audit.KindTerminalIntent, outcome: audit.KindTerminalOutcome}, act)
}

// Terminal is somebody attached to a terminal. What is typed and printed is not
// recorded, only how much. Next is called by one goroutine, the other methods
// by any.
type Terminal struct {
	sandbox *Sandbox
	conn    *execd.Terminal
	access  Access
	record  TerminalRecord
	start   time.Time

	in, out atomic.Int64
	code    atomic.Pointer[int]
	closing sync.Once
	closed  error
}

// AttachTerminal attaches to a terminal, starting its program if that has not
// begun. The caller must Close what it returns, which leaves the program
// running. KindConflict when somebody is attached and o.Takeover is not set.
func (s *Sandbox) AttachTerminal(ctx context.Context, id string, o execd.AttachOptions, a Access) (*Terminal, error) {
	t := &Terminal{sandbox: s, access: a, record: TerminalRecord{Op: "attach", Terminal: id, Pipe: o.Pipe}, start: s.opt.Now()}
	err := s.terminal(ctx, a, &t.record, func(ctx context.Context) (err error) {
		t.conn, err = s.client.Attach(ctx, id, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Next returns what comes next. Its error is execd.ErrTakenOver in the chain
// when another has attached, KindLost when the sandbox has ended; the program
// may go on after any other.
func (t *Terminal) Next(ctx context.Context) (execd.TerminalEvent, error) {
	e, err := t.conn.Next(ctx)
	if err != nil {
		return e, t.sandbox.fault(ctx, "terminal", t.record.Terminal, err)
	}
	t.out.Add(int64(len(e.Data)))
	if e.ExitCode != nil {
		t.code.Store(e.ExitCode)
	}
	return e, nil
}

// Write types p.
func (t *Terminal) Write(ctx context.Context, p []byte) error {
	t.in.Add(int64(len(p)))
	return t.fault(ctx, t.conn.Write(ctx, p))
}

// CloseInput ends the input of a program with pipes.
func (t *Terminal) CloseInput(ctx context.Context) error {
	return t.fault(ctx, t.conn.CloseInput(ctx))
}

// Resize says how large the terminal is.
func (t *Terminal) Resize(ctx context.Context, cols, rows int) error {
	return t.fault(ctx, t.conn.Resize(ctx, cols, rows))
}

// Signal sends a signal, such as "SIGINT", to what is in the foreground.
func (t *Terminal) Signal(ctx context.Context, name string) error {
	return t.fault(ctx, t.conn.Signal(ctx, name))
}

func (t *Terminal) fault(ctx context.Context, err error) error {
	return t.sandbox.fault(ctx, "terminal", t.record.Terminal, err)
}

// Close detaches, and records how much went each way. Idempotent.
func (t *Terminal) Close() error {
	t.closing.Do(func() {
		_ = t.conn.Close() // the program's end, or the other side's, may have been first
		r := t.record
		r.Op, r.Ending = "detach", Ending{OK: true, DurationMS: t.sandbox.since(t.start)}
		r.BytesIn, r.BytesOut, r.ExitCode = t.in.Load(), t.out.Load(), t.code.Load()
		t.closed = t.sandbox.append(audit.KindTerminalOutcome, t.access.CallID, r)
	})
	return t.closed
}
