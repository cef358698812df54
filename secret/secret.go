// Package secret holds values that cannot be printed by accident, and masks
// known values in whatever leaves rein: tool output, audit, transcript,
// report and error texts.
package secret

import (
	"fmt"
	"log/slog"
)

// Value is a secret. Printing, formatting, logging or encoding it in any way
// gives its mark, "[secret:NAME]"; only Reveal gives the value. The zero Value
// is empty.
type Value struct {
	name  string
	value string
}

// New returns a secret; name is what its mark says, never the value.
func New(name, value string) Value { return Value{name: name, value: value} }

// Reveal returns the value. Call it only where the value is used.
func (v Value) Reveal() string { return v.value }

// Name returns the name in the mark.
func (v Value) Name() string { return v.name }

// IsZero reports whether there is no value.
func (v Value) IsZero() bool { return v.value == "" }

// String returns the mark.
func (v Value) String() string { return "[secret:" + v.name + "]" }

// GoString returns the mark.
func (v Value) GoString() string { return v.String() }

// Format writes the mark for every verb.
func (v Value) Format(f fmt.State, _ rune) { fmt.Fprint(f, v.String()) }

// MarshalText returns the mark, also for JSON and YAML.
func (v Value) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// LogValue returns the mark.
func (v Value) LogValue() slog.Value { return slog.StringValue(v.String()) }
