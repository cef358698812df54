package command

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// evaluation lists expansions that evaluate what variables hold: a subscript in
// that may start commands.
func (w *walker) evaluation(n syntax.Node) {
	switch n := n.(type) {
	case *syntax.ArithmExp:
		if !number(n.X) {
			w.expression(n)
		}
	case *syntax.ParamExp:
		var other bool
		if n.Exp != nil {
			switch n.Exp.Op {
			case syntax.OtherParamOps:
				other = true
			case syntax.AssignUnset, syntax.AssignUnsetOrNull:
				other = n.Param == nil || obeyed(n.Param.Value, false)
			}
		}
		if other || n.Excl && n.Names == 0 || n.Index != nil && !subscript(n.Index) || n.Slice != nil && !(number(n.Slice.Offset) && number(n.Slice.Length)) {
			w.expression(n)
		}
	case *syntax.Assign:
		if n.Index != nil && !number(n.Index) {
			w.expression(n)
		}
	case *syntax.ArrayElem:
		if n.Index != nil && !number(n.Index) {
			w.expression(n)
		}
	}
}

// number reports whether arithmetic is of numbers alone.
func number(x syntax.ArithmExpr) bool {
	switch x := x.(type) {
	case nil:
		return true
	case *syntax.Word:
		s := x.Lit()
		return s != "" && strings.Trim(s, "0123456789") == ""
	case *syntax.BinaryArithm:
		return x.X != nil && x.Y != nil && number(x.X) && number(x.Y)
	case *syntax.ParenArithm:
		return x.X != nil && number(x.X)
	case *syntax.UnaryArithm:
		return x.X != nil && number(x.X)
	}
	return false
}

// subscript reports whether a subscript is a number or stands for all.
func subscript(x syntax.ArithmExpr) bool {
	if word, ok := x.(*syntax.Word); ok && (word.Lit() == "@" || word.Lit() == "*") {
		return true
	}
	return number(x)
}

// setters are the builtins that set or look at the variables their words name.
var setters = []string{"read", "printf", "getopts", "mapfile", "readarray", "export", "declare", "typeset", "local", "readonly", "wait", "unset", "test", "["}

// sets lists what a builtin sets or evaluates besides being a command: a
// variable that programs obey, and a subscript.
func (w *walker) sets(c Simple) {
	name := path.Base(c.Name())
	if !slices.Contains(setters, name) {
		return
	}
	declares := slices.Contains([]string{"export", "declare", "typeset", "local", "readonly"}, name)
	for i, word := range c.Words[1:] {
		variable, _, assigned := strings.Cut(word.Text, "=")
		variable = strings.TrimSuffix(variable, "+")
		plain := identifier.MatchString(variable)
		switch {
		case name == "printf":
			before := c.Words[i].Literal && c.Words[i].Text == "-v" // i counts from the word before
			glued := strings.HasPrefix(word.Text, "-v") && word.Text != "-v"
			if i > 1 || !before && !glued && (word.Literal || i > 0) {
				continue
			}
			w.variable(c, strings.TrimPrefix(word.Text, "-v"), word.Literal)
		case name == "test" || name == "[":
			if b := c.Words[i]; i > 0 && b.Literal && (b.Text == "-v" || b.Text == "-R") {
				w.variable(c, word.Text, word.Literal)
			}
		case declares && strings.HasPrefix(word.Text, "-") && word.Literal:
			if strings.ContainsAny(word.Text, "inaA") && name != "export" || name == "export" && strings.ContainsAny(word.Text, "a") {
				w.evaluates(c)
			}
		case declares && !assigned && plain && word.Literal, name == "unset" && plain && word.Literal:
		case declares && assigned && plain:
			if obeyed(variable, true) && (name == "export" || obeyed(variable, false)) {
				w.add(Simple{Form: Assignment, Assigns: []Assign{{Name: variable, Value: Word{Text: "…"}}}})
			}
		case strings.HasPrefix(word.Text, "-") && word.Literal && !strings.Contains(word.Text, "["):
		default:
			w.variable(c, word.Text, word.Literal)
		}
	}
}

// variable lists that a builtin sets a variable of that name.
func (w *walker) variable(c Simple, name string, literal bool) {
	switch {
	case !literal || strings.Contains(name, "["):
		w.evaluates(c)
	case identifier.MatchString(name) && obeyed(name, false):
		w.add(Simple{Form: Assignment, Assigns: []Assign{{Name: name, Value: Word{Text: "…"}}}})
	}
}

func (w *walker) evaluates(c Simple) {
	w.add(Simple{Form: Expression, Words: []Word{{Text: c.String()}}})
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
