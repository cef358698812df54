// Package audit is the append-only record of what happened: JSON lines, each
// holding the hash of the line before it, so that an edit, a removal or a cut
// tail shows. Intent is recorded before effect, outcome after. Values are
// masked before they are written, and full output never is.
package audit

import (
	"encoding/json"
	"time"
)

// Record is one line of the log.
type Record struct {
	Seq  uint64    `json:"seq"` // from 1
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	// The ids that apply; empty where they do not.
	RunID     string          `json:"run_id,omitempty"`
	TraceID   string          `json:"trace_id,omitempty"`
	SandboxID string          `json:"sandbox_id,omitempty"`
	CallID    string          `json:"call_id,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	Prev      string          `json:"prev"` // hash of the record before; empty for the first
	Hash      string          `json:"hash"` // hex SHA-256 of this record without this member
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
	KindNetwork         Kind = "network"    // a record of network.jsonl, and its head
	KindTear            Kind = "audit.tear" // the log was continued after an incomplete line
)

// Entry is what a caller gives to Append.
type Entry struct {
	Kind                              Kind
	RunID, TraceID, SandboxID, CallID string
	Data                              any // encoded as JSON, then masked
}
