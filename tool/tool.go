// Package tool is what a model may call: the built-in tools over one sandbox and
// those of the host's own, the checks their arguments pass, and the result every
// call has.
//
// A result is a value whatever happened: a command that failed, a call whose
// arguments were wrong and a sandbox that is gone are all results the model
// reads. [Result.Err] says which of the six classes of failure it is.
package tool

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/sandbox"
)

// Names of the built-in tools.
const (
	SandboxCreate = "sandbox_create"
	RunCommand    = "run_command"
	ReadFile      = "read_file"
	WriteFile     = "write_file"
	SandboxKill   = "sandbox_kill"

	// Only where Options.Search asks for it.
	Search = "search"

	// Only where Options.Sessions allows them.
	SessionCreate = "session_create"
	SessionRun    = "session_run"
	SessionClose  = "session_close"
)

// Definition describes a tool to a model.
type Definition struct {
	Name        string
	Description string
	// Schema is the JSON Schema of the arguments: an object without
	// combinators at its top, which not every vendor accepts.
	Schema json.RawMessage
}

// Tool is one thing a model may call.
type Tool struct {
	Definition
	// Run does it. Arguments have been checked against Schema. It never
	// panics on what a model wrote, and it fills everything but CallID,
	// SandboxID and DurationMS, which the Set does.
	Run func(ctx context.Context, c Call) Result
}

// Call is one invocation.
type Call struct {
	ID        string          // call_id, made by rein, never by the model
	ModelID   string          // what the model calls it; only returned to it
	Name      string          // as the model wrote it
	Arguments json.RawMessage // as the model wrote them; nothing is checked
	// Edited is the command that a person put in place of the model's, as
	// Arguments then have it; empty: it is the model's.
	Edited string
	// Begun says that a rein that has died had begun this call, and that its
	// result is not known. What it did is asked for; it is not done again.
	Begun bool
	// Opened is the session that a call which had begun is on record as having
	// opened.
	Opened string
	// Place is where a command in a session would start; nil: it is in none that
	// is open. It is set for Options.Approve alone.
	Place *Place
	// Progress, when set, is told how many bytes of output there are so far.
	Progress func(bytes int64)

	limits budget.Limits // in force when it began, see builtin.guard
}

// Place is the state of a session.
type Place struct {
	Cwd string // empty: not known
	// Commands is how many have been run in it: each may have changed its
	// variables.
	Commands int
}

// Result answers a call. Its JSON is what the model reads.
type Result struct {
	// OK is true only when the exit code is known to be 0 and nothing timed
	// out; for a tool without exit code, when it did what was asked.
	OK bool `json:"ok"`
	// ExitCode is null when the command did not exit by itself, when it is
	// still running, or when there was none.
	ExitCode   *int   `json:"exit_code"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	Truncated  bool   `json:"truncated"`
	Timeout    bool   `json:"timeout"`
	DurationMS int64  `json:"duration_ms"`
	SandboxID  string `json:"sandbox_id"`
	CallID     string `json:"call_id"`

	Err *Error `json:"error,omitempty"`
	// Binary names those of stdout and stderr that hold a NUL byte, and so are no
	// text: of such a byte, and of what is no UTF-8, U+FFFD is shown.
	Binary         []string                `json:"binary,omitempty"`
	Omitted        *Omitted                `json:"omitted,omitempty"`
	Spill          *Spill                  `json:"spill,omitempty"`
	Signal         string                  `json:"signal,omitempty"`
	OOMKilled      bool                    `json:"oom_killed,omitempty"`
	StdoutHeldOpen bool                    `json:"stdout_held_open,omitempty"`
	PipeStatus     []int                   `json:"pipe_status,omitempty"`
	Network        []sandbox.NetworkRecord `json:"network,omitempty"`
	// NetworkLeft is how many records more there are than in Network.
	NetworkLeft int `json:"network_left,omitempty"`
	// Diagnosis is what the output says about why it failed; see there.
	Diagnosis *Diagnosis `json:"diagnosis,omitempty"`
	// Background is set for a command started in the background, and by each
	// look at one.
	Background *Background `json:"background,omitempty"`
	// File is set by read_file and write_file.
	File *File `json:"file,omitempty"`
	// Matches is set by the search tool: how many lines match, from the one it
	// began with on.
	Matches *int64 `json:"matches,omitempty"`
	// Session is set by the session tools.
	Session *Session `json:"session,omitempty"`
	// Edited is what was run instead of the model's command, because a person
	// changed it before allowing it.
	Edited string `json:"edited_command,omitempty"`

	// OutputBytes counts what the command printed, for the record.
	OutputBytes int64 `json:"-"`
	// Known is true when this call id had been used before and nothing was run.
	Known bool `json:"-"`
	// Kept is where all of the output is, also when all of it is shown; nil:
	// nowhere.
	Kept *Spill `json:"-"`
	// shorten shows less of the output or content.
	shorten func(r *Result, bytes int)
}

// Error says why a call failed, when something else than a command's own exit
// code has to say it.
type Error struct {
	Class   Class  `json:"class"`
	Code    string `json:"code"` // stable, snake_case
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what to do next
}

func (e *Error) Error() string { return string(e.Class) + " " + e.Code + ": " + e.Message }

// notExecuted ends the message of a call that was not executed.
const notExecuted = "; this call was not executed"

// NotExecuted is the error of a call that was not made, and why.
func NotExecuted(why string) *Error {
	return &Error{Class: Fixable, Code: CodeNotExecuted, Message: why + notExecuted}
}

// NotExecuted is why the call was not made, if it was not. A nil Error is no failure.
func (e *Error) NotExecuted() (why string, ok bool) {
	if e == nil || e.Code != CodeNotExecuted {
		return "", false
	}
	return strings.CutSuffix(e.Message, notExecuted)
}

// Class is what rein does about a failure.
type Class string

// The classes. The zero value is not one of them: Classify never returns it.
const (
	Retryable  Class = "retryable"   // it may work later
	Fixable    Class = "fixable"     // back to the model with a hint; never repeated as it is
	Fatal      Class = "fatal"       // the run stops with the cause
	NeedsHuman Class = "needs_human" // reported; never worked around
	Verify     Class = "verify"      // what became of it has to be asked first
	Unknown    Class = "unknown"     // never repeated, reported
)

// Omitted counts what the preview leaves out of each stream, exactly.
type Omitted struct {
	Stdout Count `json:"stdout"`
	Stderr Count `json:"stderr"`
}

// Count of something left out.
type Count struct {
	Bytes int64 `json:"bytes"`
	Lines int64 `json:"lines"`
	// Stripped counts bytes in between what is shown that are not: control
	// sequences of terminals, and progress that was overwritten.
	Stripped int64 `json:"stripped,omitempty"`
}

// Spill is the file inside the sandbox with the whole output of a call.
type Spill struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Lines int64  `json:"lines"`
}

// Background is a command that runs on after its call.
type Background struct {
	ID      string `json:"id"` // what run_command's "wait" takes
	LogPath string `json:"log_path,omitempty"`
	Running bool   `json:"running"`
	// Bytes and Lines count what it has printed so far.
	Bytes int64 `json:"bytes"`
	Lines int64 `json:"lines"`
}

// File is the file a call read or wrote.
type File struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"` // the whole file's size
	// SHA256 is the whole file's, to be given as expected_hash; empty when
	// only a part of the file was read.
	SHA256 string `json:"sha256,omitempty"`
	// NextOffset is what to give as offset to read on; 0 at the end.
	NextOffset int64 `json:"next_offset,omitempty"`
}
