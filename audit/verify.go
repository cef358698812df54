package audit

import (
	"io"
	"iter"
)

// State is what Verify found.
type State string

// The states. Only the first is proof that nothing was changed.
const (
	Intact    State = "intact"    // every record is there up to the head given
	Unproven  State = "unproven"  // the chain is intact; without a head a cut end cannot be seen
	Extended  State = "extended"  // intact up to the head given; records follow it
	Altered   State = "altered"   // a line was edited, removed, inserted or moved
	Truncated State = "truncated" // the end is missing: the head given is not in the log
	Torn      State = "torn"      // the last line is incomplete
	Unknown   State = "unknown"   // it could not be read, or the head given is no head
)

// Verdict is what Verify found, and where.
type Verdict struct {
	State State `json:"state"`
	// Line is where the fault is, from 1; 0 when there is none.
	Line int64 `json:"line,omitempty"`
	// Records counts the good records before the fault, and Last is the newest
	// of them: without a fault, the head of the log.
	Records uint64 `json:"records"`
	Last    Head   `json:"last"`
	// Tears counts incomplete lines that were recorded when the log was continued.
	Tears int `json:"tears,omitempty"`
	// Reason is one sentence for people.
	Reason string `json:"reason"`
	// Err is the reading error behind Unknown.
	Err error `json:"-"`
}

// OK reports whether nothing speaks against the log: it is Intact, Unproven or
// Extended.
func (v Verdict) OK() bool { return v.State == Intact || v.State == Unproven || v.State == Extended }

// Verify reads a log and checks its chain, and with head (Head.String, or the
// hash alone) also its end. It reads in bounded memory and reports the first
// fault only.
func Verify(r io.Reader, head string) Verdict { panic("to come") }

// Records reads the records of a log without judging its chain. A line that is
// no record yields a *Error of KindAltered that names the line, and reading
// goes on; a reading error ends it.
func Records(r io.Reader) iter.Seq2[Record, error] { panic("to come") }
