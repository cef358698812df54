package script

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rein-sh/rein/model"
)

// Load reads a script; file is its name in messages. The error is a
// *SyntaxError about the first fault found. Everything that does not depend
// on what tools return is checked here: keys, names, references, regular
// expressions and the steps branches lead to.
func Load(data []byte, file string) (*Script, error) {
	root, err := parseYAML(data, file)
	if err != nil {
		return nil, err
	}
	l := &loader{reader: reader{file: file}}
	s := l.script(root)
	if l.err == nil {
		l.link(s)
	}
	if l.err != nil {
		return nil, l.err
	}
	return s, nil
}

type loader struct {
	reader
	// jumps are the names of steps that branches lead to, resolved at the end.
	jumps []jump
	// uses are the references seen, checked at the end.
	uses []use
}

type jump struct {
	pos
	to     string
	branch *branch
}

type use struct {
	pos
	ref ref
}

const finalText = "Stopped before the end of the script."

func (l *loader) script(n *node) *Script {
	s := &Script{file: l.file}
	base := filepath.Base(l.file)
	s.name = strings.TrimSuffix(base, filepath.Ext(base))
	var steps *node
	l.keys(n, "the script", fields{
		"name":  func(v *node) { s.name = l.nonEmpty(v, "name") },
		"final": func(v *node) { s.final = l.text(v, "final") },
		"preface": func(v *node) {
			for _, item := range l.list(v, "preface") {
				s.preface = append(s.preface, l.nonEmpty(item, "preface"))
			}
		},
		"steps": func(v *node) { steps = v },
	})
	if s.final == nil {
		s.final = &text{parts: []textPart{{literal: finalText}}}
	}
	if steps == nil || steps.kind == listNode && len(steps.items) == 0 {
		l.failf(n.pos, "", "the script has no steps")
		return s
	}
	for i, item := range l.list(steps, "steps") {
		s.steps = append(s.steps, l.step(item, i))
	}
	return s
}

func (l *loader) step(n *node, i int) *step {
	s := &step{pos: n.pos, name: fmt.Sprintf("step %d", i+1)}
	l.keys(n, "a step", fields{
		"name": func(v *node) { s.name = l.name(v, "name") },
		"text": func(v *node) {
			if t := l.text(v, "text"); t != nil && len(t.parts) > 0 {
				s.text = t
			}
		},
		"calls": func(v *node) {
			for _, item := range l.list(v, "calls") {
				s.calls = append(s.calls, l.call(item))
			}
		},
		"stop":  func(v *node) { s.stop = model.StopReason(l.oneOf(v, "stop", []string{"length", "refusal"})) },
		"next":  func(v *node) { s.next = l.next(v) },
		"usage": func(v *node) { s.usage = l.usage(v) },
		"faults": func(v *node) {
			for _, item := range l.list(v, "faults") {
				s.faults = append(s.faults, l.faults(item)...)
			}
		},
	})
	l.nameCalls(s)
	return s
}

// nameCalls gives the only call of a named step the step's name, and refuses
// a name used twice.
func (l *loader) nameCalls(s *step) {
	if len(s.calls) == 1 && s.calls[0].name == "" && isName(s.name) {
		s.calls[0].name = s.name
	}
	seen := map[string]bool{}
	for _, c := range s.calls {
		if c.name != "" && seen[c.name] {
			l.failf(c.pos, "", "two calls of step %q are named %q", s.name, c.name)
		}
		seen[c.name] = true
	}
}

func (l *loader) call(n *node) *call {
	c := &call{pos: n.pos}
	l.keys(n, "a call", fields{
		"name": func(v *node) { c.name = l.name(v, "name") },
		"tool": func(v *node) { c.tool = l.nonEmpty(v, "tool") },
		"arguments": func(v *node) {
			if v.kind != mapNode {
				l.failf(v.pos, "use raw_arguments for what is not an object", "arguments must be a map, not %s", v.what())
				return
			}
			c.arguments = l.tree(v)
		},
		"raw_arguments": func(v *node) { c.raw = l.text(v, "raw_arguments") },
		"expect":        func(v *node) { c.expect = l.checks(v, "expect", true) },
		"capture":       func(v *node) { c.capture = l.captures(v) },
	})
	switch {
	case c.tool == "":
		l.failf(n.pos, "", "a call has no tool")
	case c.raw != nil && c.arguments != nil:
		l.failf(n.pos, "", "a call has both arguments and raw_arguments")
	case c.arguments == nil:
		c.arguments = map[string]any{}
	}
	return c
}

// next reads the name of a step, or a list of branches.
func (l *loader) next(n *node) []branch {
	if n.kind == scalarNode {
		b := make([]branch, 1)
		l.jumps = append(l.jumps, jump{n.pos, l.name(n, "next"), &b[0]})
		return b
	}
	items := l.list(n, "next")
	branches := make([]branch, len(items))
	for i, item := range items {
		to := false
		l.keys(item, "a branch", fields{
			"when": func(v *node) { branches[i].when = l.checks(v, "when", false) },
			"step": func(v *node) {
				to = true
				l.jumps = append(l.jumps, jump{v.pos, l.name(v, "step"), &branches[i]})
			},
		})
		if !to {
			l.failf(item.pos, "", "a branch has no step")
		}
		if branches[i].when == nil && i != len(items)-1 {
			l.failf(item.pos, "put it last", "a branch without \"when\" hides those after it")
		}
	}
	return branches
}

// link resolves what names steps, calls and captured values.
func (l *loader) link(s *Script) {
	steps := map[string]int{}
	calls := map[string]bool{}
	values := map[string]bool{refTask: true, refTurn: true}
	for i, st := range s.steps {
		if _, twice := steps[st.name]; twice {
			l.failf(st.pos, "", "two steps are named %q", st.name)
		}
		steps[st.name] = i
		for _, c := range st.calls {
			if c.name != "" {
				calls[c.name] = true
			}
			for _, k := range c.capture {
				values[k.name] = true
			}
		}
	}
	for _, j := range l.jumps {
		i, ok := steps[j.to]
		if !ok {
			l.failf(j.pos, didYouMean(j.to, keysOf(steps)), "there is no step %q", j.to)
		}
		j.branch.step = i
	}
	for _, u := range l.uses {
		if u.ref.name != "" && !values[u.ref.name] {
			hint := didYouMean(u.ref.name, keysOf(values))
			if calls[u.ref.name] {
				hint = "it is a call: write " + u.ref.name + ".stdout, or another field"
			}
			l.failf(u.pos, hint, "no call captures a value named %q", u.ref.name)
		}
		if u.ref.call != "" && !calls[u.ref.call] {
			l.failf(u.pos, didYouMean(u.ref.call, keysOf(calls)), "there is no call named %q", u.ref.call)
		}
	}
}
