package script

import (
	"encoding/json"
	"strconv"
	"strings"
)

// result is what came back for a call.
type result struct {
	raw    string
	fields map[string]any // nil when there is no JSON object in raw
}

// fieldRaw is the whole of a result as the model was sent it.
const fieldRaw = "raw"

// parseResult finds the JSON object in a tool result. An agent wraps it as
// untrusted data, between delimiters this package knows nothing about; the
// object is the first place where one can be read whole.
func parseResult(content string) result {
	r := result{raw: content}
	at := 0
	for range 64 { // each failed attempt may read to the end
		i := strings.IndexByte(content[at:], '{')
		if i < 0 {
			return r
		}
		at += i
		dec := json.NewDecoder(strings.NewReader(content[at:]))
		dec.UseNumber()
		var fields map[string]any
		if dec.Decode(&fields) == nil {
			r.fields = fields
			return r
		}
		at++
	}
	return r
}

// field follows path. A number in it is an index into a list.
func (r result) field(path []string) (any, bool) {
	var v any = r.fields
	for _, p := range path {
		switch x := v.(type) {
		case map[string]any:
			next, ok := x[p]
			if !ok {
				return r.rawField(path)
			}
			v = next
		case []any:
			i, err := strconv.Atoi(p)
			if err != nil || i < 0 || i >= len(x) {
				return nil, false
			}
			v = x[i]
		default:
			return nil, false
		}
	}
	return v, true
}

func (r result) rawField(path []string) (any, bool) {
	if len(path) == 1 && path[0] == fieldRaw {
		return r.raw, true
	}
	return nil, false
}

// names lists the fields a misspelt first part of a path may have meant.
func (r result) names() []string {
	out := []string{fieldRaw}
	for k := range r.fields {
		out = append(out, k)
	}
	return out
}

// saw summarises a result for a message: what a reader asks for first.
func (r result) saw() string {
	if r.fields == nil {
		return "it was " + excerpt(r.raw)
	}
	var parts []string
	for _, name := range []string{"ok", "exit_code", "timeout", "signal", "error", "stdout", "stderr"} {
		v, ok := r.fields[name]
		if !ok || v == "" || v == false && name == "timeout" {
			continue
		}
		parts = append(parts, name+" "+excerpt(v))
	}
	if parts == nil {
		return "it was " + excerpt(r.raw)
	}
	return "it had " + strings.Join(parts, ", ")
}

// excerpt shows the end of a value, where programs say what went wrong.
func excerpt(v any) string {
	s, isText := v.(string)
	if !isText {
		s = valueText(v)
	}
	const most = 300
	cut := ""
	if len(s) > most {
		s, cut = strings.ToValidUTF8(s[len(s)-most:], ""), "…"
	}
	if !isText {
		return cut + s
	}
	return cut + strconv.Quote(s)
}
