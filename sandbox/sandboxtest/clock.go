package sandboxtest

import (
	"context"
	"time"
)

// Clock is the time of in-memory sandboxes: their ends, and what sleep waits
// on. A timer's function runs in its own goroutine.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once after d. Stop reports whether it came in time.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// realClock is package time, which testing/synctest simulates.
type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

func (realClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

// pause waits for d on the sandbox's clock, or for ctx; it reports whether the
// time has passed.
func (s *shell) pause(ctx context.Context, d time.Duration) bool {
	over := make(chan struct{})
	stop := s.clock.AfterFunc(d, func() { close(over) })
	defer stop()
	select {
	case <-over:
		return true
	case <-ctx.Done():
		return false
	}
}
