package config

import (
	"fmt"
	"slices"
	"strings"
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
type Error struct{ Problems []Problem }

func (e *Error) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s: %s", p.Position, p.Message)
	}
	return b.String()
}

// Hint returns the first hint.
func (e *Error) Hint() string {
	for _, p := range e.Problems {
		if p.Hint != "" {
			return p.Hint
		}
	}
	return "rein config schema prints what a configuration may contain"
}

// asError sorts problems by place and makes an error of them, nil for none.
func asError(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return &Error{Problems: problems}
}

// Nearest returns the name closest to word, or "" when none is close enough to
// be a slip of the hand.
func Nearest(word string, names []string) string {
	best, bestDistance := "", max(2, len(word)/3)+1
	for _, n := range names {
		if d := distance(strings.ToLower(word), strings.ToLower(n)); d < bestDistance {
			best, bestDistance = n, d
		}
	}
	return best
}

// DidYouMean is a hint that names the nearest of names, or all of them.
func DidYouMean(word string, names []string) string {
	if n := Nearest(word, names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return "known: " + strings.Join(names, ", ")
}

// distance counts insertions, deletions, substitutions and swaps of neighbours
// that turn a into b. Long words are cut: nobody means them.
func distance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}
