// Package command reads a shell command line as a syntax tree, without running
// any of it: which simple commands stand in it, behind what, and whether it is
// known to change nothing.
//
// The line is read as bash reads it and, where they differ, as a POSIX shell
// does, too: what either would run is listed. Nothing is guessed. A word whose
// value is known only at execution (a variable, a substitution, a pattern of
// file names) is not literal; a program that runs others is listed, and so is
// what it runs where that can be seen; what cannot be parsed is an error, and
// its effect [Unknown].
package command

import (
	"path"
	"slices"
	"strings"
)

// Bounds of what is read. Beyond them Parse returns an *Error.
const (
	MaxBytes  = 128 << 10 // of one command line
	MaxDepth  = 200       // of its syntax tree
	MaxNested = 8         // shells within shells: sh -c "sh -c …"
	MaxSimple = 2000      // simple commands
)

// Bounds of all texts that are read for one line: itself, what shells in it are
// given, and words that may be command lines.
const (
	maxTexts     = 4 * MaxSimple
	maxTextBytes = 8 * MaxBytes
)

// Script is a command line that was read. It is immutable.
type Script struct {
	simple []Simple
	spent  *spent
}

// spent is what reading one line has taken so far.
type spent struct{ texts, bytes int }

// Simple is one simple command: the words of one program's or builtin's start,
// or what acts like one.
type Simple struct {
	// Words are the command and its arguments, without assignments and
	// redirections. Empty where there is nothing but those.
	Words []Word
	// Assigns stand in front of it, or in its place.
	Assigns []Assign
	// Redirects are its own, and where Words and Assigns are empty those of a
	// compound command.
	Redirects []Redirect
	// Form says what it is besides a plain program.
	Form Form
	// Opaque is true when it runs something that is not listed beside it: a
	// script's file, what arrives on standard input, a program in another
	// language, words known only at execution.
	Opaque bool
	// Unseen is true when its words have it start what is not listed, though it is
	// no program that does so by its nature: git -c, tar --checkpoint-action, the
	// programs of sed and awk.
	Unseen bool
	// Behind are the names of what this stands behind, outermost first: "sh",
	// "xargs", "find". Empty for what the shell itself starts.
	Behind []string
	// Executes are the files this reads as a program, as they are written:
	// "./build.sh", "tools/gen.py", "Makefile".
	Executes []string
}

// Form is what a simple command is besides a plain program.
type Form string

// The forms. What runs something else matches only rules written for it.
const (
	Plain       Form = ""
	Shell       Form = "shell"       // sh -c, eval, source, trap
	Wrapper     Form = "wrapper"     // env, xargs, find -exec, timeout, sudo, command, and what is Unseen
	Interpreter Form = "interpreter" // python, node, perl, awk
	Redirection Form = "redirect"    // no words: files a compound command, or none, writes or reads
	Assignment  Form = "assignment"  // no words: a variable that programs obey, such as PATH, or one whose value is known only at execution
	Expression  Form = "expression"  // arithmetic, which may evaluate what variables hold
)

// Word is one word of a command.
type Word struct {
	// Text is the word's value when it is Literal, else its source.
	Text string
	// Literal is true when the value is known without running anything.
	Literal bool
}

// Assign is one assignment.
type Assign struct {
	Name string
	// Value is not literal for arrays and +=, either.
	Value Word
}

// Redirect is one redirection.
type Redirect struct {
	Op     string // as written: ">", ">>", "<", "&>", "<<<"
	Target Word   // empty for here-documents
	// Writes is true unless it is known to change no file.
	Writes bool
}

// Error says why a command line cannot be judged.
type Error struct {
	Line, Column uint // from 1; 0 where there is no place
	Reason       string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return "command: " + e.Reason
	}
	return "command: line " + decimal(e.Line) + ", column " + decimal(e.Column) + ": " + e.Reason
}

// Simple lists every simple command, in the order of the source. What stands in
// a string that a shell is given comes after the shell.
func (s *Script) Simple() []Simple { return slices.Clone(s.simple) }

// Argv is the command and its arguments when all of them are literal.
func (c *Simple) Argv() ([]string, bool) {
	argv := make([]string, len(c.Words))
	for i, w := range c.Words {
		if !w.Literal {
			return nil, false
		}
		argv[i] = w.Text
	}
	return argv, len(argv) > 0
}

// Unresolved reports whether something of the command is known only at
// execution.
func (c *Simple) Unresolved() bool {
	return slices.ContainsFunc(c.Words, func(w Word) bool { return !w.Literal }) ||
		slices.ContainsFunc(c.Assigns, func(a Assign) bool { return !a.Value.Literal }) ||
		slices.ContainsFunc(c.Redirects, func(r Redirect) bool { return !r.Target.Literal })
}

// Hidden reports whether something of what the command does is not to be seen:
// it is unresolved, or starts what is neither listed nor named.
func (c *Simple) Hidden() bool { return c.Unresolved() || c.StartsUnnamed() }

// StartsUnnamed reports whether the command is unseen, or a shell or a wrapper
// that starts what is not listed beside it and stands in no file that is known.
func (c *Simple) StartsUnnamed() bool {
	return c.Unseen || c.Opaque && (c.Form == Shell || c.Form == Wrapper) && len(c.Executes) == 0
}

// Writes reports whether one of its redirections may change a file.
func (c *Simple) Writes() bool {
	return slices.ContainsFunc(c.Redirects, func(r Redirect) bool { return r.Writes })
}

// Name is the program's name: without its directory when that is one of the
// system's, so that /bin/rm and rm are one program and ./rm is another. Empty
// when it is not literal.
func (c *Simple) Name() string {
	if len(c.Words) == 0 || !c.Words[0].Literal {
		return ""
	}
	return programName(c.Words[0].Text)
}

// Obeyed are the names of the variables assigned in front of the command that
// programs or the shell obey: PATH, LD_PRELOAD, PAGER and everything that is not known
// to be harmless.
func (c *Simple) Obeyed() []string {
	var names []string
	for _, a := range c.Assigns {
		if obeyed(a.Name, len(c.Words) > 0) {
			names = append(names, a.Name)
		}
	}
	return names
}

// String is the command in one line, for people: quoted where it needs to be,
// and what is not literal as it is written.
func (c *Simple) String() string {
	var b strings.Builder
	put := func(s string) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(s)
	}
	for _, a := range c.Assigns {
		put(a.Name + "=" + a.Value.String())
	}
	for _, w := range c.Words {
		put(w.String())
	}
	for _, r := range c.Redirects {
		put(r.Op + r.Target.String())
	}
	return b.String()
}

// String is the word as a shell would have to read it.
func (w Word) String() string {
	if w.Literal {
		return Quote(w.Text)
	}
	return w.Text
}

// Quote makes one word of a shell command, which every shell reads as exactly s.
// s must not hold a NUL.
func Quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:,@%") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// systemDirs are where programs of one name are the same program.
var systemDirs = []string{"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin"}

func programName(word string) string {
	if dir, base := path.Split(path.Clean(word)); dir != "" && slices.Contains(systemDirs, path.Clean(dir)) {
		return base
	}
	return word
}
