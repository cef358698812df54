package run

import "time"

// Event is one thing that happened, for whoever watches. Texts are masked but
// not stripped of control characters: a terminal's writer does that.
type Event struct {
	Time time.Time `json:"time"`
	Kind EventKind `json:"kind"`
	// Text is the sentence or the piece of text of the kind.
	Text string `json:"text,omitempty"`
	// Step counts model replies from 1; 0 outside one.
	Step int `json:"step,omitempty"`
	// Tokens counts what the run has used so far; 0 before the first reply.
	Tokens int64 `json:"tokens,omitempty"`
	// CostUSD is what the run has cost so far, where the price is known.
	CostUSD float64 `json:"cost_usd,omitempty"`
	// Call is set for EventCall, EventOutput and EventResult.
	Call *CallEvent `json:"call,omitempty"`
}

// EventKind names what an Event is about; append-only.
type EventKind string

// The kinds.
const (
	EventStart   EventKind = "start"   // Text: the run's id
	EventSandbox EventKind = "sandbox" // being made, ready (Text: its id), renewed
	EventInputs  EventKind = "inputs"  // Text: what was copied in
	EventStep    EventKind = "step"    // a request to the model begins
	EventModel   EventKind = "model"   // Text: what a request of the sandbox to a model came to
	EventNetwork EventKind = "network" // Text: a target that the sandbox tried, and was refused
	EventAgent   EventKind = "agent"   // Text: what a program that works in the sandbox says
	EventText    EventKind = "text"    // a piece of the model's answer
	EventReason  EventKind = "reason"  // a piece of its reasoning
	EventCall    EventKind = "call"    // a tool call begins
	EventOutput  EventKind = "output"  // output so far of the running call
	EventResult  EventKind = "result"  // a tool call has ended
	EventWait    EventKind = "wait"    // waiting before a retry
	EventWarning EventKind = "warning" // a limit is near, or something was left out
	EventBrake   EventKind = "brake"   // a limit stops the run
	EventOutputs EventKind = "outputs" // Text: what is brought out
	EventCheck   EventKind = "check"   // an acceptance check begins or has ended
	EventCleanup EventKind = "cleanup" // the sandbox is being destroyed, is gone
	EventEnd     EventKind = "end"     // Text: the conclusion
)

// CallEvent describes a tool call.
type CallEvent struct {
	ID      string `json:"id"`
	Tool    string `json:"tool"`
	Summary string `json:"summary,omitempty"` // the parameters, masked and short
	// Of a call that has ended, or the output so far.
	OK         bool   `json:"ok,omitempty"`
	ExitCode   *int   `json:"exit_code,omitempty"`
	Timeout    bool   `json:"timeout,omitempty"`
	Code       string `json:"code,omitempty"` // of the error
	Bytes      int64  `json:"bytes,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`
}
