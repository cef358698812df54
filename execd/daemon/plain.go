package daemon

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// A command of plain words, one program and its arguments, is started without
// a shell: bash would do nothing but exec the program, and its own start is
// most of what a short command costs under gVisor. What bash makes of the
// environment is done here. Anything a shell has a part in goes to bash, and so
// does a program that the kernel refuses to start: bash knows what else to try,
// and what to say.

// shellWords are what bash handles itself, builtins and keywords, without true
// and false.
var shellWords = words(`. : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs
	disown echo enable eval exec exit export fc fg getopts hash help history jobs kill let local logout mapfile popd printf
	pushd pwd read readarray readonly return set shift shopt source suspend test times trap type typeset ulimit umask unalias
	unset wait case coproc do done elif else esac fi for function if in select then time until while`)

// shellVariables are those that bash sets, drops or obeys when it starts one
// program, besides BASH*.
var shellVariables = words(`_ COLUMNS COMP_WORDBREAKS DIRSTACK ENV EPOCHREALTIME EPOCHSECONDS EUID EXECIGNORE FUNCNAME FUNCNEST
	GLOBIGNORE GROUPS HISTCMD HOSTTYPE IFS LINENO LINES MACHTYPE OLDPWD OPTARG OPTERR OPTIND OSTYPE PIPESTATUS
	POSIXLY_CORRECT POSIX_PEDANTIC PPID PS1 PS2 PS4 PWD RANDOM SECONDS SHELLOPTS SHLVL SRANDOM SSH2_CLIENT SSH_CLIENT TMOUT UID`)

func words(list string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		m[w] = true
	}
	return m
}

// withoutShell returns the request that starts a command as bash would, without
// bash, or false. It errs on the side of bash.
func withoutShell(req wardenRequest, command string) (wardenRequest, bool) {
	if filepath.Base(req.Path) != "bash" || len(command) > maxArgument {
		return req, false
	}
	args, plain := plainWords(command)
	list, ok := plainPath(req.Env)
	req.Args = args
	if !plain || !ok || len(req.Args) == 0 {
		return req, false
	}
	program := req.Args[0]
	if program == "" || shellWords[program] || strings.Contains(program, "=") || program[0] == '%' {
		return req, false
	}
	req.Path = program
	if !strings.Contains(program, "/") {
		req.Path = find(program, list)
	}
	dir, err := filepath.EvalSymlinks(req.Dir)
	if req.Path == "" || err != nil {
		return req, false
	}
	if program == "true" || program == "false" {
		// Bash's own take no arguments, and no other program's place.
		if place := filepath.Dir(req.Path); len(req.Args) > 1 || place != "/bin" && place != "/usr/bin" {
			return req, false
		}
	}
	req.Env = append(req.Env[:len(req.Env):len(req.Env)], "PWD="+dir, "SHLVL=0", "_="+req.Path)
	return req, true
}

// plainWords returns the words of a command in which nothing but spaces and
// single quotes (with \' between) means anything to a shell, or false.
func plainWords(command string) (list []string, ok bool) {
	var word []byte
	begun := false
	for i := 0; i < len(command); i++ {
		switch c := command[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("_./:,@%+=-", c) >= 0:
			word, begun = append(word, c), true
		case c == '\\' && strings.HasPrefix(command[i+1:], "'"):
			word, begun = append(word, '\''), true
			i++
		case c == '\'':
			end := strings.IndexByte(command[i+1:], '\'')
			if end < 0 {
				return nil, false
			}
			quoted := command[i+1 : i+1+end]
			if !utf8.ValidString(quoted) || strings.ContainsAny(quoted, "\x00\x01\x7f") { // of which shells make their own use
				return nil, false
			}
			word, begun = append(word, quoted...), true
			i += end + 1
		case c == ' ':
			if begun {
				list, word, begun = append(list, string(word)), nil, false
			}
		default:
			return nil, false
		}
	}
	if begun {
		list = append(list, string(word))
	}
	return list, true
}

// noShell makes req start a command where there is no shell at all, if its words
// are plain.
func (req *wardenRequest) noShell(command string) error {
	none := func(why string) error {
		return fmt.Errorf("no shell at %s%s: %w", shells[len(shells)-2], why, syscall.ENOENT)
	}
	args, ok := plainWords(command)
	if !ok || len(args) == 0 || args[0] == "" {
		return none(", which this command needs")
	}
	req.Args, req.Path = args, args[0]
	if !strings.Contains(req.Path, "/") {
		for _, kv := range req.Env {
			if list, ok := strings.CutPrefix(kv, "PATH="); ok {
				req.Path = find(args[0], list)
			}
		}
		if req.Path == args[0] || req.Path == "" {
			return none(", and no program " + args[0] + " on PATH")
		}
	}
	return nil
}

// plainPath returns the value of PATH in an environment that bash would hand on
// as it is, but for what it adds.
func plainPath(env []string) (path string, ok bool) {
	seen := make(map[string]bool, len(env))
	for _, kv := range env {
		name, value, ok := strings.Cut(kv, "=")
		switch {
		case !ok, !isVariable(name), seen[name], shellVariables[name], strings.HasPrefix(name, "BASH"):
			return "", false
		case strings.HasPrefix(name, "LD_"):
			return "", false // the dynamic linker's messages about bash
		case strings.HasPrefix(name, "LC_"), strings.HasPrefix(name, "LANG"):
			// Of another locale, which may not be there, bash warns.
			if value != "" && value != "C" && value != "C.UTF-8" && value != "POSIX" {
				return "", false
			}
		case name == "PATH":
			path = value
		}
		seen[name] = true
	}
	return path, seen["PATH"]
}

// find returns the file that bash starts for a program's name, or "" where that
// is not plain. Of the user's right to it the kernel decides.
func find(program, list string) string {
	for place := range strings.SplitSeq(list, ":") {
		if !filepath.IsAbs(place) || place != filepath.Clean(place) {
			return ""
		}
		if path := filepath.Join(place, program); unix.Access(path, unix.X_OK) == nil {
			return path
		}
	}
	return ""
}

// isVariable reports whether a shell takes name for a variable's.
func isVariable(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c != '_' && (c < 'a' || 'z' < c) && (c < 'A' || 'Z' < c) && (i == 0 || c < '0' || '9' < c) {
			return false
		}
	}
	return name != ""
}
