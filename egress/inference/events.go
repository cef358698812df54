package inference

// eventStream reads server-sent events as they come, in pieces, after
// html.spec.whatwg.org/multipage/server-sent-events.html: lines end in CR, LF or
// both, a line of data without a colon is empty, and lines of one event's data are
// put together with a line feed. Fields other than data are left out.
type eventStream struct {
	data func(p []byte)    // is given an event's data in pieces
	end  func(head []byte) // is told that an event has ended, whose data began so

	state lineState
	cr    bool // the last byte was a CR
	start bool // something has come: what may be before it is a byte order mark
	field [6]byte
	n     int // of field

	head  [8]byte
	heads int // of head; above 8: there is more
	lines int // of data, in this event
}

type lineState byte

const (
	lineField lineState = iota // the field's name
	lineSpace                  // after its colon: one space is left out
	lineData
	lineOther
)

func (s *eventStream) feed(p []byte) {
	for i := 0; i < len(p); {
		c := p[i]
		if s.cr {
			if s.cr = false; c == '\n' {
				i++
				continue
			}
		}
		if c == '\r' || c == '\n' {
			s.cr = c == '\r'
			s.line()
			i++
			continue
		}
		switch s.state {
		case lineField:
			s.name(c)
			i++
		case lineSpace:
			if s.state = lineData; c == ' ' {
				i++
			}
		default:
			end := i
			for end < len(p) && p[end] != '\r' && p[end] != '\n' {
				end++
			}
			if s.state == lineData {
				s.give(p[i:end])
			}
			i = end
		}
	}
}

// name takes a byte of a field's name.
func (s *eventStream) name(c byte) {
	if c == ':' {
		s.state = lineOther
		if string(s.field[:s.n]) == "data" {
			s.begin()
			s.state = lineSpace
		}
		return
	}
	if s.n == len(s.field) {
		s.state = lineOther
		return
	}
	s.field[s.n] = c
	s.n++
	if !s.start && s.n == 3 && string(s.field[:3]) == "\xef\xbb\xbf" {
		s.n = 0
	}
	s.start = s.start || s.n > 3
}

// begin begins a line of data.
func (s *eventStream) begin() {
	if s.lines++; s.lines > 1 {
		s.give([]byte{'\n'})
	}
}

func (s *eventStream) give(p []byte) {
	if s.heads <= len(s.head) {
		s.heads += copy(s.head[min(s.heads, len(s.head)):], p)
		if s.heads == len(s.head) {
			s.heads++
		}
	}
	s.data(p)
}

// line ends a line; an empty one ends an event.
func (s *eventStream) line() {
	if s.state == lineField {
		if s.n == 0 {
			s.finish()
		} else if string(s.field[:s.n]) == "data" {
			s.begin()
		}
	}
	s.start, s.state, s.n = true, lineField, 0
}

// finish ends an event, also one after which no line is empty.
func (s *eventStream) finish() {
	if s.lines > 0 {
		s.end(s.head[:min(s.heads, len(s.head))])
	}
	s.lines, s.heads = 0, 0
}
