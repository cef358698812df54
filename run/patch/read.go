package patch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Diff is the change of one file, as read from a patch.
type Diff struct {
	Path             string
	OldMode, NewMode Mode   // equal when the patch does not name them: Absent means "as it is"
	OldBlob, NewBlob string // git's ids of the contents; empty when the content stays
	Created, Removed bool
	Hunks            []Hunk
	Binary           bool   // Literal is the new content
	Literal          []byte // only when Binary
}

// Hunk is one place of change. Line numbers count from 1.
type Hunk struct {
	OldStart, OldLines, NewStart, NewLines int
	Lines                                  []Line
}

// Line is one line of a hunk, with its newline if it has one.
type Line struct {
	Op   byte // ' ', '-' or '+'
	Text []byte
}

// SyntaxError says at which line a patch stops making sense.
type SyntaxError struct {
	Line int
	Err  error
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("patch line %d: %v", e.Line, e.Err) }

// Unwrap returns the cause.
func (e *SyntaxError) Unwrap() error { return e.Err }

// Reader reads a patch file by file, in bounded memory.
type Reader struct {
	r      *bufio.Reader
	line   []byte // the line under the cursor, with its newline; nil at the end
	number int
	err    error
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader {
	p := &Reader{r: bufio.NewReaderSize(r, 64<<10)}
	p.advance()
	return p
}

// advance moves to the next line; lines longer than a text file may be are an
// error.
func (p *Reader) advance() {
	p.number++
	p.line = nil
	for {
		part, err := p.r.ReadSlice('\n')
		p.line = append(p.line, part...)
		if len(p.line) > maxText+1024 {
			p.err = errors.New("a line is too long")
			p.line = nil
			return
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil && err != io.EOF {
			p.err, p.line = err, nil
		}
		if len(p.line) == 0 {
			p.line = nil
		}
		return
	}
}

func (p *Reader) fail(err error) error { return &SyntaxError{Line: p.number, Err: err} }

// take returns what follows prefix, without the newline, and advances.
func (p *Reader) take(prefix string) (string, bool) {
	rest, ok := strings.CutPrefix(string(bytes.TrimSuffix(p.line, []byte("\n"))), prefix)
	if ok && p.line != nil {
		p.advance()
		return rest, true
	}
	return "", false
}

// Next returns the next file's change, or io.EOF. Errors are *SyntaxError.
func (p *Reader) Next() (*Diff, error) {
	d, err := p.next()
	if p.err != nil {
		return nil, p.fail(p.err)
	}
	return d, err
}

func (p *Reader) next() (*Diff, error) {
	if p.line == nil {
		return nil, io.EOF
	}
	names, ok := p.take("diff --git ")
	if !ok {
		return nil, p.fail(errors.New(`expected "diff --git"`))
	}
	d := &Diff{}
	var err error
	if d.Path, err = gitNames(names); err == nil {
		err = checkPath(d.Path)
	}
	if err == nil {
		err = p.modes(d)
	}
	if err == nil {
		err = p.content(d)
	}
	if err != nil {
		if se, ok := errors.AsType[*SyntaxError](err); ok {
			return nil, se
		}
		return nil, p.fail(err)
	}
	return d, nil
}

// gitNames reads "a/NAME b/NAME", where both names must be the same: a patch
// of ours renames nothing.
func gitNames(s string) (string, error) {
	var a, b string
	if strings.HasPrefix(s, `"`) {
		var rest string
		var err error
		if a, rest, err = unquote(s); err != nil {
			return "", err
		}
		if b, rest, err = unquote(strings.TrimPrefix(rest, " ")); err != nil || rest != "" {
			return "", errQuote
		}
	} else {
		// Without quotes a name may hold spaces; equal halves are unambiguous.
		half := (len(s) - 1) / 2
		if len(s)%2 == 0 || s[half] != ' ' {
			return "", errors.New("the two names of a file differ")
		}
		a, b = s[:half], s[half+1:]
	}
	a, ok1 := strings.CutPrefix(a, "a/")
	b, ok2 := strings.CutPrefix(b, "b/")
	if !ok1 || !ok2 || a != b {
		return "", errors.New("the two names of a file differ")
	}
	return a, nil
}

func (p *Reader) modes(d *Diff) error {
	for _, h := range []struct {
		prefix string
		set    func(Mode)
	}{
		{"new file mode ", func(m Mode) { d.Created, d.NewMode = true, m }},
		{"deleted file mode ", func(m Mode) { d.Removed, d.OldMode = true, m }},
		{"old mode ", func(m Mode) { d.OldMode = m }},
		{"new mode ", func(m Mode) { d.NewMode = m }},
	} {
		s, ok := p.take(h.prefix)
		if !ok {
			continue
		}
		m, err := parseMode(s)
		if err != nil {
			return err
		}
		h.set(m)
	}
	if s, ok := p.take("index "); ok {
		ids, mode, has := strings.Cut(s, " ")
		d.OldBlob, d.NewBlob, ok = strings.Cut(ids, "..")
		if !ok || !hex40(d.OldBlob) || !hex40(d.NewBlob) {
			return errors.New("the index line needs two full ids")
		}
		if has {
			m, err := parseMode(mode)
			if err != nil {
				return err
			}
			d.OldMode, d.NewMode = m, m
		}
	}
	switch {
	case d.Created && d.Removed,
		!d.Created && !d.Removed && (d.OldMode == Absent || d.NewMode == Absent),
		(d.Created || d.Removed) && d.NewBlob == "":
		return errors.New("the file's header is incomplete")
	}
	return nil
}

func parseMode(s string) (Mode, error) {
	n, err := strconv.ParseUint(s, 8, 32)
	switch m := Mode(n); {
	case err != nil:
	case m == Regular, m == Executable, m == Link:
		return m, nil
	}
	return 0, fmt.Errorf("mode %q is not one of a file", s)
}

func hex40(s string) bool {
	return len(s) == 40 && strings.Trim(s, "0123456789abcdef") == ""
}

func (p *Reader) content(d *Diff) error {
	if _, ok := p.take("GIT binary patch"); ok {
		return p.binary(d)
	}
	if _, ok := p.take("--- "); !ok {
		return nil
	}
	if _, ok := p.take("+++ "); !ok {
		return errors.New(`expected "+++"`)
	}
	size := 0
	for bytes.HasPrefix(p.line, []byte("@@ ")) {
		h, err := p.hunk(&size)
		if err != nil {
			return err
		}
		d.Hunks = append(d.Hunks, h)
	}
	if len(d.Hunks) == 0 {
		return errors.New("a file without hunks")
	}
	return nil
}

func (p *Reader) hunk(size *int) (Hunk, error) {
	h, err := parseHunk(string(p.line))
	if err != nil {
		return h, err
	}
	p.advance()
	old, new := h.OldLines, h.NewLines
	for old > 0 || new > 0 {
		if len(p.line) == 0 {
			return h, errors.New("the hunk ends too early")
		}
		op := p.line[0]
		switch {
		case op == '\n':
			return h, errors.New("the hunk ends too early")
		case op == ' ' && old > 0 && new > 0:
			old, new = old-1, new-1
		case op == '-' && old > 0:
			old--
		case op == '+' && new > 0:
			new--
		default:
			return h, errors.New("the hunk has another number of lines than its header says")
		}
		text := bytes.Clone(p.line[1:])
		if *size += len(text); *size > 2*MaxFile {
			return h, errors.New("the file's change is too large")
		}
		p.advance()
		if _, ok := p.take(`\ No newline at end of file`); ok {
			text = bytes.TrimSuffix(text, []byte("\n"))
		}
		h.Lines = append(h.Lines, Line{Op: op, Text: text})
	}
	return h, nil
}

// parseHunk reads "@@ -1,2 +3,4 @@".
func parseHunk(s string) (h Hunk, err error) {
	f := strings.Fields(s)
	if len(f) < 4 || f[0] != "@@" || f[3] != "@@" || f[1][0] != '-' || f[2][0] != '+' {
		return h, errors.New("bad hunk header")
	}
	if h.OldStart, h.OldLines, err = span(f[1][1:]); err == nil {
		h.NewStart, h.NewLines, err = span(f[2][1:])
	}
	if err == nil && h.OldLines == 0 && h.NewLines == 0 {
		err = errors.New("an empty hunk")
	}
	return h, err
}

func span(s string) (start, lines int, err error) {
	a, b, ok := strings.Cut(s, ",")
	if !ok {
		b = "1"
	}
	x, err1 := strconv.ParseUint(a, 10, 31)
	y, err2 := strconv.ParseUint(b, 10, 31)
	if err1 != nil || err2 != nil || x == 0 && y != 0 {
		return 0, 0, errors.New("bad line numbers in a hunk header")
	}
	return int(x), int(y), nil
}

// binary reads the new content and passes over the old one.
func (p *Reader) binary(d *Diff) error {
	d.Binary = true
	for i := range 2 {
		s, ok := p.take("literal ")
		if !ok {
			if i == 1 {
				return nil
			}
			return errors.New("only whole binary contents are understood")
		}
		size, err := strconv.ParseInt(s, 10, 64)
		if err != nil || size < 0 || size > MaxFile {
			return errors.New("bad size of a binary content")
		}
		var packed []byte
		for len(p.line) > 0 && p.line[0] != '\n' {
			part, err := decodeLine(bytes.TrimSuffix(p.line, []byte("\n")))
			if err != nil {
				return err
			}
			if packed = append(packed, part...); len(packed) > 2*MaxFile {
				return errors.New("the binary content is too large")
			}
			p.advance()
		}
		if _, ok := p.take(""); !ok {
			return errors.New("the binary content ends too early")
		}
		data, err := inflate(packed, size)
		if err != nil {
			return err
		}
		if i == 0 {
			d.Literal = data
		}
	}
	return nil
}
