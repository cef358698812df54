// Package lab holds the experiments: short programs that show on this machine,
// with this provider, whether the boundaries rein promises hold. None of them
// needs a model or a network.
package lab

import (
	"context"
	"errors"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// Env is what an experiment runs in.
type Env struct {
	Provider sandbox.Provider
	Spec     sandbox.Spec // its TTL is set by the experiment
	Masker   *secret.Masker
	// StateDir holds lab/, where the experiment's audit log is written.
	StateDir string
	// Progress is told each step as it ends; nil tells nobody.
	Progress func(Step)
}

// Result is the outcome of an experiment.
type Result struct {
	Experiment string `json:"experiment"`
	Title      string `json:"title"`
	Pass       bool   `json:"pass"`
	Provider   string `json:"provider"`
	Runtime    string `json:"runtime,omitempty"`
	SandboxID  string `json:"sandbox_id,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Steps      []Step `json:"steps"`
	AuditPath  string `json:"audit_path,omitempty"`
	AuditHead  string `json:"audit_head,omitempty"`
}

// Step is one thing an experiment did and what it expected.
type Step struct {
	Name       string `json:"name"`
	Pass       bool   `json:"pass"`
	Expected   string `json:"expected"`
	Got        string `json:"got"`
	DurationMS int64  `json:"duration_ms"`
}

// A1 is the tool chain without a model. The error is that of the machinery
// (no audit log could be written); what failed in the sandbox is in the Result.
func A1(ctx context.Context, env Env) (Result, error) {
	return Result{}, errors.ErrUnsupported
}
