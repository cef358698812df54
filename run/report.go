package run

import (
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
)

// ReportVersion is the value of Report.Version; it changes when a member
// changes its meaning.
const ReportVersion = "rein.report/1"

// Report is what is known of a finished run. Everything in it is masked.
type Report struct {
	Version string     `json:"version"`
	RunID   string     `json:"run_id"`
	TraceID string     `json:"trace_id"`
	Task    string     `json:"task"`
	Target  TargetInfo `json:"target"`
	// SandboxID is empty when none could be created.
	SandboxID string `json:"sandbox_id,omitempty"`

	// Reason and ExitCode say how the run ended; a brake wins over acceptance.
	Reason   Reason `json:"reason"`
	ExitCode int    `json:"exit_code"`
	// Accepted is "yes", "no", "unchecked" (there were no checks) or "unknown"
	// (they were not, or could not be, run).
	Accepted   string `json:"accepted"`
	Conclusion string `json:"conclusion"` // one sentence
	Answer     string `json:"answer,omitempty"`
	// Composed: there is no last answer of the model, and Answer is from rein's records.
	Composed  bool          `json:"answer_composed,omitempty"`
	Error     string        `json:"error,omitempty"`
	Hint      string        `json:"hint,omitempty"`
	Checks    []CheckResult `json:"checks,omitempty"`
	Protected []Protected   `json:"protected,omitempty"`
	Brake     *Brake        `json:"brake,omitempty"`
	Warnings  []string      `json:"warnings,omitempty"`

	StartedAt time.Time `json:"started_at"`
	// Resumed tells of each time another process went on with the run.
	Resumed []Resumption `json:"resumed,omitempty"`
	EndedAt time.Time    `json:"ended_at"`
	Time    Times        `json:"time"`
	Steps   int          `json:"steps"`
	Calls   Calls        `json:"calls"`
	Tokens  Tokens       `json:"tokens"`
	// Agent is the program that worked, and Models what it asked of which model.
	Agent  *AgentInfo `json:"agent,omitempty"`
	Models []ModelUse `json:"models,omitempty"`

	Limits []LimitInfo `json:"limits"`
	// LimitChanges are those made while the run worked; Limits has the last.
	LimitChanges []LimitChange `json:"limit_changes,omitempty"`
	// Network has the targets tried, the first MaxNetwork of them; all are in
	// network.jsonl, of which NetworkHead (audit.Head's String) is the end.
	// NetworkObserved is false where nobody keeps a record.
	NetworkObserved bool                    `json:"network_observed"`
	Network         []sandbox.NetworkRecord `json:"network,omitempty"`
	NetworkHead     string                  `json:"network_head,omitempty"`
	// Hosts takes them together by host, port and verdict, those that were reached
	// first; HostsLeft is how many more there are.
	Hosts     []HostReached `json:"hosts,omitempty"`
	HostsLeft int           `json:"hosts_left,omitempty"`
	// NetworkRules is what the network's policy says at the end, a line a rule;
	// empty: nothing may be reached. NetworkChanges were made while the run worked.
	NetworkRules   []string        `json:"network_rules,omitempty"`
	NetworkChanges []NetworkChange `json:"network_changes,omitempty"`
	// ModelHosts are the requests to models' vendors that could pass, a line each.
	ModelHosts []string `json:"model_hosts,omitempty"`
	// Secrets are those that requests of the sandbox could be given.
	Secrets []GivenSecret `json:"secrets,omitempty"`

	Inputs    Inputs     `json:"inputs"`
	Patch     *PatchInfo `json:"patch,omitempty"`
	Artifacts []Artifact `json:"artifacts,omitempty"`
	// Unfetched are files and directories among the artifacts that could not be
	// brought out, and why.
	Unfetched []Skipped   `json:"artifacts_unfetched,omitempty"`
	Output    *OutputInfo `json:"output,omitempty"`
	Cleanup   Cleanup     `json:"cleanup"`
	// Revocations are the keys that were made for the run, and their withdrawal.
	Revocations []Revocation `json:"keys_withdrawn,omitempty"`

	// Approvals is nil when nothing was asked and no rule forbade anything.
	Approvals *Approvals `json:"approvals,omitempty"`

	Provenance Provenance `json:"provenance"`
	AuditHead  Head       `json:"audit_head"`
	// Dir holds the run's files.
	Dir string `json:"dir"`
}

