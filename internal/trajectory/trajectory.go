// Package trajectory plays the scripted work of a coding agent in sandboxes and
// measures what its model was sent: how many tokens, how much of them one result
// held, and whether everything that a call used was there.
//
// A scripted model does not forget, so it is not the script that is measured but
// a [Reader] around it, which allows a call only what stands in the prompt of
// that step. What is not there is read again by its reference first, with calls
// that count like any other.
package trajectory

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/history"
	"github.com/rein-sh/rein/model/script"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
)

// Env is where trajectories are played.
type Env struct {
	Provider sandbox.Provider
	StateDir string
	// Env is the environment of commands.
	Env map[string]string
	// High and Low are those of history.Options; 0 means the default.
	High, Low int
}

// Whole keeps every result whole: what the other strategies are compared with.
const Whole history.Strategy = "whole"

// Play plays a script on a copy of the directory, with a strategy.
func Play(ctx context.Context, env Env, s *script.Script, dir string, strategy history.Strategy) (*Measure, error) {
	reader := NewReader(s.Model())
	o := agent.Options{Model: reader, Context: agent.Context{Strategy: strategy, High: env.High, Low: env.Low}, Retries: -1}
	if strategy == Whole {
		o.Context = agent.Context{High: 1 << 40, Low: 1 << 39, Share: 100}
	}
	w, err := agent.New(o)
	if err != nil {
		return nil, err
	}
	limits := budget.Long()
	limits.MaxWallTime = 20 * time.Minute
	report, err := run.Do(ctx, run.Options{
		Task: s.Name() + ": do what the notes of this project ask for, and say what you did.", Provider: env.Provider, StateDir: filepath.Clean(env.StateDir),
		Target: run.Target{Spec: sandbox.Spec{Env: env.Env}}, Limits: limits, Workspace: run.Workspace{Dir: dir}, Model: reader.Name(),
	}, w)
	if report == nil {
		return nil, err
	}
	m := reader.Measure()
	m.StateDir = report.RunID
	if report.Reason != run.Done {
		err = errors.Join(err, fmt.Errorf("the run ended with %s: %s", report.Reason, report.Conclusion))
	}
	return m, err
}
