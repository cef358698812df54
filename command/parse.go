package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

func decimal(n uint) string { return strconv.FormatUint(uint64(n), 10) }

// Parse reads a command line. It never runs anything. The error is an *Error.
func Parse(src string) (*Script, error) {
	s := &Script{spent: &spent{}}
	if err := s.read(src, nil, bothShells); err != nil {
		return nil, err
	}
	return s, nil
}

// reading is as which shell a line is read.
type reading int

const (
	bothShells reading = iota
	bashOnly
	posixOnly
)

// read adds what stands in src, which is run behind the programs named.
func (s *Script) read(src string, behind []string, as reading) error {
	switch {
	case len(src) > MaxBytes:
		return &Error{Reason: fmt.Sprintf("it has %d bytes, more than %d", len(src), MaxBytes)}
	case len(behind) > MaxNested:
		return &Error{Reason: fmt.Sprintf("more than %d commands start each other", MaxNested)}
	}
	s.spent.texts++
	s.spent.bytes += len(src)
	if s.spent.over() {
		return &Error{Reason: tooMuch}
	}
	if reason := doubtful(src); reason != "" {
		return &Error{Reason: reason}
	}
	if as != posixOnly {
		tree, err := parse(src, syntax.LangBash)
		if err != nil {
			return err
		}
		w := walker{script: s, src: src, behind: behind}
		if err := w.walk(tree); err != nil || as == bashOnly {
			return err
		}
	}
	// Where there is no bash the same line goes to another shell, which reads
	// some of it otherwise: ((x)) is arithmetic to one and a command to the
	// other. A line that is none to the other shell is only bash's.
	tree, err := parse(src, syntax.LangPOSIX)
	e, ok := errors.AsType[*Error](err)
	if ok && e.Line > 1 {
		// It has run the lines before by then.
		tree, err = parse(firstLines(src, int(e.Line)-1), syntax.LangPOSIX)
	}
	if ok && e.Line == 0 {
		return err // not another language, but in doubt
	}
	if err != nil {
		return nil
	}
	second := walker{script: &Script{spent: s.spent}, src: src, behind: behind, posix: true}
	if err := second.walk(tree); err != nil {
		return err
	}
	for _, c := range second.script.simple {
		if !slices.ContainsFunc(s.simple, func(o Simple) bool { return same(c, o) }) {
			s.simple = append(s.simple, c)
		}
	}
	if len(s.simple) > MaxSimple {
		return &Error{Reason: fmt.Sprintf("it has more than %d simple commands", MaxSimple)}
	}
	return nil
}

const tooMuch = "too much in it may be a command line of its own"

func (s *spent) over() bool { return s.texts > maxTexts || s.bytes > maxTextBytes }

