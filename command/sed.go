package command

import (
	"regexp"
	"slices"
	"strings"
)

// sed allows scripts of commands that print, delete and substitute. Those that
// write files or start programs (w, W, e, and both as flags of s), scripts in
// files and what is not understood are not read-only.
func sed(args []string) string {
	var scripts []string
	explicit := false
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "-e" || a == "--expression":
			if i++; i == len(args) {
				return "lacks a script"
			}
			scripts, explicit = append(scripts, args[i]), true
		case strings.HasPrefix(a, "--expression="):
			scripts, explicit = append(scripts, strings.TrimPrefix(a, "--expression=")), true
		case a == "--quiet", a == "--silent", a == "--posix", a == "--regexp-extended", a == "--null-data", a == "--unbuffered", a == "--separate", a == "--sandbox":
		case len(a) > 1 && a[0] == '-' && strings.Trim(a[1:], "nErzus") == "":
		case strings.HasPrefix(a, "-") && len(a) > 1:
			return "may write with " + Quote(a)
		case !explicit && len(scripts) == 0:
			scripts = append(scripts, a)
		}
	}
	// A later -e makes the first operand a file; it is then judged in vain, which
	// errs on the safe side.
	for _, s := range scripts {
		if !(&sedScript{s: s}).known() {
			return "may write with the script " + Quote(s)
		}
	}
	return ""
}

// sedStarts looks for what starts programs in scripts: e, as a command and as a
// flag of s. A script that is not understood may.
func sedStarts(args []string) (u unlisted) {
	var scripts, operands []string
	given := false
	for i := 0; i < len(args); i++ {
		a := args[i]
		name, value, has := strings.Cut(a, "=")
		next := ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		switch {
		case a == "--":
			operands = append(operands, args[i+1:]...)
			i = len(args)
		case name == "--expression" || name == "--file":
			if given = true; !has {
				value, i = next, i+1
			}
			if name == "--file" {
				u.script(value)
			} else {
				scripts = append(scripts, value)
			}
		case strings.HasPrefix(a, "--"):
			u.starts = u.starts || !slices.Contains(sedLong, name) && !(has && name == "--line-length")
		case strings.HasPrefix(a, "-") && len(a) > 1:
			n := strings.IndexAny(a, "efli")
			if n < 0 {
				n = len(a)
			}
			u.starts = u.starts || strings.Trim(a[1:n], "nErzusb") != ""
			if n == len(a) || a[n] == 'i' {
				continue
			}
			if value = a[n+1:]; value == "" {
				value, i = next, i+1
			}
			given = given || a[n] != 'l'
			switch a[n] {
			case 'e':
				scripts = append(scripts, value)
			case 'f':
				u.script(value)
			}
		default:
			operands = append(operands, a)
		}
	}
	if !given && len(operands) > 0 {
		scripts = operands[:1]
	}
	for _, s := range scripts {
		if !(&sedScript{s: s, files: true}).known() {
			u.run()
			if m := sedRuns.FindStringSubmatch(s); m != nil {
				u.run(m[1])
			}
		}
	}
	return u
}

var (
	sedLong = []string{"--quiet", "--silent", "--posix", "--regexp-extended", "--null-data", "--unbuffered", "--separate", "--sandbox", "--binary",
		"--in-place", "--follow-symlinks", "--help", "--version"}
	sedRuns = regexp.MustCompile(`(?m)(?:^|[;{])[0-9$,! ]*e[ \t]+(.+)$`)
)

// known reports whether every command of the script is understood, and none
// does more than it may.
func (p *sedScript) known() bool {
	for {
		p.skip(" \t\n;{}")
		if p.s == "" {
			return true
		}
		if p.s[0] == '#' {
			_, p.s, _ = strings.Cut(p.s, "\n")
			continue
		}
		if !p.addresses() || !p.command() {
			return false
		}
	}
}

// sedScript is what is left of a script. Files says that its commands may write
// files.
type sedScript struct {
	s     string
	files bool
}

func (p *sedScript) skip(set string) { p.s = strings.TrimLeft(p.s, set) }

func (p *sedScript) next(c byte) bool {
	if p.s == "" || p.s[0] != c {
		return false
	}
	p.s = p.s[1:]
	return true
}

func (p *sedScript) addresses() bool {
	if !p.address() {
		return false
	}
	p.skip(" \t")
	if p.next(',') {
		p.skip(" \t")
		if p.s != "" && (p.s[0] == '+' || p.s[0] == '~') {
			p.s = p.s[1:]
		}
		if !p.address() {
			return false
		}
	}
	p.skip(" \t!")
	return true
}

// address reads one, or none.
func (p *sedScript) address() bool {
	switch {
	case p.s == "":
		return true
	case p.s[0] >= '0' && p.s[0] <= '9':
		p.skip("0123456789~")
	case p.s[0] == '$':
		p.s = p.s[1:]
	case p.s[0] == '/':
		p.s = p.s[1:]
		if !p.until('/') {
			return false
		}
		p.skip("IM")
	case p.s[0] == '\\':
		return false
	}
	return true
}

// until reads up to an unescaped delimiter. A delimiter within brackets would be
// read otherwise by sed, so brackets are only understood without it.
func (p *sedScript) until(delimiter byte) bool {
	for i := 0; i < len(p.s); i++ {
		switch p.s[i] {
		case '\\':
			i++
		case '\n':
			return false
		case '[':
			end := strings.IndexByte(p.s[i+1:], ']')
			if end < 0 || strings.IndexByte(p.s[i:i+1+end], delimiter) >= 0 {
				return false
			}
		case delimiter:
			p.s = p.s[i+1:]
			return true
		}
	}
	return false
}

func (p *sedScript) command() bool {
	if p.s == "" {
		return false
	}
	c := p.s[0]
	p.s = p.s[1:]
	switch {
	case c == '{' || c == '}':
		return true
	case strings.IndexByte("=dDgGhHlnNpPqQxzF", c) >= 0:
		p.skip(" \t")
		if c == 'q' || c == 'Q' || c == 'l' {
			p.skip("0123456789 \t")
		}
	case c == 's' || c == 'y':
		if p.s == "" || strings.IndexByte("/|,:#@!%_+~", p.s[0]) < 0 {
			return false
		}
		delimiter := p.s[0]
		p.s = p.s[1:]
		for range 2 {
			if !p.until(delimiter) {
				return false
			}
		}
		if c == 's' {
			p.skip("gpiImM0123456789")
			if p.files && strings.HasPrefix(p.s, "w") {
				p.rest(false)
			}
		}
		p.skip(" \t")
	case p.files && strings.IndexByte("aicrRwW", c) >= 0:
		p.rest(c == 'a' || c == 'i' || c == 'c')
	case p.files && strings.IndexByte("btT:", c) >= 0:
		p.skip(" \t")
		p.skip(sedLabel)
		p.skip(" \t")
	default:
		return false
	}
	return p.s == "" || strings.IndexByte(";\n}", p.s[0]) >= 0
}

const sedLabel = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."

// rest reads the rest of a line: a file's name or, as text, more lines while each
// ends in a backslash that is not escaped.
func (p *sedScript) rest(text bool) {
	for {
		line, after, more := strings.Cut(p.s, "\n")
		backslashes := len(line) - len(strings.TrimRight(line, `\`))
		switch p.s = after; {
		case !more:
			return
		case !text || backslashes%2 == 0:
			p.s = "\n" + after
			return
		}
	}
}
