// Package agent is the loop of topology A: the model and its key stay in
// rein's process, and every tool call goes to the sandbox.
//
// The loop counts and enforces the limits of package budget; executes calls in
// order and one at a time, each with exactly one result; never executes what a
// cut reply asked for; and hands tool output to the model as data, inside a
// delimiter that is random for each result.
package agent

import (
	"errors"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/price"
	"github.com/rein-sh/rein/run"
)

// Options of a loop. Only Model is required.
type Options struct {
	Model model.Model
	// System is added to the system prompt, before rein's own rules.
	System string
	// MaxOutputTokens caps each reply, reasoning included; 0 means
	// DefaultMaxOutputTokens.
	MaxOutputTokens int
	// Price is what the model costs; nil: not known, only tokens are counted,
	// and the report says that the cost limit is not enforced.
	Price *Price
	// Fallback, when set, is asked for the rest of the run once Model could not
	// be had: after Retries repetitions, or when it asks to wait longer than the
	// run may last. Other failures are not worked around. FallbackPrice is what
	// it costs, as Price.
	Fallback      model.Model
	FallbackPrice *Price
	// Context says what of the conversation the model is sent.
	Context Context
	// OnDenial says what to do when a call fails because of a policy.
	OnDenial OnDenial
	// Retries bounds the repetitions of one request to the model after a
	// retryable failure; 0 means DefaultRetries, negative none.
	Retries int
}

// Defaults of Options.
const (
	DefaultMaxOutputTokens = 8192
	DefaultRetries         = 6
)

// Price of a model, in dollars per million tokens.
type Price = price.Price

// OnDenial is what a run does about a denial.
type OnDenial string

// The choices. The zero value is StopIfFailed.
const (
	StopIfFailed OnDenial = "stop_if_failed" // stop when the denied call failed
	GoOn         OnDenial = "continue"       // tell the model and go on
)

// New returns the loop as a worker. It may serve any number of runs.
func New(o Options) (run.Worker, error) {
	if o.Model == nil {
		return nil, errors.New("agent: no model")
	}
	switch o.OnDenial {
	case "":
		o.OnDenial = StopIfFailed
	case StopIfFailed, GoOn:
	default:
		return nil, errors.New("agent: on_denial is " + string(StopIfFailed) + " or " + string(GoOn))
	}
	if o.MaxOutputTokens <= 0 {
		o.MaxOutputTokens = DefaultMaxOutputTokens
	}
	if o.Retries == 0 {
		o.Retries = DefaultRetries
	}
	return &loop{o}, nil
}
