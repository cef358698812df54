// Package secret holds values that cannot be printed by accident, and masks
// known values in whatever leaves rein: tool output, audit, transcript,
// report and error texts.
//
// Masking finds what rein was told of, in the forms listed at [Masker], and what
// has the shape of a key that vendors document (MaskShapes). It is a net under
// accidents, not a boundary: a program that has a secret can write it in a form
// nobody looks for. The boundary is that the sandbox has no secret.
package secret

import (
	"fmt"
	"log/slog"
	"strings"
)

// MinLength is the shortest value, in bytes, that a [Masker] masks. A shorter
// one would be found by chance all over ordinary output, and its marks would
// say more about it than they hide.
const MinLength = 6

// Value is a secret. Printing, formatting, logging or encoding it in any way
// gives its mark, "[secret:NAME]"; only Reveal gives the value. The zero Value
// is empty. Values are immutable and safe for concurrent use. They are not
// comparable in a useful way: == tells whether two are copies of the same New.
type Value struct {
	name string
	// A pointer, because fmt prints the unexported fields of an enclosing
	// struct without calling our methods: it then prints an address.
	value *string
}

// New returns a secret; name is what its mark says, never the value. In the
// mark, characters of name other than letters, digits and "._-/" become "_",
// and it is cut at 64 bytes, so that a mark is safe in JSON, terminals and
// Markdown.
func New(name, value string) Value {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._-/", r):
			return r
		}
		return '_'
	}, name)
	return Value{name: name[:min(len(name), 64)], value: &value}
}

// Reveal returns the value. Call it only where the value is used.
func (v Value) Reveal() string {
	if v.value == nil {
		return ""
	}
	return *v.value
}

// Name returns the name in the mark.
func (v Value) Name() string { return v.name }

// IsZero reports whether there is no value.
func (v Value) IsZero() bool { return v.Reveal() == "" }

// Maskable reports whether a [Masker] can mask the value: it has MinLength
// bytes or more. Tell the user about those that are not.
func (v Value) Maskable() bool { return len(v.Reveal()) >= MinLength }

// String returns the mark.
func (v Value) String() string { return v.mark("") }

// mark is what stands for the value in one of its forms; "" is the value itself.
func (v Value) mark(form string) string {
	if form != "" {
		form = " " + form
	}
	return "[secret:" + v.name + form + "]"
}

// GoString returns the mark.
func (v Value) GoString() string { return v.String() }

// Format writes the mark for every verb.
func (v Value) Format(f fmt.State, _ rune) { fmt.Fprint(f, v.String()) }

// MarshalText returns the mark, also for JSON and YAML.
func (v Value) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// LogValue returns the mark.
func (v Value) LogValue() slog.Value { return slog.StringValue(v.String()) }
