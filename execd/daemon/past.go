package daemon

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/internal/sockdiag"
)

// keptPast is how many commands that have ended are remembered.
const keptPast = 256

// past are the last commands that have ended, and which wardens ran them.
type past struct {
	mu   sync.Mutex
	runs []wardenRun // a ring, once it is full
	next int
}

// wardenRun is one command of a warden, between two times of CLOCK_MONOTONIC.
type wardenRun struct {
	pid        int
	id         string
	start, end int64 // in nanoseconds
}

func (p *past) add(r wardenRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.runs) < keptPast {
		p.runs = append(p.runs, r)
		return
	}
	p.runs[p.next] = r
	p.next = (p.next + 1) % keptPast
}

// at is the command that a warden ran at a time, "" when it is not known.
func (p *past) at(pid int, when int64) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.runs {
		if r.pid == pid && r.start <= when && when <= r.end {
			return r.id
		}
	}
	return ""
}

// monotonic is the time in nanoseconds that a sockdiag.Maker has.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // every Linux has it
	return t.Nano()
}

// maker is the command whose process made a connection, "" when there is none.
// It may have ended since.
func (m *OS) maker(by sockdiag.Maker) string {
	if by.PID == 0 {
		return ""
	}
	m.mu.Lock()
	for w := range m.live {
		if w.pid != by.PID {
			continue
		}
		w.mu.Lock()
		p := w.cur
		w.mu.Unlock()
		if p != nil && p.began <= by.At {
			m.mu.Unlock()
			return p.id
		}
	}
	m.mu.Unlock()
	return m.past.at(by.PID, by.At)
}
