package command

import (
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
	w.sets(c)
	switch {
	case w.posix && len(c.Words) > 0 && slices.Contains(bashWords, c.Words[0].Text):
		// A POSIX shell takes bash's keyword for a program's name, which none has.
	case name == "":
		c.Opaque = len(c.Words) > 0
		w.add(c)
	case base == "hash" && slices.ContainsFunc(c.Words[1:], func(w Word) bool { return !w.Literal || strings.HasPrefix(w.Text, "-") }),
		strings.Contains(name, "/") && elsewhere.MatchString(path.Clean(name)):
		c.Form, c.Opaque = Shell, true // a name for another program
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
		w.hides(c)
	}
}

// elsewhere are names behind which any program may be.
var elsewhere = regexp.MustCompile(`^/dev/|(^|/)proc/|(^|/)exe$`)

// bashWords are keywords of bash and of no other shell. What follows them is
// listed as bash reads it.
var bashWords = []string{"[[", "time", "coproc", "function", "select", "let"}

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
			c.Executes = []string{word.Text}
			break
		}
	}
	w.hides(c)
}

// wrapped says how a wrapper's own arguments end. An option that is not in it
// hides what follows.
type wrapped struct {
	flags    string // single-letter options without a value
	valued   string // those that take one
	attached string // those whose value, if any, is in the same word
	long     string // long options that take a value as the next word, "|" around each
	plain    string // those that take none, or one after "="
	operands int    // words of its own before the command
	assigns  bool   // NAME=VALUE may stand before the command
	appends  bool   // adds words of its own to the command
	alone    bool   // without a command it starts nothing
	shell    bool   // it hands the words to a shell
	code     bool   // words after the operands may be options, or a shell's code
}

// wrappers start the program that is their argument.
var wrappers = map[string]*wrapped{
	"env":         {flags: "i0v", valued: "uC", long: "|--unset|--chdir|", plain: "|--ignore-environment|--null|--debug|", assigns: true, alone: true},
	"command":     {flags: "pvV", alone: true},
	"builtin":     {alone: true},
	"exec":        {flags: "cl", valued: "a", alone: true},
	"nohup":       {},
	"nice":        {flags: "0123456789", valued: "n", long: "|--adjustment|", alone: true},
	"ionice":      {flags: "t", valued: "cnpPu", long: "|--class|--classdata|--pid|", plain: "|--ignore|"},
	"chrt":        {flags: "abdfiorv", operands: 1, valued: "TPDp"},
	"taskset":     {flags: "ac", operands: 1},
	"timeout":     {flags: "fpv", valued: "ks", long: "|--kill-after|--signal|", plain: "|--foreground|--preserve-status|--verbose|", operands: 1},
	"time":        {flags: "apqvV", valued: "fo", long: "|--format|--output|", plain: "|--append|--portability|--quiet|--verbose|"},
	"stdbuf":      {valued: "ioe", long: "|--input|--output|--error|"},
	"unbuffer":    {flags: "p"},
	"setsid":      {flags: "cfw", plain: "|--ctty|--fork|--wait|"},
	"setarch":     {operands: 1},
	"sudo":        {flags: "AbEHknPSVvB", valued: "ugpCTRDrtUh", long: "|--user|--group|--prompt|--chdir|--chroot|", plain: "|--non-interactive|--preserve-env|--set-home|--stdin|--background|", assigns: true},
	"doas":        {flags: "nL", valued: "uC"},
	"xargs":       {flags: "0oprtx", valued: "adEILnPs", attached: "eil", long: "|--arg-file|--delimiter|--max-args|--max-procs|--max-chars|--process-slot-var|", plain: "|--null|--open-tty|--interactive|--no-run-if-empty|--show-limits|--exit|--verbose|--replace|--eof|--max-lines|", appends: true, alone: true},
	"parallel":    {flags: "0kvt", appends: true, valued: "jIa", shell: true},
	"strace":      {flags: "cCdDfFhiknqrtTvVwxyYzZ", valued: "epsuaEPSXO"},
	"ltrace":      {flags: "bcCfhiLrStTVx", valued: "eopsuaEnl"},
	"chroot":      {operands: 1, plain: "|--userspec|--groups|--skip-chdir|"},
	"unshare":     {flags: "fr", valued: "SGRw"},
	"nsenter":     {valued: "tSGN"},
	"flock":       {flags: "sxeunoFv", operands: 1, valued: "wE", long: "|--timeout|--wait|--conflict-exit-code|", plain: "|--shared|--exclusive|--unlock|--nonblock|--nb|--close|--no-fork|--verbose|", code: true},
	"watch":       {flags: "bcdegptwx", valued: "nq", long: "|--interval|--equexit|", plain: "|--beep|--color|--differences|--errexit|--chgexit|--no-title|--precise|--no-wrap|--exec|", shell: true},
	"script":      {flags: "aefq", operands: 1, code: true},
	"su":          {flags: "lmp", operands: 1, code: true},
	"runuser":     {flags: "lmp", valued: "ugG", code: true},
	"ssh":         {flags: "46AaCfGgKkMNnqsTtVvXxYy", operands: 1, valued: "BbcDEeiJLlmOpPQRSWw", shell: true},
	"firejail":    {},
	"bwrap":       {},
	"systemd-run": {valued: "pEuGH"},
	"entr":        {flags: "acdnprsxz", appends: true},
	"valgrind":    {},
	"busybox":     {},
	"toybox":      {},
}

