// Package evidence decides what is shown of a command's output. A model judges
// by evidence, and more output does not mean better judgement: what is shown is
// a bounded beginning and end of each stream, the lines between them that say how
// it went, and an exact account of what was left out and where to read on.
//
// Everything here is pure: no clock, no files, safe for concurrent use.
package evidence

import (
	"github.com/rein-sh/rein/evidence/clue"
	"github.com/rein-sh/rein/secret"
)

// Defaults of Options.
const (
	DefaultBytes = 16 << 10
	DefaultLines = 400
)

// MinBytes and MinLines are the smallest limits with which something of each
// stream can always be shown.
const (
	MinBytes = 1 << 10
	MinLines = 8
)

// Stream is one stream of a finished command, as far as it was captured. It has
// the fields of execd.Output, so that one converts to the other:
// evidence.Stream(outcome.Stdout).
type Stream struct {
	// Bytes and Lines count everything that was printed. Lines counts
	// newlines, plus one for a last line without newline.
	Bytes int64
	Lines int64
	// Head and Tail are what was captured: when len(Head)+len(Tail) == Bytes
	// nothing is missing and Tail follows Head directly.
	Head []byte
	Tail []byte
	// HeadLines is not used: the newlines of Head are counted.
	HeadLines int64
	// Kept are pieces of what is missing between Head and Tail, in order. Pieces
	// that cannot be where they say are left out.
	Kept []clue.Piece
	// SpillLines says which lines of the stream are which of the spill, where
	// those are numbered otherwise: from line [0] on the spill has line [1] and
	// those after it. It is in order.
	SpillLines [][2]int64
}

// Text returns the Stream of a text that is there completely.
func Text(b []byte) Stream {
	n := lines(b)
	s := Stream{Bytes: int64(len(b)), Lines: n, Head: b, HeadLines: n}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		s.HeadLines--
	}
	return s
}

// Options bound a preview.
type Options struct {
	// Bytes and Lines bound what is shown of both streams together, after
	// masking and before any escaping. 0 means the default.
	Bytes int
	Lines int
	// Masker masks known values before anything is cut. A mark is shown whole
	// or not at all, and a piece of a value at the edge of what was captured is
	// left out. Nil masks nothing.
	Masker *secret.Masker
	// Last, when not 0, shows only the end: at most so many lines of each stream.
	Last int
	// AsIs shows control sequences of terminals and overwritten text like any
	// other: for the content of files.
	AsIs bool
}

// Preview is what is shown of both streams.
type Preview struct {
	Stdout, Stderr Shown
}

// Truncated reports whether anything was left out.
func (p Preview) Truncated() bool { return p.Stdout.Omitted.Bytes > 0 || p.Stderr.Omitted.Bytes > 0 }

// Shown is what is shown of one stream.
type Shown struct {
	// Text is all of it: Head, decisive lines from between, Tail, and wherever
	// something is left out a line that says so. It is valid UTF-8, and never
	// empty when there was output. When nothing was left out it is Head.
	Text       string
	Head, Tail string
	Omitted    Omitted
	// NextLine is the number, from 1, of the first line that is not shown
	// completely: where to read on, in the spill if Stream.SpillLines says which
	// lines are which there. 0 when nothing was left out.
	NextLine int64
	// Stripped counts the bytes of what is shown that are not: what only
	// controls a terminal (colours, titles), and what was overwritten on it by a
	// carriage return or a backspace.
	Stripped int64
	// Replaced counts the bytes shown as U+FFFD: those that are not UTF-8, and
	// NUL.
	Replaced int64
	// Binary says that what was captured has a NUL byte, and so is no text.
	Binary bool
}

// Omitted is what was left out, counted in what the command printed (before
// masking): bytes exactly, and lines of which nothing is shown.
type Omitted struct {
	Bytes int64 `json:"bytes"`
	Lines int64 `json:"lines"`
}

// Show returns the preview of a command's two streams. Give a zero Stream for
// one that does not exist. A Stream whose counts contradict what was captured is
// taken to have printed at least that.
//
// The limits hold for both streams together. Stderr keeps at least 4 KiB and a
// quarter of the lines (a quarter of the bytes, when Bytes is below 16 KiB), and
// more where its decisive lines need it and stdout's do not; what one stream
// does not need, the other gets. Of what a stream may show, decisive lines and
// those around them take up to 62 percent, of a preview of less than 8 KiB up to
// 90, and one that repeats itself is shown twice at most for its own sake; of the
// rest a fifth is its beginning and four its end. Both are cut between lines where that costs less than half
// of the piece, and never inside a character or a mark. With limits below
// MinBytes and MinLines a stream may be shown without the line that says what
// was left out.
func Show(stdout, stderr Stream, o Options) Preview {
	all := room{o.Bytes, o.Lines}
	if all.bytes <= 0 {
		all.bytes = DefaultBytes
	}
	if all.lines <= 0 {
		all.lines = DefaultLines
	}
	out, err := capture(stdout, o), capture(stderr, o)

	// Stdout may use what is not kept for stderr, stderr then all that is left,
	// and stdout what stderr leaves.
	kept := room{min(keptBytes, all.bytes/4), all.lines / 4}
	if c := err.cut(kept); c.whole {
		kept = c.took
	} else if o.Last == 0 && !out.cut(all.less(kept)).whole { // more when its lines decide
		more, rest := err.wants(all).least(all.part(75)), all.less(out.wants(all))
		kept.bytes = max(kept.bytes, min(more.bytes, rest.bytes))
		kept.lines = max(kept.lines, min(more.lines, rest.lines))
	}
	left := all.less(kept)
	first := out.cut(left)
	second := err.cut(all.less(first.took))
	if now := all.less(second.took); !first.whole && now != left {
		first = out.cut(now)
	}
	return Preview{Stdout: first.shown(), Stderr: second.shown()}
}

// keptBytes is what stderr keeps.
const keptBytes = 4 << 10
