package daemon

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/rein-sh/rein/execd"
)

// maxTyped is how much waits for a program that does not read before who types
// waits, too.
const maxTyped = 256 << 10

// typed is input of a terminal that its program has not read yet. It belongs to
// the terminal: who has typed it may be gone by the time it is read.
type typed struct {
	ready chan struct{} // something is there
	room  chan struct{} // something was taken

	mu    sync.Mutex
	data  []byte
	ended bool // the input ends after data
}

func newTyped() typed {
	return typed{ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// add queues b, unless so much waits already that b has to.
func (t *typed) add(b []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.data) > 0 && len(t.data)+len(b) > maxTyped {
		return false
	}
	if !t.ended {
		t.data = append(t.data, b...)
	}
	signalTo(t.ready)
	return true
}

// end has the input end after what is queued.
func (t *typed) end() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	signalTo(t.ready)
}

// take moves what is queued to buf; ended says that nothing follows.
func (t *typed) take(buf []byte) (n int, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n = copy(buf, t.data)
	t.data = t.data[n:]
	if len(t.data) == 0 {
		t.data = nil
	}
	signalTo(t.room)
	return n, t.ended && t.data == nil
}

// feed gives the program what is typed until hungUp, when its input is closed,
// too: a write that waits fails then.
func (p *pty) feed(input io.WriteCloser, hungUp <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, ended := p.typed.take(buf)
		if n > 0 {
			if _, err := input.Write(buf[:n]); err != nil && !isClosed(hungUp) {
				p.unread(err)
			}
			if !ended {
				continue
			}
		}
		if ended {
			input.Close() // of pipes, which fails only when nobody reads any more
		}
		select {
		case <-p.typed.ready:
		case <-hungUp:
			return
		}
	}
}

// unread tells who is attached that what was typed has reached nobody.
func (p *pty) unread(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		p.conn.answer(execd.TerminalMessage{Type: "error", Code: execd.CodeStdinFailed, Error: err.Error()})
	}
}

// ptyKnock is how often a socket is written to while it is not read from.
const ptyKnock = time.Second

// input types b, if it is still for c to type. Where too much waits for the
// program already it waits, too, but no longer than the socket is there: it is
// not read meanwhile, so that only writing to it shows that the other side has
// gone.
func (c *ptyConn) input(ctx context.Context, b []byte) bool {
	typed := false
	ours := func() bool { return c.attached(func() { typed = c.p.typed.add(b) }) }
	if !ours() || typed {
		return true
	}
	c.busy.Add(1)
	defer c.busy.Add(1)
	t := time.NewTicker(ptyKnock)
	defer t.Stop()
	for ours() && !typed {
		select {
		case <-c.p.typed.room:
		case <-c.kicked:
		case <-c.p.ended:
			return true // nobody reads it; the end is on its way
		case <-t.C:
			short, cancel := context.WithTimeout(ctx, ptyKnock/10)
			err := c.ws.Ping(short) // the answer would have to be read
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
	return true
}
