package sandbox

import (
	"context"

	"github.com/rein-sh/rein/execd"
)

// Run runs one command and returns when it has ended, or at once when it is in
// the background. Stdin of a command is at end-of-file.
//
// An error means that it is not known that the command ran, or how it ended:
//
//   - KindInvalid, KindNotFound, KindDenied: execd refused it; nothing ran.
//   - KindLost: the sandbox ended under it; the cause names the provider's
//     reason.
//   - KindTimeout: the connection was lost and execd could not say what became
//     of the call. Run has asked by call id, and it never runs a call again.
//   - context.Canceled or DeadlineExceeded in the chain (KindTimeout): ctx
//     ended first. An interrupt was sent and its outcome awaited for at most
//     InterruptTimeout; when that arrived the Result holds it.
//
// Without Stdout and Stderr the output is captured at the source: at most
// execd.MaxCapture bytes of both streams, head and tail. Captured output is
// masked with Options.Masker as it leaves: where a mask changes the length,
// Bytes, Lines and HeadLines of that stream are changed with it, so that what
// was left out is still Bytes - len(Head) - len(Tail); the record has the true
// counts. Next to an omission a few bytes more are dropped, so that no part of
// a secret is left at the cut.
//
// With Stdout or Stderr set they receive the exact bytes, unmasked: who shows
// them wraps them with secret.Masker.Writer.
func (s *Sandbox) Run(ctx context.Context, c Command) (Result, error) {
	panic("sandbox: not written")
}

// Status is what is known of a command, running or ended. KindNotFound when
// the sandbox has no such call.
func (s *Sandbox) Status(ctx context.Context, callID string) (CommandStatus, error) {
	panic("sandbox: not written")
}

// CommandStatus is the state of one command.
type CommandStatus struct {
	CallID  string
	Running bool
	// LogPath is the file inside the sandbox with a background command's
	// output; Bytes and Lines are its length so far.
	LogPath      string
	Bytes, Lines int64
	// Result is set when the command has ended.
	Result *Result
}

// Wait returns the result of a command, when it has ended or when ctx ends.
// Ending the wait never interrupts the command.
func (s *Sandbox) Wait(ctx context.Context, callID string) (Result, error) {
	panic("sandbox: not written")
}

// Logs returns output of a background command from the byte at cursor, both
// streams in the order they came, and the cursor to go on from. The bytes are
// exact and not masked.
func (s *Sandbox) Logs(ctx context.Context, callID string, cursor int64) ([]byte, int64, error) {
	panic("sandbox: not written")
}

// Interrupt ends a command: SIGTERM to all of it, then SIGKILL. A command that
// has ended already is success; KindNotFound when there is no such call.
func (s *Sandbox) Interrupt(ctx context.Context, callID string) error {
	panic("sandbox: not written")
}

var _ = execd.Port
