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

// finish ends a command, and forgets those that no running one overlaps.
func (s *spans) finish(id string, now time.Time) {
	oldest := now
	for i := range *s {
		sp := &(*s)[i]
		if sp.id == id && sp.end.IsZero() {
			sp.end = now
		}
		if sp.end.IsZero() && sp.start.Before(oldest) {
			oldest = sp.start
		}
	}
	*s = slices.DeleteFunc(*s, func(sp span) bool { return !sp.end.IsZero() && sp.end.Before(oldest) })
}

// charge completes the attribution of what was read at the end of a command,
// and reports whether it belongs into that command's result: not when it is
// another's who will be told itself.
func (s spans) charge(r *NetworkRecord, callID string) bool {
	if r.CallID != "" {
		r.How = ByPort
		return r.CallID == callID || s.untold(r.CallID)
	}
	until := r.Until
	if until.IsZero() {
		until = r.Time
	}
	r.How, r.Calls = ByWindow, nil
	mine := false
	for _, sp := range s {
		if sp.start.After(until) || !sp.end.IsZero() && sp.end.Before(r.Time) {
			continue
		}
		mine = mine || sp.id == callID || sp.background
		if len(r.Calls) < maxCalls {
			r.Calls = append(r.Calls, sp.id)
		}
	}
	if len(r.Calls) == 0 { // between commands, by what one of them has left behind
		r.How = ""
		return true
	}
	return mine
}

// untold reports whether nobody waits for the result of the command.
func (s spans) untold(id string) bool {
	for _, sp := range s {
		if sp.id == id {
			return sp.background
		}
	}
	return true
}
