package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rein-sh/rein/evidence"
)

// Kind says what a fact is about.
type Kind string

// The kinds of facts, the most important first: when not all fit, those at the
// end go first.
const (
	Written Kind = "written" // a file that was written; State is its size and hash
	Check   Kind = "check"   // acceptance; State is how it stands
	Process Kind = "process" // a command in the background
	Command Kind = "command" // a command that ended; State is how
	Denied  Kind = "denied"  // what a policy refused
	Read    Kind = "read"    // a file that was read
)

var kinds = []Kind{Written, Check, Process, Command, Denied, Read}

// Fact is what is known of one thing. A later fact of the same kind and name
// takes its place.
type Fact struct {
	Kind  Kind
	Name  string // a path, a command
	State string
	// Open says that something is still to be done about it: the command
	// failed, the process runs, the file was not read to its end.
	Open bool
	// Line is the line of its output that says why it is open.
	Line string
}

// ledger is what is known, the newest last.
type ledger struct {
	facts []counted
}

type counted struct {
	Fact
	times int
}

// Bounds of a ledger: facts kept, and bytes of a name and of a state.
const (
	maxFacts = 400
	maxName  = 100
	maxState = 100
)

func (l *ledger) note(f Fact) {
	f.Name, f.State, f.Line = line(f.Name, maxName), line(f.State, maxState), line(f.Line, maxName)
	times := 1
	if i := slices.IndexFunc(l.facts, func(o counted) bool { return o.Kind == f.Kind && o.Name == f.Name }); i >= 0 {
		times += l.facts[i].times
		l.facts = slices.Delete(l.facts, i, i+1)
	}
	l.facts = append(l.facts, counted{f, times})
	if len(l.facts) > maxFacts {
		l.facts = slices.Delete(l.facts, l.least(), l.least()+1)
	}
}

// least is the oldest fact of the kind that matters least.
func (l *ledger) least() int {
	for _, kind := range slices.Backward(kinds) {
		if i := slices.IndexFunc(l.facts, func(c counted) bool { return c.Kind == kind && !c.Open }); i >= 0 {
			return i
		}
	}
	return 0
}

// line is the text in one line of no more than so many bytes.
func line(s string, most int) string {
	return evidence.Cut(strings.Join(strings.Fields(s), " "), most)
}

func (c counted) String() string {
	s := c.Name
	if c.State != "" {
		s += ": " + c.State
	}
	if c.times > 1 {
		s += fmt.Sprintf(" (%d times)", c.times)
	}
	return s
}

// document is the ledger as the model reads it.
type document struct {
	Summary  string   `json:"summary,omitempty"`
	Files    []string `json:"files_written,omitempty"`
	Checks   []string `json:"checks,omitempty"`
	Commands []string `json:"commands,omitempty"`
	Facts    []string `json:"facts,omitempty"`
	Open     []string `json:"open,omitempty"`
	LeftOut  int      `json:"entries_left_out,omitempty"`
}

// render returns the ledger as JSON in no more than so many bytes: what matters
// least is left out and counted. all takes in what was read and refused, and
// tells what is open apart.
func (l *ledger) render(summary string, most int, all bool) string {
	facts := slices.Clone(l.facts)
	if !all {
		facts = slices.DeleteFunc(facts, func(c counted) bool { return c.Kind == Read || c.Kind == Denied })
	}
	left := &ledger{facts: facts}
	out := 0
	for {
		doc := left.document(summary, all)
		doc.LeftOut = out
		data, err := json.Marshal(map[string]document{"ledger": doc})
		if err != nil { // strings and numbers always encode
			panic(err)
		}
		switch {
		case len(data) <= most:
			return string(data)
		case len(left.facts) > 0:
			// In proportion, so that a long ledger is not encoded once for each fact.
			// There may be no room at all, or less.
			share := len(left.facts) * (len(data) - max(0, most)) / len(data) / 2
			for range max(1, share) {
				i := left.least()
				left.facts = slices.Delete(left.facts, i, i+1)
				out++
			}
		case summary != "":
			summary = evidence.Cut(summary, len(summary)/2)
			if len(summary) < 64 {
				summary = ""
			}
		default:
			return ""
		}
	}
}

func (l *ledger) document(summary string, all bool) document {
	doc := document{Summary: summary}
	for _, c := range l.facts {
		s := c.String()
		if all && c.Open {
			if c.Line != "" {
				s += ": " + c.Line
			}
			doc.Open = append(doc.Open, s)
			continue
		}
		switch c.Kind {
		case Written:
			doc.Files = append(doc.Files, s)
		case Check:
			doc.Checks = append(doc.Checks, s)
		case Command, Process:
			doc.Commands = append(doc.Commands, s)
		default:
			doc.Facts = append(doc.Facts, string(c.Kind)+" "+s)
		}
	}
	return doc
}
