package wrap

import "time"

// Reading is what a reader has made of an agent's output.
type Reading struct {
	// Finished: the agent said that its work is done: the event, or the document,
	// that ends it well was read whole.
	Finished bool
	// Answer is its final text.
	Answer string
	// Failure is why it says that it failed; nil when it did not say so.
	Failure *Failure
	// Turns and Tools count what it said of its own work, where it says so.
	Turns, Tools int
	// Unknown counts lines and events that were not understood; they change nothing.
	Unknown int
}

// Failure is an end that an agent tells of.
type Failure struct {
	Kind    FailureKind
	Message string // its own words, one line
}

// FailureKind classifies how an agent failed; append only.
type FailureKind string

// The kinds.
const (
	BadKey     FailureKind = "bad_key"     // the vendor knows no such key, or the agent has none
	NotAllowed FailureKind = "not_allowed" // a permission was refused: the agent's own, or by policy
	Spent      FailureKind = "budget"      // the error that the gateway answers with
	TimedOut   FailureKind = "timeout"     // of its own, or the model's
	Refusal    FailureKind = "refusal"     // the model declined
	TooLong    FailureKind = "context"     // the conversation does not fit
	OutOfTurns FailureKind = "turns"       // its own limit of turns
	NoVendor   FailureKind = "vendor"      // the model's API could not be had
	NoModel    FailureKind = "model"       // the vendor knows no such model, or it may not be asked
	Other      FailureKind = "other"
	// Quota is Spent where the gateway refused nothing: the vendor's own. No reader
	// returns it.
	Quota FailureKind = "quota"
)

// Activity is one thing an agent tells of while it works, for the progress that is
// shown.
type Activity struct {
	Kind string // text, tool, result, error
	Text string // one line
}

// Reader reads the output of one agent as it comes. It takes any bytes: escape
// sequences, lines that are no events, and events of unknown types are passed over.
// One goroutine uses it.
type Reader interface {
	// Stdout and Stderr take pieces of the streams and return what they tell of.
	Stdout(p []byte) []Activity
	Stderr(p []byte) []Activity
	// End is called once when the streams have ended.
	End(exitCode int, after time.Duration) Reading
}
