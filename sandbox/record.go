package sandbox

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/execd"
)

// The types below are the data of audit records. They are written by Sandbox
// and read by reports. None holds output or a file's content.

// CreateIntent is the data of audit.KindSandboxIntent: what will be asked.
type CreateIntent struct {
	Provider  string            `json:"provider"`
	Image     string            `json:"image"`
	Cwd       string            `json:"cwd,omitempty"`
	Env       []string          `json:"env,omitempty"` // names only
	Labels    map[string]string `json:"labels,omitempty"`
	TTLMS     int64             `json:"ttl_ms"`
	Resources Resources         `json:"resources,omitzero"`
	Mounts    []Mount           `json:"mounts,omitempty"`
	Require   []Capability      `json:"require,omitempty"`
	Network   policy.Document   `json:"network,omitzero"`
	// Secrets that its requests are given, without their values.
	Secrets []vault.Secret `json:"secrets,omitempty"`
}

func createIntent(p Provider, s Spec) CreateIntent {
	return CreateIntent{Provider: p.Name(), Image: cmp.Or(s.Image, "host"), Cwd: s.Cwd, Env: names(s.Env), Labels: s.Labels,
		TTLMS: s.TTL.Milliseconds(), Resources: s.Resources, Mounts: s.Mounts, Require: s.Require, Network: s.Network, Secrets: s.Secrets}
}

func names(env map[string]string) []string { return slices.Sorted(maps.Keys(env)) }

// CallIntent is the data of audit.KindCallIntent.
type CallIntent struct {
	Tool string `json:"tool"`
	// Command is the masked command, at most 2 KiB of it; Bytes and SHA256 are
	// of all of it before masking.
	Command    string   `json:"command"`
	Bytes      int      `json:"command_bytes"`
	SHA256     string   `json:"command_sha256"`
	Cwd        string   `json:"cwd,omitempty"`
	Env        []string `json:"env,omitempty"` // names only
	TimeoutMS  int64    `json:"timeout_ms"`
	Background bool     `json:"background,omitempty"`
	Session    string   `json:"session,omitempty"` // in which it runs
	// Repeat: rein runs it once more, see Command.
	Repeat bool `json:"repeat,omitempty"`
}

// SessionRecord is the data of audit.KindSessionIntent and KindSessionOutcome.
type SessionRecord struct {
	Tool    string   `json:"tool"`
	Op      string   `json:"op"` // open, close
	Session string   `json:"session,omitempty"`
	Cwd     string   `json:"cwd,omitempty"`
	Env     []string `json:"env,omitempty"` // names only
	// Of the outcome.
	Ending
}

// Ending is how an operation on a session or a terminal ended.
type Ending struct {
	OK         bool     `json:"ok"`
	DurationMS int64    `json:"duration_ms,omitempty"`
	Failure    *Failure `json:"error,omitempty"`
}

// TerminalRecord is the data of audit.KindTerminalIntent and
// KindTerminalOutcome. What is typed and printed is in no record.
type TerminalRecord struct {
	Tool     string   `json:"tool"`
	Op       string   `json:"op"` // open, attach, detach, close
	Terminal string   `json:"terminal,omitempty"`
	Command  string   `json:"command,omitempty"` // masked, at most 2 KiB
	SHA256   string   `json:"command_sha256,omitempty"`
	Cwd      string   `json:"cwd,omitempty"`
	Env      []string `json:"env,omitempty"` // names only
	Pipe     bool     `json:"pipe,omitempty"`
	// Of the outcome.
	Ending
	BytesIn  int64 `json:"bytes_in,omitempty"`
	BytesOut int64 `json:"bytes_out,omitempty"`
	ExitCode *int  `json:"exit_code,omitempty"`
}

