package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// Played is a plan and what came of it.
type Played struct {
	Plan     Plan
	Model    *Model
	Provider *Faulty
	Report   *run.Report
	Err      error
	Dir      string
	Start    time.Time
	Events   []run.Event
}

// Outlive is longer than a deaf model takes its time.
const Outlive = 4 * time.Hour

// Play runs a plan below dir. It belongs in a testing/synctest bubble, where
// hours pass at once.
func Play(p Plan, dir string) (*Played, error) {
	memory := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: dir})
	defer memory.Close()
	x := &Played{Plan: p, Model: &Model{Plan: p}, Provider: NewFaulty(memory, p), Start: time.Now()}
	defer x.Provider.Stop()
	w, err := agent.New(agent.Options{Model: x.Model, MaxOutputTokens: p.MaxOutput, Price: p.Price, OnDenial: p.OnDenial, Retries: p.Retries})
	if err != nil {
		return nil, err
	}
	o := run.Options{
		Task: "the task", Provider: x.Provider, Limits: p.Limits, StateDir: filepath.Join(dir, "state"),
		Accept: p.Accept, Protect: p.Protect, Artifacts: p.Artifacts, NoShell: p.NoShell,
		NoTranscript: p.NoTranscript, KeepOutput: p.KeepOutput, Version: "soak", Model: x.Model.Name(),
		Events: func(e run.Event) { x.Events = append(x.Events, e) },
	}
	if p.Inputs != nil {
		o.Workspace.Dir = filepath.Join(dir, "inputs")
		if err := lay(o.Workspace.Dir, p.Inputs); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if p.Interrupt > 0 {
		defer time.AfterFunc(p.Interrupt, cancel).Stop()
	}
	// Never is found by its goroutines; a run that lives on and on is not.
	defer time.AfterFunc(1000*time.Hour, func() { panic("the run does not end:\n" + p.String()) }).Stop()
	x.Report, x.Err = run.Do(ctx, o, w)
	if x.Report == nil {
		return nil, fmt.Errorf("there is no report: %w", x.Err)
	}
	x.Dir = x.Report.Dir
	return x, nil
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
