package approval

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rein-sh/rein/command"
)

// Policy is what may be done, what is asked and what is not done. It is
// immutable.
type Policy struct {
	fallback Action
	rules    []rule
}

// Rule is one rule. Exactly one of Tool, Command, Form and Host says what it is
// about.
type Rule struct {
	// Name is how the rule is called in records; empty: what it is about.
	Name   string
	Action Action

	// Tool is the name of a tool, or "*" for every one that runs no shell
	// command.
	Tool string

	// Command is the beginning of a simple command: the program, and words that
	// follow it. "|" within a word stands between alternatives, and "*" for any
	// characters; neither does in the program's place stand for a shell, a
	// wrapper or an interpreter.
	//
	// A rule that allows is read narrowly: its words are the first of the
	// command, all of which are known, and no redirection writes. A rule that
	// asks or denies is read broadly: its words stand somewhere after the
	// program, in this order, and the program may lie in any directory or behind
	// anything.
	Command string

	// Form is what a part of a command line is, whatever its words: "shell",
	// "wrapper", "interpreter", "redirect", "assignment", "expression" as in package
	// command; "unresolved" for what is known only at execution, and "unparsed"
	// for a line that cannot be read.
	Form string

	// Host is a name on the network or an address; "*." in front of a name stands
	// for any labels, and "*" for every host.
	Host string

	// Exact allows only the words of Command and none more.
	Exact bool
	// Unresolved also allows words that are known only at execution after those
	// of Command, and those that have the program start another.
	Unresolved bool
	// Redirects also allows redirections that write.
	Redirects bool

	// Reason is told to who is asked, and to the model when it is denied.
	Reason string
	// Examples are checked when the policy is made.
	Examples Examples
}

// Examples of command lines, tools or hosts that a rule is, and is not, about.
type Examples struct {
	Match, NoMatch []string
}

// Forms of Rule.Form that are not those of package command.
const (
	FormUnresolved = "unresolved"
	FormUnparsed   = "unparsed"
)

// RuleError says what is wrong with a rule.
type RuleError struct {
	Index  int // from 0
	Field  string
	Reason string
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("approval: rule %d: %s: %s", e.Index+1, e.Field, e.Reason)
}

// NewPolicy checks rules and their examples. Fallback is what is done with a
// command of which no rule speaks; empty means Allow, because the sandbox is the
// boundary. An error is a *RuleError.
func NewPolicy(fallback Action, rules ...Rule) (*Policy, error) {
	switch fallback {
	case "":
		fallback = Allow
	case Allow, Ask, Deny:
	default:
		return nil, &RuleError{Field: "default", Reason: fmt.Sprintf("%q is not allow, ask or deny", fallback), Index: -1}
	}
	p := &Policy{fallback: fallback}
	for i, r := range rules {
		compiled, err := compile(r)
		if err != nil {
			err.Index = i
			return nil, err
		}
		p.rules = append(p.rules, compiled)
	}
	return p, nil
}

// Default is what is done where no rule speaks.
func (p *Policy) Default() Action { return p.fallback }

// Rules counts the rules.
func (p *Policy) Rules() int { return len(p.rules) }

// Asks reports whether anything may have to be asked.
func (p *Policy) Asks() bool {
	for _, r := range p.rules {
		if r.Action == Ask {
			return true
		}
	}
	return p.fallback == Ask
}

// Verdict is what a policy says of a request, and why.
type Verdict struct {
	Action Action
	// Rule is the name of the strictest rule that spoke; empty: the default.
	Rule   string
	Reason string
}

// Judge says what is to be done with a request: the strictest of what the rules
// say about any part of it. Where no rule speaks, the default is for commands;
// other tools are allowed, because whoever set up the run chose them, and a host
// is asked about.
func (p *Policy) Judge(r Request) Verdict {
	tool := p.spoken(subject{tool: r.Tool, text: r.Tool, plainTool: r.Kind != Command})
	switch {
	case r.Kind == Host:
		if v := p.spoken(subject{host: r.Host, text: r.Host}); v.Action != "" {
			return v
		}
		return Verdict{Action: Ask, Reason: cmp.Or(r.Why, "no rule speaks of "+short(r.Host))}
	case r.Kind == Command:
		return tool.stricter(p.judgeCommand(r.Command))
	case len(r.Argv) > 0: // a program that the host chose, with a model's arguments
		if v := p.judgeCommand(commandLine(r.Argv)); v.Rule != "" && v.Action != Allow {
			tool = tool.stricter(v)
		}
	}
	if tool.Action == "" {
		return Verdict{Action: Allow}
	}
	return tool
}

// commandLine is a command line of these words.
func commandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = command.Quote(a)
	}
	return strings.Join(words, " ")
}

// stricter is the stricter of two verdicts; the first where they are alike, but
// one that a rule gave rather than one that none did.
func (v Verdict) stricter(o Verdict) Verdict {
	switch {
	case v.Action == "":
		return o
	case o.Action == "":
		return v
	case o.Action.strictness() > v.Action.strictness():
		return o
	case o.Action.strictness() == v.Action.strictness() && v.Rule == "":
		return o
	}
	return v
}

// judgeCommand judges every part of a command line.
func (p *Policy) judgeCommand(line string) Verdict {
	script, err := command.Parse(line)
	if err != nil {
		return p.judge(subject{unparsed: true, text: err.Error()})
	}
	var worst Verdict
	for _, c := range script.Simple() {
		worst = worst.stricter(p.judge(subject{simple: &c, text: c.String()}))
	}
	if worst.Action == "" { // nothing but assignments and comments
		worst = Verdict{Action: Allow}
	}
	return worst
}

// judge is what the rules say of one part, or the default.
func (p *Policy) judge(s subject) Verdict {
	if v := p.spoken(s); v.Action != "" {
		return v
	}
	return Verdict{Action: p.fallback, Reason: fmt.Sprintf("no rule speaks of %s", short(s.text))}
}

// spoken is what the rules say of one part; no action where none does.
func (p *Policy) spoken(s subject) Verdict {
	var worst Verdict
	for _, r := range p.rules {
		if r.matches(s) {
			worst = worst.stricter(Verdict{Action: r.Action, Rule: r.Name, Reason: r.says(s)})
		}
	}
	return worst
}

func (r *rule) says(s subject) string {
	said := fmt.Sprintf("rule %q: %s", r.Name, short(s.text))
	if r.Reason != "" {
		said += " (" + r.Reason + ")"
	}
	return said
}

// short bounds a text in a sentence.
func short(s string) string {
	if r := []rune(s); len(r) > 120 {
		return string(r[:120]) + "…"
	}
	return s
}