// MaxNetwork bounds Report.Network.
const MaxNetwork = 200

// AgentInfo is a program of others that worked in the sandbox, and how it ended.
type AgentInfo struct {
	Name    string `json:"name"`
	Package string `json:"package,omitempty"`
	Version string `json:"version,omitempty"`
	// Layer is the SHA-256 of what was mounted of it.
	Layer string `json:"layer_sha256,omitempty"`
	// Finished: it said so itself. Failure is why it says that it failed; Message
	// are its words.
	Finished bool   `json:"finished"`
	Failure  string `json:"failure,omitempty"`
	Message  string `json:"message,omitempty"`
	ExitCode *int   `json:"exit_code"`
	Signal   string `json:"signal,omitempty"`
	Turns    int    `json:"turns,omitempty"`
	Tools    int    `json:"tools,omitempty"`
	// Unknown counts what of its output was not understood.
	Unknown int `json:"unknown_events,omitempty"`
	// Flagged says what about its end does not fit together; empty: nothing.
	Flagged string `json:"flagged,omitempty"`
	// Output has the ends of what it printed, masked.
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
}

// TargetInfo is where the run executed.
type TargetInfo struct {
	Name     string `json:"name,omitempty"`
	Provider string `json:"provider"`
	Runtime  string `json:"runtime,omitempty"`
	Image    string `json:"image,omitempty"`
	// ImageDigest names the image's content; empty for the host's.
	ImageDigest string `json:"image_digest,omitempty"`
	Separation  string `json:"separation,omitempty"`
}

// Times are wall-clock spans. Working is Total without Waiting: rate limits,
// retries and approvals.
type Times struct {
	TotalMS   int64 `json:"total_ms"`
	WorkingMS int64 `json:"working_ms"`
	WaitingMS int64 `json:"waiting_ms"`
	CreateMS  int64 `json:"create_ms"`
	CleanupMS int64 `json:"cleanup_ms"`
}

// Calls counts the tool calls of the worker.
type Calls struct {
	Total     int            `json:"total"`
	Succeeded int            `json:"succeeded"`
	Failed    int            `json:"failed"` // timeouts and denials included
	TimedOut  int            `json:"timed_out"`
	Denied    int            `json:"denied"` // by policy or a path rule
	ByTool    map[string]int `json:"by_tool,omitempty"`
}

// Tokens are those the model's vendor counted. Estimated is true when some
// reply came without a count and was estimated instead.
type Tokens struct {
	Input     int64   `json:"input"`
	Cached    int64   `json:"cached_input,omitempty"`
	Output    int64   `json:"output"`
	Total     int64   `json:"total"`
	Estimated bool    `json:"estimated"`
	CostUSD   float64 `json:"cost_usd,omitempty"`
	// PriceSource says where the price is from that CostUSD is counted with;
	// empty when none was known.
	PriceSource string `json:"price_source,omitempty"`
}

// Brake is the limit that stopped the run.
type Brake struct {
	Limit string `json:"limit"`
	Used  string `json:"used"`
	Max   string `json:"max"`
	Flag  string `json:"flag,omitempty"` // what raises it; empty when nothing does
	// Kept is what of Max was set aside for the last turn, Needed what the next
	// request could have needed; empty where neither is why.
	Kept   string `json:"kept,omitempty"`
	Needed string `json:"needed,omitempty"`
}

// Amounts says how far it was.
func (b Brake) Amounts() string {
	s := b.Used + " of " + b.Max
	if b.Kept != "" {
		s += ", " + b.Kept + " kept for the last turn"
	}
	if b.Needed != "" {
		s += ", and the next request may need " + b.Needed
	}
	return s
}

// stopped is the detail of a run that it stopped.
func (b Brake) stopped() string { return "stopped by " + b.Limit + ": " + b.Used + " of " + b.Max }

