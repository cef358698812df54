package tool

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/sandbox"
)

// Bounds of the search tool.
const (
	DefaultMatches = 50
	MaxMatches     = 200
	maxSearched    = 512 << 20 // bytes of a file: all that a run may spill
	maxPattern     = 1 << 10
	maxMatchLine   = 64 << 10 // of which line no more is looked at
	shownMatch     = 400      // bytes of a line that are shown
)

func (b *builtin) searchTool() Tool {
	return Tool{Definition: Definition{
		Name: Search,
		Description: fmt.Sprintf("Find the lines of one file that match a pattern, also in long output that was spilled. stdout has each line with its number and a colon before it, at most %d of them and %s; "+
			"matches says how many there are in all. When there are more, truncated is true and file.next_offset is the line to search on from. The same files as %s opens.", MaxMatches, kib(b.began.OutputBytes), ReadFile),
		Schema: objectSchema([]string{"path", "pattern"},
			property{"path", `{"type":"string","minLength":1,"description":"absolute, or relative to the workspace"}`},
			property{"pattern", fmt.Sprintf(`{"type":"string","minLength":1,"maxLength":%d,"description":"a regular expression (RE2), matched in each line"}`, maxPattern)},
			property{"fixed", `{"type":"boolean","description":"the pattern is plain text"}`},
			property{"ignore_case", `{"type":"boolean"}`},
			property{"offset", `{"type":"integer","minimum":1,"maximum":9007199254740991,"description":"the line to begin with, from 1"}`},
			property{"limit", fmt.Sprintf(`{"type":"integer","minimum":1,"maximum":%d,"description":"how many lines to show, default %d"}`, MaxMatches, DefaultMatches)}),
	}, Run: b.search}
}

type searchArgs struct {
	Path       string  `json:"path"`
	Pattern    string  `json:"pattern"`
	Fixed      bool    `json:"fixed"`
	IgnoreCase bool    `json:"ignore_case"`
	Offset     float64 `json:"offset"`
	Limit      float64 `json:"limit"`
}

func (b *builtin) search(ctx context.Context, c Call) Result {
	args, err := decode[searchArgs](c)
	if err != nil {
		return Fail(OpArguments, CodeInvalidArguments, err.Error(), "")
	}
	pattern := args.Pattern
	if args.Fixed {
		pattern = regexp.QuoteMeta(pattern)
	}
	if args.IgnoreCase {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return Fail(OpArguments, CodeInvalidArguments, "arguments/pattern: "+evidence.Cut(err.Error(), 300), "correct it, or search for plain text with fixed")
	}
	at, fault := b.place(ctx, c, args.Path, b.roots)
	if fault != nil {
		return Result{Err: fault}
	}
	access := sandbox.Access{CallID: c.ID, Tool: Search, Root: at.root}
	info, err := b.Sandbox.Stat(ctx, at.path, access)
	if err != nil {
		return b.explain(OpRead, err)
	}
	if info.Size > maxSearched {
		return Fail(OpRead, CodeTooLarge, fmt.Sprintf("%s has %d bytes, more than %d", at.path, info.Size, maxSearched), "search it with a command")
	}
	m := &matcher{re: re, from: max(1, int64(args.Offset)), most: DefaultMatches, room: c.limits.OutputBytes}
	if args.Limit > 0 {
		m.most = int(args.Limit)
	}
	// What is matched is masked first: a pattern tells nothing of a value.
	w := b.Masker.Writer(m)
	if _, err := b.Sandbox.Download(ctx, at.path, w, access); err != nil {
		return b.explain(OpRead, err)
	}
	if err := w.Close(); err != nil {
		return b.explain(OpRead, err)
	}
	m.end()
	return Result{OK: true, Stdout: m.out.String(), Truncated: m.next != 0, Matches: &m.found, OutputBytes: int64(m.out.Len()),
		File: &File{Path: at.path, Bytes: info.Size, NextOffset: m.next}}
}

// matcher is a writer that collects matching lines.
type matcher struct {
	re         *regexp.Regexp
	from       int64
	most, room int

	line  int64  // finished
	open  []byte // of the line that is not
	out   strings.Builder
	shown int
	found int64 // from line from on
	next  int64 // the first match that is not shown; 0: none
}

func (m *matcher) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		end := i
		if i < 0 {
			end = len(p)
		}
		m.open = append(m.open, p[:min(end, max(0, maxMatchLine-len(m.open)))]...)
		if i < 0 {
			break
		}
		m.match()
		p = p[i+1:]
	}
	return n, nil
}

// end takes a last line without newline.
func (m *matcher) end() {
	if len(m.open) > 0 {
		m.match()
	}
}

func (m *matcher) match() {
	line := bytes.TrimSuffix(m.open, []byte("\r"))
	m.open = m.open[:0]
	if m.line++; m.line < m.from || !m.re.Match(line) {
		return
	}
	m.found++
	if m.next != 0 {
		return
	}
	text := fmt.Sprintf("%d:%s\n", m.line, around(line, m.re))
	if m.shown == m.most || m.out.Len()+len(text) > m.room {
		m.next = m.line
		return
	}
	m.out.WriteString(text)
	m.shown++
}

// around is what is shown of a line: the part of a long one where the match is.
func around(line []byte, re *regexp.Regexp) string {
	text := string(line)
	if len(text) > shownMatch {
		if at := re.FindIndex(line); at != nil && at[0] > shownMatch/2 {
			text = evidence.CutFront(text, len(text)-(at[0]-shownMatch/4))
		}
		text = evidence.Cut(text, shownMatch)
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
