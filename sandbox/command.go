package sandbox

import (
	"io"
	"time"

	"github.com/rein-sh/rein/execd"
)

// Command is one shell command to run in a sandbox.
type Command struct {
	// CallID identifies the call for ever; empty takes a new one. Running the
	// same id again returns the stored result and runs nothing.
	CallID string
	// Tool is the surface or tool that asked, for the record: "run_command",
	// "sandbox exec", "acceptance".
	Tool  string
	Shell string
	// Argv, when there is one, is the program and its arguments: they are
	// started without a shell where the sandbox's execd can (Features.Argv). Shell
	// is then what the record shows, and what is run where it cannot. With Fixed,
	// a program without a slash is looked for only in directories of PATH that
	// the sandbox's user cannot change. Not in a session.
	Argv    []string
	Fixed   bool
	Cwd     string            // empty: the sandbox's working directory
	Env     map[string]string // added to the sandbox's environment
	Timeout time.Duration     // 0 means DefaultTimeout; there is no "none"
	// Session, when set, is the id of the session to run in: Cwd and Env stay
	// with it, an empty Cwd is where the command before ended, and
	// Result.Outcome.Session says what is left to the next. KindNotFound when it
	// has ended, KindConflict while another command runs in it.
	Session string
	// Repeat says, for the record, that rein runs it once more: it is known to
	// change nothing, and what became of it the first time is not known.
	Repeat bool
	// Background returns at once; ask with Status and Wait.
	Background bool
	// Stdout and Stderr, when either is set, receive every byte as it comes and
	// nothing is captured. A writer that blocks slows the command down.
	Stdout, Stderr io.Writer
	// Capture is the most bytes of both streams that are captured otherwise. 0,
	// and more than that, mean execd.MaxCapture.
	Capture int
	// Progress is told how much output there is so far; it must not block.
	Progress func(bytes int64)
}

// DefaultTimeout ends a command whose Timeout is zero.
const DefaultTimeout = 60 * time.Second

// Result is how a command ended. It is a value: a command that failed is not
// an error.
type Result struct {
	CallID    string
	SandboxID string
	execd.Outcome
	// Known is true when the id had been used before and nothing was run.
	Known bool
	// Background is true when the command was started and left running;
	// Outcome is then empty and LogPath names its output inside the sandbox.
	Background bool
	LogPath    string
	// Network lists the targets tried while the command ran, when observable.
	Network []NetworkRecord

	printed *[2]execd.Output // the streams before they were masked; nil: as they are
}

// Printed returns both streams as the program printed them: exact bytes and
// counts, not masked. It is for who cuts them and masks what is left with
// Sandbox.Masker; marks that are there already would be cut as any text.
func (r Result) Printed() (stdout, stderr execd.Output) {
	if r.printed != nil {
		return r.printed[0], r.printed[1]
	}
	return r.Stdout, r.Stderr
}

// OK reports whether the command is known to have succeeded: exit code 0 and
// no timeout. An unknown exit code is never success.
func (r Result) OK() bool {
	return r.ExitCode != nil && *r.ExitCode == 0 && r.KilledBy == ""
}

// TimedOut reports whether the command was ended by its timeout.
func (r Result) TimedOut() bool { return r.KilledBy == execd.KilledByTimeout }
