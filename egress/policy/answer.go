package policy

import "fmt"

// Answer is what became of a question that a policy leaves open. Only Granted
// lets anything pass.
type Answer string

// The answers. The zero Answer is of a question that nobody could answer before
// its end.
const (
	Unanswered   Answer = ""
	Granted      Answer = "granted"
	Denied       Answer = "denied"         // by who was asked
	DeniedByRule Answer = "denied_by_rule" // of who would have asked
	TimedOut     Answer = "timed_out"
	Nobody       Answer = "nobody" // to ask
)

// Reason is the Answer as the Reason of a Verdict.
func (a Answer) Reason() string {
	switch a {
	case Granted:
		return "granted when asked"
	case Denied:
		return "asked, and denied"
	case DeniedByRule:
		return "denied by a rule of the approval, without asking"
	case TimedOut:
		return "asked, and not answered in time"
	case Nobody:
		return "nobody can be asked"
	}
	return "asked, and not answered"
}

// UnmarshalText refuses what is no Answer.
func (a *Answer) UnmarshalText(text []byte) error {
	switch said := Answer(text); said {
	case Unanswered, Granted, Denied, DeniedByRule, TimedOut, Nobody:
		*a = said
		return nil
	}
	return fmt.Errorf("%q is no answer", text)
}
