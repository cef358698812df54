package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
)

// State is what Verify found.
type State string

// The states. Only the first is proof that nothing was changed.
const (
	Intact    State = "intact"    // every record is there up to the head given
	Unproven  State = "unproven"  // the chain is intact; without a head a cut end cannot be seen
	Extended  State = "extended"  // intact up to the head given; records follow it that nothing proves
	Altered   State = "altered"   // a line was edited, removed, inserted or moved
	Truncated State = "truncated" // the end is missing: the head given is not in the log
	Torn      State = "torn"      // the last line is incomplete
	Unknown   State = "unknown"   // it could not be read, or the head given is no head
)

// Verdict is what Verify found, and where. The zero Verdict proves nothing.
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
	// Err is the cause of Unknown.
	Err error `json:"-"`
}

// OK reports whether nothing speaks against the log: it is Intact, Unproven or
// Extended.
func (v Verdict) OK() bool { return v.State == Intact || v.State == Unproven || v.State == Extended }

// Verify reads a log and checks its chain, and with head also its end. head is
// Head.String, or the hash alone, or empty when it is not known. It reads in
// bounded memory and reports the first fault only.
func Verify(r io.Reader, head string) Verdict {
	want, err := parseHead(head)
	if err != nil {
		return Verdict{State: Unknown, Reason: err.Error(), Err: err}
	}
	return verify(r, want).Verdict
}

// CheckHead says what is wrong with a head that Verify does not take.
func CheckHead(head string) error {
	_, err := parseHead(head)
	return err
}

// expectation is the head a log should have.
type expectation struct {
	given  bool
	seq    uint64
	hasSeq bool
	hash   string
}

func parseHead(s string) (expectation, error) {
	if s == "" {
		return expectation{}, nil
	}
	want := expectation{given: true, hash: s}
	if number, hash, ok := strings.Cut(s, ":"); ok {
		seq, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return expectation{}, fmt.Errorf("%q is no head: %q is no number", s, number)
		}
		want.seq, want.hasSeq, want.hash = seq, true, hash
		if seq == 0 && hash == "" {
			return want, nil
		}
	}
	if raw, err := hex.DecodeString(want.hash); err != nil || len(raw) != sha256.Size || strings.ToLower(want.hash) != want.hash {
		return expectation{}, fmt.Errorf("%q is no head: it is NUMBER:HASH or HASH, with 64 lower-case hexadecimal digits", s)
	}
	return want, nil
}

// fragment is an incomplete last line.
type fragment struct {
	tear Tear
	head Head // of the record it is, when tear.Complete
}

type verdict struct {
	Verdict
	fragment fragment // when Torn
}

// verifier walks the chain.
type verifier struct {
	v       Verdict
	want    expectation
	reached bool // the expected head was seen
	line    int64

	// A line that is no record, until the next says whether it was recorded as
	// a tear.
	bad    error
	badAt  int64
	badIs  Tear
	failed bool
}

func verify(r io.Reader, want expectation) verdict {
	c := &verifier{want: want, reached: want.given && want.hash == ""}
	in := newLines(r)
	for {
		l, err := in.next()
		if errors.Is(err, io.EOF) {
			return verdict{Verdict: c.end()}
		}
		if err != nil {
			c.v.State, c.v.Err, c.v.Reason = Unknown, err, fmt.Sprintf("reading failed after line %d: %v", c.line, err)
			return verdict{Verdict: c.v}
		}
		c.line++
		if !l.newline && !l.overlong {
			return c.torn(l.text)
		}
		if c.take(l); c.failed {
			return verdict{Verdict: c.v}
		}
	}
}

// take checks one complete line.
func (c *verifier) take(l line) {
	if l.overlong {
		c.alter(c.line, fmt.Sprintf("it is longer than any record (%d bytes)", MaxLine))
		return
	}
	r, err := decode(l.text)
	if c.bad != nil {
		if err != nil || !c.records(r) || c.link(r) != "" {
			c.alter(c.badAt, c.bad.Error())
			return
		}
		c.bad = nil
	} else if err == nil && c.lacksTear(r) {
		c.alter(c.line, "the incomplete line that it records is missing before it")
		return
	}
	if err != nil {
		c.bad, c.badAt, c.badIs = err, c.line, tearOf(c.line, l.text)
		return
	}
	if fault := c.link(r); fault != "" {
		c.alter(c.line, fault)
		return
	}
	if c.want.hasSeq && r.Seq == c.want.seq && r.Hash != c.want.hash {
		c.alter(c.line, fmt.Sprintf("record %d is not the one the head names: the log was rewritten", r.Seq))
		return
	}
	c.v.Records++
	c.v.Last = Head{Seq: r.Seq, Hash: r.Hash}
	if r.Kind == KindTear {
		c.v.Tears++
	}
	c.reached = c.reached || c.want.given && r.Hash == c.want.hash && (!c.want.hasSeq || r.Seq == c.want.seq)
}

