package command

import (
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// doubtful says why a line cannot be trusted to be read as a shell reads it, ""
// when nothing of that kind is in it. A byte that shells and the parser do not
// agree on makes a line that nobody can judge.
func doubtful(src string) string {
	for i := range len(src) {
		switch c := src[i]; {
		case c == 0:
			return "it holds a NUL, which no argument can"
		case c == '\r':
			return "it holds a carriage return, which shells do not take for the end of a line"
		case c == 1 || c == '\v' || c == '\f' || c == 0x7f:
			return "it holds a control character that shells use or skip"
		}
	}
	return ""
}

// misread looks for what a tree shows to be otherwise to a shell than to the
// parser.
func misread(tree *syntax.File, src string) (reason string) {
	delimiters, open, comments := map[string]int{}, map[string]bool{}, false
	say := func(s string) {
		if reason == "" {
			reason = s
		}
	}
	quoted := 0 // depth of double quotes and here-documents
	var stack []bool
	syntax.Walk(tree, func(n syntax.Node) bool {
		if n == nil {
			if stack[len(stack)-1] {
				quoted--
			}
			stack = stack[:len(stack)-1]
			return true
		}
		opens := false
		switch n := n.(type) {
		case *syntax.Comment:
			comments = true
		case *syntax.CoprocClause:
			if n.Name != nil && !compound(n.Stmt) {
				say("shells do not agree on the name of its coprocess")
			}
		case *syntax.CallExpr:
			if len(n.Args) > 0 && assignment.MatchString(n.Args[0].Lit()) {
				say("shells do not agree on an assignment before its command")
			}
		case *syntax.TimeClause:
			if n.Stmt != nil {
				if call, ok := n.Stmt.Cmd.(*syntax.CallExpr); ok && len(call.Assigns) == 0 && len(call.Args) > 0 && !plainStart(call.Args[0]) {
					say("what time is given begins with an option")
				}
			}
		case *syntax.Redirect:
			if n.Op == syntax.Hdoc || n.Op == syntax.DashHdoc {
				delimiter, expanded, document := hereDocument(n)
				if document != "" {
					say(document)
				}
				delimiters[delimiter]++
				open[delimiter] = open[delimiter] || expanded
			}
		case *syntax.DblQuoted:
			opens = true
		case *syntax.ParamExp:
			if quoted > 0 && quotesWithin(n) {
				say("shells do not agree on quotes in a variable's expansion within double quotes")
			}
		}
		if opens {
			quoted++
		}
		stack = append(stack, opens)
		return true
	})
	if comments && continuedComment.MatchString(src) {
		say("a comment may end in a backslash")
	}
	for delimiter, n := range delimiters {
		if reason == "" {
			say(ends(src, delimiter, n, open[delimiter]))
		}
	}
	return reason
}

// continuedComment is a line with a number sign that ends in a backslash.
var continuedComment = regexp.MustCompile(`#[^\n]*\\(\n|$)`)

// compound reports whether a statement is a compound command.
func compound(s *syntax.Stmt) bool {
	if s == nil {
		return false
	}
	switch s.Cmd.(type) {
	case *syntax.Block, *syntax.Subshell, *syntax.IfClause, *syntax.WhileClause, *syntax.ForClause, *syntax.CaseClause:
		return true
	}
	return false
}

// plainStart reports whether a word does not begin with a dash.
func plainStart(n *syntax.Word) bool {
	lit, ok := n.Parts[0].(*syntax.Lit)
	return !ok || !strings.HasPrefix(lit.Value, "-") && !strings.HasPrefix(lit.Value, `\`)
}

var plainDelimiter = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

// hereDocument returns a here-document's delimiter, whether the document is
// expanded, and why its end is doubtful.
func hereDocument(r *syntax.Redirect) (delimiter string, open bool, reason string) {
	open = true
	if len(r.Word.Parts) == 1 {
		switch p := r.Word.Parts[0].(type) {
		case *syntax.Lit:
			delimiter = p.Value
		case *syntax.SglQuoted:
			if !p.Dollar {
				delimiter, open = p.Value, false
			}
		case *syntax.DblQuoted:
			if !p.Dollar && len(p.Parts) == 1 {
				if l, ok := p.Parts[0].(*syntax.Lit); ok {
					delimiter, open = l.Value, false
				}
			}
		}
	}
	switch {
	case !plainDelimiter.MatchString(delimiter):
		return delimiter, open, "the delimiter of a here-document is not a plain word"
	case open && r.Hdoc != nil && spans(r.Hdoc):
		return delimiter, open, "an expansion in a here-document goes over several lines, or has quotes"
	}
	return delimiter, open, ""
}

// spans reports whether an expansion of a here-document goes over several
// lines, or has single quotes of its own.
func spans(doc *syntax.Word) bool {
	found := false
	syntax.Walk(doc, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ParamExp:
			found = found || n.Pos().Line() != n.End().Line() || quotesWithin(n)
		case *syntax.CmdSubst, *syntax.ArithmExp, *syntax.ProcSubst:
			found = found || n.Pos().Line() != n.End().Line()
		}
		return true
	})
	return found
}

// quotesWithin reports whether ${…} holds single quotes, which shells take for
// quotes or for characters, as they please, where it stands in double quotes.
func quotesWithin(n *syntax.ParamExp) bool {
	found := false
	syntax.Walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.SglQuoted:
			found = true
		case *syntax.Lit:
			found = found || strings.Contains(n.Value, "'")
		case *syntax.CmdSubst, *syntax.DblQuoted:
			return false
		}
		return true
	})
	return found
}

// ends looks for lines that may end a document early, or not at all: each of the
// documents of that delimiter has one line that does. In one that is expanded a
// backslash joins lines.
func ends(src, delimiter string, documents int, open bool) string {
	if !plainDelimiter.MatchString(delimiter) {
		return ""
	}
	found, continued := 0, false
	for line := range strings.Lines(src) {
		line = strings.TrimLeft(strings.TrimSuffix(line, "\n"), "\t")
		rest, is := strings.CutPrefix(line, delimiter)
		switch {
		case is && rest == "" && continued, is && strings.Trim(rest, " \t") != "" && !wordCharacter(strings.TrimLeft(rest, " \t")[0]):
			return "it is doubtful where a here-document ends"
		case is && rest == "":
			found++
		}
		kept, more := strings.CutSuffix(line, `\`)
		more = more && open
		if more && strings.HasPrefix(delimiter, kept) {
			return "it is doubtful where a here-document ends"
		}
		continued = more
	}
	if found != documents {
		return "it is doubtful where a here-document ends"
	}
	return ""
}

func wordCharacter(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}
