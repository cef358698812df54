// Package execd is the wire protocol of the daemon that runs inside every
// sandbox, and its client. The routes, events and headers are OpenSandbox's
// execd API; what rein adds travels in one optional member, "rein", of requests
// and events, so that any OpenSandbox client works against our daemon and our
// client works against any OpenSandbox daemon.
//
// The daemon itself is package execd/daemon; this package never starts a
// process.
package execd

import (
	"net/netip"
	"strings"
	"time"

	"github.com/rein-sh/rein/evidence/clue"
)

// Port is the port execd listens on inside a sandbox (OpenSandbox's default).
const Port = 44772

// PauseTimeout is how long processes may take to stop: milliseconds, but on a
// machine that has no time for them.
const PauseTimeout = 10 * time.Second

// ClearTimeout is how long a Clear may take.
const ClearTimeout = 15 * time.Second

// TokenHeader carries the access token. It is required on every route,
// including /ping.
const TokenHeader = "X-EXECD-ACCESS-TOKEN"

// CursorHeader carries the next byte offset of GET /command/{id}/logs.
const CursorHeader = "EXECD-COMMANDS-TAIL-CURSOR"

// Limits of the daemon. They bound what one sandbox can make execd keep.
const (
	MaxStoredCommands  = 10_000   // results kept for the sandbox's life, oldest finished forgotten first
	MaxCapture         = 1 << 20  // bytes of output that cross to the host for one captured command
	DefaultSpillLimit  = 64 << 20 // bytes of one command kept in its spill
	DefaultSpillBudget = 512 << 20
	MaxSpillLines      = 256
)

// SpillDir holds the full output of commands, one file a call id, owned by
// execd and read-only for user code.
const SpillDir = "/run/rein/out"

// Event types of a command stream, in order: init, ping, output events, then
// exactly one terminal event (EventComplete or EventError).
const (
	EventInit     = "init"
	EventPing     = "ping"
	EventStdout   = "stdout"
	EventStderr   = "stderr"
	EventComplete = "execution_complete"
	EventError    = "error"
)

// RunRequest is the body of POST /command.
type RunRequest struct {
	// Command is one shell command: bash -c, or sh -c where bash is missing.
	Command string `json:"command"`
	// Cwd is an absolute directory; empty means execd's working directory.
	Cwd string `json:"cwd,omitempty"`
	// Background returns at once with the command's id.
	Background bool `json:"background,omitempty"`
	// Timeout is in milliseconds; 0 means none.
	Timeout int64 `json:"timeout,omitempty"`
	// UID and GID run the command as another user; GID requires UID.
	// Both nil means the sandbox's user.
	UID *uint32 `json:"uid,omitempty"`
	GID *uint32 `json:"gid,omitempty"`
	// Envs adds to execd's own environment for this command only.
	Envs map[string]string `json:"envs,omitempty"`
	// Rein asks for rein's additions; nil is plain OpenSandbox behaviour.
	Rein *RunOptions `json:"rein,omitempty"`
}

// RunOptions are rein's optional additions to a command.
type RunOptions struct {
	// ID is the caller's id of the command ([A-Za-z0-9_-]{1,64}). A second
	// request with the same id never runs the command again: it waits for the
	// running one, or returns the stored result, with as much of the output as
	// was kept: what the first request captured, else the last MaxCapture bytes
	// (as output events when Capture is 0). When a start is refused the id stays
	// free. Like any command, one with an id outlives its connection until its
	// own timeout, an interrupt, or the sandbox's end.
	ID string `json:"id,omitempty"`
	// Capture keeps at most this many bytes of both streams together (head and
	// tail) and returns them in the terminal event instead of streaming all of
	// it. 0 streams everything as output events. At most MaxCapture.
	Capture int64 `json:"capture,omitempty"`
	// Raw sends output events with Data (exact bytes) instead of Text.
	Raw bool `json:"raw,omitempty"`
	// Spill keeps the full output in SpillDir/ID, up to SpillLimit bytes
	// (0: DefaultSpillLimit). Needs ID. A command that prints nothing has none.
	// Background commands always have one: it is their log.
	Spill      bool  `json:"spill,omitempty"`
	SpillLimit int64 `json:"spill_limit,omitempty"`
	// Argv is a program and its arguments, which are started without a shell:
	// Command is then no more than what the record shows. Not in sessions. A
	// program without a slash is looked for in PATH; with Fixed, only where the
	// commands' user can change neither it nor the way to it. What cannot be
	// started exits with 127 or 126, as in a shell. See Features.Argv.
	Argv  []string `json:"argv,omitempty"`
	Fixed bool     `json:"fixed,omitempty"`
}

