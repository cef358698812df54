package command

import (
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "rbash", "csh", "tcsh"}

// shell adds a shell and what stands in the string or document it is given.
func (w *walker) shell(c Simple, redirects []*syntax.Redirect) {
	c.Form, c.Opaque = Shell, true
	code, file, profile, known := shellArguments(c.Words)
	if !known {
		w.fail("an option of " + c.Name() + " is not known, and another may say what it runs")
		return
	}
	if file != "" {
		c.Executes = []string{file}
	}
	for _, r := range c.Redirects {
		if code == nil && file == "" && r.Op == "<" && r.Target.Literal {
			c.Executes = append(c.Executes, r.Target.Text)
		}
	}
	document := ""
	if code == nil && file == "" && len(c.Words) == 1 {
		document = quotedDocument(redirects)
	}
	if code != nil && code.Literal {
		c.Opaque = profile // which run files of the user's first
		w.add(c)
		w.nested(code.Text, c.Name())
		return
	}
	if document != "" {
		c.Opaque = false
		w.add(c)
		w.nested(document, c.Name())
		return
	}
	w.add(c)
}

// shellArguments finds what follows -c, or the script's file, and whether files
// of the user's run first. An option that it does not know makes it find neither,
// and known is false when there may be a string that it does not see.
func shellArguments(words []Word) (code *Word, file string, profile, known bool) {
	given, standard := false, false
	for i := 1; i < len(words); i++ {
		word := words[i]
		t := word.Text
		switch {
		case !word.Literal && !given:
			return nil, "", true, !slices.ContainsFunc(words[i+1:], mayGive)
		case word.Literal && (t == "--" || t == "-"):
			if i++; i >= len(words) {
				return nil, "", profile, true
			}
			word = words[i]
			t = word.Text
		case t == "--norc", t == "--noprofile", t == "--posix", t == "--verbose", t == "--noediting":
			continue
		case t == "--login":
			profile = true
			continue
		case t == "--rcfile", t == "--init-file":
			profile = true
			i++
			continue
		case word.Literal && shellOptions.MatchString(t):
			given = given || t[0] == '-' && strings.Contains(t, "c")
			standard = standard || strings.Contains(t, "s")
			profile = profile || strings.ContainsAny(t, "li")
			i += strings.Count(t, "o") + strings.Count(t, "O")
			continue
		case strings.HasPrefix(t, "-"), strings.HasPrefix(t, "+"):
			return nil, "", true, !given && !slices.ContainsFunc(words[i:], mayGive)
		}
		switch {
		case given:
			return &word, "", profile, true
		case standard || !word.Literal:
			return nil, "", profile, true
		}
		return nil, t, profile, true
	}
	return nil, "", profile, true
}

// mayGive reports whether a word may be an option with which a shell is given a
// string.
func mayGive(w Word) bool {
	return !w.Literal || strings.HasPrefix(w.Text, "-") && !strings.HasPrefix(w.Text, "--") && strings.Contains(w.Text, "c")
}

var shellOptions = regexp.MustCompile(`^[-+][a-zA-Z]+$`)

// quotedDocument is what a shell reads from a here-document in which nothing is
// expanded or unescaped, when nothing else is its standard input.
func quotedDocument(redirects []*syntax.Redirect) string {
	if len(redirects) != 1 || redirects[0].Op != syntax.Hdoc || redirects[0].Hdoc == nil || redirects[0].N != nil || !quotedWord(redirects[0].Word) {
		return ""
	}
	return redirects[0].Hdoc.Lit()
}

// nested reads a string that a shell is given.
func (w *walker) nested(code, behind string) {
	if w.err != nil {
		return
	}
	as := bothShells
	switch {
	case w.posix && strings.HasSuffix(behind, "bash"):
		as = bashOnly
	case w.posix:
		as = posixOnly
	}
	err := w.script.read(code, append(slices.Clone(w.behind), path.Base(behind)), as)
	if e, ok := errors.AsType[*Error](err); ok {
		w.err = &Error{Reason: "in what " + path.Base(behind) + " is given: " + e.Reason}
	}
}

// codeBuiltins take the shell's own language, or a file of it.
var codeBuiltins = map[string]bool{"eval": true, "source": true, ".": true, "trap": true, "alias": true, "enable": true, "mapfile": true, "readarray": true, "complete": true, "compgen": true, "bind": true}

// code adds a builtin that takes commands as text.
func (w *walker) code(c Simple) {
	c.Form, c.Opaque = Shell, true
	argv, literal := c.Argv()
	var code string
	found := false
	if literal {
		name, args := argv[0], argv[1:]
		if len(args) > 0 && args[0] == "--" {
			args = args[1:]
		}
		option := len(args) > 0 && len(args[0]) > 1 && strings.HasPrefix(args[0], "-")
		switch {
		case name == "eval" && !option:
			code, found = strings.Join(args, " "), true
		case name == "trap" && len(args) > 1 && !option && args[0] != "-":
			code, found = args[0], true
		case name == "trap":
			// It resets, or lists.
			c.Opaque = option && len(argv) > 1 && !slices.Contains([]string{"-p", "-l", "-P"}, argv[1])
		case (name == "source" || name == ".") && len(args) > 0 && !option:
			c.Executes = []string{args[0]}
		}
	}
	c.Opaque = c.Opaque && !found
	w.add(c)
	if found {
		w.nested(code, argv[0])
	}
	for _, word := range c.Words[1:] {
		if _, value, is := strings.Cut(word.Text, "="); is && word.Literal && path.Base(c.Name()) == "alias" {
			w.glimpse(value, "alias")
		}
	}
}
