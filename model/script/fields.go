package script

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/model"
)

// checks reads a map from fields to conditions. In "expect" a key is a field
// of the call's own result; elsewhere it is a reference.
func (l *loader) checks(n *node, where string, own bool) []check {
	if n.kind != mapNode || len(n.pairs) == 0 {
		l.failf(n.pos, "", "%s must be a map of conditions, not %s", where, n.what())
		return nil
	}
	var out []check
	for _, p := range n.pairs {
		c := check{pos: p.pos}
		if own {
			c.ref.path = strings.Split(p.key, ".")
			if slices.Contains(c.ref.path, "") {
				l.failf(p.pos, "", "%q is not the name of a field", p.key)
			}
		} else {
			r, err := parseRef(p.key)
			if err != nil {
				l.failf(p.pos, "", "%s", err)
				continue
			}
			c.ref = r
			l.uses = append(l.uses, use{p.pos, r})
		}
		c.tests = l.tests(p.value, p.key)
		out = append(out, c)
	}
	return out
}

// tests reads one field's conditions; a scalar means "equals".
func (l *loader) tests(n *node, field string) []test {
	switch n.kind {
	case scalarNode:
		return []test{{opEquals, l.tree(n)}}
	case listNode:
		l.failf(n.pos, "write contains: or equals:", "%s: a list is not a condition", field)
		return nil
	}
	if len(n.pairs) == 0 {
		l.failf(n.pos, "", "%s: no condition", field)
	}
	var out []test
	handlers := fields{}
	for _, op := range operators {
		handlers[op] = func(v *node) { out = append(out, l.test(op, v)...) }
	}
	l.keys(n, "a condition", handlers)
	return out
}

func (l *loader) test(op string, v *node) []test {
	switch op {
	case opMatches:
		return []test{{op, l.regexp(v, op)}}
	case opMin, opMax:
		f, ok := number(v.scalar)
		if !ok || v.kind != scalarNode {
			l.failf(v.pos, "", "%s must be a number, not %s", op, v.what())
		}
		return []test{{op, f}}
	case opExists:
		b, ok := v.scalar.(bool)
		if !ok {
			l.failf(v.pos, "", "exists must be true or false, not %s", v.what())
		}
		return []test{{op, b}}
	case opContains, opLacks:
		if v.kind == listNode {
			var out []test
			for _, item := range v.items {
				out = append(out, test{op, l.needText(item, op)})
			}
			return out
		}
		return []test{{op, l.needText(v, op)}}
	}
	return []test{{op, l.tree(v)}}
}

// needText refuses the empty text, which everything contains.
func (l *loader) needText(v *node, what string) any {
	t := l.text(v, what)
	if t != nil && len(t.parts) == 0 {
		l.failf(v.pos, "", "%s must not be empty", what)
	}
	return t
}

func (l *loader) captures(n *node) []capture {
	if n.kind != mapNode {
		l.failf(n.pos, "", "capture must be a map from names to values, not %s", n.what())
		return nil
	}
	var out []capture
	for _, p := range n.pairs {
		c := capture{pos: p.pos, name: p.key}
		switch {
		case !isName(p.key):
			l.failf(p.pos, nameRule, "%q is not a name", p.key)
		case p.key == refTask || p.key == refTurn:
			l.failf(p.pos, "", "the name %q is taken", p.key)
		}
		if p.value.kind == scalarNode {
			c.from = l.path(p.value)
			out = append(out, c)
			continue
		}
		l.keys(p.value, "a capture", fields{
			"from":  func(v *node) { c.from = l.path(v) },
			"match": func(v *node) { c.match = l.captureRegexp(v) },
			"type":  func(v *node) { c.integer = l.oneOf(v, "type", []string{"integer", "string"}) == "integer" },
			"replace": func(v *node) {
				for _, item := range l.list(v, "replace") {
					c.replace = append(c.replace, l.replacement(item))
				}
			},
		})
		if c.from == nil {
			l.failf(p.value.pos, "", "the capture %q does not say from which field", p.key)
		}
		out = append(out, c)
	}
	return out
}

