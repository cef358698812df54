package command

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// word reads a word. It is literal when no expansion of any kind has a part in
// it: of variables, commands, file names, braces, or home directories. That is
// judged over the whole word, because quotes within do not end it.
func (w *walker) word(n *syntax.Word) Word {
	var b strings.Builder
	for i, p := range n.Parts {
		text, ok := literalPart(p, n, i)
		if !ok {
			return Word{Text: w.source(n)}
		}
		b.WriteString(text)
	}
	return Word{Text: b.String(), Literal: true}
}

func literalPart(p syntax.WordPart, of *syntax.Word, i int) (string, bool) {
	switch p := p.(type) {
	case *syntax.Lit:
		if i+1 < len(of.Parts) && strings.HasSuffix(p.Value, "$") {
			return "", false
		}
		return unquoted(p.Value, len(of.Parts) == 1)
	case *syntax.SglQuoted:
		return p.Value, !p.Dollar // a shell without $'…' keeps the dollar
	case *syntax.DblQuoted:
		if p.Dollar { // translated
			return "", false
		}
		var b strings.Builder
		for _, q := range p.Parts {
			lit, ok := q.(*syntax.Lit)
			if !ok {
				return "", false
			}
			b.WriteString(doubleQuoted(lit.Value))
		}
		return b.String(), true
	}
	return "", false
}

// unquoted is the value of text outside of quotes, which may be the whole word.
func unquoted(s string, whole bool) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\\':
			if i++; i == len(s) {
				b.WriteByte(c)
			} else if s[i] != '\n' {
				b.WriteByte(s[i])
			}
			continue
		case '*', '?', '(', ')', '`':
			return "", false
		case '[':
			if !whole || len(s) > 1 { // [ alone is a command
				return "", false
			}
		case '{':
			if !whole || s != "{}" && s != "{" {
				return "", false
			}
		case '~':
			if i == 0 || s[i-1] == ':' || s[i-1] == '=' || s[i-1] == '\n' {
				return "", false
			}
		}
		b.WriteByte(s[i])
	}
	return b.String(), true
}

// doubleQuoted is the value of text within double quotes.
func doubleQuoted(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			switch s[i+1] {
			case '$', '`', '"', '\\':
				i++
			case '\n':
				i++
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// expands reports whether a word holds an expansion of variables or commands.
func expands(n *syntax.Word) bool {
	found := false
	syntax.Walk(n, func(n syntax.Node) bool {
		switch n.(type) {
		case *syntax.ParamExp, *syntax.CmdSubst, *syntax.ArithmExp, *syntax.ProcSubst:
			found = true
		}
		return !found
	})
	return found
}

func (w *walker) assigns(list []*syntax.Assign) []Assign {
	var out []Assign
	for _, a := range list {
		out = append(out, w.assign(a))
	}
	return out
}

func (w *walker) assign(a *syntax.Assign) Assign {
	out := Assign{Value: Word{Text: "…"}}
	if a.Name != nil {
		out.Name = a.Name.Value
	}
	switch {
	case a.Append || a.Index != nil || a.Array != nil:
		out.Value.Text = w.source(a)
	case a.Value == nil:
		out.Value = Word{Literal: true}
	default:
		out.Value = w.word(a.Value)
	}
	return out
}

// declared is one argument of export, local and their like, as a word.
func (w *walker) declared(a *syntax.Assign) Word {
	switch {
	case a.Naked && a.Name != nil && a.Index == nil:
		return Word{Text: a.Name.Value, Literal: true}
	case a.Naked && a.Name == nil && a.Value != nil:
		return w.word(a.Value)
	}
	if v := w.assign(a); v.Value.Literal {
		return Word{Text: v.Name + "=" + v.Value.Text, Literal: true}
	}
	return Word{Text: w.source(a)}
}

func (w *walker) redirects(list []*syntax.Redirect) []Redirect {
	var out []Redirect
	for _, r := range list {
		out = append(out, w.redirect(r))
	}
	return out
}

func (w *walker) redirect(r *syntax.Redirect) Redirect {
	out := Redirect{Op: r.Op.String(), Writes: true}
	if r.N != nil {
		out.Op = r.N.Value + out.Op
	}
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		out.Target, out.Writes = Word{Literal: true}, false
		if r.Hdoc != nil && expands(r.Hdoc) && !quotedWord(r.Word) {
			out.Target = Word{Text: w.source(r.Word)}
		}
		return out
	}
	out.Target = w.word(r.Word)
	to := out.Target.Text
	switch r.Op {
	case syntax.WordHdoc:
		out.Writes = false
	case syntax.RdrIn:
		// bash opens a connection for such a name, and where it does not it is
		// no file that reading could not change.
		out.Writes = !out.Target.Literal || strings.HasPrefix(to, "/dev/tcp/") || strings.HasPrefix(to, "/dev/udp/")
	case syntax.DplIn:
		out.Writes = !out.Target.Literal
	case syntax.DplOut:
		out.Writes = !out.Target.Literal || to != "-" && strings.Trim(to, "0123456789") != ""
		if out.Target.Literal && to == "/dev/null" {
			out.Writes = false
		}
	default:
		if out.Target.Literal && slices.Contains(harmlessFiles, to) && r.Op != syntax.RdrInOut {
			out.Writes = false
		}
	}
	return out
}

// harmlessFiles may be written to: nothing is kept.
var harmlessFiles = []string{"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2", "/dev/tty"}

// quotedWord reports whether a here-document's delimiter is quoted, so that
// nothing in the document is expanded.
func quotedWord(n *syntax.Word) bool {
	for _, p := range n.Parts {
		switch p := p.(type) {
		case *syntax.SglQuoted, *syntax.DblQuoted:
			return true
		case *syntax.Lit:
			if strings.Contains(p.Value, `\`) {
				return true
			}
		}
	}
	return false
}
