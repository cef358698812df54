// Package budget holds the brakes of a run: the limits of a call, a round, a
// run and a sandbox, the counting against them, and the arithmetic of a
// sandbox's time to live. Nothing here does anything but count and compare:
// whoever holds the Tree asks before it acts and stops on a *Breach.
//
// Tokens and money are reserved before a request, at the most it can cost, and
// settled after it: no limit is passed, unless a model's server breaks its word.
package budget

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

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
	// by more than Margin. Set while the run works, it is what the sandbox has
	// from its next renewal on.
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

	// LimitProviderOverrun is no setting: a model's server used more than the
	// reservation for its reply, which is the most the reply could cost.
	LimitProviderOverrun Limit = "provider_overrun"
)

// Flag is the command-line flag that sets the limit: "--max-steps" for
// LimitSteps, and so on; empty for LimitProviderOverrun.
func (l Limit) Flag() string {
	if l == LimitProviderOverrun {
		return ""
	}
	return "--" + strings.ReplaceAll(string(l), "_", "-")
}

// Layer is what the limit brakes: "call", "round", "run" or "resource".
func (l Limit) Layer() string {
	switch l {
	case LimitCallTimeout, LimitMaxCallTimeout, LimitOutputBytes, LimitOutputLines:
		return "call"
	case LimitSteps, LimitToolCalls:
		return "round"
	case LimitTTL:
		return "resource"
	}
	return "run"
}

// Format writes an amount of this limit with its unit: "20", "15m", "16 KiB",
// "$5.00". Amounts are counts, bytes, nanoseconds or USD, as the limit is.
func (l Limit) Format(amount int64) string {
	switch l {
	case LimitCallTimeout, LimitMaxCallTimeout, LimitWallTime, LimitTTL:
		return formatDuration(time.Duration(amount))
	case LimitOutputBytes:
		if amount != 0 && amount%1024 == 0 {
			return strconv.FormatInt(amount/1024, 10) + " KiB"
		}
		return strconv.FormatInt(amount, 10) + " B"
	case LimitCost:
		return USD(amount).String()
	}
	return strconv.FormatInt(amount, 10)
}

// formatDuration writes 15m and 2h where Duration.String writes 15m0s and 2h0m0s.
func formatDuration(d time.Duration) string {
	s := d.Round(time.Millisecond).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-len("0s")]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-len("0m")]
	}
	return s
}

// Quick is for a look around: 10 steps and calls, 5 minutes, 200,000 tokens, $1.
func Quick() Limits {
	return Limits{
		CallTimeout: time.Minute, MaxCallTimeout: 2 * time.Minute, OutputBytes: 16 << 10, OutputLines: 400,
		MaxSteps: 10, MaxToolCalls: 10,
		MaxWallTime: 5 * time.Minute, MaxTokens: 200_000, MaxCost: 1 * Dollar,
	}
}

// Standard is the default: 20 steps and calls, 15 minutes, 1 million tokens, $5.
func Standard() Limits {
	return Limits{
		CallTimeout: time.Minute, MaxCallTimeout: 2 * time.Minute, OutputBytes: 16 << 10, OutputLines: 400,
		MaxSteps: 20, MaxToolCalls: 20,
		MaxWallTime: 15 * time.Minute, MaxTokens: 1_000_000, MaxCost: 5 * Dollar,
	}
}

// Long is for long work: 200 steps and calls, 2 hours, 10 million tokens, $25.
func Long() Limits {
	return Limits{
		CallTimeout: time.Minute, MaxCallTimeout: 2 * time.Minute, OutputBytes: 16 << 10, OutputLines: 400,
		MaxSteps: 200, MaxToolCalls: 200,
		MaxWallTime: 2 * time.Hour, MaxTokens: 10_000_000, MaxCost: 25 * Dollar,
	}
}

// Wrap is for a command-line agent in a sandbox, whose requests to a model are the
// steps: 200 of them, an hour, 5,000,000 tokens, $5. It makes no tool calls that
// rein could count.
func Wrap() Limits {
	l := Long()
	l.MaxWallTime, l.MaxTokens, l.MaxCost = time.Hour, 5_000_000, 5*Dollar
	return l
}

// MCP is for a client of the Model Context Protocol, whose model is its own: 500
// calls and 8 hours within one connection. Tokens and money are not observable there;
// those of Long are never reached.
func MCP() Limits {
	l := Long()
	l.MaxSteps, l.MaxToolCalls, l.MaxWallTime = 500, 500, 8*time.Hour
	return l
}

