// Package lab holds the experiments: short programs that show on this machine,
// with this provider, whether the boundaries rein promises hold. None of them
// needs a model or a network.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// Limit is how long an experiment may take, cleaning up included.
const Limit = 20 * time.Second

// Env is what an experiment runs in.
type Env struct {
	Provider sandbox.Provider
	Spec     sandbox.Spec // its TTL is set by the experiment
	Masker   *secret.Masker
	// StateDir holds lab/, where the experiment's audit log is written.
	StateDir string
	// Weak are backends that cannot enforce a sandbox's network rule, for A3.
	Weak []Backend
	// Networked makes the provider once more, with another way to the network, for
	// A4. Nil: the provider cannot be told, and names that are allowed are not
	// tried. done, when not nil, ends it.
	Networked func(Network) (p sandbox.Provider, done func(), err error)
	// Probe is a program of this host that calls Probe when it is started with
	// ProbeCommand, for A4: it is copied into the sandbox.
	Probe string
	// Agent is one of others, beside which A6 tries everything; nil: beside none.
	Agent *Agent
	// Model is a real model that A4 tries besides its own; nil: none.
	Model model.Model
	// Progress is told each step as it ends; nil tells nobody.
	Progress func(Step)
}

// Network is a provider's way to the network.
type Network struct {
	Resolver netip.AddrPort // in the place of the host's
	Proxy    *url.URL       // nil is none
	CA       []byte         // PEM; that servers are signed by, too
}

// Result is the outcome of an experiment.
type Result struct {
	Experiment string `json:"experiment"`
	Title      string `json:"title"`
	Pass       bool   `json:"pass"`
	Provider   string `json:"provider"`
	Runtime    string `json:"runtime,omitempty"`
	SandboxID  string `json:"sandbox_id,omitempty"`
	// Agent is the one of others that A6 was tried beside, and its version.
	Agent      string `json:"agent,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Steps      []Step `json:"steps"`
	// Figures are what an experiment measured besides.
	Figures   []Figure `json:"figures,omitempty"`
	AuditPath string   `json:"audit_path,omitempty"`
	AuditHead string   `json:"audit_head,omitempty"`
}

// Step is one thing an experiment did and what it expected.
type Step struct {
	Name string `json:"name"`
	Pass bool   `json:"pass"`
	// Tried says what was done, where the name does not.
	Tried    string `json:"tried,omitempty"`
	Expected string `json:"expected"`
	Got      string `json:"got"`
	// NotTried: this machine lacks what it needs. It has not passed, and does not
	// fail the experiment.
	NotTried   bool  `json:"not_tried,omitempty"`
	DurationMS int64 `json:"duration_ms"`
}

// bench runs the steps of one experiment.
type bench struct {
	env     Env
	log     *audit.Log
	started time.Time
	result  Result
	box     *sandbox.Sandbox // nil until it is created
}

// begin opens the audit log of an experiment.
func begin(env Env, name, title string) (*bench, error) {
	if env.Provider == nil || env.StateDir == "" {
		return nil, errors.New("lab: a provider and a state directory are required")
	}
	b := &bench{env: env, started: time.Now()}
	b.result = Result{Experiment: name, Title: title, Pass: true, Provider: env.Provider.Name(), Steps: []Step{}}
	dir := filepath.Join(env.StateDir, "lab")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	b.result.AuditPath = filepath.Join(dir, name+"-"+b.started.UTC().Format("20060102T150405.000000000")+".jsonl")
	var err error
	b.log, err = audit.Create(b.result.AuditPath, audit.Options{Masker: env.Masker})
	return b, err
}

// step does one step. f returns what it got; an error, or a got that is not
// what was expected, fails the experiment.
func (b *bench) step(name, expected string, f func() (got string, ok bool)) bool {
	start := time.Now()
	s := Step{Name: name, Expected: expected}
	s.Got, s.Pass = f()
	s.DurationMS = time.Since(start).Milliseconds()
	b.add(s)
	return s.Pass
}

// add takes a step that was done.
func (b *bench) add(s Step) {
	s.Got = b.env.Masker.String(s.Got)
	b.result.Steps = append(b.result.Steps, s)
	b.result.Pass = b.result.Pass && (s.Pass || s.NotTried)
	if b.env.Progress != nil {
		b.env.Progress(s)
	}
}

// run makes the experiment's sandbox and lets f work in it. The sandbox is ended
// whatever happens, a panic included, which is then the error.
func (b *bench) run(ctx context.Context, f func(context.Context, *sandbox.Sandbox)) (Result, error) {
	short, cancel := context.WithTimeout(ctx, Limit-2*time.Second)
	defer cancel()
	err := b.guard(func() {
		if b.create(short); b.box != nil {
			f(short, b.box)
		}
	})
	return b.end(errors.Join(err, b.guard(func() { b.cleanUp(ctx) })))
}

// guard calls f and returns its panic as an error.
func (b *bench) guard(f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errors.New(b.env.Masker.String(fmt.Sprintf("lab: panic: %v\n%s", v, debug.Stack())))
		}
	}()
	f()
	return nil
}

// cleanUp ends the sandbox. When the experiment has done it, this asks nothing
// of the provider.
func (b *bench) cleanUp(ctx context.Context) {
	if b.box == nil {
		return
	}
	if err := errors.Join(b.box.Kill(ctx), b.box.Close()); err != nil {
		b.step("clean up", "nothing is left", func() (string, bool) { return err.Error(), false })
	}
}

// end closes the log and returns the result.
func (b *bench) end(err error) (Result, error) {
	b.result.Pass = b.result.Pass && err == nil
	b.result.AuditHead = b.log.Head().String()
	b.result.DurationMS = time.Since(b.started).Milliseconds()
	return b.result, errors.Join(err, b.log.Close())
}

// create makes the experiment's sandbox as its first step; there is none when
// that failed.
func (b *bench) create(ctx context.Context) {
	b.step("create", "a sandbox with an end, whose execd answers", func() (string, bool) {
		spec := b.env.Spec
		spec.TTL = time.Minute
		box, err := sandbox.Create(ctx, b.env.Provider, spec, sandbox.Options{Log: b.log, Masker: b.env.Masker})
		if err != nil {
			got := err.Error()
			if hint := sandbox.HintOf(err); hint != "" {
				got += "; " + hint
			}
			return got, false
		}
		b.box = box
		info := box.Info()
		b.result.SandboxID, b.result.Runtime = info.ID, info.Runtime
		return info.ID + ", ends " + info.ExpiresAt.UTC().Format(time.RFC3339), info.ID != "" && info.ExpiresAt.After(time.Now())
	})
}
