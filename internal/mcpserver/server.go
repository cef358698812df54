// Package mcpserver offers rein's tools over the Model Context Protocol.
//
// Each sandbox that a client makes is a run of package run, whose worker the client
// is: it has the run's limits, inputs, acceptance, outputs, report and clean-up, and
// its calls are on the run's record. What a client may do within one connection is
// bounded as a whole: the calls, the time, the sandboxes one after another, and how
// long nothing is called.
//
// The protocol is that of https://modelcontextprotocol.io/specification/2025-11-25
// and those before it. A client of 2026-07-28 or later, in which requests over HTTP
// belong to no connection and servers ask clients nothing, agrees to 2025-11-25.
package mcpserver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

// Options of a server. Run.Provider, Run.StateDir and Run.Limits are required.
type Options struct {
	// Run is what each sandbox's run is made with. Its ID, Task and Events are set for
	// each. Its Limits.MaxToolCalls and MaxWallTime bound all of a client's together.
	Run run.Options
	// Cwd is where the workspace is going to be inside, for the tools' descriptions.
	Cwd string
	// Idle ends a client's sandbox in which nothing is called for that long; 0 means
	// DefaultIdle.
	Idle time.Duration
	// Sandboxes is how many a client may make, one after the other; 0 means
	// DefaultSandboxes.
	Sandboxes int
	// Parallel is how many sandboxes there may be at a time, of all clients; 0 means
	// DefaultParallel.
	Parallel int
	// Version is rein's, for clients.
	Version string
	// Events is told what happens in a run; nil tells nobody.
	Events func(run.Event)
	// Ended is told of each run that has ended. It may be called concurrently. Nil:
	// nobody is.
	Ended func(*run.Report, error)
	// Log is told what the protocol's library finds worth it; nil: nobody is.
	Log *slog.Logger
}

// Defaults of Options.
const (
	DefaultIdle      = 30 * time.Minute
	DefaultSandboxes = 3
	DefaultParallel  = 8
)

// Server serves any number of clients at a time.
type Server struct {
	o     Options
	mcp   *mcp.Server
	tools *tool.Set // as described

	places chan struct{} // has as many as there are sandboxes

	mu      sync.Mutex
	clients map[*mcp.ServerSession]*client
	closed  bool
	owned   sync.WaitGroup // who waits for clients' ends
}

// New returns a server. It makes nothing before a client calls a tool.
func New(o Options) (*Server, error) {
	if o.Run.Provider == nil || o.Run.StateDir == "" {
		return nil, errors.New("mcpserver: Run.Provider and Run.StateDir are required")
	}
	if err := o.Run.Limits.Validate(); err != nil {
		return nil, err
	}
	if o.Idle <= 0 {
		o.Idle = DefaultIdle
	}
	if o.Sandboxes <= 0 {
		o.Sandboxes = DefaultSandboxes
	}
	if o.Parallel <= 0 {
		o.Parallel = DefaultParallel
	}
	s := &Server{o: o, places: make(chan struct{}, o.Parallel), clients: map[*mcp.ServerSession]*client{}}
	defs, err := s.definitions()
	if err != nil {
		return nil, err
	}
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: "rein", Title: "rein sandbox", Version: o.Version}, &mcp.ServerOptions{
		Instructions: instructions(o), Logger: o.Log,
		Capabilities:              &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}, // they never change
		SupportedProtocolVersions: versions(),
	})
	for _, d := range defs {
		s.mcp.AddTool(d, s.call)
	}
	return s, nil
}

// lastVersion is the last version of the protocol with connections over HTTP, and
// questions to clients.
const lastVersion = "2025-11-25"

func versions() []string {
	return slices.DeleteFunc(slices.Clone(mcp.SupportedProtocolVersions()), func(v string) bool { return v > lastVersion })
}

// Serve serves one client over two streams, of a JSON-RPC message a line, until it
// closes in, or ctx ends. When it returns all that the client made is gone.
func (s *Server) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	session, err := s.mcp.Connect(ctx, &mcp.IOTransport{Reader: in, Writer: out}, nil)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, s.Close) // the calls under way first: a session waits for them
	defer stop()
	err = session.Wait()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if c := s.of(session); c != nil {
		c.leave(errLeft)
	}
	s.Close()
	return err
}

// Close ends what every client made, and waits until it is gone. No client is served
// any more.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	all := make([]*client, 0, len(s.clients))
	for _, c := range s.clients {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		c.leave(errClosed)
	}
	for session := range s.mcp.Sessions() {
		_ = session.Close() // it is over
	}
	s.owned.Wait()
}

// errClosed is why a client's sandbox ends when the server does.
var errClosed = errors.New("rein mcp was ended")

// errLeft is why it ends when the client does.
var errLeft = errors.New("the client left")

// of is the client at the other end of a session. Nil: the server is closed.
func (s *Server) of(session *mcp.ServerSession) *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[session]; c != nil || s.closed {
		return c
	}
	c := newClient(s, session)
	s.clients[session] = c
	s.owned.Go(func() {
		_ = session.Wait() // why it ended makes no difference
		c.leave(errLeft)
		c.wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.clients, session)
	})
	return c
}

// call serves tools/call.
func (s *Server) call(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	c := s.of(req.Session)
	if c == nil {
		return answer(tool.Result{Err: &tool.Error{Class: tool.Fatal, Code: tool.CodeSandboxGone, Message: errClosed.Error()}}), nil
	}
	return answer(c.call(ctx, req)), nil
}
