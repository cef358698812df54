// Package script is a model that takes its decisions from a YAML file. It is
// for tests, demonstrations and trying rein without a key: it calls tools,
// uses what they returned in later steps, checks it, branches on it, and can
// fail in the ways real vendors fail.
//
// The format is described in docs/scripts.md. A script has no expressions:
// references, matching and branching are all it can do, so the time a request
// takes is linear in its conversation.
//
// The position in a script is found by following the conversation from its
// beginning; nothing is remembered between requests except how often a fault
// has been served. One [Player] therefore serves any number of conversations
// at once.
package script

import (
	"time"

	"github.com/rein-sh/rein/model"
)

// Script is a parsed, checked script. It is immutable.
type Script struct {
	name  string
	file  string
	final *text
	// preface are the texts of replies that an agent puts before the first itself.
	preface []string
	steps   []*step
}

// Name is the script's name: "name" in the file, else the file's base name
// without its extension.
func (s *Script) Name() string { return s.name }

// step is one reply.
type step struct {
	pos
	name   string
	text   *text
	calls  []*call
	stop   model.StopReason // "" for what the reply's calls say
	next   []branch         // empty: the step after this one
	usage  *model.Usage     // nil for an estimate
	faults []Fault          // one for each request to spoil, in order
}

// droppable reports whether an agent may leave the reply out of the
// conversation and ask again, as one does with empty and cut replies.
func (s *step) droppable() bool {
	return s.text == nil && len(s.calls) == 0 || s.stop == model.StopLength
}

// call is one tool call and what is done with its result.
type call struct {
	pos
	name      string // "" when nothing can refer to it
	tool      string
	arguments any   // a tree with *text in it
	raw       *text // sent as it is instead of arguments
	expect    []check
	capture   []capture
}

// branch leads to a step when all its conditions hold.
type branch struct {
	when []check
	step int
}

// Turn is what a script decides for one request.
type Turn struct {
	Step  string       // the step's name
	Reply *model.Reply // with what the step says, whatever the fault
	Fault *Fault       // what spoils this answer; nil for nothing
}

// FaultKind says how an answer is spoiled.
type FaultKind string

// The kinds of faults. Those up to FaultInvalid are refusals, sent instead of a
// reply; the others spoil the reply itself.
const (
	FaultRateLimit   FaultKind = "rate_limit"
	FaultOverloaded  FaultKind = "overloaded"
	FaultUnavailable FaultKind = "unavailable"
	FaultAuth        FaultKind = "auth"
	FaultForbidden   FaultKind = "forbidden"
	FaultQuota       FaultKind = "quota"
	FaultNotFound    FaultKind = "not_found"
	FaultContext     FaultKind = "context"
	FaultInvalid     FaultKind = "invalid"

	FaultStall   FaultKind = "stall"   // silence
	FaultCut     FaultKind = "cut"     // the connection ends
	FaultGarbage FaultKind = "garbage" // something that is not of the protocol
)

// Fault is one way an answer is spoiled.
type Fault struct {
	Kind FaultKind
	// RetryAfter is what a refusal asks for; 0 asks for nothing.
	RetryAfter time.Duration
	// For is how long a stall lasts, after which the reply goes on; 0 means
	// until the client gives up.
	For time.Duration
	// AtStart puts the fault before the first byte of the reply instead of in
	// the middle of it.
	AtStart bool
	// Clean ends a cut stream as HTTP wants it, only without its end mark.
	Clean bool
}

// Refusal reports whether the fault is an error sent instead of a reply, and
// which kind the client should see.
func (f Fault) Refusal() (model.Kind, bool) {
	k, ok := map[FaultKind]model.Kind{
		FaultRateLimit:   model.KindRateLimit,
		FaultOverloaded:  model.KindOverloaded,
		FaultUnavailable: model.KindUnavailable,
		FaultAuth:        model.KindAuth,
		FaultForbidden:   model.KindForbidden,
		FaultQuota:       model.KindQuota,
		FaultNotFound:    model.KindNotFound,
		FaultContext:     model.KindContext,
		FaultInvalid:     model.KindInvalid,
	}[f.Kind]
	return k, ok
}

var faultKinds = []string{
	string(FaultRateLimit), string(FaultOverloaded), string(FaultUnavailable), string(FaultAuth),
	string(FaultForbidden), string(FaultQuota), string(FaultNotFound), string(FaultContext), string(FaultInvalid),
	string(FaultStall), string(FaultCut), string(FaultGarbage),
}
