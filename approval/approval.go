// Package approval decides what a worker may do without asking, and asks a
// person about the rest.
//
// A [Policy] is a list of rules. A command line is judged by every simple
// command in it (package command), and the strictest verdict counts. A [Gate]
// takes what is to be asked to a person through its channels: a terminal, a
// signed webhook, whoever calls [Gate.Resolve]. Without a channel the answer is
// no.
//
// Rules say what people want to know of; they are no boundary. What a program
// does once it runs is bounded by the sandbox and its network policy.
package approval

import (
	"encoding/json"
	"time"
)

// Action is what a policy says of a request.
type Action string

// The actions, from the least strict to the strictest.
const (
	Allow Action = "allow"
	Ask   Action = "ask"
	Deny  Action = "deny"
)

// strictness orders actions. What is no action is denied.
func (a Action) strictness() int {
	switch a {
	case Allow:
		return 0
	case Ask:
		return 1
	}
	return 2
}

// Kind is what a request is about.
type Kind string

// The kinds.
const (
	Command Kind = "command" // a shell command
	Tool    Kind = "tool"    // a call of another tool
	Host    Kind = "host"    // a target on the network
)

// Request is what is to be judged.
type Request struct {
	Kind   Kind
	CallID string
	// Tool is the tool that is called.
	Tool string
	// Command is the shell command; of kind Command.
	Command string
	// Argv is what is started without a shell, when it is known.
	Argv []string
	// Arguments of a tool, as JSON, for the person and for the hash.
	Arguments json.RawMessage
	// Cwd and Env are where, and with which variables of its own, it runs.
	Cwd string
	Env map[string]string
	// Host is the target, a name or an address, with its port and what is spoken
	// there; of kind Host.
	Host  string
	Port  int
	Proto string
	// Doing is what the worker does meanwhile, and Why which part of the network's
	// policy asks, for the person; of kind Host.
	Doing []string
	Why   string
}

// Code says how a request ended; stable, snake_case.
type Code string

// The codes.
const (
	// Allowed: no rule asks about it.
	Allowed Code = "allowed"
	// Approved: a person said yes, to this one or to all of its kind in the run.
	Approved Code = "approved"
	// Granted: a person had said yes for the whole run.
	Granted Code = "granted"
	// DeniedByRule: a rule forbids it, and nobody was asked.
	DeniedByRule Code = "denied_by_rule"
	// Denied: a person said no.
	Denied Code = "approval_denied"
	// TimedOut: nobody answered in time.
	TimedOut Code = "approval_timed_out"
	// NoChannel: there is nobody to ask, or no way to them worked.
	NoChannel Code = "approval_no_channel"
	// TooMany: as many questions as may be are pending.
	TooMany Code = "approval_too_many"
	// Changed: what was approved was changed again and again before it ran.
	Changed Code = "approval_changed"
	// Interrupted: the run ended while it was asked.
	Interrupted Code = "approval_interrupted"
)

// OK reports whether the request may be done.
func (c Code) OK() bool { return c == Allowed || c == Approved || c == Granted }

// Outcome is how a request ended.
type Outcome struct {
	Code Code
	// Rule names the rule that decided or asked; empty for the default.
	Rule string
	// Reason is a sentence for the model and the record.
	Reason string
	// By says who answered: "terminal", "webhook deploy-bot", "uid 1000".
	By string
	// Command, when not empty, is what a person made of the command: that is
	// what may be run.
	Command string
	// Waited is how long a person took.
	Waited time.Duration
	// Hash is what the answer is bound to.
	Hash string
}

// Question is what a person is asked. Its texts hold no control, bidirectional
// or invisible characters.
type Question struct {
	ID     string `json:"id"`
	RunID  string `json:"run_id,omitempty"`
	CallID string `json:"call_id,omitempty"`
	Kind   Kind   `json:"kind"`
	Tool   string `json:"tool,omitempty"`
	// Text is the command, the arguments or the host: of that its registrable
	// domain, itself, and what a person should look at, line by line.
	Text string   `json:"text"`
	Cwd  string   `json:"cwd,omitempty"`
	Env  []string `json:"env,omitempty"` // names only
	// Files are those it reads as programs, with the hashes it is bound to.
	Files map[string]string `json:"files,omitempty"`
	// Rule and Why say which rule asks, about which part of it.
	Rule string `json:"rule,omitempty"`
	Why  string `json:"why"`
	// Of a host: Domain is the part of its name that somebody has registered, Odd
	// what of the name looks like data, or like another name.
	Host   string   `json:"host,omitempty"`
	Domain string   `json:"domain,omitempty"`
	Port   int      `json:"port,omitempty"`
	Odd    []string `json:"odd,omitempty"`
	// Hidden is true when characters that cannot be seen were left out of Text.
	Hidden bool `json:"hidden_characters,omitempty"`
	// Cut is true when Text is not all of it; such a question cannot be edited.
	Cut bool `json:"cut,omitempty"`
	// Again is true when it was approved before and changed since.
	Again   bool      `json:"again,omitempty"`
	Hash    string    `json:"hash"`
	Asked   time.Time `json:"asked"`
	Expires time.Time `json:"expires"`
}

// Decision is a person's answer.
type Decision struct {
	Approve bool
	// ForRun answers the same request the same way to the end of the run, or until
	// the grant expires. A host that is approved is so to the end of the run in any
	// case.
	ForRun bool
	// Command, when not empty, replaces the command. It is judged anew: a rule
	// that denies it still does.
	Command string
	By      string
	Reason  string
}
