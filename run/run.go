// Package run does everything about a task that is the same whoever works on
// it: the deadline, the inputs copied in, the acceptance checks, the artifacts
// and the patch brought out, the end of the sandbox on every path, and the
// report. The work itself is a [Worker]: the loop of package agent, or a
// command-line agent in a cage.
//
// A run's files are in StateDir/runs/ID: audit.jsonl, transcript.jsonl,
// network.jsonl, report.json, report.md, provenance.json, patch, artifacts/ and
// output/; and what it is resumed with, invocation.json and inputs.json.
package run

import (
	"context"
	"encoding/json"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/telemetry"
	"github.com/rein-sh/rein/tool"
)

// Options say what to do, where, and under which limits. Only Task, Provider
// and StateDir are required; the zero value of everything else is the strictest.
type Options struct {
	ID      string // a ULID; empty takes a new one
	TraceID string // 32 hexadecimal digits; empty takes a new one
	Task    string

	Provider sandbox.Provider
	Target   Target
	Limits   budget.Limits // budget.Standard when zero
	// Lease is on what terms the sandbox lives; the zero value is the documented.
	Lease budget.Terms

	// Workspace is copied in; its zero value copies nothing.
	Workspace Workspace
	// Accept are the checks that decide whether the work is accepted. Without
	// any the outcome says "unchecked".
	Accept []Check
	// Fresh runs the checks in a sandbox of their own, made from the inputs and
	// the patch: what else the worker made of its sandbox has no part in them.
	Fresh bool
	// Retry is how often a worker that says it is done is told which checks
	// failed, and goes on, within the limits; at most MaxRetry.
	Retry int
	// Protect are patterns of workspace files (as in a .gitignore; "./" at the
	// beginning means the top, too) that the worker must not change, delete or
	// add to: a new file that matches, or lies in a directory that does, is a
	// breach as a changed one is. Any breach is in Report.Protected and means
	// that the work is not accepted, whatever the checks say, and Apply asks
	// about its file. What the workspace's ignore files leave out is not looked
	// at; where it is new and matches there is a warning. A pattern that matches
	// no file at the beginning is warned of, too.
	Protect []string
	// Artifacts are paths and patterns, relative to the workspace or absolute,
	// brought out into artifacts/ before the sandbox ends.
	Artifacts []string

	// NoShell gives the worker no run_command: it can read and write files, and
	// the checks are run all the same.
	NoShell bool
	// Search gives the worker the search tool.
	Search bool
	// Sessions gives the worker the session tools.
	Sessions tool.Sessions

	// Tools are tools besides the built-in ones.
	Tools []tool.Custom
	// Approval says what the worker may do without asking. Nil: everything,
	// because the sandbox is the boundary.
	Approval *Approval

	// Metered is for a worker that asks models from inside the sandbox. Nil: none
	// of its requests to Target.Spec.Models passes.
	Metered *Metered
	// Agent is what works, where that is a program of others.
	Agent *AgentInfo

	// Secrets is where the secrets of Target.Spec are from.
	Secrets Secrets

	// StateDir holds runs/; it is created with mode 0700.
	StateDir string
	// Masker masks what is recorded, reported and sent to a model.
	Masker *secret.Masker
	// Events is told what happens as it happens, in order, from one goroutine
	// at a time; it must not block for long. Nil tells nobody.
	Events func(Event)
	// Notices are warnings that are known before the run: they are in the report
	// and told as those that come up in it.
	Notices []string

	// Output is a directory of this host, absolute, that has the workspace's new
	// and changed files, brought up to date after every call: what a lost sandbox
	// leaves. Files of others in it are not touched. Empty: none.
	Output string
	// Control lets other processes of this user ask, change and stop the run over
	// a socket in its directory (package control).
	Control bool

	// KeepOutput keeps the spilled output of calls with the artifacts, masked.
	KeepOutput bool
	// SyncRecords has each record of the audit log on the disk (fsync) before the
	// work goes on.
	SyncRecords bool
	// NoTranscript writes no transcript.jsonl.
	NoTranscript bool

	// Invocation is what the caller can make these options from again, after a
	// crash: see Resume. It is kept, masked, in the run's directory; nil keeps
	// nothing.
	Invocation json.RawMessage

	// PriceSource says where the model's price is from, for the report.
	PriceSource string

	// Telemetry makes spans and metrics of the run; nil makes none.
	Telemetry *telemetry.Recorder
	// Attended: a person sits before the work, at a terminal. Then the sandbox is
	// renewed until the run's end also while nothing new comes out.
	Attended bool

	worker string // its fingerprint

	// Version of rein, Model's name and the hash of the configuration in
	// force, for provenance.
	Version, Model, ConfigHash string
}

// Target is where a run executes, as host configuration names it.
type Target struct {
	Name string
	// Spec is what the sandbox is made from. Its TTL is set by the run, from
	// Limits; its labels are added to the run's own.
	Spec sandbox.Spec
	// ReadPrefixes are absolute directories inside the sandbox that read_file
	// may read besides the workspace and the spilled output.
	ReadPrefixes []string
}

// Workspace is a host directory copied into the sandbox's working directory.
type Workspace struct {
	Dir string // empty: none
	// NoIgnore also copies what .gitignore and .reinignore leave out. Files
	// that hold secrets are left out in any case.
	NoIgnore bool
	// MaxBytes bounds the copy; 0 means 1 GiB.
	MaxBytes int64
}

// Worker does the task inside a sandbox that exists already.
type Worker interface {
	// Work returns when the task is done, given up or stopped. It must return
	// soon after ctx ends; context.Cause(ctx) says why it ended. A panic is
	// caught, and the sandbox is destroyed all the same.
	Work(ctx context.Context, s *Session) (Outcome, error)
}

// Outcome is how a worker ended. An error beside it, if any, is the cause.
type Outcome struct {
	Reason Reason
	// Answer is the worker's final text: what it claims, not what is accepted.
	Answer string
	// Composed: Answer is not the model's, but made from what is on record.
	Composed bool
	// Detail says in one sentence what led to Reason, when that is not done, and
	// Hint what a person can do about it.
	Detail, Hint string
}

// Reason says how a run ended.
type Reason string

// The reasons.
const (
	Done        Reason = "done"
	Failed      Reason = "failed"
	Misused     Reason = "misconfigured"
	Refused     Reason = "not_accepted"
	OverBudget  Reason = "budget"
	Stuck       Reason = "stuck"
	NoProgress  Reason = "expired_no_progress"
	NeedsHuman  Reason = "needs_human"
	Lost        Reason = "sandbox_lost"
	NoModel     Reason = "model_unavailable"
	Interrupted Reason = "interrupted"
)

// ExitCode is the process's exit code for a run that ended so.
func (r Reason) ExitCode() int {
	switch r {
	case Done:
		return 0
	case Misused:
		return 2
	case Refused:
		return 3
	case OverBudget:
		return 4
	case Stuck, NoProgress:
		return 5
	case NeedsHuman:
		return 6
	case Lost:
		return 7
	case NoModel:
		return 8
	case Interrupted:
		return 130
	}
	return 1
}
