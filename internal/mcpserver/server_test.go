package mcpserver_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/internal/mcpserver"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a server with an in-memory provider, and what became of its runs.
type host struct {
	*mcpserver.Server
	provider *sandboxtest.Memory
	state    string

	mu   sync.Mutex
	ends []*run.Report
}

func newHost(t *testing.T, change func(*mcpserver.Options)) *host {
	t.Helper()
	h := &host{provider: sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()}), state: t.TempDir()}
	o := mcpserver.Options{
		Run: run.Options{Provider: h.provider, StateDir: h.state, Limits: budget.MCP()}, Cwd: "/workspace", Version: "test",
		Ended: func(r *run.Report, err error) {
			if err != nil {
				t.Errorf("the run: %v", err)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			h.ends = append(h.ends, r)
		},
	}
	if change != nil {
		change(&o)
	}
	var err error
	if h.Server, err = mcpserver.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Close()
		if left, err := h.provider.List(context.WithoutCancel(t.Context()), nil); err != nil || len(left) > 0 {
			t.Errorf("sandboxes are left: %v, %v", left, err)
		}
		_ = h.provider.Close()
	})
	return h
}

// reports are those of the runs that have ended.
func (h *host) reports() []*run.Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ends)
}

// connect returns a client of the host's.
func (h *host) connect(t *testing.T, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	c, _ := h.connectUntil(t, t.Context(), o)
	return c
}

// connectUntil serves until ctx ends, or vanish is called: then the client is gone
// without a word, whatever it waits for.
func (h *host) connectUntil(t *testing.T, ctx context.Context, o *mcp.ClientOptions) (c *mcp.ClientSession, vanish func()) {
	t.Helper()
	in, toServer := pipe()
	fromServer, out := pipe()
	over := make(chan struct{})
	go func() { defer close(over); _ = h.Serve(ctx, in, out) }() // why it ended is the client's to say
	c, err := mcp.NewClient(&mcp.Implementation{Name: "tester", Version: "1"}, o).Connect(t.Context(), &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		<-over
	})
	return c, func() { _ = toServer.Close(); <-over }
}

// call calls a tool and returns its result.
func call(t *testing.T, c *mcp.ClientSession, name string, arguments map[string]any) tool.Result {
	t.Helper()
	res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return resultOf(t, res)
}

func resultOf(t *testing.T, res *mcp.CallToolResult) (r tool.Result) {
	t.Helper()
	data, err := json.Marshal(res.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	var text tool.Result
	if err := json.Unmarshal([]byte(res.Content[0].(*mcp.TextContent).Text), &text); err != nil || text.CallID != r.CallID || text.Stdout != r.Stdout {
		t.Errorf("the text says otherwise: %+v, %v", text, err)
	}
	if res.IsError != (r.Err != nil) {
		t.Errorf("isError is %v: %+v", res.IsError, r)
	}
	return r
}

func TestTools(t *testing.T) {
	t.Parallel()
	c := newHost(t, nil).connect(t, nil)
	list, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range list.Tools {
		names = append(names, d.Name)
		if d.Title == "" || d.Annotations == nil || d.OutputSchema == nil || d.InputSchema == nil {
			t.Errorf("%s: %+v", d.Name, d)
		}
		if readOnly := d.Name == tool.ReadFile; d.Annotations.ReadOnlyHint != readOnly {
			t.Errorf("%s: %+v", d.Name, d.Annotations)
		}
	}
	if want := []string{tool.ReadFile, tool.RunCommand, tool.SandboxCreate, tool.SandboxKill, tool.WriteFile}; !slices.Equal(slices.Sorted(slices.Values(names)), want) {
		t.Errorf("%q", names)
	}
	if s := c.InitializeResult().Instructions; !strings.Contains(s, "at most 500 calls and 8h") {
		t.Errorf("%q", s)
	}
}

// A client works: the sandbox is made by its first call, and its outputs are saved when it has finished.
func TestWork(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "greeting"), []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, func(o *mcpserver.Options) { o.Run.Workspace.Dir = dir })
	c := h.connect(t, nil)
	if r := call(t, c, tool.RunCommand, map[string]any{"command": "cat greeting; echo again >>greeting; exit 3"}); r.Stdout != "hello\n" || r.ExitCode == nil || *r.ExitCode != 3 || r.OK || r.Err != nil {
		t.Errorf("%+v", r)
	}
	if r := call(t, c, tool.WriteFile, map[string]any{"path": "new", "content": "new\n"}); !r.OK {
		t.Errorf("%+v", r)
	}
	if r := call(t, c, tool.SandboxKill, nil); !r.OK || !strings.Contains(r.Stdout, "outputs are saved") {
		t.Errorf("%+v", r)
	}
	if r := call(t, c, tool.SandboxKill, nil); !r.OK {
		t.Errorf("killed again: %+v", r)
	}
	r := call(t, c, tool.RunCommand, map[string]any{"command": "true"})
	if r.Err == nil || r.Err.Code != tool.CodeSandboxGone || !strings.Contains(r.Err.Hint, tool.SandboxCreate) {
		t.Errorf("%+v", r)
	}
	h.Close()
	reports := h.reports()
	if len(reports) != 1 || reports[0].Reason != run.Done || reports[0].Patch == nil || len(reports[0].Patch.Files) != 2 || !reports[0].Cleanup.OK {
		t.Fatalf("%+v", reports)
	}
	if got := reports[0].Task; got != "over MCP, by tester 1" {
		t.Errorf("task %q", got)
	}
}

