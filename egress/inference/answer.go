package inference

import (
	"bytes"
	"mime"
)

// Answer reads the usage from an answer that passes by. It keeps some kilobytes,
// however long the answer is. It is not safe for concurrent use.
type Answer struct {
	api    API
	framed framing
	scan   scanner
	events eventStream

	now   event  // what is under way
	total counts // what was said so far

	stream   bool // was asked for
	some     bool // something has come
	whole    bool // the JSON text has ended
	done     bool // the protocol's last event was there
	finished bool // the model has said why it ended
	blocked  bool // the vendor has, and there is no answer
	settled  bool // the numbers are the last ones
	code     string
}

// framing is how an answer is made of JSON texts.
type framing byte

const (
	framedUnknown framing = iota
	framedJSON            // one, or a list of some: Gemini without alt=sse
	framedEvents          // server-sent events
	framedOther           // a page, for example
)

// NewAnswer begins an answer of a vendor's, with the Content-Type it has. stream is
// the request's (Request.Stream).
func NewAnswer(api API, stream bool, contentType string) *Answer {
	a := &Answer{api: api, stream: stream, now: newEvent(), total: newEvent().counts}
	switch kind, _, _ := mime.ParseMediaType(contentType); kind {
	case "text/event-stream":
		a.framed = framedEvents
	case "application/json":
		a.framed = framedJSON
	case "", "text/plain", "application/octet-stream": // Write guesses
	default:
		a.framed = framedOther
	}
	a.scan.tell, a.scan.closed = a.tell, a.closed
	a.events.data, a.events.end = a.data, a.endEvent
	return a
}

// Write takes the next bytes of the answer, decompressed. It takes all of them
// and never fails.
func (a *Answer) Write(p []byte) (int, error) {
	a.some = a.some || len(p) > 0
	if a.framed == framedUnknown {
		a.framed = a.guess(p)
	}
	switch a.framed {
	case framedEvents:
		a.events.feed(p)
	case framedJSON:
		a.scan.feed(p)
	}
	return len(p), nil
}

// guess is for answers whose type says nothing, by their beginning.
func (a *Answer) guess(p []byte) framing {
	at := bytes.TrimLeft(p, " \t\r\n")
	switch {
	case len(at) == 0:
		return framedUnknown
	case at[0] == '{' || at[0] == '[':
		return framedJSON
	case a.stream:
		return framedEvents
	}
	return framedOther
}

// End says what the answer has said: its usage; whether it came to its proper
// end; and the vendor's code of an error, if it has one. cut: the connection broke
// before the body's end, which is nothing behind the answer's own. Where the usage is not Known its numbers are what is
// known of it.
func (a *Answer) End(cut bool) (u Usage, complete bool, code string) {
	switch a.framed {
	case framedEvents:
		a.events.finish()
		complete = a.done || a.finished && (a.api == Chat || a.api == Gemini)
	case framedJSON:
		a.scan.end()
		complete = a.whole || !a.some
		a.apply()
	default:
		complete = a.some || !a.stream
	}
	u = a.total.usage(a.api)
	u.Known = a.known()
	ended := a.done || a.framed == framedJSON && a.whole // whatever became of the connection then
	return u, complete && (ended || !cut), a.code
}

// known reports whether the numbers are the last ones of the answer.
func (a *Answer) known() bool {
	both := a.total[countInput] >= 0 && a.total[countOutput] >= 0
	switch {
	case a.framed == framedEvents && a.api == Messages:
		return both && a.settled
	case a.framed == framedEvents && a.api == Responses:
		return both
	case a.framed == framedEvents && a.api == Chat:
		return both && (a.done || a.finished)
	case a.api == Gemini:
		return a.total[countInput] >= 0 && a.finished && (a.blocked || max(a.total[countOutput], a.total[countTotal]) >= 0)
	}
	return both
}

// data takes a piece of an event's data.
func (a *Answer) data(p []byte) { a.scan.feed(p) }

// endEvent ends an event, whose data began so.
func (a *Answer) endEvent(head []byte) {
	a.scan.end()
	a.scan.reset()
	if string(bytes.TrimSpace(head)) == "[DONE]" {
		a.done = true
	}
	a.apply()
}

// closed notes the end of the text, or of an element of a list that is all of it.
func (a *Answer) closed(depth int) {
	if a.framed != framedJSON {
		return
	}
	if depth == 0 {
		a.whole = true
	}
	if depth == 1 && a.scan.in[0] == '[' {
		a.apply()
	}
}

// tell takes a value.
func (a *Answer) tell(path []byte, kind byte, text []byte) {
	if a.api == Gemini {
		path = bytes.TrimPrefix(path, []byte("[]."))
	}
	field, ok := fields[a.api][string(path)]
	if !ok || kind == 'n' {
		return
	}
	a.now.set(field, kind, text)
}

// apply takes in what an event has said, and begins another.
func (a *Answer) apply() {
	e := &a.now
	if a.api == Messages { // each number counts until it is said again
		for i, n := range e.counts {
			if n >= 0 {
				a.total[i] = n
			}
		}
		a.settled = a.settled || e.kind == "message_delta" && e.counts[countOutput] >= 0
		a.done = a.done || e.kind == "message_stop"
	} else if e.counts != newEvent().counts {
		a.total = e.counts
	}
	switch e.kind {
	case "response.completed", "response.incomplete", "response.failed", "response.done":
		a.done = a.done || a.api == Responses
	}
	a.finished, a.blocked = a.finished || e.finished, a.blocked || e.blocked
	if code := e.error(); code != "" {
		a.code = code
	}
	a.now = newEvent()
}
