package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

// client is one connection: what it makes, and what it has used.
type client struct {
	s       *Server
	session *mcp.ServerSession
	begun   time.Time

	mu    sync.Mutex
	task  *task // the last; nil: none was made
	made  int
	calls int   // in tasks before the last
	gone  error // why nothing is made any more

	tasks sync.WaitGroup
}

func newClient(s *Server, session *mcp.ServerSession) *client {
	return &client{s: s, session: session, begun: time.Now()}
}

// leave ends what the client has made, and refuses what it asks for from now on.
func (c *client) leave(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil {
		c.gone = why
	}
	if c.task != nil {
		c.task.end(c.gone)
	}
}

// wait returns when nothing is left of the client.
func (c *client) wait() { c.tasks.Wait() }

// call does one call in the client's sandbox, which is made if there is none.
func (c *client) call(ctx context.Context, req *mcp.CallToolRequest) tool.Result {
	t, no := c.taskFor(tool.Call{Name: req.Params.Name, Arguments: req.Params.Arguments})
	if no != nil {
		return *no
	}
	select {
	case <-t.ready:
	case <-ctx.Done(): // the sandbox is made all the same
		return tool.Result{Err: tool.Explain(tool.OpCreate, "", context.Cause(ctx))}
	}
	if err := t.unready(); err != nil {
		return tool.Result{Err: err}
	}
	return t.call(ctx, req)
}

// taskFor is the task that a call is for. The result is the call's where it can be
// in none.
func (c *client) taskFor(call tool.Call) (*task, *tool.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone != nil {
		no := tool.Fail(tool.OpCreate, tool.CodeSandboxGone, c.gone.Error(), "")
		return nil, &no
	}
	if c.task != nil && !c.task.ended() {
		return c.task, nil
	}
	if no := c.s.tools.Check(call); no != nil { // nothing is made for it
		return nil, no
	}
	if call.Name == tool.SandboxKill {
		return nil, c.over()
	}
	if c.task != nil && call.Name != tool.SandboxCreate { // its files are not there any more
		no := tool.Fail(tool.OpRun, tool.CodeSandboxGone, c.task.last(), "call "+tool.SandboxCreate+" for a new one, which has nothing of what was done in that")
		return nil, &no
	}
	o, err := c.options()
	if err != nil {
		return nil, &tool.Result{Err: err}
	}
	select {
	case c.s.places <- struct{}{}:
	default:
		no := tool.Fail(tool.OpCreate, tool.CodeUnavailable, fmt.Sprintf("%d sandboxes of other clients are in use, and no more may be", cap(c.s.places)), "try again later")
		return nil, &no
	}
	c.made++
	c.task = c.start(o)
	return c.task, nil
}

// over is what sandbox_kill says where there is nothing to end.
func (c *client) over() *tool.Result {
	said := "there is no sandbox\n"
	if c.task != nil {
		said = c.task.last() + "\n"
	}
	return &tool.Result{OK: true, Stdout: said}
}

// options are those of the client's next run: with what is left of its limits.
func (c *client) options() (run.Options, *tool.Error) {
	o := c.s.o.Run
	if c.task != nil {
		c.calls += c.task.used()
		c.task.forget()
	}
	limits := o.Limits
	left, wall := limits.MaxToolCalls-c.calls, limits.MaxWallTime-time.Since(c.begun)
	limit, used, most := budget.LimitToolCalls, int64(c.calls), int64(limits.MaxToolCalls)
	if wall < time.Minute {
		limit, used, most = budget.LimitWallTime, int64(time.Since(c.begun)), int64(limits.MaxWallTime)
	}
	switch {
	case c.made >= c.s.o.Sandboxes:
		return o, &tool.Error{Class: tool.Fatal, Code: tool.CodeSandboxLimit,
			Message: fmt.Sprintf("%d sandboxes were made within this connection, and no more may be", c.made), Hint: "the user can connect anew"}
	case left <= 0 || wall < time.Minute:
		return o, tool.Explain(tool.OpCreate, "", &budget.Breach{Limit: limit, Used: used, Max: most, Flag: limit.Flag()})
	}
	o.Limits.MaxToolCalls, o.Limits.MaxSteps, o.Limits.MaxWallTime = left, left, wall
	o.ID = run.NewID()
	o.Task = "over MCP, by " + c.name()
	o.Attended = true // the idle time bounds it
	o.Events = c.s.o.Events
	o.Approval = c.approval(o.Approval)
	return o, nil
}

// name is what the client calls itself.
func (c *client) name() string {
	p := c.session.InitializeParams()
	if p == nil || p.ClientInfo == nil || p.ClientInfo.Name == "" {
		return "a client without a name"
	}
	return evidence.Cut(p.ClientInfo.Name+" "+p.ClientInfo.Version, 200)
}

// start begins a run whose worker the client is. The caller holds mu.
func (c *client) start(o run.Options) *task {
	// What the run leaves is saved when the client has gone: the task ends it.
	ctx, cancel := context.WithCancel(context.Background())
	t := &task{id: o.ID, idle: c.s.o.Idle, abort: cancel, ready: make(chan struct{}), done: make(chan struct{}), over: make(chan struct{})}
	c.tasks.Go(func() {
		defer cancel()
		t.finish(run.Do(ctx, o, t))
		<-c.s.places
		if c.s.o.Ended != nil {
			c.s.o.Ended(t.report, t.err)
		}
	})
	return t
}

// errIdle is why a sandbox ends in which nothing is called any more.
var errIdle = errors.New("nothing was called for too long")
