package command

import (
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// start adds a command, and what it starts in turn where that can be seen.
func (w *walker) start(c Simple, redirects []*syntax.Redirect) {
	name := c.Name()
	base := path.Base(name)
	switch {
	case w.posix && len(c.Words) > 0 && slices.Contains(bashWords, c.Words[0].Text):
		// A POSIX shell takes bash's keyword for a program's name, which none has.
	case name == "":
		c.Opaque = len(c.Words) > 0
		w.add(c)
	case slices.Contains(shells, base):
		w.shell(c, redirects)
	case codeBuiltins[base]:
		w.code(c)
	case interpreter.MatchString(base):
		w.interpreter(c)
	case wrappers[base] != nil:
		w.wrapper(c, wrappers[base])
	case base == "find" || base == "fd" || base == "fdfind":
		w.find(c)
	default:
		c.Executes = executes(c)
		w.add(c)
	}
}

// bashWords are keywords of bash and of no other shell. What follows them is
// listed as bash reads it.
var bashWords = []string{"[[", "time", "coproc", "function", "select", "let"}

var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "rbash", "busybox", "toybox"}

// shell adds a shell and what stands in the string or document it is given.
func (w *walker) shell(c Simple, redirects []*syntax.Redirect) {
	c.Form, c.Opaque = Shell, true
	code, file := shellArguments(c.Words)
	if file != "" {
		c.Executes = []string{file}
	}
	document := ""
	if code == nil && file == "" && len(c.Words) == 1 {
		document = quotedDocument(redirects)
	}
	if code != nil && code.Literal {
		c.Opaque = profiles(c.Words) // which run files of the user's first
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

// shellArguments finds what follows -c, or the script's file. Options it does
// not know make it find neither.
func shellArguments(words []Word) (code *Word, file string) {
	for i := 1; i < len(words); i++ {
		word := words[i]
		if !word.Literal {
			return nil, ""
		}
		switch t := word.Text; {
		case t == "--norc", t == "--noprofile", t == "--posix":
		case t == "-o" || t == "+o":
			i++
		case shellOptions.MatchString(t):
			if strings.Contains(t, "c") {
				if i++; i < len(words) && (!words[i].Literal || !strings.HasPrefix(words[i].Text, "-")) {
					return &words[i], ""
				}
				return nil, ""
			}
		case strings.HasPrefix(t, "-"), strings.HasPrefix(t, "+"):
			return nil, ""
		default:
			return nil, t
		}
	}
	return nil, ""
}

// profiles reports whether a shell is told to be a login shell or interactive.
func profiles(words []Word) bool {
	return slices.ContainsFunc(words[1:], func(w Word) bool {
		return strings.HasPrefix(w.Text, "-") && !strings.HasPrefix(w.Text, "--") && shellOptions.MatchString(w.Text) && strings.ContainsAny(w.Text, "li")
	})
}

var shellOptions = regexp.MustCompile(`^[-+][abcefhiuvxlkmnptBCE]+$`)

// quotedDocument is what a shell reads from a here-document in which nothing is
// expanded, when nothing else is its standard input.
func quotedDocument(redirects []*syntax.Redirect) string {
	if len(redirects) != 1 || redirects[0].Hdoc == nil || redirects[0].N != nil || expands(redirects[0].Hdoc) {
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
	switch {
	case !literal:
	case argv[0] == "eval":
		code, found = strings.Join(argv[1:], " "), true
	case argv[0] == "trap" && len(argv) > 2 && !strings.HasPrefix(argv[1], "-"):
		code, found = argv[1], true
	case argv[0] == "trap":
		c.Opaque = false // it resets, or lists
	case argv[0] == "source" || argv[0] == ".":
		if len(argv) > 1 {
			c.Executes = []string{argv[1]}
		}
	}
	c.Opaque = c.Opaque && !found
	w.add(c)
	if found {
		w.nested(code, argv[0])
	}
}

// interpreter programs run a language of their own.
var interpreter = regexp.MustCompile(`^(python|pypy|node|nodejs|deno|bun|ruby|perl|php|lua|luajit|tclsh|expect|Rscript|R|julia|groovy|scala|osascript|pwsh|powershell|guile|racket|sbcl|ghci|runghc|elixir|erl|escript|iex|swipl|octave|gawk|mawk|awk|nawk|original-awk|java|jshell|gdb|lldb|ed|ex|vi|vim|nvim|emacs|m4|bpftrace|dtrace)(-?[0-9.]*)?$`)

// interpreter adds an interpreter, and the file it is given. What that does is
// out of sight.
func (w *walker) interpreter(c Simple) {
	c.Form, c.Opaque = Interpreter, true
	for _, word := range c.Words[1:] {
		if !word.Literal || word.Text == "-c" || word.Text == "-e" || word.Text == "-m" || word.Text == "-E" {
			break
		}
		if !strings.HasPrefix(word.Text, "-") {
			if strings.Contains(word.Text, ".") || strings.Contains(word.Text, "/") {
				c.Executes = []string{word.Text}
			}
			break
		}
	}
	w.add(c)
}

// wrapped says how a wrapper's own arguments end.
type wrapped struct {
	valued   string // single-letter options that take a value
	long     string // long options that take a value as the next word, "|" around each
	operands int    // words of its own before the command
	assigns  bool   // NAME=VALUE may stand before the command
	appends  bool   // adds words of its own to the command
	unseen   string // options, "|" around each, with which nothing is seen
	alone    bool   // without a command it starts nothing
	shell    bool   // it hands the words to a shell
}

// wrappers start the program that is their argument.
var wrappers = map[string]*wrapped{
	"env":         {valued: "uC", long: "|--unset|--chdir|", assigns: true, unseen: "|-S|--split-string|", alone: true},
	"command":     {unseen: "", alone: true},
	"builtin":     {alone: true},
	"exec":        {valued: "a", alone: true},
	"nohup":       {},
	"nice":        {valued: "n", long: "|--adjustment|", alone: true},
	"ionice":      {valued: "cnpPu", long: "|--class|--classdata|--pid|"},
	"chrt":        {operands: 1, valued: "TPDp"},
	"taskset":     {operands: 1},
	"timeout":     {valued: "ks", long: "|--kill-after|--signal|", operands: 1},
	"time":        {valued: "fo", long: "|--format|--output|"},
	"stdbuf":      {valued: "ioe", long: "|--input|--output|--error|"},
	"unbuffer":    {},
	"setsid":      {},
	"setarch":     {operands: 1},
	"sudo":        {valued: "ugpCTRDrtUh", long: "|--user|--group|--prompt|--chdir|--chroot|", assigns: true, unseen: "|-s|-i|-e|--shell|--login|--edit|"},
	"doas":        {valued: "uC", unseen: "|-s|"},
	"xargs":       {valued: "adEIiLlnPs", long: "|--arg-file|--delimiter|--max-args|--max-procs|--max-lines|--max-chars|--replace|--eof|", appends: true, alone: true},
	"parallel":    {appends: true, unseen: "", valued: "jIa", shell: true},
	"strace":      {valued: "eopsuaEPSXO"},
	"ltrace":      {valued: "eopsuaEnl"},
	"chroot":      {operands: 1},
	"unshare":     {valued: "SGRw"},
	"nsenter":     {valued: "tSGN"},
	"flock":       {operands: 1, valued: "wE", unseen: "|-c|--command|"},
	"watch":       {valued: "nq", shell: true},
	"script":      {unseen: "|-c|--command|", operands: 1},
	"su":          {unseen: "|-c|--command|", operands: 1},
	"runuser":     {valued: "ugG", unseen: "|-c|--command|"},
	"ssh":         {operands: 1, valued: "BbcDEeFIiJLlmOoPpQRSWw", shell: true},
	"firejail":    {},
	"bwrap":       {},
	"systemd-run": {valued: "pEuGH"},
	"entr":        {appends: true},
	"valgrind":    {},
}

// wrapper adds a wrapper and what it starts.
func (w *walker) wrapper(c Simple, how *wrapped) {
	c.Form = Wrapper
	inner, assigns, seen := how.inner(c.Words)
	name := path.Base(c.Name())
	lookup := name == "command" && len(c.Words) > 1 && (c.Words[1].Text == "-v" || c.Words[1].Text == "-V")
	if lookup {
		c.Form = Plain
		w.add(c)
		return
	}
	c.Opaque = !seen || len(inner) == 0 && !how.alone
	c.Assigns = append(c.Assigns, assigns...)
	w.add(c)
	if !seen || len(inner) == 0 {
		return
	}
	w.behind = append(slices.Clone(w.behind), name)
	defer func() { w.behind = w.behind[:len(w.behind)-1] }()
	if how.appends {
		inner = append(slices.Clone(inner), Word{Text: "…"})
	}
	if how.shell && len(inner) > 0 {
		if argv, ok := (&Simple{Words: inner}).Argv(); ok {
			w.behind = w.behind[:len(w.behind)-1]
			w.nested(strings.Join(argv, " "), name)
			w.behind = append(w.behind, name)
			return
		}
		w.add(Simple{Form: Shell, Opaque: true, Words: inner})
		return
	}
	w.deeper(Simple{Words: inner})
}

// deeper starts a command that a wrapper starts.
func (w *walker) deeper(c Simple) {
	if len(w.behind) > MaxNested {
		w.fail("more commands start each other than are looked at")
		return
	}
	w.start(c, nil)
}

// inner returns the words of the command that is started. Seen is false when an
// option hides it.
func (h *wrapped) inner(words []Word) (inner []Word, assigns []Assign, seen bool) {
	operands := h.operands
	i := 1
	for ; i < len(words); i++ {
		word := words[i]
		if !word.Literal {
			return nil, nil, false
		}
		t := word.Text
		switch {
		case t == "--":
			i++
			for ; operands > 0 && i < len(words); operands-- {
				i++
			}
			return words[min(i, len(words)):], assigns, true
		case strings.HasPrefix(t, "--"):
			if strings.Contains(h.unseen, "|"+strings.SplitN(t, "=", 2)[0]+"|") {
				return nil, nil, false
			}
			if strings.Contains(h.long, "|"+t+"|") {
				i++
			}
		case strings.HasPrefix(t, "-") && len(t) > 1:
			if hides(h.unseen, t) {
				return nil, nil, false
			}
			if n := strings.IndexAny(t[1:], h.valued); h.valued != "" && n >= 0 && n+2 == len(t) {
				i++
			}
		case h.assigns && assignment.MatchString(t):
			name, value, _ := strings.Cut(t, "=")
			assigns = append(assigns, Assign{Name: name, Value: Word{Text: value, Literal: true}})
		case operands > 0:
			operands--
		default:
			return words[i:], assigns, true
		}
	}
	return nil, assigns, true
}

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// hides reports whether a group of single-letter options holds one of those.
func hides(unseen, group string) bool {
	for _, o := range strings.Split(unseen, "|") {
		if len(o) == 2 && strings.Contains(group[1:], o[1:]) {
			return true
		}
	}
	return false
}

// find adds find, and what its -exec starts.
func (w *walker) find(c Simple) {
	starts := false
	var runs [][]Word
	for i := 0; i < len(c.Words); i++ {
		if !c.Words[i].Literal {
			continue
		}
		switch c.Words[i].Text {
		case "-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch":
			starts = true
			end := i + 1
			for end < len(c.Words) && !(c.Words[end].Literal && (c.Words[end].Text == ";" || c.Words[end].Text == "+")) {
				end++
			}
			runs = append(runs, named(c.Words[i+1:end]))
			i = end
		}
	}
	if starts {
		c.Form = Wrapper
	}
	w.add(c)
	w.behind = append(slices.Clone(w.behind), path.Base(c.Name()))
	defer func() { w.behind = w.behind[:len(w.behind)-1] }()
	for _, words := range runs {
		if len(words) > 0 {
			w.deeper(Simple{Words: words})
		}
	}
}

// named marks the words that stand for the names of the files that were found.
func named(words []Word) []Word {
	out := slices.Clone(words)
	for i := range out {
		if strings.Contains(out[i].Text, "{}") {
			out[i].Literal = false
		}
	}
	return out
}

// executes are the files that a program is known to read as one.
func executes(c Simple) []string {
	if len(c.Words) == 0 {
		return nil
	}
	first := c.Words[0].Text
	var files []string
	if strings.Contains(first, "/") && programName(first) == first {
		files = append(files, first)
	}
	if by, ok := builders[path.Base(first)]; ok {
		files = append(files, by...)
		for i, w := range c.Words[1:] {
			if w.Literal && (w.Text == "-f" || w.Text == "--file") && i+2 < len(c.Words) && c.Words[i+2].Literal {
				files = append(files, c.Words[i+2].Text)
			}
		}
	}
	return files
}

// builders run what stands in a file of a fixed name.
var builders = map[string][]string{
	"make":   {"Makefile", "makefile", "GNUmakefile"},
	"gmake":  {"Makefile", "makefile", "GNUmakefile"},
	"just":   {"justfile", "Justfile"},
	"npm":    {"package.json"},
	"yarn":   {"package.json"},
	"pnpm":   {"package.json"},
	"rake":   {"Rakefile"},
	"task":   {"Taskfile.yml"},
	"tox":    {"tox.ini"},
	"nox":    {"noxfile.py"},
	"cmake":  {"CMakeLists.txt"},
	"meson":  {"meson.build"},
	"gradle": {"build.gradle", "build.gradle.kts"},
	"mvn":    {"pom.xml"},
}
