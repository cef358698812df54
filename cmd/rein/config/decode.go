package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/rein-sh/rein/egress/policy"
)

// MaxFileSize bounds a configuration file, in bytes.
const MaxFileSize = 1 << 20

// File is a decoded configuration file: the values, and where each was set.
type File struct {
	Name   string
	Config Config
	// Set maps the dotted path of every value in the file to its place.
	Set map[string]Position

	faults []Problem // of reading, and where
	broken []broken
}

// Decode reads one configuration file strictly: an unknown or repeated key, a
// value of the wrong kind and any YAML beyond plain mappings, lists and scalars
// are errors. It returns every fault, as *Error, beside what could be read, if it
// is YAML at all. It does not judge the values; that is Validate's part, which says
// these faults again, among its own. name is how the file is shown.
func Decode(name string, data []byte) (*File, error) {
	f := &File{Name: name, Set: map[string]Position{}}
	err := decodeInto(f, data, reflect.ValueOf(&f.Config).Elem())
	return partial(f, err), err
}

// decodeInto decodes into v, and notes in f where each value was set.
func decodeInto(f *File, data []byte, v reflect.Value) error {
	if len(data) > MaxFileSize {
		return &Error{Problems: []Problem{{Position: Position{File: f.Name}, Message: fmt.Sprintf("larger than %d bytes", MaxFileSize)}}}
	}
	doc, err := parser.ParseBytes(data, 0)
	if err != nil {
		return &Error{Problems: []Problem{syntaxProblem(f.Name, err)}}
	}
	d := decoder{file: f}
	bodies := 0
	for _, doc := range doc.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType || doc.Body.Type() == ast.NullType {
			continue
		}
		if bodies++; bodies > 1 {
			d.add(doc.Body, "", "a second document in one file")
			break
		}
		d.value(doc.Body, "", v)
	}
	return asError(f.faults)
}

func syntaxProblem(name string, err error) Problem {
	p := Problem{Position: Position{File: name}, Message: firstLine(err.Error())}
	if e, ok := errors.AsType[yaml.Error](err); ok {
		p.Message = e.GetMessage()
		if t := e.GetToken(); t != nil && t.Position != nil {
			p.Line, p.Column = t.Position.Line, t.Position.Column
		}
	}
	p.Hint = "the file is YAML: two spaces a level, no tabs"
	if strings.Contains(p.Message, "alias") || strings.Contains(p.Message, "anchor") {
		p.Hint = quoteHint
	} else if strings.Contains(p.Message, "already defined") {
		p.Hint = "write the key once, with all that belongs beneath it"
	}
	return p
}

// quoteHint is for text that is YAML's own.
const quoteHint = `write the value out; one that begins with *, & or ! needs quotes, as in "*"`

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

type decoder struct{ file *File }

// fault is about the value at path, which is left as it is.
func (d *decoder) fault(n ast.Node, path, hint, format string, args ...any) {
	d.file.broken = append(d.file.broken, broken(path))
	d.add(n, hint, format, args...)
}

// add is a fault that leaves every value what it is.
func (d *decoder) add(n ast.Node, hint, format string, args ...any) {
	d.file.faults = append(d.file.faults, Problem{Position: d.position(n), Hint: hint, Message: fmt.Sprintf(format, args...)})
}

func (d *decoder) position(n ast.Node) Position {
	p := Position{File: d.file.Name}
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		p.Line, p.Column = t.Position.Line, t.Position.Column
	}
	return p
}

// value decodes n into v, which is addressable. Null leaves v as it is.
func (d *decoder) value(n ast.Node, path string, v reflect.Value) {
	if n == nil || n.Type() == ast.NullType {
		return
	}
	if v.Kind() == reflect.Pointer {
		p := reflect.New(v.Type().Elem())
		d.value(n, path, p.Elem())
		v.Set(p)
		return
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if text, ok := d.scalar(n, path, "a value"); ok {
			if err := u.UnmarshalText([]byte(text)); err != nil {
				d.fault(n, path, "", "%s: %s", path, err)
			}
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, path, v)
	case reflect.Map:
		d.mapping(n, path, v)
	case reflect.Slice:
		d.list(n, path, v)
	default:
		d.basic(n, path, v)
	}
}

// pairs returns the entries of a mapping; ok is false when n is none.
func (d *decoder) pairs(n ast.Node, path string) (values []*ast.MappingValueNode, ok bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		where, hint := path, `write "key: value" beneath it; rein config schema says which keys there are`
		if path == "" {
			where, hint = "the file", "" // what every file of its kind has is enough
		} else if path == "key" || strings.HasSuffix(path, ".key") {
			hint = "write env:, file: or command: beneath it; the secret itself is never in the configuration"
		}
		d.fault(n, path, hint, "%s must be a mapping of keys to values", where)
		return nil, false
	}
	seen := map[string]bool{}
	values = slices.DeleteFunc(slices.Clone(values), func(e *ast.MappingValueNode) bool {
		key := keyOf(e)
		if seen[key] {
			d.add(e.Key, "", "key %q is given twice", key)
			return true
		}
		seen[key] = true
		return false
	})
	return values, true
}

