package wrap

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"github.com/rein-sh/rein/evidence"
)

// Readers make the readers of agents' output, by the names that Recipe.Results has.
var Readers = map[string]func() Reader{
	"codex":    func() Reader { return &lineReader{events: &codex{}} },
	"claude":   func() Reader { return &lineReader{events: &claude{}} },
	"gemini":   func() Reader { return &lineReader{events: &geminiCLI{}} },
	"opencode": func() Reader { return &lineReader{events: &opencode{}} },
	"qwen":     func() Reader { return &lineReader{events: &claude{apiErrors: true}} },
}

// Limits of a reader.
const (
	maxLine  = 16 << 20 // bytes of a line that is read; a longer one is passed over
	maxSaid  = 1 << 20  // bytes of an agent's final text
	maxShown = 200      // bytes of what is shown of one activity
	maxError = 2000     // bytes of an agent's own words of an error
	keptErr  = 64       // lines of stderr that are kept, the last ones
)

// events understand the lines of one agent.
type events interface {
	// event takes one JSON object. It reports false for one that it does not know.
	event(line []byte, r *Reading) ([]Activity, bool)
	// end completes what was read when the streams have ended. stderr are its last
	// lines.
	end(code int, stderr []string, r *Reading)
}

// lineReader reads an agent that writes one JSON object on each line.
type lineReader struct {
	events
	out, err lines
	stderr   []string
	reading  Reading
}

var _ Reader = (*lineReader)(nil)

func (l *lineReader) Stdout(p []byte) []Activity {
	var told []Activity
	l.reading.Unknown += l.out.add(p, func(line []byte) { told = append(told, l.line(line)...) })
	return told
}

// line reads one line of stdout. What stands before an object was not written by
// the agent itself: a program that it started wrote to its terminal.
func (l *lineReader) line(line []byte) []Activity {
	line = plain(line)
	if len(line) == 0 {
		return nil
	}
	if i := bytes.IndexByte(line, '{'); i >= 0 && json.Valid(line[i:]) {
		if told, known := l.event(line[i:], &l.reading); known {
			return told
		}
	}
	l.reading.Unknown++
	return nil
}

func (l *lineReader) Stderr(p []byte) []Activity {
	l.err.add(p, l.keep)
	return nil
}

func (l *lineReader) keep(line []byte) {
	text := strings.ToValidUTF8(string(plain(line)), "\uFFFD")
	if text == "" {
		return
	}
	if len(l.stderr) == keptErr {
		l.stderr = append(l.stderr[:0], l.stderr[1:]...)
	}
	l.stderr = append(l.stderr, evidence.Cut(text, maxError))
}

func (l *lineReader) End(code int, _ time.Duration) Reading {
	l.out.rest(func(line []byte) { l.line(line) })
	l.err.rest(l.keep)
	r := &l.reading
	l.end(code, l.stderr, r)
	r.Answer = evidence.Cut(r.Answer, maxSaid)
	if r.Failure != nil {
		r.Failure.Message = evidence.Cut(oneLine(r.Failure.Message), maxError)
	}
	return *r
}

// lines cuts a stream into lines.
type lines struct {
	partial []byte
	over    bool // the line is too long, and is passed over
}

// add calls each for every line that p completes, and returns how many were too
// long. A line is good for the call alone.
func (l *lines) add(p []byte, each func([]byte)) (passed int) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		piece, ends := p, i >= 0
		if ends {
			piece, p = p[:i], p[i+1:]
		} else {
			p = nil
		}
		switch {
		case l.over:
		case len(l.partial)+len(piece) > maxLine:
			l.over, l.partial = true, nil
			passed++
		case ends && len(l.partial) == 0:
			each(piece)
		default:
			l.partial = append(l.partial, piece...)
			if ends {
				each(l.partial)
				l.partial = l.partial[:0]
			}
		}
		if ends {
			l.over = false
		}
	}
	return passed
}

// rest calls each for a last line without its end.
func (l *lines) rest(each func([]byte)) {
	if len(l.partial) > 0 {
		each(l.partial)
	}
	l.partial = nil
}

// sequence is an escape sequence of a terminal: CSI, OSC, and those of two bytes.
var sequence = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])`)

// plain is a line without escape sequences, control characters at its ends and
// space around it. In JSON an escape character is always written otherwise.
func plain(line []byte) []byte {
	if bytes.IndexByte(line, 0x1b) >= 0 {
		line = sequence.ReplaceAll(line, nil)
	}
	return bytes.TrimFunc(line, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

// oneLine is a text with its lines joined, and no control characters.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
}

// told is an activity; nil when there is nothing to tell.
func told(kind, text string) []Activity {
	if text = oneLine(text); text == "" {
		return nil
	}
	return []Activity{{Kind: kind, Text: evidence.Cut(text, maxShown)}}
}
