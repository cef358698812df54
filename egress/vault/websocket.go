package vault

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/rein-sh/rein/secret"
)

// Frames of WebSocket, from RFC 6455 5.2.
const (
	frameFinal   = 0x80
	frameReserve = 0x70 // extensions, of which none is agreed on
	frameOpcode  = 0x0f
	frameControl = 0x08
	frameMasked  = 0x80
	maxControl   = 125
)

// maxHeld is how many pieces of frames may wait: endless ones that carry nothing
// could come after what may be the beginning of a placeholder.
const maxHeld = 16 << 10

// Messages returns a reader of what a client sends over a WebSocket that ends
// with a *Refusal before the first byte of a frame's payload that is part of a
// placeholder, also one that is split over frames of a message. What is no frame
// of a client is a *Refusal as well. A nil Grant looks through nothing.
func (g *Grant) Messages(r io.Reader) io.Reader {
	if g == nil {
		return r
	}
	return &messages{known: g.vault.placeholders, src: r}
}

// Replies returns a writer of what a server sends over a WebSocket that passes it
// on to w, with asterisks in the place of secrets: frames keep their lengths. What
// is no frame of a server is a *Refusal. It writes all
// of a message when that ends, and before that what cannot be part of a secret.
func (g *Grant) Replies(w io.Writer) io.Writer {
	if g == nil {
		return w
	}
	return &replies{messages{known: g.vault.values, server: true}, w}
}

type replies struct {
	messages
	to io.Writer
}

