package wrap

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/rein-sh/rein/internal/spelling"
)

// Problem is one fault of a recipe's file.
type Problem struct {
	File         string
	Line, Column int // from 1; 0: the fault is of the whole
	Message      string
	Hint         string // may be empty
}

func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Error is everything wrong with recipes, at least one thing.
type Error struct{ Problems []Problem }

func (e *Error) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.String())
		if len(e.Problems) > 1 && p.Hint != "" {
			fmt.Fprintf(&b, " (%s)", p.Hint)
		}
	}
	return b.String()
}

// Hint is that of the only problem. Of several, each has its own in the text.
func (e *Error) Hint() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].Hint
	}
	return ""
}

func (e *Error) add(p Problem) { e.Problems = append(e.Problems, p) }

func (e *Error) orNil() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

func one(p Problem) error { return &Error{Problems: []Problem{p}} }

// Decode reads a recipe strictly, an unknown key being an error, and checks it
// (Recipe.Check). file is how it is shown. Errors are *Error with every fault and
// its place.
func Decode(file string, data []byte) (Recipe, error) {
	var r Recipe
	if len(data) > maxRecipe {
		return r, one(Problem{File: file, Message: fmt.Sprintf("larger than %d bytes", maxRecipe)})
	}
	doc, err := parser.ParseBytes(data, 0)
	if err != nil {
		return r, one(problemOf(file, err))
	}
	d := &decoder{file: file, places: map[string]ast.Node{}}
	var body ast.Node
	for _, doc := range doc.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.CommentType || doc.Body.Type() == ast.NullType:
		case body != nil:
			d.fault(doc.Body, "", "a second document in one file")
		default:
			body = doc.Body
		}
	}
	if body == nil {
		return r, one(Problem{File: file, Message: "nothing is in it", Hint: "name:, title: and command: are the least"})
	}
	d.walk(body, "", reflect.TypeFor[Recipe]())
	if len(d.faults) > 0 {
		return r, d.err()
	}
	if err := yaml.NodeToValue(body, &r, yaml.Strict()); err != nil {
		return r, one(problemOf(file, err))
	}
	for _, f := range r.faults() {
		d.fault(d.at(f.path), f.hint, "%s: %s", f.path, f.message)
	}
	return r, d.err()
}

// problemOf is what the reader of YAML says.
func problemOf(file string, err error) Problem {
	p := Problem{File: file, Hint: "the file is YAML: two spaces a level, no tabs"}
	p.Message, _, _ = strings.Cut(err.Error(), "\n")
	if e, ok := errors.AsType[yaml.Error](err); ok {
		p.Message = e.GetMessage()
		if t := e.GetToken(); t != nil && t.Position != nil {
			p.Line, p.Column = t.Position.Line, t.Position.Column
		}
	}
	return p
}

// decoder goes through a document before it is decoded: keys and places.
type decoder struct {
	file   string
	places map[string]ast.Node // by path
	faults []Problem
}

func (d *decoder) err() error {
	slices.SortStableFunc(d.faults, func(a, b Problem) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	return (&Error{Problems: d.faults}).orNil()
}

func (d *decoder) fault(n ast.Node, hint, format string, args ...any) {
	p := Problem{File: d.file, Hint: hint, Message: fmt.Sprintf(format, args...)}
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	if n != nil {
		if t := n.GetToken(); t != nil && t.Position != nil {
			p.Line, p.Column = t.Position.Line, t.Position.Column
		}
	}
	d.faults = append(d.faults, p)
}

// at is the node at a path, or the nearest above it.
func (d *decoder) at(path string) ast.Node {
	for path != "" {
		if n := d.places[path]; n != nil {
			return n
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return nil
}

// walk notes places, and refuses keys that t has not.
func (d *decoder) walk(n ast.Node, path string, t reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if path != "" && d.places[path] == nil {
		d.places[path] = n
	}
	var pairs []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	case *ast.SequenceNode:
		if t.Kind() != reflect.Slice {
			d.fault(n, "", "%s is no list", cmp.Or(path, "a recipe"))
			return
		}
		for i, e := range n.Values {
			d.walk(e, fmt.Sprintf("%s[%d]", path, i), t.Elem())
		}
		return
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		d.fault(n, `text that begins with *, & or ! needs quotes, as in "*"`, "%s: anchors, aliases and tags are not read", path)
		return
	case *ast.NullNode:
		d.fault(n, "leave the key out, or write a value", "%s has no value", path)
		return
	default:
		if k := t.Kind(); k == reflect.Struct || k == reflect.Map || k == reflect.Slice {
			d.fault(n, map[reflect.Kind]string{reflect.Slice: `write [a, b], or one "- a" a line`}[k], "%s must be a %s",
				cmp.Or(path, "a recipe"), map[reflect.Kind]string{reflect.Slice: "list"}[k]+map[bool]string{true: "mapping of keys to values"}[k != reflect.Slice])
		}
		return
	}
	d.mapping(n, pairs, path, t)
}

func (d *decoder) mapping(n ast.Node, pairs []*ast.MappingValueNode, path string, t reflect.Type) {
	fields := keysOf(t)
	if t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		d.fault(n, "text with a colon needs quotes", "%s must not be a mapping", cmp.Or(path, "a recipe"))
		return
	}
	for _, e := range pairs {
		key := ""
		if t := e.Key.GetToken(); t != nil {
			key = t.Value
		}
		at, of := strings.TrimPrefix(path+"."+key, "."), t
		if t.Kind() == reflect.Map {
			of = t.Elem()
		} else if i := slices.IndexFunc(fields, func(f field) bool { return f.key == key }); i >= 0 {
			of = fields[i].of
		} else {
			in := ""
			if path != "" {
				in = " in " + path
			}
			d.fault(e.Key, meant(key, fields), "unknown key %q%s", key, in)
			continue
		}
		d.places[at] = e.Key
		d.walk(e.Value, at, of)
	}
}

// meant names the key that was.
func meant(key string, fields []field) string {
	var names []string
	for _, f := range fields {
		names = append(names, f.key)
	}
	if n := spelling.Nearest(key, names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return "known: " + strings.Join(names, ", ")
}

type field struct {
	key string
	of  reflect.Type
}

// keysOf are the keys of a struct: those of its yaml tags, or of json where there
// is none, as the decoder reads them.
func keysOf(t reflect.Type) []field {
	if t.Kind() != reflect.Struct {
		return nil
	}
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		key, _, _ := strings.Cut(cmp.Or(f.Tag.Get("yaml"), f.Tag.Get("json")), ",")
		if key != "" && key != "-" {
			out = append(out, field{key, f.Type})
		}
	}
	return out
}
