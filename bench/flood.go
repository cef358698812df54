package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// counted is a provider whose links count what comes out of the sandbox.
type counted struct {
	sandbox.Provider
	crossed atomic.Int64
}

// Endpoint wraps the connections of the provider's own.
func (p *counted) Endpoint(ctx context.Context, id string, port int) (sandbox.Endpoint, error) {
	e, err := p.Provider.Endpoint(ctx, id, port)
	if err != nil || e.DialContext == nil {
		return e, err
	}
	dial := e.DialContext
	e.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return countedConn{conn, &p.crossed}, nil
	}
	return e, nil
}

type countedConn struct {
	net.Conn
	n *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// The targets: speed, growth of resident memory per process, and bytes that
// reach rein.
const (
	wantMBps   = 200
	maxGrowth  = 32 << 20
	maxCrossed = 1 << 20
)

// flood runs commands that print a lot and checks that every byte and line was
// counted, while none of rein's processes grew.
func flood(ctx context.Context, c config) error {
	inner, err := provider(c, "runc")
	if err != nil {
		return err
	}
	p := &counted{Provider: inner}
	fmt.Printf("\nThroughput (runc, %d MiB per command, through run_command)\n", c.bytes>>20)
	for _, run := range []struct {
		name  string
		shell string
		line  int64 // bytes per line
	}{
		{"80-byte lines", "yes 0123456789012345678901234567890123456789012345678901234567890123456789012345678", 80},
		{"yes", "yes", 2},
	} {
		if err := floodOnce(ctx, c, p, run.name, run.shell, run.line); err != nil {
			return fmt.Errorf("%s: %w", run.name, err)
		}
	}
	return nil
}

func floodOnce(ctx context.Context, c config, p *counted, name, shell string, line int64) error {
	b, err := newBox(ctx, p)
	if err != nil {
		return err
	}
	defer b.end(context.WithoutCancel(ctx))
	if err := b.command(ctx); err != nil {
		return err
	}
	tools, err := runCommand(b)
	if err != nil {
		return err
	}
	watched, err := watches(stateOf(c, "runc"), b.sb.ID())
	if err != nil {
		return err
	}
	for i := range watched {
		if err := watched[i].start(); err != nil {
			return err
		}
	}
	p.crossed.Store(0)

	arguments, err := json.Marshal(map[string]any{"command": fmt.Sprintf("%s | head -c %d", shell, c.bytes), "timeout_seconds": 120})
	if err != nil {
		return err
	}
	start := time.Now()
	r := tools.Run(ctx, tool.Call{ID: "flood", Name: tool.RunCommand, Arguments: arguments})
	took := time.Since(start)
	// head may cut the last line; a line is counted when it ends or is the last.
	lines := (c.bytes + line - 1) / line
	if !r.OK || r.Spill == nil || r.Omitted == nil {
		return fmt.Errorf("wrong result: %+v", r)
	}
	seenBytes, seenLines := shown(r.Stdout)
	if n := r.Omitted.Stdout.Bytes + seenBytes; r.OutputBytes != c.bytes || n != c.bytes {
		return fmt.Errorf("%d bytes, %d of them shown or left out, want %d", r.OutputBytes, n, c.bytes)
	}
	if n := r.Omitted.Stdout.Lines + seenLines; n != lines {
		return fmt.Errorf("%d lines, want %d", n, lines)
	}
	fmt.Printf("%s: exit code 0, %d bytes and %d lines, exact, in %.2f s\n", name, c.bytes, lines, took.Seconds())
	target("throughput", float64(c.bytes)/1e6/took.Seconds(), wantMBps, " MB/s")
	ceiling("bytes that crossed to rein", p.crossed.Load(), maxCrossed)
	for _, w := range watched {
		grown, err := w.grown()
		if err != nil {
			return err
		}
		ceiling(fmt.Sprintf("growth of %s (from %.1f MiB)", w.what, mib(w.before)), grown, maxGrowth)
	}
	return nil
}

// runCommand gives the tools over a box, as a run does.
func runCommand(b box) (*tool.Set, error) {
	tree, err := budget.NewTree(budget.Standard(), budget.TreeOptions{})
	if err != nil {
		return nil, err
	}
	return tool.Builtin(tool.Options{Sandbox: b.sb, Budget: tree,
		Finish: func(context.Context) (string, error) { return "", nil }})
}

// shown counts what a preview shows, without its line about what it does not.
func shown(text string) (size, lines int64) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "[... ") {
			size, lines = size+int64(len(line)), lines+1
		}
	}
	return size, lines
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// ceiling prints a figure that should be at most limit.
func ceiling(what string, got, limit int64) {
	word := "met"
	if got > limit {
		word = "MISSED"
	}
	fmt.Printf("  %-52s %8.2f MiB  (at most %g MiB)  %s\n", what, mib(got), mib(limit), word)
}
