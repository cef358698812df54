package command

import (
	"fmt"
	"slices"
	"strings"
)

// effects judges one command. What it starts is listed, and judged, by itself.
func (c *Simple) effects() Effect {
	for _, r := range c.Redirects {
		if r.Writes {
			return Effect{Writes, "it redirects to " + r.Target.String()}
		}
	}
	if c.Unresolved() {
		return Effect{Writes, c.String() + " holds what is known only at execution"}
	}
	if names := c.Obeyed(); len(names) > 0 {
		return Effect{Unknown, names[0] + " is a variable that programs obey"}
	}
	switch {
	case c.Form == Redirection || c.Form == Assignment:
		return Effect{Kind: ReadOnly}
	case c.Opaque && c.Form != Interpreter:
		return Effect{Unknown, "what " + c.String() + " starts is not known"}
	}
	argv, _ := c.Argv()
	name := c.Name()
	if c.Form == Shell {
		return Effect{Kind: ReadOnly} // and what it is given is judged by itself
	}
	if strings.Contains(name, "/") {
		return Effect{Unknown, "nothing is known of the program " + Quote(name)}
	}
	if slices.Contains(writers, name) {
		return Effect{Writes, name + " changes something"}
	}
	judge, known := readers[name]
	if !known {
		return Effect{Unknown, "nothing is known of the program " + Quote(name)}
	}
	if fault := judge(argv[1:]); fault != "" && c.Opaque {
		return Effect{Unknown, name + " " + fault}
	} else if fault != "" {
		return Effect{Writes, name + " " + fault}
	}
	if c.Unseen {
		return Effect{Unknown, name + " starts what is not known"}
	}
	return Effect{Kind: ReadOnly}
}

// writers are programs of which it is known that they change something.
var writers = strings.Fields(`rm rmdir mv cp dd install ln link unlink mkdir mkfifo mknod touch truncate shred chmod chown chgrp chattr setfacl
	tee kill pkill killall mount umount useradd userdel usermod passwd apt apt-get dpkg yum dnf apk pip pip3 npm yarn pnpm cargo
	gem make patch tar unzip zip gzip gunzip bzip2 bunzip2 xz unxz zstd split csplit rsync scp sftp wget mktemp fallocate sync reboot shutdown crontab at
	systemctl service docker podman kubectl`)

// obeyed reports whether a variable may change what a command does. Before a
// command every one of them reaches it; by itself only those do that the shell
// obeys or exports, and lower-case names are the shell's user's own.
func obeyed(name string, before bool) bool {
	if slices.Contains(harmlessVariables, name) {
		return false
	}
	return before || strings.ToLower(name) != name || strings.HasSuffix(name, "_proxy")
}

var harmlessVariables = []string{"LC_ALL", "LANG", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "TZ", "NO_COLOR", "COLUMNS", "LINES", "CI"}

// judgement returns what is wrong with arguments, "" when they change nothing.
type judgement func(args []string) string

// anyArguments: whatever they are, nothing is changed.
func anyArguments([]string) string { return "" }

// without allows every operand, and options other than those named. Short ones
// are given as letters, wherever they stand in a group; a long one may be
// abbreviated.
func without(short string, long ...string) judgement {
	return func(args []string) string {
		for _, a := range args {
			// Not even "--" ends the options: it may be the value of one.
			if fault := unwanted(a, short, long); fault != "" {
				return fault
			}
		}
		return ""
	}
}

func unwanted(a, short string, long []string) string {
	switch {
	case strings.HasPrefix(a, "--"):
		name, _, _ := strings.Cut(a, "=")
		for _, l := range long {
			if strings.HasPrefix(l, name) && len(name) > 2 || name == l {
				return a + " writes, or starts something"
			}
		}
	case strings.HasPrefix(a, "-") && strings.ContainsAny(a, short):
		return a + " writes, or starts something"
	}
	return ""
}

// operands allows at most some operands, and only the options named: letters
// without a value, or a long option.
func operands(most int, letters string, long ...string) judgement {
	return func(args []string) string {
		n := 0
		for _, a := range args {
			name, _, _ := strings.Cut(a, "=")
			switch {
			case strings.HasPrefix(a, "--"):
				if !slices.Contains(long, name) {
					return "may write with " + a
				}
			case strings.HasPrefix(a, "-") && len(a) > 1:
				if strings.Trim(a[1:], letters) != "" {
					return "may write with " + a
				}
			default:
				n++
			}
		}
		if n > most {
			return fmt.Sprintf("may write with more than %d operands", most)
		}
		return ""
	}
}

