package execd

import "io"

// ReadStream reads a stream as Run does; ended says that its terminal event
// came.
func ReadStream(r io.Reader) (o Outcome, ended bool, err error) {
	got, err := readEvents(r, func(e Event) { ended = ended || e.Type == EventComplete || e.Type == EventError })
	return got.Outcome, ended, err
}

// ParseOutput and ParseEvent are the two ways to read one line.
func ParseOutput(line []byte) (Event, bool) { return new(outputParser).parse(line) }

func ParseEvent(line []byte) (Event, bool, error) { return parseEvent(line) }
