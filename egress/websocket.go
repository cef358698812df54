package egress

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
)

// closePolicy is a server's frame that closes a WebSocket because of a policy:
// status 1008 (RFC 6455 5.5.1, 7.4.1).
var closePolicy = []byte{0x88, 2, 1008 >> 8, 1008 & 0xff}

// socket is a client's side of a WebSocket whose messages the vault looks through.
// What may not pass closes it.
type socket struct {
	*upgraded
	in  io.Reader // the client's frames
	out io.Writer // takes the server's; under mu

	mu      sync.Mutex
	between boundary
	closed  bool
}

func newSocket(u *upgraded, grant *vault.Grant) *socket {
	s := &socket{upgraded: u, in: grant.Messages(u)}
	s.out = grant.Replies(writer(s.send))
	return s
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// send sends to the client.
func (s *socket) send(p []byte) (int, error) {
	n, err := s.upgraded.Write(p)
	s.between.sent(p[:n])
	return n, err
}

func (s *socket) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	if refused, ok := errors.AsType[*vault.Refusal](err); ok {
		s.f.deny(policy.Verdict{Proto: s.f.verdict.Proto, Rule: refused.Rule, Reason: refused.Reason})
		s.refuse()
	}
	return n, err
}

// refuse tells the client, unless it is in the middle of what the server says.
func (s *socket) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed = true; s.between.here() {
		_, _ = s.upgraded.Write(closePolicy) // fails when the client has gone
	}
}

func (s *socket) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, errClosedByPolicy
	}
	return s.out.Write(p)
}

var errClosedByPolicy = errors.New("the WebSocket was closed by the gateway")

// boundary tells where a server's frames end.
type boundary struct {
	head []byte
	left uint64
}

func (b *boundary) here() bool { return b.left == 0 && len(b.head) == 0 }

func (b *boundary) sent(p []byte) {
	for len(p) > 0 {
		if b.left > 0 {
			n := min(uint64(len(p)), b.left)
			b.left -= n
			p = p[n:]
			continue
		}
		b.head = append(b.head, p[0])
		p = p[1:]
		if len(b.head) < 2 {
			continue
		}
		size, masked := 2, b.head[1]&0x80 != 0
		length := uint64(b.head[1] & 0x7f)
		switch length {
		case 126:
			size += 2
		case 127:
			size += 8
		}
		if masked {
			size += 4
		}
		if len(b.head) < size {
			continue
		}
		switch b.head[1] & 0x7f {
		case 126:
			length = uint64(binary.BigEndian.Uint16(b.head[2:]))
		case 127:
			length = binary.BigEndian.Uint64(b.head[2:])
		}
		b.left, b.head = length, b.head[:0]
	}
}
