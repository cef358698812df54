package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

// task is one sandbox of a client's: a run, as whose worker it makes the client's
// calls, in the order in which they begin and any number at a time.
type task struct {
	id   string
	idle time.Duration

	ready chan struct{} // closed when calls can be made, or never will be
	done  chan struct{} // closed when no more are
	abort func()        // ends the run before it works
	over  chan struct{} // closed when the run has ended

	s     *run.Session // set before ready is closed, as are set and round
	set   *tool.Set
	round *budget.Round
	ctx   context.Context // of the calls
	once  sync.Once       // ready

	report *run.Report // set before over is closed
	err    error

	mu    sync.Mutex
	step  int
	busy  int       // calls under way
	quiet time.Time // since when there are none
	why   error     // why it ended; nil: it has not, or was finished
	ends  bool
	calls sync.WaitGroup
}

// Work makes the client's calls until it has finished, has left, calls nothing any
// more or has used up a limit.
func (t *task) Work(ctx context.Context, s *run.Session) (run.Outcome, error) {
	set, err := s.Tools()
	if err != nil {
		return run.Outcome{Reason: run.Failed, Detail: "the tools could not be set up"}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.mu.Lock()
	t.s, t.set, t.round, t.ctx, t.quiet = s, set, s.Budget().Round(), ctx, time.Now()
	t.mu.Unlock()
	t.once.Do(func() { close(t.ready) })
	t.await(ctx)
	why := t.cause()
	cancel(cmp.Or(why, context.Cause(ctx), context.Canceled))
	t.calls.Wait()
	return t.outcome(ctx, why)
}

// await returns when no calls are to be made any more.
func (t *task) await(ctx context.Context) {
	idle := time.NewTimer(t.idle)
	defer idle.Stop()
	for {
		select {
		case <-t.done:
			return
		case <-ctx.Done():
			t.end(context.Cause(ctx))
			return
		case <-idle.C:
			left := t.left()
			if left <= 0 {
				t.end(fmt.Errorf("%w: %v", errIdle, t.idle))
				return
			}
			idle.Reset(left)
		}
	}
}

// left is how long nothing may be called yet.
func (t *task) left() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy > 0 {
		return t.idle
	}
	return t.idle - time.Since(t.quiet)
}

// outcome is how the work ended.
func (t *task) outcome(ctx context.Context, why error) (run.Outcome, error) {
	lost, isLost := errors.AsType[*lostError](why)
	breach, isBreach := errors.AsType[*budget.Breach](why)
	switch {
	case why == nil:
		return run.Outcome{Reason: run.Done}, nil
	case isLost:
		return run.Outcome{Reason: run.Lost, Detail: lost.Error()}, nil
	case isBreach:
		t.s.Stopped(breach)
		return run.Outcome{Reason: run.OverBudget, Detail: breach.Error(), Hint: breach.Hint()}, why
	case errors.Is(why, errLeft), errors.Is(why, errIdle), errors.Is(why, errClosed):
		t.s.Warn("the client did not say that it had finished: %v", why)
		return run.Outcome{Reason: run.Done}, nil
	}
	return run.Outcome{Reason: run.Failed, Detail: why.Error()}, cmp.Or(context.Cause(ctx), why)
}

// lostError is that the sandbox has ended by itself.
type lostError struct{ message string }

func (e *lostError) Error() string { return e.message }

// end has no more calls be made: because of why, or because the client has finished.
// The first reason counts.
func (t *task) end(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ends {
		t.ends, t.why = true, why
		close(t.done)
		if t.set == nil {
			t.abort()
		}
	}
}

func (t *task) cause() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.why
}

// ended reports whether no more calls are made in it.
func (t *task) ended() bool {
	select {
	case <-t.done:
		return true
	case <-t.over:
		return true
	default:
		return false
	}
}

// finish notes how the run ended.
func (t *task) finish(report *run.Report, err error) {
	t.report, t.err = report, err
	close(t.over)
	t.once.Do(func() { close(t.ready) })
}

