package execd

import (
	"bytes"
	"encoding/base64"
	"strconv"
)

// outputParser reads output events in the very form in which our daemon writes
// them, several times faster than JSON in general: almost all of a stream is
// output. What looks different is left to parseEvent.
type outputParser struct {
	data  []byte
	extra EventExtra
}

var outputStarts = [...]struct {
	kind   string
	prefix []byte
}{
	{EventStdout, []byte(`{"type":"stdout","timestamp":`)},
	{EventStderr, []byte(`{"type":"stderr","timestamp":`)},
}

var (
	textStart = []byte(`,"text":"`)
	textEnd   = []byte(`"}`)
	dataStart = []byte(`,"rein":{"data":"`)
	dataEnd   = []byte(`"}}`)
)

// parse returns the event of a line; its Rein member is valid until the next
// call.
func (p *outputParser) parse(line []byte) (Event, bool) {
	for _, start := range outputStarts {
		rest, ok := bytes.CutPrefix(line, start.prefix)
		if !ok {
			continue
		}
		n := bytes.IndexByte(rest, ',')
		if n < 1 || rest[0] < '1' || rest[0] > '9' {
			return Event{}, false
		}
		stamp, err := strconv.ParseInt(string(rest[:n]), 10, 64)
		if err != nil {
			return Event{}, false
		}
		e := Event{Type: start.kind, Timestamp: stamp}
		rest = bytes.TrimSuffix(rest[n:], []byte("\n"))
		if text, ok := between(rest, textStart, textEnd); ok {
			if !plain(text) {
				return Event{}, false
			}
			e.Text = string(text)
			return e, true
		}
		data, ok := between(rest, dataStart, dataEnd)
		if !ok || bytes.ContainsAny(data, "\r\n") { // which base64 skips and JSON forbids
			return Event{}, false
		}
		if p.data, err = base64.StdEncoding.AppendDecode(p.data[:0], data); err != nil {
			return Event{}, false
		}
		p.extra = EventExtra{Data: p.data}
		e.Rein = &p.extra
		return e, true
	}
	return Event{}, false
}

func between(b, start, end []byte) ([]byte, bool) {
	b, ok := bytes.CutPrefix(b, start)
	if !ok {
		return nil, false
	}
	return bytes.CutSuffix(b, end)
}

// plain reports whether the inside of a JSON string is the text itself.
func plain(b []byte) bool {
	for _, c := range b {
		if c < 0x20 || c == '"' || c == '\\' || c >= 0x7f {
			return false
		}
	}
	return true
}
