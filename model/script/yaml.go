package script

import (
	"errors"
	"fmt"
	"strings"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits of what Load accepts. The YAML parser takes time and memory quadratic
// in the tokens and the depth it is given; within these it stays under a second.
const (
	MaxSize   = 256 << 10 // bytes
	maxTokens = 20_000
	maxDepth  = 64
)

// SyntaxError says what is wrong with a script, and where.
type SyntaxError struct {
	File      string
	Line, Col int // from 1; 0 when the whole file is meant
	Message   string
	Hint      string
}

func (e *SyntaxError) Error() string {
	s := e.File
	if e.Line > 0 {
		s += fmt.Sprintf(":%d:%d", e.Line, e.Col)
	}
	s += ": " + e.Message
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// pos is a place in a script.
type pos struct{ line, col int }

// node is a YAML value with its place. Exactly one of the groups is used.
type node struct {
	pos
	kind   nodeKind
	scalar any // nil, bool, int64, uint64, float64 or string
	items  []*node
	pairs  []pair
}

type pair struct {
	pos
	key   string
	value *node
}

type nodeKind int

const (
	scalarNode nodeKind = iota
	listNode
	mapNode
)

func (n *node) what() string {
	switch n.kind {
	case listNode:
		return "a list"
	case mapNode:
		return "a map"
	}
	switch n.scalar.(type) {
	case nil:
		return "nothing"
	case string:
		return "a string"
	case bool:
		return "true or false"
	}
	return "a number"
}

// parseYAML reads one document made of maps with string keys, lists and
// scalars. Anchors, aliases, tags and merge keys are refused: with them a few
// bytes can stand for any amount of data.
func parseYAML(data []byte, file string) (*node, error) {
	fail := func(p pos, format string, args ...any) error {
		return &SyntaxError{File: file, Line: p.line, Col: p.col, Message: fmt.Sprintf(format, args...)}
	}
	if len(data) > MaxSize {
		return nil, fail(pos{}, "the script has %d bytes, at most %d are allowed", len(data), MaxSize)
	}
	tokens := lexer.Tokenize(string(data))
	if p, msg := tooMuch(tokens); msg != "" {
		return nil, fail(p, "%s", msg)
	}
	f, err := parser.Parse(tokens, 0)
	if err != nil {
		var ye yaml.Error
		if errors.As(err, &ye) && ye.GetToken() != nil {
			return nil, fail(place(ye.GetToken()), "%s", ye.GetMessage())
		}
		return nil, fail(pos{}, "not YAML: %s", strings.TrimSpace(err.Error()))
	}
	var body ast.Node
	for _, d := range f.Docs {
		if d.Body == nil {
			continue
		}
		if body != nil {
			return nil, fail(place(d.Body.GetToken()), "a script is one YAML document")
		}
		body = d.Body
	}
	if body == nil {
		return nil, fail(pos{}, "the script is empty")
	}
	c := &converter{file: file}
	return c.node(body)
}

// tooMuch bounds what the parser is given.
func tooMuch(tokens token.Tokens) (pos, string) {
	depth := 0
	for i, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		}
		// Block nesting shows in the column: one level takes a column at least.
		if depth > maxDepth || t.Position != nil && isEntry(t) && t.Position.Column > 4*maxDepth {
			return place(t), fmt.Sprintf("nested too deep; at most %d levels", maxDepth)
		}
		if i > maxTokens {
			return place(t), fmt.Sprintf("the script is too long; at most %d YAML tokens", maxTokens)
		}
	}
	return pos{}, ""
}

func isEntry(t *token.Token) bool { return t.Type == token.SequenceEntryType }

func place(t *token.Token) pos {
	if t == nil || t.Position == nil {
		return pos{}
	}
	return pos{t.Position.Line, t.Position.Column}
}

type converter struct {
	file  string
	depth int
}

func (c *converter) fail(n ast.Node, format string, args ...any) error {
	p := place(n.GetToken())
	return &SyntaxError{File: c.file, Line: p.line, Col: p.col, Message: fmt.Sprintf(format, args...)}
}

func (c *converter) node(n ast.Node) (*node, error) {
	c.depth++
	defer func() { c.depth-- }()
	if c.depth > maxDepth {
		return nil, c.fail(n, "nested too deep; at most %d levels", maxDepth)
	}
	out := &node{pos: place(n.GetToken())}
	switch n := n.(type) {
	case *ast.MappingNode:
		return c.mapping(out, n.Values)
	case *ast.MappingValueNode:
		return c.mapping(out, []*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		out.kind = listNode
		for _, v := range n.Values {
			item, err := c.node(v)
			if err != nil {
				return nil, err
			}
			out.items = append(out.items, item)
		}
		return out, nil
	case *ast.LiteralNode:
		if n.Value == nil {
			return nil, c.fail(n, "an unfinished block of text")
		}
		out.scalar = n.Value.Value
	case *ast.StringNode:
		out.scalar = n.Value
	case *ast.IntegerNode:
		out.scalar = n.Value
	case *ast.FloatNode:
		out.scalar = n.Value
	case *ast.BoolNode:
		out.scalar = n.Value
	case *ast.NullNode:
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return nil, c.fail(n, "anchors and aliases are not allowed")
	case *ast.TagNode:
		return nil, c.fail(n, "tags are not allowed")
	default:
		return nil, c.fail(n, "%s is not allowed here", strings.ToLower(n.Type().String()))
	}
	return out, nil
}

func (c *converter) mapping(out *node, values []*ast.MappingValueNode) (*node, error) {
	out.kind = mapNode
	seen := map[string]bool{}
	for i, v := range values {
		key, ok := keyText(v.Key)
		if !ok {
			return nil, c.fail(v.Key, "a key must be plain text")
		}
		if i == 0 { // a block map's own token is its first colon
			out.pos = place(v.Key.GetToken())
		}
		if seen[key] {
			return nil, c.fail(v.Key, "the key %q is there twice", key)
		}
		seen[key] = true
		value, err := c.node(v.Value)
		if err != nil {
			return nil, err
		}
		out.pairs = append(out.pairs, pair{pos: place(v.Key.GetToken()), key: key, value: value})
	}
	return out, nil
}

func keyText(k ast.MapKeyNode) (string, bool) {
	switch k := k.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.BoolNode, *ast.NullNode, *ast.FloatNode:
		return k.GetToken().Value, true
	}
	return "", false
}

// plain is the scalar as text, for messages.
func (n *node) plain() string {
	switch {
	case n.kind != scalarNode:
		return n.what()
	case n.scalar == nil:
		return "null"
	}
	return fmt.Sprint(n.scalar)
}
