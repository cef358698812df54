package wrap

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/rein-sh/rein/internal/spelling"
)

// functions of templates besides their own: json writes a text as one of JSON,
// quotes included, which TOML's basic strings are, too; last20 the last 20
// characters of a key, by which Claude Code remembers that it may be used.
var functions = template.FuncMap{
	"json": func(text string) (string, error) {
		b, err := json.Marshal(text)
		return string(b), err
	},
	"last20": func(text string) string { return text[max(0, len(text)-20):] },
}

// builtIns of templates that a recipe may use. The others print, call or index.
var builtIns = []string{"json", "last20", "and", "or", "not", "eq", "ne"}

// Expand is what a template comes to.
func (v Values) Expand(text string) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := template.New("").Funcs(functions).Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, v)
	return b.String(), err
}

// judgeTemplate is what is wrong with a template; empty for nothing.
func judgeTemplate(text string) (message, hint string) {
	if !strings.Contains(text, "{{") {
		return "", ""
	}
	const known = "{{.Model}}, {{json .Model}} and the like"
	t, err := template.New("").Funcs(functions).Parse(text)
	if err != nil {
		return strings.TrimPrefix(err.Error(), "template: "), known
	}
	if len(t.Templates()) > 1 {
		return "templates in templates are not read", known
	}
	if t.Tree == nil {
		return "", ""
	}
	if message, hint = judgeNode(t.Root); message != "" {
		return message, hint
	}
	for _, v := range []Values{{}, {Model: "m", BaseURL: "u", Origin: "o", Home: "h", Work: "w", Bin: "b", Key: "k"}} {
		if _, err := v.Expand(text); err != nil {
			return err.Error(), known
		}
	}
	return "", ""
}

// judgeNode goes through a template: texts, conditions, and fields of Values.
func judgeNode(n parse.Node) (message, hint string) {
	var inner []parse.Node
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			inner = n.Nodes
		}
	case *parse.ActionNode:
		inner = []parse.Node{n.Pipe}
	case *parse.IfNode:
		inner = []parse.Node{n.Pipe, n.List, n.ElseList}
	case *parse.PipeNode:
		if len(n.Decl) > 0 {
			return "a template declares no variables", ""
		}
		for _, c := range n.Cmds {
			inner = append(inner, c)
		}
	case *parse.CommandNode:
		inner = n.Args
	case *parse.FieldNode:
		names := valueNames()
		if len(n.Ident) != 1 || !slices.Contains(names, n.Ident[0]) {
			hint := "known: ." + strings.Join(names, ", .")
			if near := spelling.Nearest(n.Ident[0], names); near != "" {
				hint = fmt.Sprintf("did you mean {{.%s}}?", near)
			}
			return fmt.Sprintf("there is no value %s", n), hint
		}
	case *parse.IdentifierNode:
		if !slices.Contains(builtIns, n.Ident) {
			return fmt.Sprintf("a template here has no function %q", n.Ident), "known: " + strings.Join(builtIns, ", ")
		}
	case *parse.TextNode, *parse.StringNode, *parse.BoolNode, *parse.CommentNode:
	default:
		return fmt.Sprintf("a template here holds no %q", n), "values, and {{if}} of them"
	}
	for _, in := range inner {
		if message, hint := judgeNode(in); message != "" {
			return message, hint
		}
	}
	return "", ""
}

func valueNames() (names []string) {
	for i := range reflect.TypeFor[Values]().NumField() {
		names = append(names, reflect.TypeFor[Values]().Field(i).Name)
	}
	return names
}
