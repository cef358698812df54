package daemon

import (
	"context"
	"io"
	"syscall"

	"github.com/rein-sh/rein/execd"
)

// Machine runs commands for the daemon: OS with real processes; the in-memory
// provider has an interpreter. All methods may be called concurrently.
type Machine interface {
	// Start runs one shell command and returns once it has started. An error
	// means nothing was started; *StartError says that the request was at
	// fault.
	Start(Spec) (Process, error)
	// Traits says what this machine can do. The answer never changes.
	Traits() Traits
	// Close ends every command and frees the machine. Start fails afterwards.
	Close() error
}

// Spec is one command to start.
type Spec struct {
	// ID is the command's id, unique for the life of the daemon.
	ID string
	// Command is shell text, without NUL bytes, of any length.
	Command string
	// Argv, when there is one, is the program and its arguments that are started
	// without a shell (Traits.Argv); Command is then for the record. With Fixed, a
	// program without a slash is looked for only where the commands' user
	// cannot change it.
	Argv  []string
	Fixed bool
	// Dir is an absolute path inside the sandbox that was a directory a moment
	// ago.
	Dir string
	// Env is the whole environment, KEY=VALUE; nothing is inherited.
	Env []string
	// UID and GID override the machine's user. GID without UID is not asked for;
	// UID without GID keeps the machine's group.
	UID, GID *uint32
	// KeepState asks for the shell's directory and exported variables at its
	// end (Stateful), of a StateKeeper only. MergeStderr sends standard error where standard output
	// goes, in the order of writing.
	KeepState, MergeStderr bool
}

// Process is a started command: the leader, which is the shell, and everything
// descended from it, whatever sessions or groups its parts moved to.
type Process interface {
	// Stdout and Stderr give the output; they end when nobody can write any
	// more. Closing one makes further writes of the command fail.
	Stdout() io.ReadCloser
	Stderr() io.ReadCloser
	// Signal sends sig to the command's process group. A command that has
	// ended is not an error.
	Signal(sig syscall.Signal) error
	// Kill ends everything of the command, also what left its process group.
	// It does not wait: Gone says when it is done. Idempotent.
	Kill()
	// Done is closed when the leader has ended; Exit is valid from then on.
	Done() <-chan struct{}
	Exit() Exit
	// Gone is closed when no process of the command is left.
	Gone() <-chan struct{}
}

// StateKeeper is implemented by machines that may be able to tell in which state
// a shell ended: their processes are Stateful.
type StateKeeper interface {
	// KeepsState reports whether this one is. The answer never changes.
	KeepsState() bool
}

// Stateful is implemented by processes of a StateKeeper.
type Stateful interface {
	// State returns in which directory the shell of a command with
	// Spec.KeepState ended, and its exported variables. It is valid once Done
	// is closed, and until Gone is. An error says why it is not known.
	State() (dir string, env []string, err error)
}

// Exit is how a leader ended.
type Exit struct {
	// Code is the exit code; it has no meaning when Signal is set or Err is
	// not nil.
	Code int
	// Signal ended the leader; 0 when it exited by itself.
	Signal syscall.Signal
	// PipeStatus has the exit codes of the last pipeline, where known and when
	// it had more than one member.
	PipeStatus []int
	// OOMKilled says that the sandbox ran out of memory while the command ran
	// and that the kernel killed a part of it.
	OOMKilled bool
	// Woken says that the command was ended because it kept waking in a pause.
	Woken bool
	// Err is set when how it ended could not be learnt.
	Err error
}

// Traits are what a machine can do, as reported by GET /rein/features.
type Traits struct {
	PipeStatus bool
	OOMFlag    bool
	Argv       bool
	// Separation is "full" when commands run under another uid than the
	// daemon, "reduced" otherwise.
	Separation string
	// User is the name or uid that commands run as.
	User string
}

// Reducer is implemented by machines that may have to run commands less
// confined than they should be.
type Reducer interface {
	// Reduced says in words what does not hold for commands here.
	Reduced() []string
}

// PortOwner is implemented by machines that can tell which command holds a
// local TCP port.
type PortOwner interface {
	// PortOwner returns the id of the command that owns the socket, or "" when
	// none does. It looks no longer than ctx lasts.
	PortOwner(context.Context, execd.Socket) (id string, err error)
}

// Rememberer is implemented by machines that may be able to tell who made a
// connection that has ended.
type Rememberer interface {
	// RemembersMakers reports whether this one is known to be. It may become
	// true with an answer of PortOwner, and stays so.
	RemembersMakers() bool
}

// StartError is a start that failed because of what was asked: a missing
// directory, a user that may not be used, an environment that is too large.
type StartError struct {
	Reason string
	Err    error
}

func (e *StartError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }
