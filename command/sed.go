package command

import "strings"

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
		if !sedReads(s) {
			return "may write with the script " + Quote(s)
		}
	}
	return ""
}

// sedReads reports whether every command of a script is known to change
// nothing.
func sedReads(s string) bool {
	p := sedScript{s}
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

type sedScript struct{ s string }

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
		}
		p.skip(" \t")
	default:
		return false
	}
	return p.s == "" || strings.IndexByte(";\n}", p.s[0]) >= 0
}
