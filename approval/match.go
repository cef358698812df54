package approval

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rein-sh/rein/command"
)

// rule is a Rule that was checked.
type rule struct {
	Rule
	words [][]string // alternatives of each word of Command
}

// subject is one part of a request: a simple command, a line that cannot be
// read, a tool or a host.
type subject struct {
	simple    *command.Simple
	unparsed  bool
	tool      string
	plainTool bool // that runs no shell command
	host      string
	text      string
}

// forms that a rule may name.
var forms = []string{string(command.Shell), string(command.Wrapper), string(command.Interpreter), string(command.Redirection),
	string(command.Assignment), string(command.Expression), FormUnresolved, FormUnparsed}

func compile(r Rule) (rule, *RuleError) {
	fault := func(field, format string, args ...any) (rule, *RuleError) {
		return rule{}, &RuleError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	about := 0
	for _, s := range []string{r.Tool, r.Command, r.Form, r.Host} {
		if s != "" {
			about++
		}
	}
	switch {
	case about != 1:
		return fault("rule", "exactly one of tool, command, form and host says what it is about")
	case r.Action != Allow && r.Action != Ask && r.Action != Deny:
		return fault("action", "%q is not allow, ask or deny", r.Action)
	case r.Form != "" && !slices.Contains(forms, r.Form):
		return fault("form", "%q is none of %s", r.Form, strings.Join(forms, ", "))
	case r.Host != "" && checkHost(r.Host) != nil:
		return fault("host", "%s; write a name, an address, *.NAME for all beneath it, or *", checkHost(r.Host))
	case r.Command == "" && (r.Exact || r.Unresolved || r.Redirects):
		return fault("rule", "exact, unresolved and redirects go with command")
	case r.Action != Allow && (r.Exact || r.Unresolved || r.Redirects):
		return fault("rule", "exact, unresolved and redirects narrow or widen what is allowed; a rule that asks or denies is broad as it is")
	}
	out := rule{Rule: r}
	if out.Name == "" {
		out.Name = r.Tool + r.Command + r.Form + r.Host
	}
	for _, w := range strings.Fields(r.Command) {
		alternatives := strings.Split(w, "|")
		if slices.Contains(alternatives, "") {
			return fault("command", "an alternative of %q is empty", w)
		}
		out.words = append(out.words, alternatives)
	}
	if r.Command != "" && len(out.words) == 0 {
		return fault("command", "it is empty")
	}
	for _, e := range r.Examples.Match {
		if !out.about(e) {
			return fault("examples", "%q does not match, as it should", e)
		}
	}
	for _, e := range r.Examples.NoMatch {
		if out.about(e) {
			return fault("examples", "%q matches, as it should not", e)
		}
	}
	return out, nil
}

// about reports whether the rule speaks of an example. One that allows must
// speak of every part of a command line, one that asks or denies of any.
func (r *rule) about(example string) bool {
	switch {
	case r.Tool != "":
		return r.matches(subject{tool: example, plainTool: true})
	case r.Host != "":
		return r.matches(subject{host: example})
	}
	script, err := command.Parse(example)
	if err != nil {
		return r.matches(subject{unparsed: true})
	}
	parts := script.Simple()
	match := func(c command.Simple) bool { return r.matches(subject{simple: &c}) }
	if r.Action != Allow {
		return slices.ContainsFunc(parts, match)
	}
	return len(parts) > 0 && !slices.ContainsFunc(parts, func(c command.Simple) bool { return !match(c) })
}

func (r *rule) matches(s subject) bool {
	switch {
	case r.Tool != "":
		return s.tool != "" && (r.Tool == s.tool || r.Tool == "*" && s.plainTool)
	case r.Host != "":
		return s.host != "" && hostMatches(r.Host, s.host)
	case s.unparsed:
		return r.Form == FormUnparsed
	case s.simple == nil:
		return false
	case r.Form != "":
		return r.form(s.simple)
	case r.Action == Allow:
		return r.narrow(s.simple)
	}
	return r.broad(s.simple)
}

func (r *rule) form(c *command.Simple) bool {
	switch r.Form {
	case FormUnresolved:
		// Nor does allowing what is known only at execution extend to what the
		// shell evaluates.
		return c.Hidden() && (r.Action != Allow || c.Form != command.Expression)
	case string(command.Redirection):
		return c.Writes() || c.Form == command.Redirection
	case string(command.Assignment):
		return len(c.Obeyed()) > 0
	}
	if string(c.Form) != r.Form {
		return false
	}
	// What such a rule allows does not extend to what nobody knows yet, but for
	// what is known only at execution by its nature.
	return r.Action != Allow || !c.Hidden() || c.Form == command.Expression
}

// narrow is how a rule that allows is read.
func (r *rule) narrow(c *command.Simple) bool {
	name := c.Name()
	if name == "" || len(c.Words) < len(r.words) || r.Exact && len(c.Words) != len(r.words) {
		return false
	}
	if c.Hidden() && !r.Unresolved || c.Writes() && !r.Redirects || len(c.Obeyed()) > 0 {
		return false
	}
	if !r.program(name, c.Form) {
		return false
	}
	for i, alternatives := range r.words[1:] {
		if w := c.Words[i+1]; !w.Literal || !anyMatches(alternatives, w.Text) {
			return false
		}
	}
	return true
}

// program reports whether the rule names the program. Patterns do not name what
// starts others.
func (r *rule) program(name string, form command.Form) bool {
	return slices.ContainsFunc(r.words[0], func(p string) bool {
		if strings.Contains(p, "*") {
			return form == command.Plain && glob(p, name)
		}
		return p == name
	})
}

// broad is how a rule that asks or denies is read.
func (r *rule) broad(c *command.Simple) bool {
	for i, w := range c.Words {
		if i > 0 && c.Form == command.Plain {
			break // only what starts others has programs among its words
		}
		name := w.Text
		if !w.Literal || !anyMatches(r.words[0], name) && !anyMatches(r.words[0], path.Base(name)) {
			continue
		}
		if follows(r.words[1:], c.Words[i+1:]) {
			return true
		}
	}
	return false
}

// follows reports whether the patterns stand among the words, in this order.
func follows(patterns [][]string, words []command.Word) bool {
	for _, alternatives := range patterns {
		i := slices.IndexFunc(words, func(w command.Word) bool { return w.Literal && anyMatches(alternatives, w.Text) })
		if i < 0 {
			return false
		}
		words = words[i+1:]
	}
	return true
}

func anyMatches(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return glob(p, s) })
}

// glob matches "*" with any characters, and everything else with itself.
func glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	if !strings.HasPrefix(s, parts[0]) {
		return false
	}
	s = s[len(parts[0]):]
	last := parts[len(parts)-1]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(s, p)
		if i < 0 {
			return false
		}
		s = s[i+len(p):]
	}
	return strings.HasSuffix(s, last)
}
