package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rein-sh/rein/internal/spelling"
)

// Position is a place in a configuration file; lines and columns count from 1.
type Position struct {
	File         string
	Line, Column int
}

func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem is one fault of a configuration file.
type Problem struct {
	Position
	Message string
	Hint    string // what to write instead; may be empty
}

// Error is everything wrong with a configuration, in the order of the file.
// It is never empty.
type Error struct {
	Problems []Problem
	general  string // where everything is said; empty: the schema of a configuration
}

func (e *Error) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s: %s", p.Position, p.Message)
		if len(e.Problems) > 1 && p.Hint != "" {
			fmt.Fprintf(&b, " (%s)", p.Hint)
		}
	}
	return b.String()
}

// Hint returns the hint of the only problem. Of several, each has its own in
// the text.
func (e *Error) Hint() string {
	if len(e.Problems) == 1 && e.Problems[0].Hint != "" {
		return e.Problems[0].Hint
	}
	return cmp.Or(e.general, "rein config schema prints what a configuration may contain")
}

// asError sorts problems by file and place and makes an error of them, nil for none.
func asError(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column)
	})
	return &Error{Problems: problems}
}

// DidYouMean is a hint that names the nearest of names, or all of them.
func DidYouMean(word string, names []string) string {
	if n := spelling.Nearest(word, names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return "known: " + strings.Join(names, ", ")
}