// identifiers allows arguments that name variables plainly: the shell evaluates
// a subscript in them.
func identifiers(args []string) string {
	for _, a := range args {
		if strings.ContainsAny(a, "[]=") {
			return "evaluates " + Quote(a)
		}
	}
	return ""
}

// exports allows variables that nothing obeys.
func exports(args []string) string {
	for _, a := range args {
		name, _, assigned := strings.Cut(a, "=")
		if strings.ContainsAny(name, "[]") || assigned && obeyed(name, true) {
			return "sets " + name
		}
		if !assigned && strings.HasPrefix(a, "-") && strings.ContainsAny(a, "niA") {
			return a + " makes assignments evaluate"
		}
	}
	return ""
}

// readers are the programs and builtins that change nothing, with what is wrong
// with their arguments otherwise. Set by hand: a name that is not here is not
// known.
var readers = map[string]judgement{
	// Builtins, which change at most the shell that runs them.
	":": anyArguments, "true": anyArguments, "false": anyArguments, "echo": anyArguments, "exit": anyArguments, "return": anyArguments,
	"break": anyArguments, "continue": anyArguments, "shift": anyArguments, "pwd": anyArguments, "cd": anyArguments,
	"set": anyArguments, "umask": operands(0, "Sp"), "times": anyArguments, "jobs": operands(9, "lnprs"), "type": anyArguments,
	"command": anyArguments, "builtin": anyArguments, "exec": anyArguments, "wait": operands(99, "fn"), "dirs": anyArguments,
	"printf": without("v"), "read": identifiers, "unset": identifiers, "local": exports, "export": exports, "readonly": exports,
	"declare": exports, "typeset": exports, "[": testing, "test": testing, "getopts": identifiers, "ulimit": operands(0, "aHS"),

	// What starts the command that is listed after it.
	"env": anyArguments, "nohup": nohup, "nice": anyArguments, "ionice": anyArguments, "timeout": anyArguments, "stdbuf": anyArguments,
	"time": without("oa", "--output", "--append"), "setsid": anyArguments, "xargs": anyArguments, "unbuffer": anyArguments,

	"cat": anyArguments, "head": anyArguments, "tail": anyArguments, "wc": without("", "--files0-from"), "nl": anyArguments, "tac": anyArguments,
	"rev": anyArguments, "cut": anyArguments, "tr": anyArguments, "paste": anyArguments, "join": anyArguments, "comm": anyArguments,
	"fold": anyArguments, "fmt": anyArguments, "expand": anyArguments, "unexpand": anyArguments, "column": anyArguments, "seq": anyArguments,
	"ls": anyArguments, "dir": anyArguments, "vdir": anyArguments, "stat": anyArguments, "du": anyArguments, "df": anyArguments,
	"file": without("C", "--compile"), "basename": anyArguments, "dirname": anyArguments, "realpath": anyArguments, "readlink": anyArguments,
	"grep": anyArguments, "egrep": anyArguments, "fgrep": anyArguments, "rg": without("", "--pre", "--hostname-bin"),
	"cmp": anyArguments, "diff": anyArguments, "od": anyArguments, "strings": anyArguments, "hexdump": anyArguments, "hd": anyArguments,
	"md5sum": anyArguments, "sha1sum": anyArguments, "sha224sum": anyArguments, "sha256sum": anyArguments, "sha384sum": anyArguments,
	"sha512sum": anyArguments, "b2sum": anyArguments, "cksum": anyArguments, "sum": anyArguments, "base64": anyArguments, "base32": anyArguments,
	"jq": anyArguments, "expr": anyArguments, "factor": anyArguments, "sleep": anyArguments, "yes": anyArguments, "numfmt": anyArguments,
	"id": anyArguments, "whoami": anyArguments, "groups": anyArguments, "uname": anyArguments, "arch": anyArguments, "nproc": anyArguments,
	"uptime": anyArguments, "free": anyArguments, "ps": anyArguments, "pgrep": anyArguments, "which": anyArguments, "whereis": anyArguments,
	"getent": anyArguments, "printenv": anyArguments, "tty": anyArguments, "locale": anyArguments, "getconf": anyArguments, "lscpu": anyArguments,
	"tsort": anyArguments, "tree": without("oR", "--output"), "zcat": anyArguments, "readelf": anyArguments, "cal": anyArguments, "who": anyArguments, "hostid": anyArguments, "pathchk": anyArguments,

	"hostname": operands(0, "fsidA", "--fqdn", "--short", "--domain"),
	"date":     date,
	"sort":     without("oT", "--output", "--compress-program", "--temporary-directory"),
	"uniq":     operands(1, "cdDuiz", "--count", "--repeated", "--unique", "--ignore-case", "--zero-terminated"),
	"xxd":      operands(1, "abeipuE"),
	"find":     find,
	"sed":      sed,
	"git":      git,
	"awk":      awk, "gawk": awk, "mawk": awk, "nawk": awk,
	"go": firstWord("version"), "node": version, "python": version, "python3": version, "ruby": version, "perl": version, "php": version,
	"java": version,
}