func keyOf(e *ast.MappingValueNode) string {
	if t := e.Key.GetToken(); t != nil {
		return t.Value
	}
	return ""
}

func (d *decoder) structure(n ast.Node, path string, v reflect.Value) {
	entries, ok := d.pairs(n, path)
	if !ok {
		return
	}
	fields := fieldsOf(v.Type())
	for _, e := range entries {
		key := keyOf(e)
		i, ok := fields.index[key]
		if !ok {
			in := ""
			if path != "" {
				in = " in " + path
			}
			d.fault(e.Key, unknownAt(path, key), DidYouMean(key, fields.names), "unknown key %q%s", key, in)
			continue
		}
		d.set(e, join(path, key))
		if v.Type() == reflect.TypeFor[policy.Limits]() && v.Field(i).Kind() == reflect.Int64 { // all of them are bytes
			d.bytes(e.Value, join(path, key), v.Field(i))
			continue
		}
		d.value(e.Value, join(path, key), v.Field(i))
	}
}

// bytes reads what is written as a Size into a plain number. One below zero is
// judged with what it means.
func (d *decoder) bytes(n ast.Node, path string, v reflect.Value) {
	if n == nil || n.Type() == ast.NullType {
		return
	}
	text, ok := d.scalar(n, path, "a number of bytes")
	if !ok {
		return
	}
	var s Size
	if i, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64); err == nil {
		s = Size(i)
	} else if err := s.UnmarshalText([]byte(text)); err != nil {
		d.fault(n, path, "", "%s: %s", path, err)
	}
	v.SetInt(int64(s))
}

// unknownAt is what an unknown key of the mapping at path leaves open: the others
// there, and at the top any section.
func unknownAt(path, key string) string {
	if path == "" {
		return ""
	}
	return join(path, key)
}

func (d *decoder) mapping(n ast.Node, path string, v reflect.Value) {
	entries, ok := d.pairs(n, path)
	if !ok {
		return
	}
	m := reflect.MakeMapWithSize(v.Type(), len(entries))
	for _, e := range entries {
		key := keyOf(e)
		if !nameOK(key) {
			d.fault(e.Key, join(path, key), "letters, digits, dot, dash and underscore", "%q is no name", key)
			continue
		}
		d.set(e, join(path, key))
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(e.Value, join(path, key), elem)
		m.SetMapIndex(reflect.ValueOf(key), elem)
	}
	v.Set(m)
}

func (d *decoder) list(n ast.Node, path string, v reflect.Value) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fault(n, path, "write [a, b], or one \"- a\" a line", "%s must be a list", path)
		return
	}
	out := reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values))
	for i, e := range s.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.file.Set[at] = d.position(e)
		d.value(e, at, out.Index(i))
	}
	v.Set(out)
}

func (d *decoder) basic(n ast.Node, path string, v reflect.Value) {
	want := map[reflect.Kind]string{reflect.String: "text", reflect.Bool: "true or false", reflect.Float64: "a number"}[v.Kind()]
	if want == "" {
		want = "a whole number"
	}
	text, ok := d.scalar(n, path, want)
	if !ok {
		return
	}
	var err error
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		var b bool
		b, err = strconv.ParseBool(text)
		v.SetBool(b)
	case reflect.Float64:
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		v.SetFloat(f)
	default:
		var i int64
		i, err = strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
		v.SetInt(i)
	}
	if err != nil {
		d.fault(n, path, plainHint(v.Kind(), text), "%s must be %s, not %q", path, want, text)
	}
}

// plainHint is how a value of a kind is written that stands there with more than
// it takes: a unit, a currency, another word for true.
func plainHint(k reflect.Kind, text string) string {
	var s Size
	switch {
	case k == reflect.Bool && slices.Contains([]string{"yes", "on", "y"}, strings.ToLower(text)):
		return "write true"
	case k == reflect.Bool && slices.Contains([]string{"no", "off", "n"}, strings.ToLower(text)):
		return "write false"
	case k != reflect.Float64 && strings.HasSuffix(text, "B") && s.UnmarshalText([]byte(text)) == nil:
		return fmt.Sprintf("write %d", s)
	case strings.HasPrefix(text, "$"):
		return "write " + text[1:]
	}
	return ""
}

// scalar returns the text of a scalar as it was written.
func (d *decoder) scalar(n ast.Node, path, want string) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		d.fault(n, path, quoteHint, "%s: anchors, aliases and tags are not read", path)
	default:
		d.fault(n, path, "", "%s must be %s", path, want)
	}
	return "", false
}

func (d *decoder) set(e *ast.MappingValueNode, path string) { d.file.Set[path] = d.position(e.Key) }

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func nameOK(s string) bool {
	return s != "" && len(s) <= 128 && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/", r))
	}) < 0
}

type fieldSet struct {
	names []string
	index map[string]int
}

// fieldsOf lists the keys of a struct: the names in its json tags. What has no
// key, which is told by the name "-", comes after all that have one.
func fieldsOf(t reflect.Type) fieldSet {
	s := fieldSet{index: map[string]int{}}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "-" {
			break
		}
		s.names = append(s.names, name)
		s.index[name] = i
	}
	return s
}
