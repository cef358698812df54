package sandbox

import (
	"slices"
	"time"
)

// Attribution says which command tried a target.
type Attribution struct {
	// How is "port" when execd said which command holds the connection's local
	// port: that is CallID. It is "window" when nobody could: Calls are all that
	// ran at the time. Empty: not known at all.
	How    string   `json:"attribution,omitempty"`
	CallID string   `json:"call_id,omitempty"`
	Calls  []string `json:"calls,omitempty"`
}

// The values of Attribution.How.
const (
	ByPort   = "port"
	ByWindow = "window"
)

// Of reports whether the attempt may be the command's.
func (a Attribution) Of(callID string) bool {
	return a.CallID == callID || a.CallID == "" && (len(a.Calls) == 0 || slices.Contains(a.Calls, callID))
}

// maxCalls bounds Attribution.Calls.
const maxCalls = 32

// span is when a command ran.
type span struct {
	id         string
	start, end time.Time // end is zero while it runs
	background bool      // nobody waits for its result
}

// spans are the commands that ran lately, in the order of their start. Its
// caller holds the sandbox's lock.
type spans []span

func (s *spans) begin(id string, now time.Time) { *s = append(*s, span{id: id, start: now}) }

// leave says that a command runs on in the background.
func (s spans) leave(id string) {
	for i := range s {
		if s[i].id == id {
			s[i].background = true
		}
	}
}

// keptSpans is how many commands that have ended are remembered: a connection
// is recorded when it ends, which may be after its command.
const keptSpans = 64

// finish ends a command, and forgets the oldest of too many that have.
func (s *spans) finish(id string, now time.Time) {
	ended := 0
	for i := range *s {
		sp := &(*s)[i]
		if sp.id == id && sp.end.IsZero() {
			sp.end = now
		}
		if !sp.end.IsZero() {
			ended++
		}
	}
	*s = slices.DeleteFunc(*s, func(sp span) bool {
		if sp.end.IsZero() || ended <= keptSpans {
			return false
		}
		ended--
		return true
	})
}

// charge completes the attribution of what was read at the end of a command,
// and reports whether it belongs into that command's result: not when it can
// only be of others that are going to be told themselves.
func (s spans) charge(r *NetworkRecord, callID string) bool {
	until := r.Until
	if until.IsZero() {
		until = r.Time
	}
	var of []span
	for _, sp := range s {
		if sp.id == r.CallID || r.CallID == "" && !sp.start.After(until) && (sp.end.IsZero() || !sp.end.Before(r.Time)) {
			of = append(of, sp)
		}
	}
	r.How, r.Calls = ByPort, nil
	if r.CallID == "" {
		r.How = ""
		for _, sp := range of[:min(len(of), maxCalls)] {
			r.How, r.Calls = ByWindow, append(r.Calls, sp.id)
		}
	}
	told := func(sp span) bool { return sp.id == callID || sp.background || !sp.end.IsZero() }
	return len(of) == 0 || slices.ContainsFunc(of, told)
}
