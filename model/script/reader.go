package script

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

// reader takes values out of nodes. It keeps the first error and goes on, so
// that callers need not check after each value.
type reader struct {
	file string
	err  error
}

func (r *reader) failf(p pos, hint, format string, args ...any) {
	if r.err == nil {
		r.err = &SyntaxError{File: r.file, Line: p.line, Col: p.col, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
}

// fields say what is done with the value of each key that is allowed.
type fields map[string]func(*node)

// keys hands each value of a map to its field, in the file's order.
func (r *reader) keys(n *node, what string, f fields) {
	if n.kind != mapNode {
		r.failf(n.pos, "", "%s must be a map, not %s", what, n.what())
		return
	}
	for _, p := range n.pairs {
		set, ok := f[p.key]
		if !ok {
			hint := didYouMean(p.key, keysOf(f))
			if hint == "" {
				hint = "it has " + strings.Join(keysOf(f), ", ")
			}
			r.failf(p.pos, hint, "%s has no key %q", what, p.key)
			continue
		}
		set(p.value)
	}
}

func (r *reader) list(n *node, what string) []*node {
	if n.kind != listNode {
		r.failf(n.pos, "", "%s must be a list, not %s", what, n.what())
		return nil
	}
	return n.items
}

const nameRule = "letters, digits, _ and -, not a digit or - first"

func (r *reader) name(n *node, what string) string {
	s, ok := n.scalar.(string)
	if !ok || !isName(s) {
		r.failf(n.pos, nameRule, "%s must be a name, not %q", what, n.plain())
	}
	return s
}

func (r *reader) nonEmpty(n *node, what string) string {
	s, ok := n.scalar.(string)
	if !ok || s == "" {
		r.failf(n.pos, "", "%s must be text, not %s", what, n.what())
	}
	return s
}

func (r *reader) oneOf(n *node, what string, allowed []string) string {
	s, ok := n.scalar.(string)
	if !ok || !slices.Contains(allowed, s) {
		hint := didYouMean(s, allowed)
		if hint == "" {
			hint = "one of " + strings.Join(allowed, ", ")
		}
		r.failf(n.pos, hint, "%s cannot be %q", what, n.plain())
	}
	return s
}

func (r *reader) count(n *node, what string, least, most int64) int64 {
	var v int64 = -1
	switch x := n.scalar.(type) {
	case int64:
		v = x
	case uint64:
		v = int64(min(x, math.MaxInt64))
	}
	if v < least || v > most {
		r.failf(n.pos, "", "%s must be a whole number from %d to %d", what, least, most)
	}
	return v
}

func (r *reader) boolean(n *node, what string) bool {
	b, ok := n.scalar.(bool)
	if !ok {
		r.failf(n.pos, "", "%s must be true or false, not %s", what, n.what())
	}
	return b
}

func (r *reader) regexp(n *node, what string) *regexp.Regexp {
	re, err := regexp.Compile(r.nonEmpty(n, what))
	if err != nil {
		r.failf(n.pos, "", "%s: %s", what, err)
	}
	return re
}

// text reads a string with references, and notes them.
func (l *loader) text(n *node, what string) *text {
	s, ok := n.scalar.(string)
	if !ok {
		l.failf(n.pos, "put it in quotes", "%s must be text, not %s", what, n.what())
		return nil
	}
	t, err := parseText(s)
	if err != nil {
		l.failf(n.pos, "", "%s", err)
		return nil
	}
	for _, ref := range t.refs() {
		l.uses = append(l.uses, use{n.pos, ref})
	}
	return t
}

// tree reads a value of any shape whose strings may have references.
func (l *loader) tree(n *node) any {
	switch n.kind {
	case listNode:
		out := make([]any, len(n.items))
		for i, item := range n.items {
			out[i] = l.tree(item)
		}
		return out
	case mapNode:
		out := make(map[string]any, len(n.pairs))
		for _, p := range n.pairs {
			out[p.key] = l.tree(p.value)
		}
		return out
	}
	if _, ok := n.scalar.(string); ok {
		if t := l.text(n, "a value"); t != nil {
			return t
		}
		return nil
	}
	return n.scalar
}

func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
