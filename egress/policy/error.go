package policy

import "strings"

// Fault is one thing wrong with a Document.
type Fault struct {
	Path    string // such as rules[2].host; as in the document
	Message string
	Hint    string // what to write instead; may be empty
}

func (f Fault) String() string {
	s := f.Path + ": " + f.Message
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}

// Error is everything wrong with a Document, in its order. It is never empty.
type Error struct{ Faults []Fault }

func (e *Error) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Hint returns the hint of the only fault. Of several, each has its own in the
// text.
func (e *Error) Hint() string {
	if len(e.Faults) == 1 {
		return e.Faults[0].Hint
	}
	return ""
}

// NameError says why a text is no name of a host.
type NameError struct {
	Input  string
	Reason string
	Hint   string
	// Address says that it is an address in some spelling: see ParseAddr.
	Address bool
}

func (e *NameError) Error() string { return quote(e.Input) + " " + e.Reason }
