package soak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// Played is a plan and what came of it.
type Played struct {
	Plan      Plan
	Model     *Model
	Provider  *Faulty
	Report    *run.Report
	Err       error
	Dir       string
	Output    string // where the first process keeps the work's files; empty: nowhere
	Start     time.Time
	Functions functions
	People    people
	// Crashed: a process was ended in the middle, and another went on.
	Crashed bool
	Crashes int // how often
}

// outputDir is the directory of the work's files, of each process its own.
const outputDir = "output"

// Outlive is longer than a deaf model takes its time.
const Outlive = 4 * time.Hour

// Play runs a plan below dir. It belongs in a testing/synctest bubble, where
// hours pass at once. Without a report the run could not be resumed, and may not.
func Play(p Plan, dir string) (*Played, error) {
	memory := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: dir})
	defer memory.Close()
	x := &Played{Plan: p, Model: &Model{Plan: p}, Provider: NewFaulty(memory, p), Start: time.Now()}
	defer func() { x.Provider.Stop() }()
	o, err := x.options(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if p.Interrupt > 0 {
		defer time.AfterFunc(p.Interrupt, cancel).Stop()
	}
	// Never is found by its goroutines; a run that lives on and on is not.
	defer time.AfterFunc(1000*time.Hour, func() { panic("the run does not end:\n" + p.String()) }).Stop()
	if err := x.processes(ctx, o, dir); err != nil {
		return nil, err
	}
	if x.Report == nil {
		if _, ok := errors.AsType[*run.ResumeError](x.Err); ok {
			return x, nil
		}
		return nil, fmt.Errorf("there is no report: %w", x.Err)
	}
	x.Dir = x.Report.Dir
	return x, nil
}

// processes has the run done, each process going on from where the one before
// it was ended.
func (x *Played) processes(ctx context.Context, o run.Options, dir string) error {
	for n := 0; ; n++ {
		at := 0
		if n < len(x.Plan.Crashes) {
			at = x.Plan.Crashes[n]
		}
		work, end := context.WithCancel(ctx)
		defer end()
		next := filepath.Join(dir, fmt.Sprint("resumed", n+1))
		c := &crash{x: x, n: n, at: at, end: end, from: filepath.Join(o.StateDir, "runs", o.ID), to: filepath.Join(next, "runs", o.ID),
			output: o.Output, outputTo: filepath.Join(next, outputDir)}
		c.look() // what was there before is not lost
		o.Events = func(run.Event) { c.moment() }
		x.Provider.moment = c.moment
		o.Provider = x.Provider
		w, err := x.equip(&o, &c.dead, c.moment)
		if err != nil {
			return err
		}
		if n == 0 {
			x.Report, x.Err = run.Do(work, o, w)
		} else {
			x.Report, x.Err = run.Resume(work, o, w.(run.Resumer))
		}
		provider, err := c.over()
		if err != nil || provider == nil {
			return err
		}
		x.Provider, x.Crashed, x.Crashes = provider, true, x.Crashes+1
		o.StateDir = next
		if o.Output != "" {
			o.Output = filepath.Join(next, outputDir)
		}
	}
}

// equip gives a process what it works with. moment is one at which it may be
// ended, and dead says that it was.
func (x *Played) equip(o *run.Options, dead *atomic.Bool, moment func()) (run.Worker, error) {
	p := x.Plan
	var err, askErr error
	ended := func() bool { moment(); return dead.Load() }
	o.Tools, err = x.tools(ended)
	o.Approval, askErr = x.approval(ended)
	if err := errors.Join(err, askErr); err != nil {
		return nil, err
	}
	a := agent.Options{Model: process{x.Model, first, dead, moment}, MaxOutputTokens: p.MaxOutput, Price: p.Price, OnDenial: p.OnDenial, Retries: p.Retries, Context: p.Context}
	if p.Fallback {
		a.Fallback, a.FallbackPrice = process{x.Model, second, dead, moment}, p.FallbackPrice
	}
	w, err := agent.New(a)
	if len(p.Changes) > 0 {
		w = changing{w, p.Changes}
	}
	return w, err
}

func (x *Played) options(dir string) (run.Options, error) {
	p := x.Plan
	o := run.Options{
		ID: run.NewID(), Task: "the task", Provider: x.Provider, Limits: p.Limits, StateDir: filepath.Join(dir, "state"),
		Accept: p.Accept, Fresh: p.Fresh, Retry: p.Retry, Protect: p.Protect, Artifacts: p.Artifacts, NoShell: p.NoShell,
		NoTranscript: p.NoTranscript, KeepOutput: p.KeepOutput, Version: "soak", Model: first, Sessions: p.Sessions,
	}
	if p.Output {
		x.Output = filepath.Join(dir, outputDir)
		o.Output = x.Output
	}
	if p.Inputs == nil {
		return o, nil
	}
	o.Workspace.Dir = filepath.Join(dir, "inputs")
	return o, lay(o.Workspace.Dir, p.Inputs)
}

// crash ends a process at one of its moments: what it has written by then is
// all that the next one finds, and what it does from then on reaches nobody.
type crash struct {
	x        *Played
	n, at    int // which process it is, and the moment at which it ends; 0: at none
	from, to string
	// Where the work's files are kept, if they are.
	output, outputTo string
	end              context.CancelFunc
	dead             atomic.Bool

	mu      sync.Mutex
	moments int
	size    int64 // of the audit log at the last one
	next    *Faulty
	late    bool // the process has ended by itself
	err     error
}

// moment is one at which the process may be ended. Whoever has another waits
// until what was written is safe.
func (c *crash) moment() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moments++; c.moments > c.at || c.late {
		return
	}
	if c.moments < c.at {
		c.look()
		return
	}
	c.dead.Store(true)
	c.next = c.x.Provider.Cut(c.x.Plan, func() { c.err = c.snapshot() })
	c.end()
}

// look remembers what is on record by now.
func (c *crash) look() {
	if st, err := os.Stat(filepath.Join(c.from, run.AuditFile)); err == nil {
		c.size = st.Size()
	}
}

// over is said when the process has ended, in whichever way. It returns the
// provider of the next process, if there is to be one.
func (c *crash) over() (*Faulty, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = true
	return c.next, c.err
}

// snapshot copies the run's directory, the audit log first: the transcript has
// at least what that names. The process was ended at any of the records since
// its last moment.
func (c *crash) snapshot() error {
	if err := os.MkdirAll(c.to, 0o700); err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(c.from, run.AuditFile))
	if err != nil {
		return err
	}
	var ends []int64 // the run's beginning is on record
	if c.size > 0 {
		ends = append(ends, c.size)
	}
	for at, b := range data {
		if b == '\n' && int64(at) >= c.size {
			ends = append(ends, int64(at)+1)
		}
	}
	g := rand.New(rand.NewPCG(c.x.Plan.Seed, 0xdead+uint64(c.n)))
	if len(ends) > 0 {
		data = data[:ends[g.IntN(len(ends))]]
	}
	if err := os.WriteFile(filepath.Join(c.to, run.AuditFile), data, 0o600); err != nil {
		return err
	}
	if err := copyDir(c.from, c.to, run.AuditFile); err != nil || c.output == "" {
		return err
	}
	return copyDir(c.output, c.outputTo, "")
}

// copyDir copies what is in a directory in which a process still works, without
// the file left.
func copyDir(from, to, left string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was being removed
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		at := filepath.Join(to, rel)
		switch {
		case err != nil || rel == left:
			return err
		case d.IsDir():
			return os.MkdirAll(at, 0o700)
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(at, data, 0o600)
	})
}

func lay(dir string, files map[string]string) error {
	for name, text := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