// Presets lists the names Preset knows, from the shortest to the longest run, and
// those for command-line agents and for clients of MCP.
func Presets() []string { return []string{"quick", "standard", "long", "wrap", "mcp"} }

// Preset returns the preset of that name.
func Preset(name string) (Limits, bool) {
	switch name {
	case "quick":
		return Quick(), true
	case "standard":
		return Standard(), true
	case "long":
		return Long(), true
	case "wrap":
		return Wrap(), true
	case "mcp":
		return MCP(), true
	}
	return Limits{}, false
}

// Bounds of Limits.OutputBytes and the least Limits.OutputLines. Below them a
// result could show nothing; above, more would have to leave the sandbox than
// execd lets out of it.
const (
	MinOutputBytes = 1 << 10
	MaxOutputBytes = 1 << 20
	MinOutputLines = 8
)

// Validate returns nil, or the *InvalidError of every field that cannot be
// honoured, joined.
func (l Limits) Validate() error {
	var faults []error
	need := func(limit Limit, field string, amount int64, ok bool, reason string) {
		if !ok {
			faults = append(faults, &InvalidError{Limit: limit, Field: field, Value: limit.Format(amount), Reason: reason})
		}
	}
	positive := func(limit Limit, field string, amount int64) {
		need(limit, field, amount, amount > 0, "must be more than zero: no limit can be switched off")
	}
	positive(LimitCallTimeout, "CallTimeout", int64(l.CallTimeout))
	need(LimitMaxCallTimeout, "MaxCallTimeout", int64(l.MaxCallTimeout), l.MaxCallTimeout >= l.CallTimeout,
		"must not be below "+string(LimitCallTimeout)+", "+formatDuration(l.CallTimeout))
	need(LimitOutputBytes, "OutputBytes", int64(l.OutputBytes), l.OutputBytes >= MinOutputBytes && l.OutputBytes <= MaxOutputBytes,
		"must be from 1 KiB to 1 MiB")
	need(LimitOutputLines, "OutputLines", int64(l.OutputLines), l.OutputLines >= MinOutputLines,
		fmt.Sprintf("must be %d or more", MinOutputLines))
	positive(LimitSteps, "MaxSteps", int64(l.MaxSteps))
	positive(LimitToolCalls, "MaxToolCalls", int64(l.MaxToolCalls))
	positive(LimitWallTime, "MaxWallTime", int64(l.MaxWallTime))
	positive(LimitTokens, "MaxTokens", l.MaxTokens)
	positive(LimitCost, "MaxCost", int64(l.MaxCost))
	need(LimitTTL, "TTL", int64(l.TTL), l.TTL == 0 || l.TTL > SaveBefore,
		"must be more than "+formatDuration(SaveBefore)+", in which outputs are saved; left out, it follows from the wall time")
	return errors.Join(faults...)
}

// Setting is one limit and its value, for people and reports.
type Setting struct {
	Limit  Limit
	Amount int64  // in the unit of the limit
	Value  string // the amount with its unit
}

// List returns every limit in force, in the order of the layers. A TTL of 0 is
// listed as the one derived from it.
func (l Limits) List() []Setting {
	if l.TTL == 0 {
		l.TTL = Estimate(l.MaxWallTime) + Margin
	}
	var all []Setting
	for _, s := range []struct {
		limit  Limit
		amount int64
	}{
		{LimitCallTimeout, int64(l.CallTimeout)},
		{LimitMaxCallTimeout, int64(l.MaxCallTimeout)},
		{LimitOutputBytes, int64(l.OutputBytes)},
		{LimitOutputLines, int64(l.OutputLines)},
		{LimitSteps, int64(l.MaxSteps)},
		{LimitToolCalls, int64(l.MaxToolCalls)},
		{LimitWallTime, int64(l.MaxWallTime)},
		{LimitTokens, l.MaxTokens},
		{LimitCost, int64(l.MaxCost)},
		{LimitTTL, int64(l.TTL)},
	} {
		all = append(all, Setting{Limit: s.limit, Amount: s.amount, Value: s.limit.Format(s.amount)})
	}
	return all
}

// Value is the limit in force with its unit, as List has it; empty for none.
func (l Limits) Value(limit Limit) string {
	for _, s := range l.List() {
		if s.Limit == limit {
			return s.Value
		}
	}
	return ""
}

// InvalidError is a limit that cannot be honoured.
type InvalidError struct {
	Limit  Limit
	Field  string // the field of Limits
	Value  string
	Reason string // "must be ..."
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("limit %s = %s: %s", e.Limit, e.Value, e.Reason)
}

// Hint says how to set the limit.
func (e *InvalidError) Hint() string { return "set it with " + e.Limit.Flag() }