// unready is why no call can be made in it; nil: they can.
func (t *task) unready() *tool.Error {
	t.mu.Lock()
	made := t.set != nil
	t.mu.Unlock()
	if made {
		return nil
	}
	<-t.over // which closed ready
	e := &tool.Error{Class: tool.Fatal, Code: tool.CodeUnavailable, Message: "the sandbox could not be made"}
	if t.err != nil {
		e = tool.Explain(tool.OpCreate, "", t.err)
	}
	if t.report != nil {
		e.Message, e.Hint = t.report.Conclusion, cmp.Or(e.Hint, t.report.Hint)
	}
	return e
}

// used is how many calls were counted.
func (t *task) used() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.step
}

// forget has used say 0: they were counted.
func (t *task) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.step = 0
}

// last says what became of it.
func (t *task) last() string {
	s := "the sandbox of run " + t.id + " has ended"
	if why := t.cause(); why != nil {
		s += ": " + why.Error()
	}
	return s + "; its outputs: rein runs report " + t.id
}

// begin counts a call that begins; ok is false when none may any more.
func (t *task) begin() (step int, end func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ends {
		return 0, nil, false
	}
	t.step++
	t.busy++
	t.calls.Add(1)
	return t.step, func() {
		t.mu.Lock()
		t.busy--
		t.quiet = time.Now()
		t.mu.Unlock()
		t.calls.Done()
	}, true
}

// call makes one call.
func (t *task) call(ctx context.Context, req *mcp.CallToolRequest) tool.Result {
	step, end, ok := t.begin()
	if !ok {
		return tool.Fail(tool.OpRun, tool.CodeSandboxGone, t.last(), "")
	}
	defer end()
	call := tool.Call{ID: t.s.NewCallID(), Name: req.Params.Name, Arguments: req.Params.Arguments}
	if err := t.count(); err != nil {
		res := tool.Result{CallID: call.ID, SandboxID: t.s.Sandbox().ID(), Err: tool.Explain(tool.OpRun, "", err)}
		t.end(cmp.Or(t.s.NotCalled(call, step, res), err))
		return res
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })()
	res := t.made(ctx, req, call, step)
	if err := t.s.Called(call, step, res); err != nil {
		t.end(err)
		return tool.Result{CallID: call.ID, SandboxID: res.SandboxID, Err: &tool.Error{Class: tool.Fatal, Code: tool.CodeHost, Message: "the call could not be recorded: " + err.Error()}}
	}
	t.judge(call, res)
	return res
}

// count counts a call, which is a step of its own: what leads a client to it is not
// seen here.
func (t *task) count() error {
	if err := t.round.Call(); err != nil {
		return err
	}
	return t.round.Step()
}

// made makes the call, and tells of its progress.
func (t *task) made(ctx context.Context, req *mcp.CallToolRequest, call tool.Call, step int) tool.Result {
	summary := t.s.Parameters(call)
	event := func(kind run.EventKind, bytes int64) {
		t.s.Emit(run.Event{Kind: kind, Step: step, Call: &run.CallEvent{ID: call.ID, Tool: call.Name, Summary: summary, Bytes: bytes}})
	}
	event(run.EventCall, 0)
	told, stop := progressOf(ctx, req)
	defer stop()
	call.Progress = func(bytes int64) {
		event(run.EventOutput, bytes)
		told(bytes)
	}
	return t.set.Run(ctx, call)
}

// judge ends the work where a call has.
func (t *task) judge(call tool.Call, res tool.Result) {
	switch e := res.Err; {
	case call.Name == tool.SandboxKill && (e == nil || e.Code != tool.CodeNotAccepted):
		t.end(nil)
	case e != nil && e.Class == tool.Fatal && (e.Code == tool.CodeSandboxLost || e.Code == tool.CodeSandboxGone):
		t.end(&lostError{e.Message})
	}
}
