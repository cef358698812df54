package workspace

import (
	"path"
	"strings"
)

// Patterns are lines of a .gitignore, compiled.
type Patterns []pattern

type pattern struct {
	segments []string
	negate   bool
	dirOnly  bool
}

// Compile reads the text of a .gitignore: comments, "!", a leading or inner
// slash that anchors, a trailing slash for directories only, "*", "?",
// "[...]" and "**", as in gitignore(5). A line that is no pattern matches
// nothing, as in git.
func Compile(text string) Patterns {
	var ps Patterns
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		line = trimSpaces(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var p pattern
		if line, p.negate = strings.CutPrefix(line, "!"); line == "" {
			continue
		}
		if strings.HasPrefix(line, `\#`) || strings.HasPrefix(line, `\!`) {
			line = line[1:]
		}
		line, p.dirOnly = strings.CutSuffix(line, "/")
		anchored := strings.Contains(line, "/")
		line = strings.TrimPrefix(line, "/")
		if line == "" {
			continue
		}
		for s := range strings.SplitSeq(line, "/") {
			// Git writes [!a] for what path.Match writes [^a].
			p.segments = append(p.segments, strings.ReplaceAll(s, "[!", "[^"))
		}
		if !anchored {
			p.segments = append([]string{"**"}, p.segments...)
		}
		if n := len(p.segments); p.segments[n-1] == "**" {
			p.segments = append(p.segments, "*") // everything inside, not the directory itself
		}
		ps = append(ps, p)
	}
	return ps
}

// trimSpaces cuts trailing spaces that are not escaped.
func trimSpaces(s string) string {
	for strings.HasSuffix(s, " ") && !strings.HasSuffix(s, `\ `) {
		s = s[:len(s)-1]
	}
	return s
}

// Match says what the patterns decide about name, a path relative to where
// they stand: the last that matches wins. decided is false when none does.
func (ps Patterns) Match(name string, dir bool) (match, decided bool) {
	parts := strings.Split(name, "/")
	for i := len(ps) - 1; i >= 0; i-- {
		if p := ps[i]; (dir || !p.dirOnly) && matchParts(p.segments, parts) {
			return !p.negate, true
		}
	}
	return false, false
}

// Covers reports whether the patterns match name or a directory above it.
func (ps Patterns) Covers(name string) bool {
	for i := range len(name) {
		if name[i] == '/' {
			if match, _ := ps.Match(name[:i], true); match {
				return true
			}
		}
	}
	match, _ := ps.Match(name, false)
	return match
}

// matchParts matches segment by segment; "**" stands for any number of them.
// Going back to the last "**" only is enough, as with "*" in a plain glob.
func matchParts(pat, name []string) bool {
	p, n, starP, starN := 0, 0, -1, 0
	for n < len(name) {
		if p < len(pat) && pat[p] == "**" {
			starP, starN = p, n
			p++
			continue
		}
		if p < len(pat) {
			if ok, err := path.Match(pat[p], name[n]); err == nil && ok {
				p++
				n++
				continue
			}
		}
		if starP < 0 {
			return false
		}
		starN++
		p, n = starP+1, starN
	}
	for p < len(pat) && pat[p] == "**" {
		p++
	}
	return p == len(pat)
}