// link says why r does not follow the last good record; "" when it does.
func (c *verifier) link(r Record) string {
	last := c.v.Last
	switch {
	case r.Seq == last.Seq+1 && r.Prev == last.Hash:
		return ""
	case r.Seq == last.Seq+1:
		return "it does not follow the record before it: one of the two was replaced"
	case r.Seq > last.Seq+1:
		return fmt.Sprintf("records %d to %d are missing before it", last.Seq+1, r.Seq-1)
	}
	return fmt.Sprintf("it is record %d, out of its place", r.Seq)
}

// lacksTear reports whether r records an incomplete line, which must then be
// the line before it. (A complete line that lacked its newline is a record of
// the chain, and missed there.)
func (c *verifier) lacksTear(r Record) bool {
	var t Tear
	return r.Kind == KindTear && (json.Unmarshal(r.Data, &t) != nil || !t.Complete)
}

// records reports whether r is the record of the bad line before it.
func (c *verifier) records(r Record) bool {
	var t Tear
	return r.Kind == KindTear && json.Unmarshal(r.Data, &t) == nil && t == c.badIs
}

func (c *verifier) alter(at int64, why string) {
	c.failed = true
	c.v.State, c.v.Line, c.v.Reason = Altered, at, fmt.Sprintf("line %d was altered: %s", at, why)
}

// end is the verdict when the last line was complete.
func (c *verifier) end() Verdict {
	v := &c.v
	switch {
	case c.bad != nil:
		c.alter(c.badAt, c.bad.Error())
	case !c.want.given:
		v.State = Unproven
		v.Reason = fmt.Sprintf("the chain of %d records is intact; without a head it cannot be told whether the end was cut", v.Records)
	case !c.reached:
		c.truncated("")
	case v.Last.Hash != c.want.hash:
		v.State = Extended
		v.Reason = fmt.Sprintf("intact up to the head given; the log goes on after it, to record %d", v.Last.Seq)
	case v.Records == 1:
		v.State, v.Reason = Intact, "the one record is there and unchanged"
	default:
		v.State, v.Reason = Intact, fmt.Sprintf("all %d records are there and unchanged", v.Records)
	}
	return *v
}

func (c *verifier) truncated(also string) {
	c.v.State, c.v.Line = Truncated, c.line+1
	if also != "" {
		c.v.Line = c.line
	}
	c.v.Reason = fmt.Sprintf("the end is missing after record %d: the head given is not in the log%s", c.v.Last.Seq, also)
}

// torn is the verdict when the last line, text, has no newline.
func (c *verifier) torn(text []byte) verdict {
	f := fragment{tear: tearOf(c.line, text)}
	if r, err := decode(text); err == nil && c.link(r) == "" && (c.bad == nil || c.records(r)) {
		f.tear.Complete, f.head = true, Head{Seq: r.Seq, Hash: r.Hash}
	}
	if c.bad != nil && !f.tear.Complete {
		c.alter(c.badAt, c.bad.Error())
		return verdict{Verdict: c.v}
	}
	if c.want.given && !c.reached && f.head.Hash != c.want.hash {
		c.truncated(", and the last line is incomplete")
		return verdict{Verdict: c.v}
	}
	c.v.State, c.v.Line = Torn, c.line
	c.v.Reason = fmt.Sprintf("line %d is incomplete: its writer died while it wrote (%d bytes without a newline)", c.line, len(text))
	return verdict{Verdict: c.v, fragment: f}
}

func tearOf(at int64, text []byte) Tear {
	sum := sha256.Sum256(text)
	return Tear{Line: at, Bytes: int64(len(text)), SHA256: hex.EncodeToString(sum[:])}
}

// Records reads the records of a log without judging its chain. A line that is
// no record yields an *Error of ErrorAltered that names the line, and reading
// goes on; a reading error ends it.
func Records(r io.Reader) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		in := newLines(r)
		for number := int64(1); ; number++ {
			l, err := in.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Record{}, &Error{Kind: ErrorIO, Op: "read", Err: err})
				return
			}
			var rec Record
			if l.overlong {
				err = fmt.Errorf("it is longer than any record (%d bytes)", MaxLine)
			} else {
				rec, err = decode(l.text)
			}
			if err != nil {
				err = &Error{Kind: ErrorAltered, Op: "read", Subject: fmt.Sprintf("line %d", number), Err: err}
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}
