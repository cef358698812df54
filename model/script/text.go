package script

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// maxValue bounds an expanded text and a captured value, in bytes. Without it
// a loop that captures twice what it captured before would grow without end.
const maxValue = 1 << 20

// ref names a value: of an earlier call's result (call and path), or a
// captured or built-in one (name).
type ref struct {
	call string
	path []string
	name string
}

// Built-in values.
const (
	refTask = "task" // the text of the first user message
	refTurn = "turn" // which reply this is, from 1
)

func (r ref) String() string {
	if r.name != "" {
		return r.name
	}
	return r.call + "." + strings.Join(r.path, ".")
}

// parseRef reads NAME or CALL.FIELD[.FIELD…].
func parseRef(s string) (ref, error) {
	parts := strings.Split(s, ".")
	if !isName(parts[0]) {
		return ref{}, fmt.Errorf("%q is not a reference: write CALL.FIELD or the name of a captured value", s)
	}
	if len(parts) == 1 {
		return ref{name: s}, nil
	}
	for _, p := range parts[1:] {
		if p == "" {
			return ref{}, fmt.Errorf("the reference %q has an empty part", s)
		}
	}
	return ref{call: parts[0], path: parts[1:]}, nil
}

// isName reports whether s is a letter or underscore and then letters, digits,
// underscores and hyphens, all ASCII.
func isName(s string) bool {
	for i, r := range s {
		letter := r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || r != '-' && (r < '0' || r > '9')) {
			return false
		}
	}
	return s != ""
}

// text is a string with references in it.
type text struct{ parts []textPart }

// textPart is literal, or a reference when ref is set.
type textPart struct {
	literal string
	ref     *ref
}

// parseText reads "${{ REF }}"; "$${{" stands for "${{" itself.
func parseText(s string) (*text, error) {
	t := &text{}
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			t.parts = append(t.parts, textPart{literal: literal.String()})
			literal.Reset()
		}
	}
	for {
		before, after, found := strings.Cut(s, "${{")
		if !found {
			literal.WriteString(s)
			flush()
			return t, nil
		}
		if escaped, ok := strings.CutSuffix(before, "$"); ok {
			literal.WriteString(escaped + "${{")
			s = after
			continue
		}
		literal.WriteString(before)
		inside, rest, closed := strings.Cut(after, "}}")
		if !closed {
			return nil, fmt.Errorf("a \"${{\" without its \"}}\"; write \"$${{\" for the characters themselves")
		}
		r, err := parseRef(strings.TrimSpace(inside))
		if err != nil {
			return nil, err
		}
		flush()
		t.parts = append(t.parts, textPart{ref: &r})
		s = rest
	}
}

// refs lists the references in t.
func (t *text) refs() []ref {
	var out []ref
	for _, p := range t.parts {
		if p.ref != nil {
			out = append(out, *p.ref)
		}
	}
	return out
}

// string expands t to text.
func (t *text) string(s *state) (string, error) {
	if t == nil {
		return "", nil
	}
	var b strings.Builder
	for _, p := range t.parts {
		piece := p.literal
		if p.ref != nil {
			v, err := s.lookup(*p.ref)
			if err != nil {
				return "", err
			}
			piece = valueText(v)
		}
		if b.Len()+len(piece) > maxValue {
			return "", fmt.Errorf("a text grows over %d bytes", maxValue)
		}
		b.WriteString(piece)
	}
	return b.String(), nil
}

// value expands t; a text that is one reference and nothing else keeps the
// type of what it refers to.
func (t *text) value(s *state) (any, error) {
	if len(t.parts) == 1 && t.parts[0].ref != nil {
		return s.lookup(*t.parts[0].ref)
	}
	return t.string(s)
}

// valueText is v as text: a string as it is, anything else as JSON.
func valueText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case int:
		return strconv.Itoa(v)
	}
	return compactJSON(v)
}

// compactJSON encodes a value made of what JSON has, without escaping HTML.
func compactJSON(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v) // infinities and the like, which YAML values never are here
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// expand replaces the texts in a tree of arguments by what they stand for.
func expand(v any, s *state) (any, error) {
	switch v := v.(type) {
	case *text:
		return v.value(s)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			x, err := expand(v[i], s)
			if err != nil {
				return nil, err
			}
			out[i] = x
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			x, err := expand(v[k], s)
			if err != nil {
				return nil, err
			}
			out[k] = x
		}
		return out, nil
	}
	return v, nil
}