// wrapper adds a wrapper and what it starts.
func (w *walker) wrapper(c Simple, how *wrapped) {
	c.Form = Wrapper
	inner, assigns, replaced, seen := how.inner(c.Words)
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
	if !seen {
		w.glimpsed(c)
	}
	if !seen || len(inner) == 0 {
		return
	}
	inner = marked(inner, replaced)
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

// glimpsed lists what the words of a wrapper would be as command lines, which
// some of them are: nothing is sure of it, but it may be what a rule forbids.
func (w *walker) glimpsed(c Simple) {
	for _, word := range c.Words[1:] {
		_, value, assigned := strings.Cut(word.Text, "=")
		for _, text := range []string{word.Text, value} {
			if word.Literal && strings.ContainsAny(text, " \t\n") && (text != value || assigned) {
				w.glimpse(text, path.Base(c.Name()))
			}
		}
	}
}

// glimpse lists what a text would be as a command line, if it is one.
func (w *walker) glimpse(text, behind string) {
	if w.err != nil {
		return
	}
	inside := &Script{spent: w.script.spent}
	text = strings.TrimLeft(text, "|!") // which say, to some, that it is one
	if err := inside.read(text, append(slices.Clone(w.behind), behind), bothShells); err != nil {
		if w.script.spent.over() {
			w.fail(tooMuch)
		}
		return // it stays hidden
	}
	for _, s := range inside.simple {
		if len(w.script.simple) < MaxSimple {
			w.script.simple = append(w.script.simple, s)
		}
	}
}

// inner returns the words of the command that is started, and what is replaced
// in them. Seen is false when an option hides it.
func (h *wrapped) inner(words []Word) (inner []Word, assigns []Assign, replaced string, seen bool) {
	operands := h.operands
	for i := 1; i < len(words); i++ {
		word := words[i]
		if !word.Literal {
			return nil, nil, "", false
		}
		switch t := word.Text; {
		case t == "--":
			i = min(i+1+operands, len(words))
			if h.code && i < len(words) && strings.HasPrefix(words[i].Text, "-") {
				return nil, nil, "", false
			}
			for h.assigns && i < len(words) && words[i].Literal && assignment.MatchString(words[i].Text) {
				assigns = append(assigns, assigned(words[i].Text))
				i++
			}
			return words[i:], assigns, replaced, true
		case strings.HasPrefix(t, "--"):
			name, value, has := strings.Cut(t, "=")
			valued := strings.Contains(h.long, "|"+name+"|")
			if !valued && !strings.Contains(h.plain, "|"+name+"|") {
				return nil, nil, "", false
			}
			if valued && !has {
				i++
			}
			if name == "--replace" {
				replaced = value
				if value == "" {
					replaced = "{}"
				}
			}
		case strings.HasPrefix(t, "-") && len(t) > 1:
			next, repl, ok := h.group(t)
			if !ok {
				return nil, nil, "", false
			}
			if next {
				i++
			}
			if repl == "\x00" {
				if i >= len(words) || !words[i].Literal {
					return nil, nil, "", false
				}
				repl = words[i].Text
			}
			if repl != "" {
				replaced = repl
			}
		case t == "-" && h.assigns: // env's short form of -i
		case h.assigns && assignment.MatchString(t):
			assigns = append(assigns, assigned(t))
		case operands > 0:
			operands--
		default:
			return words[i:], assigns, replaced, true
		}
	}
	return nil, assigns, replaced, true
}

func assigned(word string) Assign {
	name, value, _ := strings.Cut(word, "=")
	return Assign{Name: name, Value: Word{Text: value, Literal: true}}
}

// group reads a group of single-letter options: whether its value is the next
// word, what it says is replaced, NUL for what the next word is, and whether all
// of it is known.
func (h *wrapped) group(t string) (next bool, replaced string, ok bool) {
	for i := 1; i < len(t); i++ {
		c := t[i : i+1]
		switch {
		case strings.Contains(h.valued, c):
			next = i+1 == len(t)
			if h.appends && c == "I" {
				if replaced = t[i+1:]; next {
					replaced = "\x00"
				}
			}
			return next, replaced, true
		case strings.Contains(h.attached, c):
			if h.appends && c == "i" {
				if replaced = t[i+1:]; replaced == "" {
					replaced = "{}"
				}
			}
			return false, replaced, true
		case !strings.Contains(h.flags, c):
			return false, "", false
		}
	}
	return false, replaced, true
}

// marked marks the words in which something is replaced.
func marked(words []Word, replaced string) []Word {
	if replaced == "" {
		return words
	}
	out := slices.Clone(words)
	for i := range out {
		if strings.Contains(out[i].Text, replaced) {
			out[i].Literal = false
		}
	}
	return out
}

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// find adds find, and what its -exec starts.
func (w *walker) find(c Simple) {
	starts, fd := false, path.Base(c.Name()) != "find"
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
		default:
			if t := c.Words[i].Text; fd && (strings.HasPrefix(t, "--ex") || fdGroup.MatchString(t)) {
				starts, c.Opaque = true, true
			}
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

// fdGroup is a group of fd's options one of which may start a program.
var fdGroup = regexp.MustCompile(`^-[A-Za-z0-9]*[xX]`)

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