// CallOutcome is the data of audit.KindCallOutcome.
type CallOutcome struct {
	Tool string `json:"tool"`
	OK   bool   `json:"ok"`
	// ExitCode is null when it is not known.
	ExitCode   *int   `json:"exit_code"`
	Timeout    bool   `json:"timeout"`
	DurationMS int64  `json:"duration_ms"`
	Signal     string `json:"signal,omitempty"`
	KilledBy   string `json:"killed_by,omitempty"`
	OOMKilled  bool   `json:"oom_killed,omitempty"`
	HeldOpen   bool   `json:"stdout_held_open,omitempty"`
	PipeStatus []int  `json:"pipe_status,omitempty"`
	// OutputBytes is what both streams printed; Truncated says that less than
	// that left the sandbox.
	OutputBytes int64        `json:"output_bytes"`
	Stdout      OutputSize   `json:"stdout"`
	Stderr      OutputSize   `json:"stderr"`
	Truncated   bool         `json:"truncated"`
	Spill       *execd.Spill `json:"spill,omitempty"`
	// Known: the id had been used before and nothing was run.
	Known bool `json:"known,omitempty"`
	// Background: started and left running; a later outcome ends it.
	Background bool `json:"background,omitempty"`
	// Verified: the stream was lost and the outcome was asked for by id.
	Verified bool            `json:"verified,omitempty"`
	Network  []NetworkTarget `json:"network,omitempty"`
	// NetworkError says why the network record could not be read.
	NetworkError string   `json:"network_error,omitempty"`
	Failure      *Failure `json:"error,omitempty"`
	// Why is the cause in a few words: "exit code 1", "timeout after 60s",
	// "SIGKILL", "sandbox_lost: oom", a policy's reason; empty on success.
	Why string `json:"why,omitempty"`
}

// OutputSize counts one stream.
type OutputSize struct {
	Bytes int64 `json:"bytes"`
	Lines int64 `json:"lines"`
}

// NetworkTarget is one target tried during a call, without its times.
type NetworkTarget struct {
	Proto   string `json:"proto"`
	Name    string `json:"name,omitempty"`
	Address string `json:"address,omitempty"`
	Port    int    `json:"port,omitempty"`
	Verdict string `json:"verdict"`
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Count   int    `json:"count"`
	// Of a connection, see NetworkRecord.
	BytesIn    int64  `json:"bytes_in,omitempty"`
	BytesOut   int64  `json:"bytes_out,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	Attribution
}

func targetOf(r NetworkRecord) NetworkTarget {
	return NetworkTarget{Proto: r.Proto, Name: r.Name, Address: r.Address, Port: r.Port, Verdict: r.Verdict, Rule: r.Rule,
		Reason: r.Reason, Count: r.Count, BytesIn: r.BytesIn, BytesOut: r.BytesOut, DurationMS: r.DurationMS,
		Generation: r.Generation, Attribution: r.Attribution}
}

// Failure is an error in the record.
type Failure struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// NetworkAnchor is the data of audit.KindNetwork: the head of the sandbox's
// own network record after a call.
type NetworkAnchor struct {
	Last uint64 `json:"last"`
	Head string `json:"head"`
}

// FileIntent is the data of audit.KindFileIntent.
type FileIntent struct {
	Tool  string `json:"tool"`
	Op    string `json:"op"` // read, write, upload, download, stat, list, inventory, search, mkdir, remove, move, logs
	Path  string `json:"path"`
	To    string `json:"to,omitempty"` // of a move
	Root  string `json:"root,omitempty"`
	Range string `json:"range,omitempty"` // the part asked for
	Mode  string `json:"mode,omitempty"`
}

// Interrupted is the data of audit.KindInterrupt.
type Interrupted struct {
	OK      bool     `json:"ok"`
	Failure *Failure `json:"error,omitempty"`
}

// FileOutcome is the data of audit.KindFileOutcome.
type FileOutcome struct {
	Tool       string   `json:"tool"`
	Op         string   `json:"op"`
	Path       string   `json:"path"`
	OK         bool     `json:"ok"`
	Bytes      int64    `json:"bytes,omitempty"`
	Entries    int      `json:"entries,omitempty"`
	SHA256     string   `json:"sha256,omitempty"`
	Truncated  bool     `json:"truncated,omitempty"`
	DurationMS int64    `json:"duration_ms"`
	Failure    *Failure `json:"error,omitempty"`
	Why        string   `json:"why,omitempty"`
}

// LifecycleIntent is the data of the intents of renewals, pauses and kills.
type LifecycleIntent struct {
	// ExpiresAt is the end that a renewal asks for.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// NetworkChange is the data of audit.KindNetworkIntent and KindNetworkChanged: a
// policy that is, or was, to be put in force.
type NetworkChange struct {
	Network policy.Document `json:"network,omitzero"`
	// Of the outcome.
	OK         bool     `json:"ok"`
	Generation uint64   `json:"generation,omitempty"`
	DurationMS int64    `json:"duration_ms,omitempty"`
	Failure    *Failure `json:"error,omitempty"`
}

// LifecycleOutcome is the data of the records of renewals, pauses and kills.
type LifecycleOutcome struct {
	OK bool `json:"ok"`
	// ExpiresAt is the end in force after a renewal.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// Verified says that the provider confirmed that nothing is left.
	Verified   bool     `json:"verified,omitempty"`
	DurationMS int64    `json:"duration_ms"`
	Failure    *Failure `json:"error,omitempty"`
}