// What is wrong with a call is said before anything is made for it.
func TestNothingIsMade(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	c := h.connect(t, nil)
	for name, arguments := range map[string]map[string]any{
		tool.SandboxCreate: {},
		tool.RunCommand:    {"command": 1},
		tool.ReadFile:      {"file": "x"},
	} {
		if r := call(t, c, name, arguments); r.Err == nil || r.Err.Class != tool.Fixable || r.Err.Code != tool.CodeInvalidArguments {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := call(t, c, tool.SandboxKill, nil); !r.OK {
		t.Errorf("%+v", r)
	}
	if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_comand"}); err == nil {
		t.Error("a tool was called that is none")
	}
	if list, err := run.List(h.state); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// A client may make so many sandboxes, one after the other.
func TestSandboxes(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(o *mcpserver.Options) { o.Sandboxes = 2 })
	c := h.connect(t, nil)
	ids := map[string]bool{}
	for range 2 {
		made := call(t, c, tool.SandboxCreate, map[string]any{"ttl_seconds": 600})
		if !made.OK {
			t.Fatalf("%+v", made)
		}
		ids[made.SandboxID] = true
		if r := call(t, c, tool.SandboxCreate, map[string]any{"ttl_seconds": 600}); r.Err == nil || r.Err.Code != tool.CodeSandboxLimit {
			t.Errorf("a second one at a time: %+v", r)
		}
		call(t, c, tool.SandboxKill, nil)
	}
	r := call(t, c, tool.SandboxCreate, map[string]any{"ttl_seconds": 600})
	if len(ids) != 2 || r.Err == nil || r.Err.Code != tool.CodeSandboxLimit || r.Err.Class != tool.Fatal {
		t.Errorf("%v, %+v", ids, r)
	}
}

// The calls of a client are counted over all its sandboxes.
func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(o *mcpserver.Options) { o.Run.Limits.MaxToolCalls, o.Run.Limits.MaxSteps = 5, 5 })
	c := h.connect(t, nil)
	for range 2 { // and the kill
		if r := call(t, c, tool.RunCommand, map[string]any{"command": "true"}); !r.OK {
			t.Fatalf("%+v", r)
		}
	}
	call(t, c, tool.SandboxKill, nil)
	call(t, c, tool.SandboxCreate, map[string]any{"ttl_seconds": 600})
	if r := call(t, c, tool.RunCommand, map[string]any{"command": "true"}); !r.OK {
		t.Fatalf("%+v", r)
	}
	r := call(t, c, tool.RunCommand, map[string]any{"command": "true"})
	if r.Err == nil || r.Err.Code != tool.CodeBudget || r.Err.Class != tool.Fatal || !strings.Contains(r.Err.Hint, "--max-tool-calls") {
		t.Errorf("%+v", r)
	}
	if r := call(t, c, tool.SandboxCreate, map[string]any{"ttl_seconds": 600}); r.Err == nil || r.Err.Code != tool.CodeBudget {
		t.Errorf("%+v", r)
	}
	h.Close()
	reports := h.reports()
	if len(reports) != 2 || reports[1].Reason != run.OverBudget || reports[1].Brake == nil || reports[0].Calls.Total+reports[1].Calls.Total != 5 {
		t.Errorf("%+v", reports)
	}
}

// A client that leaves, without a word and in the midst of a call, leaves nothing.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"the client vanished", "the server was told to end"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h := newHost(t, nil)
			c, vanish := h.connectUntil(t, ctx, nil)
			call(t, c, tool.WriteFile, map[string]any{"path": "kept", "content": "x"})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = c.CallTool(t.Context(), &mcp.CallToolParams{Name: tool.RunCommand, Arguments: map[string]any{"command": "touch begun; sleep 100", "timeout_seconds": 100}})
			}()
			for !call(t, c, tool.RunCommand, map[string]any{"command": "test -e begun"}).OK {
				time.Sleep(5 * time.Millisecond)
			}
			begun := time.Now()
			if how == "the client vanished" {
				vanish()
			} else {
				cancel()
			}
			<-ended
			h.Close()
			if took := time.Since(begun); took > time.Minute {
				t.Errorf("the command under way was waited for: %v", took)
			}
			reports := h.reports()
			if len(reports) != 1 || !reports[0].Cleanup.OK || reports[0].Patch == nil || len(reports[0].Patch.Files) != 2 ||
				!slices.ContainsFunc(reports[0].Warnings, func(w string) bool { return strings.Contains(w, "did not say that it had finished") }) {
				t.Errorf("%+v", reports)
			}
		})
	}
}

