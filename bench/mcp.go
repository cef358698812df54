package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rein-sh/rein/budget"
	runs "github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

// The target: what a call takes longer over the Model Context Protocol, on standard
// input and output, than the same of a program that has rein as a library.
const (
	maxMCPExtra = 500 * time.Microsecond
	mcpWarm     = 10
)

// trueCall is a call of "true".
var trueCall = json.RawMessage(`{"command":"true"}`)

// overMCP measures calls of run_command over the protocol, beside direct ones.
func overMCP(ctx context.Context, c config) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nrun_command true\tdirect p50\tp99\tover MCP p50\tp99\tmore p50\n")
	extra := time.Duration(0)
	for _, r := range runtimes {
		var direct, over timings
		for range 2 { // so that what else the machine does meets both
			one, err := c.directCalls(ctx, r.runtime)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			other, err := c.mcpCalls(ctx, r.runtime)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			direct.P50, direct.P99 = direct.P50+one.P50/2, direct.P99+one.P99/2
			over.P50, over.P99 = over.P50+other.P50/2, over.P99+other.P99/2
		}
		more := over.P50 - direct.P50
		extra = max(extra, more)
		fmt.Fprintf(w, "%s\t%v\t%v\t%v\t%v\t%v\n", r.name, short(direct.P50), short(direct.P99), short(over.P50), short(over.P99), short(more))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Printf("target: at most %v more for a call over MCP than a direct one, p50: %v\n", maxMCPExtra, short(extra))
	return nil
}

// timed times half of the commands, after some that do not count.
func (c config) timed(call func() error) (timings, error) {
	var took []time.Duration
	for i := range mcpWarm + c.commands/2 {
		start := time.Now()
		if err := call(); err != nil {
			return timings{}, err
		}
		if i >= mcpWarm {
			took = append(took, time.Since(start))
		}
	}
	return timings{P50: quantile(took, 50), P99: quantile(took, 99)}, nil
}

// caller is a worker that makes the calls and records each, as every worker does.
type caller struct {
	c    config
	took timings
}

func (w *caller) Work(ctx context.Context, s *runs.Session) (runs.Outcome, error) {
	set, err := s.Tools()
	if err != nil {
		return runs.Outcome{Reason: runs.Failed}, err
	}
	round, step := s.Budget().Round(), 0
	w.took, err = w.c.timed(func() error {
		step++
		if err := errors.Join(round.Call(), round.Step()); err != nil {
			return err
		}
		call := tool.Call{ID: s.NewCallID(), Name: tool.RunCommand, Arguments: trueCall}
		res := set.Run(ctx, call)
		if !res.OK {
			return fmt.Errorf("true failed: %+v", res)
		}
		return s.Called(call, step, res)
	})
	if err != nil {
		return runs.Outcome{Reason: runs.Failed, Detail: err.Error()}, err
	}
	return runs.Outcome{Reason: runs.Done}, nil
}

// directCalls times calls of a run in this process.
func (c config) directCalls(ctx context.Context, runtime string) (timings, error) {
	p, err := provider(c, runtime)
	if err != nil {
		return timings{}, err
	}
	limits := budget.MCP()
	limits.MaxSteps, limits.MaxToolCalls = mcpWarm+c.commands, mcpWarm+c.commands
	w := &caller{c: c}
	_, err = runs.Do(ctx, runs.Options{Task: "bench", Provider: p, Limits: limits, StateDir: filepath.Join(c.stateDir, "direct"), NoTranscript: true}, w)
	return w.took, err
}

// mcpCalls times calls of rein mcp.
func (c config) mcpCalls(ctx context.Context, runtime string) (t timings, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "rein"), "mcp", "--no-workspace", "--runtime", runtime, "--max-tool-calls", fmt.Sprint(mcpWarm+c.commands))
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(c.stateDir, "mcp"), "XDG_CONFIG_HOME="+filepath.Join(c.stateDir, "config"))
	session, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, &mcp.CommandTransport{Command: cmd, TerminateDuration: time.Minute}, nil)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	return c.timed(func() error {
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool.RunCommand, Arguments: trueCall})
		if err != nil {
			return err
		}
		if res.IsError {
			return fmt.Errorf("true failed: %+v", res.StructuredContent)
		}
		return nil
	})
}