// ValidID reports whether id may be the id of a command, see RunOptions.ID.
func ValidID(id string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return len(id) > 0 && len(id) <= 64 && strings.Trim(id, letters) == ""
}

// Event is one JSON object of a command stream; a blank line follows each.
type Event struct {
	Type      string `json:"type"`
	Text      string `json:"text,omitempty"`
	Timestamp int64  `json:"timestamp"` // unix milliseconds, always present
	// ExecutionTime is in milliseconds, on EventComplete.
	ExecutionTime int64       `json:"execution_time,omitempty"`
	Error         *ErrorValue `json:"error,omitempty"`
	Rein          *EventExtra `json:"rein,omitempty"`
}

// ErrorValue says how a command failed. For a command that ran and ended
// non-zero Name is "CommandExecError" and Value the decimal exit code; -1 when
// it was killed or timed out.
type ErrorValue struct {
	Name      string   `json:"ename"`
	Value     string   `json:"evalue"`
	Traceback []string `json:"traceback"` // never null: old clients crash on it
}

// EventExtra is rein's addition to an event.
type EventExtra struct {
	// Data is the exact bytes of an output event when RunOptions.Raw is set.
	Data []byte `json:"data,omitempty"`
	// Known is set on EventInit when the id had been used before.
	Known bool `json:"known,omitempty"`
	// Outcome is set on the terminal event.
	Outcome *Outcome `json:"outcome,omitempty"`
}

// Reasons a command was ended by execd rather than by itself.
const (
	KilledByTimeout   = "timeout"
	KilledByInterrupt = "interrupt"
	KilledByShutdown  = "shutdown"
	KilledByPause     = "pause" // it kept waking while the sandbox was paused
)

// Outcome is everything execd knows about a finished command.
type Outcome struct {
	// ExitCode is nil when the command did not exit by itself (a signal ended
	// it) or when the code is not known.
	ExitCode *int `json:"exit_code,omitempty"`
	// Signal names the signal that ended the command, such as "SIGKILL".
	Signal string `json:"signal,omitempty"`
	// KilledBy says that execd ended it and why; empty otherwise.
	KilledBy  string `json:"killed_by,omitempty"`
	OOMKilled bool   `json:"oom_killed,omitempty"`
	// HeldOpen says that a process left behind kept stdout or stderr open
	// after the command exited.
	HeldOpen bool `json:"stdout_held_open,omitempty"`
	// PipeStatus has the exit codes of the last pipeline when it had more than
	// one command and bash reported them.
	PipeStatus []int `json:"pipe_status,omitempty"`
	// Session says what a command in a session left to the next one.
	Session    *SessionState `json:"session,omitempty"`
	Stdout     Output        `json:"stdout"`
	Stderr     Output        `json:"stderr"`
	Spill      *Spill        `json:"spill,omitempty"`
	StartedAt  time.Time     `json:"started_at"`
	DurationMS int64         `json:"duration_ms"`
}

// Output is one stream of a command. Bytes and Lines count everything it
// printed, exactly. Head and Tail are what was captured: when
// len(Head)+len(Tail) == Bytes nothing is missing and Tail follows Head
// directly; otherwise the middle was left out.
type Output struct {
	Bytes int64 `json:"bytes"`
	// Lines counts newlines, plus one for a last line without newline.
	Lines int64  `json:"lines"`
	Head  []byte `json:"head,omitempty"`
	Tail  []byte `json:"tail,omitempty"`
	// HeadLines counts the newlines in Head, so that a reader can say at which
	// line the omitted part begins.
	HeadLines int64 `json:"head_lines,omitempty"`
	// Kept are lines of the part left out that say how the command went, in
	// order, each with its place. A daemon that does not look for them sends
	// none. They count towards what is captured.
	Kept []clue.Piece `json:"kept,omitempty"`
	// SpillLines says which of this stream's lines are which of the spill, where
	// the other stream's are between them: line [0], from 1, and those after it
	// are line [1] of the spill and those after that. It has at most
	// MaxSpillLines elements; where there would be more, some are left out, and
	// a number found with them may be that of a line before.
	SpillLines [][2]int64 `json:"spill_lines,omitempty"`
}