func (l *loader) path(v *node) []string {
	path := strings.Split(l.nonEmpty(v, "from"), ".")
	if slices.Contains(path, "") {
		l.failf(v.pos, "", "%q is not the name of a field", v.plain())
	}
	return path
}

func (l *loader) captureRegexp(v *node) *regexp.Regexp {
	re := l.regexp(v, "match")
	if re != nil && re.NumSubexp() > 1 {
		l.failf(v.pos, "write (?:…) for the others", "match has %d groups; it may have one, which is captured", re.NumSubexp())
	}
	return re
}

func (l *loader) replacement(n *node) replacement {
	var r replacement
	l.keys(n, "a replacement", fields{
		"old": func(v *node) { r.old, _ = l.needText(v, "old").(*text) },
		"new": func(v *node) { r.new = l.text(v, "new") },
	})
	if r.old == nil || r.new == nil {
		l.failf(n.pos, "", "a replacement needs old and new")
	}
	return r
}

// usage reads the numbers, or "none" for a vendor that says nothing.
func (l *loader) usage(n *node) *model.Usage {
	u := &model.Usage{Known: true}
	if n.kind == scalarNode {
		l.oneOf(n, "usage", []string{"none"})
		return &model.Usage{}
	}
	set := func(to *int64, what string) func(*node) {
		return func(v *node) { *to = l.count(v, what, 0, 1<<40) }
	}
	l.keys(n, "usage", fields{
		"input":        set(&u.Input, "input"),
		"cached_input": set(&u.CachedInput, "cached_input"),
		"output":       set(&u.Output, "output"),
		"reasoning":    set(&u.Reasoning, "reasoning"),
	})
	if u.CachedInput > u.Input {
		l.failf(n.pos, "input includes it", "cached_input is more than input")
	}
	if u.Reasoning > u.Output {
		l.failf(n.pos, "output includes it", "reasoning is more than output")
	}
	return u
}

// maxFaults bounds "times".
const maxFaults = 10_000

// faults reads one entry: a kind, or a map with one.
func (l *loader) faults(n *node) []Fault {
	var f Fault
	times := int64(1)
	given := map[string]*node{}
	if n.kind == scalarNode {
		f.Kind = FaultKind(l.oneOf(n, "a fault", faultKinds))
		return []Fault{f}
	}
	l.keys(n, "a fault", fields{
		"kind":        func(v *node) { f.Kind = FaultKind(l.oneOf(v, "kind", faultKinds)) },
		"times":       func(v *node) { times = l.count(v, "times", 1, maxFaults) },
		"retry_after": func(v *node) { given["retry_after"], f.RetryAfter = v, l.duration(v, "retry_after") },
		"for":         func(v *node) { given["for"], f.For = v, l.duration(v, "for") },
		"at":          func(v *node) { given["at"] = v; f.AtStart = l.oneOf(v, "at", []string{"start", "middle"}) == "start" },
		"clean":       func(v *node) { given["clean"] = v; f.Clean = l.boolean(v, "clean") },
	})
	if f.Kind == "" {
		l.failf(n.pos, "", "a fault has no kind")
	}
	_, refusal := f.Refusal()
	allowed := map[string]bool{
		"retry_after": refusal,
		"for":         f.Kind == FaultStall,
		"at":          !refusal,
		"clean":       f.Kind == FaultCut && !f.AtStart,
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if !allowed[key] {
			l.failf(given[key].pos, "", "a fault of kind %s has no %q", f.Kind, key)
		}
	}
	return slices.Repeat([]Fault{f}, int(times))
}

func (l *loader) duration(v *node, what string) time.Duration {
	d, err := time.ParseDuration(v.plain())
	if err != nil || d <= 0 || v.kind != scalarNode {
		l.failf(v.pos, "", `%s must be a duration such as "2s", not %q`, what, v.plain())
		return 0
	}
	return d
}
