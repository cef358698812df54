package opensandbox

import (
	"net/http"
	"sync"
	"time"
)

// clock estimates how far the server's clock is ahead of this host's, because
// the ends of sandboxes are times on the server's: a client that is ten minutes
// ahead would see every sandbox as expired, and renew to the wrong moment.
//
// Every answer bounds the difference from both sides. Within tolerance the
// clocks are taken to agree, so that times are shown as the server gives them.
type clock struct {
	mu       sync.Mutex
	known    bool
	low, top time.Duration // the difference is between them
	ahead    time.Duration // the estimate in use
}

// tolerance is how much clocks may differ, or seem to, without being corrected.
const tolerance = 2 * time.Second

// heard learns from the Date of an answer (whole seconds, rounded down) to a
// request that was sent and answered at these times.
func (c *clock) heard(date string, sent, got time.Time) {
	if t, err := http.ParseTime(date); err == nil {
		c.bound(t.Sub(got), t.Add(time.Second).Sub(sent))
	}
}

// made learns from the createdAt of a sandbox whose creation was asked for and
// confirmed at these times. It is the clock by which sandboxes end; the Date
// may be a gateway's.
func (c *clock) made(created time.Time, sent, got time.Time) {
	if !created.IsZero() {
		c.bound(created.Sub(got), created.Sub(sent))
	}
}

func (c *clock) bound(low, top time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known && max(low, c.low) <= min(top, c.top) {
		low, top = max(low, c.low), min(top, c.top)
	} // else a clock was set
	c.low, c.top, c.known = low, top, true
	switch {
	case low <= tolerance && top >= -tolerance:
		c.ahead = 0
	case c.ahead < low || c.ahead > top || c.ahead == 0:
		c.ahead = ((low + top) / 2).Round(time.Second)
	}
}

// skew is how far the server is ahead.
func (c *clock) skew() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

// here is a time of the server on this host's clock.
func (c *clock) here(t stamp) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.Add(-c.skew())
}

// there is a time of this host on the server's clock.
func (c *clock) there(t time.Time) stamp { return stamp{t.Add(c.skew())} }