// Spill is the file with a command's full output: both streams in the order
// execd read them, which for what was printed to both at the same moment may
// not be the order of printing. It describes the file at the command's end;
// what a background command leaves running may go on adding to it.
type Spill struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Lines int64  `json:"lines"`
	// Complete is false when the limit, the budget or a full disk cut it.
	Complete bool   `json:"complete"`
	SHA256   string `json:"sha256"` // of the bytes in the file
}

// Status is the answer of GET /command/status/{id}.
type Status struct {
	ID         string     `json:"id"`
	Content    string     `json:"content"` // the command
	Running    bool       `json:"running"`
	ExitCode   *int       `json:"exit_code,omitempty"`
	Error      string     `json:"error,omitempty"`
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	// Rein is set by our daemon: the stored outcome (nil while running), and
	// the log's length so far for background commands.
	Rein *StatusExtra `json:"rein,omitempty"`
}

// StatusExtra is rein's addition to Status.
type StatusExtra struct {
	Outcome *Outcome `json:"outcome,omitempty"`
	LogPath string   `json:"log_path,omitempty"`
	// Bytes and Lines count what the command has printed so far.
	Bytes int64 `json:"bytes"`
	Lines int64 `json:"lines"`
}

// FileInfo describes one file (lstat).
type FileInfo struct {
	Path       string    `json:"path"`
	Type       string    `json:"type"` // file, directory, symlink, other
	Size       int64     `json:"size"`
	ModifiedAt time.Time `json:"modified_at"`
	CreatedAt  time.Time `json:"created_at"`
	Owner      string    `json:"owner"`
	Group      string    `json:"group"`
	Mode       int       `json:"mode"` // octal digits read as decimal: 644
	// Target and SHA256 are rein's additions. Target says where a symbolic link
	// leads, in file info and listings. SHA256 of a regular file's content is
	// there when the request asked for it (hash=1) and the file is no longer than
	// MaxHashed.
	Target string `json:"target,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
}

// MaxHashed is the longest file that is hashed, in bytes: one with holes can be
// longer than anything could be read.
const MaxHashed = 1 << 30

// Metrics is the sandbox's own use of its resources, never the host's.
type Metrics struct {
	CPUCount    float64 `json:"cpu_count"`
	CPUUsedPct  float64 `json:"cpu_used_pct"`
	MemTotalMiB float64 `json:"mem_total_mib"`
	MemUsedMiB  float64 `json:"mem_used_mib"`
	Timestamp   int64   `json:"timestamp"` // unix milliseconds
}

// Features is the answer of GET /rein/features: which of rein's optional
// fields this daemon honours. A daemon without the route honours none.
type Features struct {
	Version    string `json:"version"`
	CallIDs    bool   `json:"call_ids"`
	Spill      bool   `json:"spill"`
	Capture    bool   `json:"capture"`
	PipeStatus bool   `json:"pipe_status"`
	OOMFlag    bool   `json:"oom_flag"`
	Argv       bool   `json:"argv"` // commands are started without a shell where asked for
	PortOwner  bool   `json:"port_owner"`
	Sessions   bool   `json:"sessions"` // with stderr apart and call ids
	PTY        bool   `json:"pty"`
	Clear      bool   `json:"clear"` // all that commands left behind can be ended
	// Separation is "full" when user code runs under another uid than execd,
	// "reduced" otherwise.
	Separation string `json:"separation"`
	User       string `json:"user"` // name or uid that commands run as
	// Reduced says in words what confinement of commands does not hold here.
	Reduced []string `json:"reduced,omitempty"`
}

// Cleared is the answer of POST /rein/clear: how many processes were ended.
type Cleared struct {
	Processes int `json:"processes"`
}

// Socket is a TCP socket inside. Of Local the port is needed; with both
// addresses it is found at once, however many sockets there are.
type Socket struct{ Local, Remote netip.AddrPort }

// PortOwnerTimeout bounds the search for who holds a socket: a connection of the
// sandbox waits for it.
const PortOwnerTimeout = 500 * time.Millisecond

// PortOwner is the answer of GET /rein/port?local=N, or local=ADDRESS:N and
// remote=ADDRESS:N, and a line of that of POST /rein/ports: the command that holds the TCP socket. ID is empty when none
// does.
type PortOwner struct {
	Port int    `json:"port"`
	ID   string `json:"id,omitempty"`
	// Lasting says that of a connection, asked for by both ends, the command is
	// known that made it, and for a second at least, however soon they end.
	Lasting bool `json:"lasting,omitempty"`
}