// firstLines are the first lines of a text.
func firstLines(src string, n int) string {
	lines := strings.SplitAfterN(src, "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "")
}

func same(a, b Simple) bool {
	return a.Form == b.Form && a.Opaque == b.Opaque && a.Unseen == b.Unseen && slices.Equal(a.Words, b.Words) && slices.Equal(a.Assigns, b.Assigns) &&
		slices.Equal(a.Redirects, b.Redirects) && slices.Equal(a.Behind, b.Behind)
}

func parse(src string, variant syntax.LangVariant) (_ *syntax.File, err error) {
	defer func() {
		if v := recover(); v != nil { // a defect of the parser is a line we cannot judge
			err = &Error{Reason: fmt.Sprint("the parser failed: ", v)}
		}
	}()
	tree, err := syntax.NewParser(syntax.Variant(variant), syntax.KeepComments(true)).Parse(strings.NewReader(src), "")
	if err == nil {
		if reason := misread(tree, src); reason != "" {
			return nil, &Error{Reason: reason}
		}
		return tree, nil
	}
	if pe, ok := errors.AsType[syntax.ParseError](err); ok {
		return nil, &Error{Line: pe.Pos.Line(), Column: pe.Pos.Col(), Reason: pe.Text}
	}
	if le, ok := errors.AsType[syntax.LangError](err); ok {
		return nil, &Error{Line: le.Pos.Line(), Column: le.Pos.Col(), Reason: "it is not in the shell's language"}
	}
	return nil, &Error{Reason: err.Error()}
}

// walker collects the simple commands of one tree.
type walker struct {
	script *Script
	src    string
	behind []string
	posix  bool // the second reading
	depth  int
	err    error
}

func (w *walker) walk(tree *syntax.File) error {
	syntax.Walk(tree, func(n syntax.Node) bool {
		if n == nil {
			w.depth--
			return true
		}
		if w.err != nil || w.depth >= MaxDepth {
			w.fail(fmt.Sprintf("it is nested more than %d deep", MaxDepth))
			return false
		}
		w.depth++
		w.visit(n)
		return true
	})
	return w.err
}

func (w *walker) fail(reason string) {
	if w.err == nil {
		w.err = &Error{Reason: reason}
	}
}

func (w *walker) visit(n syntax.Node) {
	w.evaluation(n)
	switch n := n.(type) {
	case *syntax.Stmt:
		w.stmt(n)
	case *syntax.ForClause:
		if it, ok := n.Loop.(*syntax.WordIter); ok {
			if obeyed(it.Name.Value, false) {
				w.add(Simple{Form: Assignment, Assigns: []Assign{{Name: it.Name.Value, Value: Word{Text: "…"}}}})
			}
			for _, item := range it.Items {
				w.loosen(item)
			}
		} else {
			w.expression(n)
		}
	case *syntax.CaseClause:
		w.loosen(n.Word)
		for _, item := range n.Items {
			for _, p := range item.Patterns {
				w.loosenExpansions(p)
			}
		}
	case *syntax.TestClause:
		w.test(n)
	}
}

// stmt adds what a statement starts by itself.
func (w *walker) stmt(n *syntax.Stmt) {
	redirects := w.redirects(n.Redirs)
	w.descriptors(n.Redirs)
	c := Simple{Redirects: redirects}
	switch cmd := n.Cmd.(type) {
	case *syntax.CallExpr:
		for _, word := range cmd.Args {
			c.Words = append(c.Words, w.word(word))
		}
		c.Assigns = w.assigns(cmd.Assigns)
	case *syntax.DeclClause:
		c.Words = append(c.Words, Word{Text: cmd.Variant.Value, Literal: true})
		for _, a := range cmd.Args {
			c.Words = append(c.Words, w.declared(a))
		}
	case *syntax.ArithmCmd, *syntax.LetClause:
		w.expression(cmd)
	}
	if len(c.Words) == 0 {
		switch {
		case slices.ContainsFunc(c.Assigns, func(a Assign) bool { return obeyed(a.Name, false) }):
			c.Form = Assignment
		case len(c.Redirects) > 0:
			c.Form = Redirection
		default:
			if len(c.Assigns) == 0 || !c.Unresolved() {
				return
			}
			c.Form = Assignment
		}
	}
	w.start(c, n.Redirs)
}

// add lists a command.
func (w *walker) add(c Simple) {
	if len(w.script.simple) >= MaxSimple {
		w.fail(fmt.Sprintf("it has more than %d simple commands", MaxSimple))
		return
	}
	c.Behind = slices.Clone(w.behind)
	w.script.simple = append(w.script.simple, c)
}

// loose lists an expansion outside of simple commands.
func (w *walker) loose(text string) {
	w.add(Simple{Words: []Word{{Text: text}}})
}

// descriptors lists the variables that redirections set: {name}>file.
func (w *walker) descriptors(list []*syntax.Redirect) {
	for _, r := range list {
		if r.N == nil || !strings.HasPrefix(r.N.Value, "{") {
			continue
		}
		name := strings.Trim(r.N.Value, "{}")
		switch {
		case !identifier.MatchString(name):
			w.expression(r)
		case obeyed(name, false):
			w.add(Simple{Form: Assignment, Assigns: []Assign{{Name: name, Value: Word{Text: "…"}}}})
		}
	}
}

func (w *walker) loosen(word *syntax.Word) {
	if word == nil {
		return
	}
	if v := w.word(word); !v.Literal {
		w.loose(v.Text)
	}
}

// loosenExpansions is loosen for a pattern, whose stars are its own.
func (w *walker) loosenExpansions(word *syntax.Word) {
	if expands(word) {
		w.loose(w.source(word))
	}
}

// expression adds arithmetic: the shell evaluates what its variables hold, and
// a subscript in them may start commands.
func (w *walker) expression(n syntax.Node) {
	w.add(Simple{Form: Expression, Words: []Word{{Text: w.source(n)}}})
}

// test looks at what [[ ]] expands.
func (w *walker) test(n *syntax.TestClause) {
	var evaluated, expanded bool
	syntax.Walk(n.X, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.UnaryTest:
			evaluated = evaluated || n.Op == syntax.TsVarSet || n.Op == syntax.TsRefVar
		case *syntax.BinaryTest:
			switch n.Op {
			case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
				evaluated = true
			}
		case *syntax.Word:
			expanded = expanded || expands(n)
			return false
		}
		return true
	})
	switch {
	case evaluated:
		w.expression(n)
	case expanded:
		w.loose(w.source(n))
	}
}

// source is a node as it is written, in one line.
func (w *walker) source(n syntax.Node) string {
	from, to := int(n.Pos().Offset()), int(n.End().Offset())
	if from < 0 || to > len(w.src) || from >= to {
		return "…"
	}
	return strings.Join(strings.Fields(w.src[from:to]), " ")
}