func (r *replies) Write(p []byte) (int, error) {
	err := r.take(p)
	if len(r.out) > 0 {
		if _, werr := r.to.Write(r.out); werr != nil {
			return 0, werr
		}
		r.out = r.out[:0]
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// messages yields frames as they came, but for the end of a payload that may be
// the beginning of a placeholder: that waits for what follows.
type messages struct {
	known  *secret.Masker // what ends them, or is covered in those of a server
	server bool
	src    io.Reader

	head   []byte  // of a frame that is being read
	left   uint64  // of its payload
	mask   [4]byte // and where in it the next byte is
	at     int
	plain  bool   // the payload is of a message, not of a control frame
	final  bool   // of its last frame
	inside []byte // the end of a message that may be the beginning of a placeholder
	held   []piece

	control, raw []byte // the payload of a control frame, until it is complete
	out          []byte
	err          error
}

func (m *messages) Read(p []byte) (int, error) {
	for len(m.out) == 0 {
		if m.err != nil {
			return 0, m.err
		}
		buf := make([]byte, replaceBuffer)
		n, err := m.src.Read(buf)
		if m.err = m.take(buf[:n]); m.err == nil {
			m.err = err
		}
	}
	n := copy(p, m.out)
	m.out = m.out[n:]
	return n, nil
}

// take reads frames out of b.
func (m *messages) take(b []byte) error {
	for len(b) > 0 {
		if m.left > 0 {
			n := int(min(uint64(len(b)), m.left))
			if err := m.payload(b[:n]); err != nil {
				return err
			}
			b = b[n:]
			continue
		}
		m.head = append(m.head, b[0])
		b = b[1:]
		if err := m.header(); err != nil {
			return err
		}
	}
	return nil
}

// header looks at a head once it is complete.
func (m *messages) header() error {
	h := m.head
	if len(h) < 2 {
		return nil
	}
	size, length := 2, uint64(h[1]&^frameMasked)
	switch length {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	key := size + 4
	if m.server {
		key = size
	}
	switch {
	case h[0]&frameReserve != 0 || h[1]&frameMasked == 0 != m.server:
		return refuse(RuleForm, "what follows the handshake of a WebSocket is no frame, or one of an extension that was not agreed on")
	case len(h) < key:
		return nil
	}
	switch size {
	case 4:
		length = uint64(binary.BigEndian.Uint16(h[2:]))
	case 10:
		length = binary.BigEndian.Uint64(h[2:])
	}
	copy(m.mask[:], h[size:key])
	m.left, m.at = length, 0
	if m.plain = h[0]&frameControl == 0; m.plain {
		m.final = h[0]&frameFinal != 0
	}
	if length > maxControl && !m.plain || length>>63 != 0 {
		return refuse(RuleForm, "a frame of a WebSocket has a length that it may not have")
	}
	if m.plain && length > 0 { // a server that has the head alone may take it for a message
		m.held = append(m.held, piece{bytes.Clone(h), false})
	} else {
		m.pass(h)
	}
	m.head = m.head[:0]
	if length == 0 {
		m.end()
	}
	if len(m.held) > maxHeld {
		return refuse(RuleForm, "a message of a WebSocket is cut into too many pieces to be looked through")
	}
	return nil
}

// pass yields raw bytes after those that wait.
func (m *messages) pass(b []byte) {
	if len(m.held) > 0 {
		m.held = append(m.held, piece{bytes.Clone(b), false})
		return
	}
	m.out = append(m.out, b...)
}

// payload looks through a part of a payload.
func (m *messages) payload(b []byte) error {
	m.left -= uint64(len(b))
	clear := make([]byte, len(b))
	for i, c := range b {
		clear[i] = c ^ m.mask[m.at&3]
		m.at++
	}
	if !m.plain { // a few bytes, which are a message by themselves
		m.control, m.raw = append(m.control, clear...), append(m.raw, b...)
		if m.left > 0 {
			return nil
		}
		spans := m.known.Find(m.control)
		if len(spans) > 0 && !m.server {
			return refuse(RuleLeak, "the placeholder of a secret is in a message of a WebSocket")
		}
		cover(m.raw, spans, 0)
		m.pass(m.raw)
		m.control, m.raw = m.control[:0], m.raw[:0]
		return nil
	}
	m.inside = append(m.inside, clear...)
	m.held = append(m.held, piece{bytes.Clone(b), true})
	if spans := m.known.Find(m.inside); len(spans) > 0 {
		if !m.server {
			return refuse(RuleLeak, "the placeholder of a secret is in a message of a WebSocket")
		}
		m.cover(spans)
	}
	_, open := m.known.Partial(m.inside)
	if m.left == 0 && m.final {
		open = 0
	}
	m.inside = append(m.inside[:0], m.inside[len(m.inside)-open:]...)
	m.release(open)
	if m.left == 0 {
		m.end()
	}
	return nil
}

// cover overwrites parts of what is looked through, which is the end of the
// payload that waits.
func (m *messages) cover(spans []secret.Span) {
	cover(m.inside, spans, 0)
	at := len(m.inside)
	for i := len(m.held) - 1; i >= 0 && at > 0; i-- {
		if p := m.held[i]; p.payload {
			at -= len(p.raw)
			cover(p.raw, spans, at)
		}
	}
}

// cover overwrites what of the spans is in b, which begins at an offset.
func cover(b []byte, spans []secret.Span, offset int) {
	for _, span := range spans {
		for i := max(0, span.Start-offset); i < min(len(b), span.End-offset); i++ {
			b[i] = '*'
		}
	}
}

// end is the end of a frame.
func (m *messages) end() {
	if m.plain && m.final {
		m.release(0)
		m.inside = m.inside[:0]
	}
}

// piece is what waits: of the payload of a message, or a head or a control frame
// between.
type piece struct {
	raw     []byte
	payload bool
}

// release yields what waits, but for the last bytes of the payload, as many as
// open says, and what is between them.
func (m *messages) release(open int) {
	first := len(m.held)
	for open > 0 && first > 0 {
		if first--; m.held[first].payload {
			open -= min(open, len(m.held[first].raw))
		}
	}
	for _, p := range m.held[:first] {
		m.out = append(m.out, p.raw...)
	}
	m.held = append(m.held[:0], m.held[first:]...)
}