// A call that the client cancels ends its command; the sandbox stays.
func TestCancel(t *testing.T) {
	t.Parallel()
	c := newHost(t, nil).connect(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: tool.RunCommand, Arguments: map[string]any{"command": "touch begun; sleep 100; touch over", "timeout_seconds": 100}})
		ended <- err
	}()
	for !call(t, c, tool.RunCommand, map[string]any{"command": "test -e begun"}).OK {
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("it was not cancelled")
	}
	if r := call(t, c, tool.RunCommand, map[string]any{"command": "test ! -e over"}); !r.OK {
		t.Errorf("%+v", r)
	}
}

// A client hears of a call that lasts.
func TestProgress(t *testing.T) {
	t.Parallel()
	told := make(chan *mcp.ProgressNotificationParams, 10)
	c := newHost(t, nil).connect(t, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
		select {
		case told <- req.Params:
		default:
		}
	}})
	p := &mcp.CallToolParams{Name: tool.RunCommand, Arguments: map[string]any{"command": "echo some; while ! test -e told; do sleep 0.05; done"}}
	p.SetProgressToken("a token")
	go func() {
		<-told
		call(t, c, tool.WriteFile, map[string]any{"path": "told", "content": ""})
	}()
	res, err := c.CallTool(t.Context(), p)
	if err != nil || !resultOf(t, res).OK {
		t.Errorf("%+v, %v", res, err)
	}
}

// A sandbox in which nothing is called any more ends, and its outputs are saved.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		c := h.connect(t, nil)
		begun := time.Now()
		call(t, c, tool.WriteFile, map[string]any{"path": "kept", "content": "x"})
		time.Sleep(20 * time.Minute)
		if r := call(t, c, tool.RunCommand, map[string]any{"command": "sleep 60; cat kept", "timeout_seconds": 90}); r.Stdout != "x" {
			t.Errorf("after 20 minutes: %+v", r)
		}
		time.Sleep(mcpserver.DefaultIdle + time.Minute)
		r := call(t, c, tool.RunCommand, map[string]any{"command": "true"})
		if r.Err == nil || r.Err.Code != tool.CodeSandboxGone || !strings.Contains(r.Err.Message, "nothing was called for too long: 30m") {
			t.Errorf("%+v", r)
		}
		reports := h.reports()
		if len(reports) != 1 || reports[0].Reason != run.Done || reports[0].Patch == nil || len(reports[0].Patch.Files) != 1 {
			t.Fatalf("%+v", reports)
		}
		if at := reports[0].EndedAt.Sub(begun); at < 51*time.Minute || at > 52*time.Minute {
			t.Errorf("it ended after %v", at)
		}
	})
}

// The client's user is asked where a rule says so, if the client can ask.
func TestAsk(t *testing.T) {
	t.Parallel()
	rules := func(o *mcpserver.Options) {
		p, err := approval.NewPolicy(approval.Allow, approval.Rule{Action: approval.Ask, Command: "rm"})
		if err != nil {
			t.Fatal(err)
		}
		o.Run.Approval = &run.Approval{Policy: p}
	}
	var asked string
	var answer *mcp.ElicitResult
	c := newHost(t, rules).connect(t, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		asked = req.Params.Message
		return answer, nil
	}})
	for _, a := range []struct {
		answer mcp.ElicitResult
		ok     bool
	}{
		{mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "allow once"}}, true},
		{mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "deny"}}, false},
		{mcp.ElicitResult{Action: "decline"}, false},
		{mcp.ElicitResult{Action: "cancel"}, false},
	} {
		answer, asked = &a.answer, ""
		r := call(t, c, tool.RunCommand, map[string]any{"command": "touch f; rm f"})
		if r.OK != a.ok || !strings.Contains(asked, "touch f; rm f") {
			t.Errorf("%+v: asked %q, %+v", a.answer, asked, r)
		}
	}
	none := newHost(t, rules).connect(t, nil)
	if r := call(t, none, tool.RunCommand, map[string]any{"command": "rm f"}); r.Err == nil || r.Err.Code != string(approval.NoChannel) {
		t.Errorf("a client that cannot ask: %+v", r)
	}
}
