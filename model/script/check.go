package script

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// check is a condition on one field of a result, or on a value.
type check struct {
	pos
	ref ref
	// tests must all hold.
	tests []test
}

// test is one condition: op with its argument.
type test struct {
	op  string
	arg any // a tree with *text in it, *regexp.Regexp, json number text, bool
}

// The operators.
const (
	opEquals   = "equals"
	opNot      = "not"
	opContains = "contains"
	opLacks    = "lacks"
	opMatches  = "matches"
	opMin      = "min"
	opMax      = "max"
	opExists   = "exists"
)

var operators = []string{opEquals, opNot, opContains, opLacks, opMatches, opMin, opMax, opExists}

// run returns what is wrong with the value, or "".
func (c check) run(v any, found bool, s *state) (string, error) {
	for _, t := range c.tests {
		problem, err := t.run(v, found, s)
		if err != nil || problem != "" {
			return problem, err
		}
	}
	return "", nil
}

func (t test) run(v any, found bool, s *state) (string, error) {
	if t.op == opExists {
		if found != t.arg.(bool) {
			return fmt.Sprintf("exists: expected %v, saw %v", t.arg, found), nil
		}
		return "", nil
	}
	if !found {
		return "is not there", nil
	}
	switch t.op {
	case opMatches:
		re := t.arg.(*regexp.Regexp)
		if !re.MatchString(valueText(v)) {
			return fmt.Sprintf("expected a match of %q, saw %s", re, excerpt(v)), nil
		}
		return "", nil
	case opMin, opMax:
		return t.bound(v), nil
	}
	want, err := expand(t.arg, s)
	if err != nil {
		return "", err
	}
	switch t.op {
	case opEquals:
		if !equal(v, want) {
			return fmt.Sprintf("expected %s, saw %s", excerpt(want), excerpt(v)), nil
		}
	case opNot:
		if equal(v, want) {
			return fmt.Sprintf("expected anything but %s", excerpt(want)), nil
		}
	case opContains:
		if !strings.Contains(valueText(v), valueText(want)) {
			return fmt.Sprintf("expected it to contain %s, saw %s", excerpt(want), excerpt(v)), nil
		}
	case opLacks:
		if strings.Contains(valueText(v), valueText(want)) {
			return fmt.Sprintf("expected it not to contain %s, saw %s", excerpt(want), excerpt(v)), nil
		}
	}
	return "", nil
}

// bound compares numbers.
func (t test) bound(v any) string {
	want := t.arg.(float64)
	got, ok := number(v)
	if !ok {
		return fmt.Sprintf("expected a number, saw %s", excerpt(v))
	}
	if t.op == opMin && got < want || t.op == opMax && got > want {
		return fmt.Sprintf("expected %s %v, saw %s", map[string]string{opMin: "at least", opMax: "at most"}[t.op], want, excerpt(v))
	}
	return ""
}

// equal compares JSON values; numbers by value, whatever their notation.
func equal(a, b any) bool {
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	return compactJSON(a) == compactJSON(b)
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case json.Number:
		f, err := v.Float64()
		return f, err == nil
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// capture names a value taken from a result, for later steps.
type capture struct {
	pos
	name    string
	from    []string
	match   *regexp.Regexp // nil for the whole
	replace []replacement
	integer bool
}

// replacement puts new where old is, which must be exactly once.
type replacement struct{ old, new *text }

// take makes the value.
func (c capture) take(r result, s *state) (any, error) {
	v, ok := r.field(c.from)
	if !ok {
		return nil, fmt.Errorf("capture %q: the result has no %s; %s", c.name, strings.Join(c.from, "."), r.saw())
	}
	if c.match != nil {
		m := c.match.FindStringSubmatch(valueText(v))
		if m == nil {
			return nil, fmt.Errorf("capture %q: %q does not match %s", c.name, c.match, excerpt(v))
		}
		v = m[len(m)-1] // the group when there is one, else the whole match
	}
	for _, r := range c.replace {
		replaced, err := r.apply(valueText(v), s)
		if err != nil {
			return nil, fmt.Errorf("capture %q: %w", c.name, err)
		}
		v = replaced
	}
	if c.integer {
		n, err := strconv.ParseInt(strings.TrimSpace(valueText(v)), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("capture %q: %s is not an integer", c.name, excerpt(v))
		}
		v = n
	}
	return v, nil
}

func (r replacement) apply(in string, s *state) (string, error) {
	old, err := r.old.string(s)
	if err != nil {
		return "", err
	}
	replacement, err := r.new.string(s)
	if err != nil {
		return "", err
	}
	if n := strings.Count(in, old); n != 1 || old == "" {
		return "", fmt.Errorf("%s is there %d times, not once, in %s", excerpt(old), n, excerpt(in))
	}
	if len(in)+len(replacement) > maxValue {
		return "", fmt.Errorf("the value grows over %d bytes", maxValue)
	}
	return strings.Replace(in, old, replacement, 1), nil
}
