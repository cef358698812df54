// Package budget holds the brakes of a run: the limits of a call, a round, a
// run and a sandbox, the counting against them, and the arithmetic of a
// sandbox's time to live. Nothing here does anything but count and compare:
// whoever holds the Tree asks before it acts and stops on a *Breach.
//
// Tokens and money are settled after they are spent. Reserving them before is
// a later addition to Tree.
package budget

import "time"

// Limits are the limits of one run. The zero Limits is invalid, not unlimited:
// start from a preset. Every limit is finite.
type Limits struct {
	// Layer 1, a call.

	// CallTimeout ends a command that did not ask for a timeout of its own.
	CallTimeout time.Duration
	// MaxCallTimeout is the most a command may ask for.
	MaxCallTimeout time.Duration
	// OutputBytes and OutputLines bound what is shown of both streams of a
	// call; 1 KiB to 1 MiB, and at least 8 lines.
	OutputBytes int
	OutputLines int

	// Layer 2, a round.

	// MaxSteps bounds model replies, MaxToolCalls the calls in them.
	MaxSteps     int
	MaxToolCalls int

	// Layer 3, the run.

	// MaxWallTime bounds the run, waiting for approvals and rate limits included.
	MaxWallTime time.Duration
	// MaxTokens bounds input and output tokens together, as the vendor counts.
	MaxTokens int64
	MaxCost   USD

	// Layer 4, the sandbox.

	// TTL is its time to live from birth; 0 derives it from MaxWallTime (see
	// Lease). It is renewed on progress and never outlives the run's deadline
	// by more than Margin.
	TTL time.Duration
}

// Limit names one limit, in records and reports. Append-only.
type Limit string

// The limits.
const (
	LimitCallTimeout    Limit = "call_timeout"
	LimitMaxCallTimeout Limit = "max_call_timeout"
	LimitOutputBytes    Limit = "output_bytes"
	LimitOutputLines    Limit = "output_lines"
	LimitSteps          Limit = "max_steps"
	LimitToolCalls      Limit = "max_tool_calls"
	LimitWallTime       Limit = "max_wall_time"
	LimitTokens         Limit = "max_tokens"
	LimitCost           Limit = "max_cost"
	LimitTTL            Limit = "ttl"
)

// Flag is the command-line flag that sets the limit: "--max-steps" for
// LimitSteps, and so on.
func (l Limit) Flag() string { panic("to come") }

// Layer is "call", "round", "run" or "resource".
func (l Limit) Layer() string { panic("to come") }

// Format writes an amount of this limit with its unit: "20", "15m", "$5.00".
func (l Limit) Format(amount int64) string { panic("to come") }

// Quick is for a look around: 10 steps and calls, 5 minutes, 200,000 tokens, $1.
func Quick() Limits { panic("to come") }

// Standard is the default: 20 steps and calls, 15 minutes, 1 million tokens, $5.
func Standard() Limits { panic("to come") }

// Long is for long work: 200 steps and calls, 2 hours, 10 million tokens, $25.
func Long() Limits { panic("to come") }

// Presets lists the names Preset knows: quick, standard, long.
func Presets() []string { panic("to come") }

// Preset returns the preset of that name.
func Preset(name string) (Limits, bool) { panic("to come") }

// Validate returns nil, or the *InvalidError of every field that cannot be
// honoured, joined.
func (l Limits) Validate() error { panic("to come") }

// Setting is one limit and its value, for people and reports.
type Setting struct {
	Limit  Limit
	Amount int64  // in the unit of the limit: a count, bytes, nanoseconds, USD
	Value  string // the amount with its unit
}

// List returns every limit in force, in the order of the layers, the derived
// TTL included.
func (l Limits) List() []Setting { panic("to come") }

// InvalidError is a limit that cannot be honoured.
type InvalidError struct {
	Limit  Limit
	Field  string // the field of Limits
	Value  string
	Reason string // "must be ..."
}

func (e *InvalidError) Error() string { panic("to come") }

// Hint says how to set the limit.
func (e *InvalidError) Hint() string { panic("to come") }

// USD is an amount of money in billionths of a dollar, so that the price of one
// token is exact.
type USD int64

// Dollar is one dollar.
const Dollar USD = 1e9

// Dollars returns d dollars, rounded to the nearest unit; the largest or
// smallest amount when d is out of range, 0 when d is not a number.
func Dollars(d float64) USD { panic("to come") }

// Float returns the amount in dollars.
func (u USD) Float() float64 { panic("to come") }

// String writes the amount in dollars: "$5.00", "$0.0042".
func (u USD) String() string { panic("to come") }
