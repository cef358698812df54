// Package audit is the append-only record of what happened: JSON lines, each
// holding the hash of the line before it, so that an edit, a removal or a cut
// tail shows. Intent is recorded before effect, outcome after. Values are
// masked before they are written, and full output never is.
//
// # Format
//
// A log is UTF-8 text. Every line is one JSON object and ends with a newline.
// Its last member is always "hash", 64 lower-case hexadecimal digits: the
// SHA-256 of the line's own bytes without the newline and without the member,
//
//	,"hash":"…"
//
// that is, of the same object ending after "prev". Nothing is reformatted for
// hashing: the bytes in the file are the canonical form, so anybody can check
// one with sed and sha256sum:
//
//	sed -n 7p audit.jsonl | sed 's/,"hash":"[0-9a-f]\{64\}"}$/}/' | tr -d '\n' | sha256sum
//
// "prev" is the hash of the line before, empty in the first; "seq" counts from
// 1. Whoever can write the file can also rewrite all of it consistently, or cut
// its end. Only a head kept elsewhere (the newest line's number and hash, see
// [Head]) proves that this was not done, and [Verify] says so when it has none.
//
// # Torn lines
//
// A machine that dies while a line is written leaves an incomplete last line.
// That is a state of its own ([Torn]) and is never repaired. A log may be
// continued after it ([Options].ContinueTorn): the fragment stays, gets its
// newline, and the next record, of kind audit.tear, holds its length and
// SHA-256; its "prev" is the last complete record.
package audit

import (
	"encoding/json"
	"time"
)

// Record is one line of the log.
type Record struct {
	Seq  uint64    `json:"seq"`  // from 1
	Time time.Time `json:"time"` // UTC
	Kind Kind      `json:"kind"`
	// The ids that apply; empty where they do not.
	RunID     string          `json:"run_id,omitempty"`
	TraceID   string          `json:"trace_id,omitempty"`
	SandboxID string          `json:"sandbox_id,omitempty"`
	CallID    string          `json:"call_id,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	Prev      string          `json:"prev"` // hash of the record before; empty for the first
	Hash      string          `json:"hash"` // hex SHA-256 of the line without this member; always last
}

// Kind names what a record is about; append-only.
type Kind string

// The kinds. An intent is written before the effect, an outcome after it.
const (
	KindRunStart        Kind = "run.start"
	KindRunEnd          Kind = "run.end"
	KindSandboxIntent   Kind = "sandbox.create.intent"
	KindSandboxCreated  Kind = "sandbox.created"
	KindSandboxFailed   Kind = "sandbox.failed"
	KindSandboxAttached Kind = "sandbox.attached"
	KindSandboxRenewed  Kind = "sandbox.renewed"
	KindKillIntent      Kind = "sandbox.kill.intent"
	KindKilled          Kind = "sandbox.killed"
	KindCallIntent      Kind = "call.intent"
	KindCallOutcome     Kind = "call.outcome"
	KindFileIntent      Kind = "file.intent"
	KindFileOutcome     Kind = "file.outcome"
	KindModelRequest    Kind = "model.request"
	KindModelReply      Kind = "model.reply"
	KindBrake           Kind = "brake"
	KindAcceptance      Kind = "acceptance"
	KindArtifact        Kind = "artifact"
	KindTool            Kind = "tool.result" // one call of a model, whatever became of it
	KindNetwork         Kind = "network"     // a record of network.jsonl, and its head
	KindTear            Kind = "audit.tear"  // the log was continued after an incomplete line
	KindInterrupt       Kind = "call.interrupt"
	KindRenewIntent     Kind = "sandbox.renew.intent"
	KindPauseIntent     Kind = "sandbox.pause.intent"
	KindPaused          Kind = "sandbox.paused"
	KindResumeIntent    Kind = "sandbox.resume.intent"
	KindResumed         Kind = "sandbox.resumed"
	KindKillFailed      Kind = "sandbox.kill.failed"
	KindSessionIntent   Kind = "session.intent"
	KindSessionOutcome  Kind = "session.outcome"
	KindTerminalIntent  Kind = "terminal.intent"
	KindTerminalOutcome Kind = "terminal.outcome"     // also a detachment
	KindApprovalAsked   Kind = "approval.asked"       // a person is being asked
	KindApproval        Kind = "approval"             // what came of a request that is not simply allowed
	KindClearIntent     Kind = "sandbox.clear.intent" // all that commands left behind is to be ended
	KindCleared         Kind = "sandbox.cleared"
	KindLimit           Kind = "limit"            // a limit was changed while the run worked
	KindHalt            Kind = "halt"             // the work was ended because the sandbox gets no more time
	KindControl         Kind = "control"          // somebody answered, or stopped, the run
	KindOutputIntent    Kind = "output.intent"    // the output directory is about to be brought up to date
	KindOutput          Kind = "output"           // it was
	KindRestore         Kind = "restored"         // a protected file is again as it was
	KindRound           Kind = "acceptance.round" // failed checks of work that goes on
	KindVerdict         Kind = "verdict"          // a round that was told to a model that had given its answer
	KindRunInputs       Kind = "run.inputs"       // the inputs are in the sandbox
	KindRunOutcome      Kind = "run.outcome"      // how the work ended, before it is judged
	KindRunJudged       Kind = "run.judged"       // the outputs are saved and judged
	KindRunResumed      Kind = "run.resumed"      // another process goes on
	KindNetworkIntent   Kind = "network.intent"   // another policy of the network is to be put in force
	KindNetworkChanged  Kind = "network.changed"  // it was, or not
	KindNetworkSet      Kind = "network.set"      // a person has changed what a run that works may reach
	KindSecretIntent    Kind = "secret.intent"    // another value is to be put behind a placeholder
	KindSecretRotated   Kind = "secret.rotated"   // it was, or not
	KindSecretRevoked   Kind = "secret.revoked"   // a key was withdrawn where it is from, or not
)

// Entry is what a caller gives to Append.
type Entry struct {
	Kind                              Kind
	RunID, TraceID, SandboxID, CallID string
	Data                              any // encoded as JSON, then masked
}

// Tear is the Data of a record of KindTear: what is known of an incomplete line.
type Tear struct {
	Line   int64  `json:"line"`   // its number in the file, from 1
	Bytes  int64  `json:"bytes"`  // its length without the newline it got later
	SHA256 string `json:"sha256"` // of those bytes
	// Complete says that only the newline was missing: the line is a record of
	// the chain.
	Complete bool `json:"complete,omitempty"`
}
