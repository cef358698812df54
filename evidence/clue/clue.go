// Package clue finds the lines of a program's output that say how it went: the
// first error of a compiler, the assertion that failed, the head of a stack
// trace, the count at the end. It judges by what such lines have in common in
// all programs (words of failure and where in the line they stand, places in
// files, pairs of expected and actual, marks, exit codes) and by how much a line
// differs from the rest of the output; it knows no program by name.
//
// It is used where output is shown and, inside the sandbox, where output is
// dropped, so it works on a stream, in bounded memory, at several hundred
// megabytes a second. Nothing here is safe for concurrent use but Score.
package clue

// Piece is a part of a stream that was kept: whole lines, but for the end of one
// that is too long.
type Piece struct {
	// Offset is where in the stream Data begins, in bytes from 0, and Line the
	// number of its first line, from 1.
	Offset int64  `json:"offset"`
	Line   int64  `json:"line"`
	Data   []byte `json:"data"`
}

// Line is one line of a stream, and what it is worth.
type Line struct {
	// Start and End are where it lies in the stream; a newline belongs to the
	// line it ends.
	Start, End int64
	// Number counts from 1.
	Number int64
	// Score is from 0, a line like all others, to Top.
	Score int
}

// Top is the score of a line that states a failure.
const Top = 100

// Decisive is the score from which a line is worth its place among others.
const Decisive = 30

// MaxLine is how much of a line is kept, in bytes.
const MaxLine = 1 << 10