func nohup([]string) string { return "may write nohup.out" }

// testing looks at what -v and -R evaluate.
func testing(args []string) string {
	for _, a := range args {
		if a == "-v" || a == "-R" {
			return "evaluates what follows " + a
		}
	}
	return ""
}

func date(args []string) string {
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-d" || a == "--date" || a == "-r" || a == "--reference":
			i++ // its value
		case strings.HasPrefix(a, "+"), strings.HasPrefix(a, "--date="), strings.HasPrefix(a, "--reference="), strings.HasPrefix(a, "-I"),
			slices.Contains([]string{"-u", "--utc", "--universal", "-R", "--rfc-email", "--iso-8601", "--help", "--version"}, a),
			strings.HasPrefix(a, "--iso-8601="), strings.HasPrefix(a, "--rfc-3339="):
		default:
			return "may set the clock with " + Quote(a)
		}
	}
	return ""
}

func version(args []string) string {
	if len(args) == 1 && slices.Contains([]string{"--version", "-V", "-version"}, args[0]) {
		return ""
	}
	return "runs what is not known"
}

func firstWord(words ...string) judgement {
	return func(args []string) string {
		if len(args) == 1 && slices.Contains(words, args[0]) {
			return ""
		}
		return "may write"
	}
}

// find with an -exec lists what that starts by itself.
func find(args []string) string {
	for _, a := range args {
		switch {
		case a == "-delete", strings.HasPrefix(a, "-fprint"), a == "-fls", a == "-ok", a == "-okdir":
			return a + " writes"
		}
	}
	return ""
}

// git obeys the configuration of the repository, which whoever writes files in it
// may set: aliases, pagers, hooks, filters, text conversions, signature
// programs, monitors of the file system, remotes that are asked for what is
// missing. What is left starts none of these.
func git(args []string) string {
	if len(args) > 0 && args[0] == "--no-pager" {
		args = args[1:]
	}
	if len(args) == 0 {
		return ""
	}
	line := strings.Join(args, " ")
	if slices.Contains(gitReaders, line) {
		return ""
	}
	if args[0] == "config" && len(args) > 1 && slices.Contains([]string{"--get", "--get-all", "--list", "-l", "--get-regexp"}, args[1]) &&
		without("", "--type", "--edit", "--add", "--unset", "--replace-all", "--file", "--blob")(args[2:]) == "" {
		return ""
	}
	return "obeys the repository's configuration, which may start programs"
}

var gitReaders = []string{"--version", "version", "rev-parse --show-toplevel", "rev-parse --git-dir", "rev-parse --is-inside-work-tree",
	"rev-parse --show-prefix", "rev-parse --show-cdup", "rev-parse --is-bare-repository", "rev-parse HEAD", "rev-parse --abbrev-ref HEAD",
	"rev-parse --git-common-dir", "branch --show-current", "symbolic-ref HEAD", "symbolic-ref --short HEAD", "remote", "remote -v"}

// awk programs that print nothing to files, start nothing and read no program
// from elsewhere.
func awk(args []string) string {
	for len(args) > 0 {
		a := args[0]
		switch {
		case a == "-F" || a == "-v":
			if args = args[1:]; len(args) == 0 {
				return "lacks a value"
			}
		case strings.HasPrefix(a, "-F"):
		case strings.HasPrefix(a, "-"):
			return "is given " + a
		default:
			// An operand of the form NAME=VALUE assigns, and is harmless.
			for _, bad := range []string{"system", ">", "|", "getline", "@", "extension"} {
				if strings.Contains(a, bad) {
					return "may write or start something: " + bad
				}
			}
			return ""
		}
		args = args[1:]
	}
	return "has no program"
}