// String says how far it was, and what raises it.
func (b Brake) String() string {
	s := b.Limit + ": " + b.Amounts()
	if b.Flag != "" {
		s += "; " + b.Flag + " raises it"
	}
	return s
}

// LimitInfo is one limit in force and who enforces it.
type LimitInfo struct {
	Layer      string `json:"layer"` // call, round, run, resource
	Name       string `json:"name"`
	Value      string `json:"value"`
	EnforcedBy string `json:"enforced_by"`
}

// CheckResult is how one acceptance check ended.
type CheckResult struct {
	Name       string `json:"name"`
	Command    string `json:"command,omitempty"`
	File       string `json:"file,omitempty"` // that was looked at, instead
	Passed     bool   `json:"passed"`
	ExitCode   *int   `json:"exit_code"`
	Timeout    bool   `json:"timeout,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Stdout     string `json:"stdout,omitempty"` // the end of it
	Stderr     string `json:"stderr,omitempty"`
	Error      string `json:"error,omitempty"` // it could not be run
}

// Protected is one file the worker must not change: each that was there at the
// beginning, and each that is new where files are protected. Unless it is
// unchanged it is a breach, and the run is not accepted.
type Protected struct {
	Path string `json:"path"`
	// Before and After are SHA-256, "link TARGET" for a symbolic link, and empty
	// for a file that was not, or no longer is, there. After is "unknown" when
	// the file could not be read, which is a breach.
	Before    string `json:"before"`
	After     string `json:"after"`
	Unchanged bool   `json:"unchanged"`
	// Kind of the breach, as in Change; empty without one.
	Kind string `json:"kind,omitempty"`
}

// Inputs is what was copied in.
type Inputs struct {
	Dir   string `json:"dir,omitempty"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
	// Ignored and Secrets count what was left out; Skipped names what could
	// not be copied, with the reason.
	Ignored int       `json:"ignored"`
	Secrets []string  `json:"secrets,omitempty"`
	Skipped []Skipped `json:"skipped,omitempty"`
}

// Skipped is a path left out, and why.
type Skipped struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// PatchInfo describes the patch between the inputs and the workspace at the end.
type PatchInfo struct {
	Path    string    `json:"path"`
	SHA256  string    `json:"sha256"`
	Bytes   int64     `json:"bytes"`
	Files   []Change  `json:"files"`
	Skipped []Skipped `json:"skipped,omitempty"`
}

// Change is one file of a patch.
type Change struct {
	Path string `json:"path"`
	Kind string `json:"kind"` // added, modified, deleted, mode
}

// Artifact is a file brought out.
type Artifact struct {
	Source string `json:"source"` // path inside the sandbox
	Path   string `json:"path"`   // on this host
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Cleanup says what became of the sandbox.
type Cleanup struct {
	// OK is true when the provider confirmed that the sandbox is gone, or when
	// none was created.
	OK       bool   `json:"ok"`
	Verified string `json:"verified,omitempty"` // how it is known
	Error    string `json:"error,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
}

// Provenance says what produced the outputs.
type Provenance struct {
	Rein  string `json:"rein"`
	Model string `json:"model,omitempty"`
	// ImageDigest names the content of the sandbox's image; empty for the host's.
	ImageDigest string `json:"image_digest,omitempty"`
	InputTree   string `json:"input_tree"` // SHA-256 over paths, modes and contents
	ConfigHash  string `json:"config_hash,omitempty"`
	TaskHash    string `json:"task_sha256"`
	// Commit and Ref are where the git repository stood that the workspace is, or is
	// a directory or linked worktree of. Changed is how many of the files there
	// that git tracks were not as its index has them (repository.Changed), null when
	// that is not known. InputTree is the hash of what was copied in.
	Commit  string `json:"git_commit,omitempty"`
	Ref     string `json:"git_ref,omitempty"`
	Changed *int   `json:"git_changed,omitempty"`
	// Outputs are the patch and the artifacts, by their names in Report.Dir.
	Outputs  []Produced `json:"outputs,omitempty"`
	SpecHash string     `json:"spec_sha256"`
}

// Produced is a file that came of a run.
type Produced struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

// Head is the end of the audit log's chain.
type Head = audit.Head
