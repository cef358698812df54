package egress

import (
	"math"
	"time"
)

// startIdle ends the flow when nothing has been carried either way for as long
// as may be. A direction that has ended counts as one that carries nothing.
func (f *flow) startIdle() {
	limit := f.gateway.meter.idle()
	f.carries()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil {
		return // it has been ended
	}
	f.idle = time.AfterFunc(limit, func() {
		if left := limit - f.quiet(); left > 0 {
			f.again(left)
			return
		}
		f.abort(overLimit("idle_seconds", "nothing was carried for %v", limit))
	})
}

// carries notes that bytes go either way. It counts by the monotonic clock: one
// that is set neither ends nor keeps a connection.
func (f *flow) carries() { f.carried.Store(int64(time.Since(f.begin))) }

// quiet is for how long none have.
func (f *flow) quiet() time.Duration { return time.Since(f.begin) - time.Duration(f.carried.Load()) }

// again looks at the flow later.
func (f *flow) again(after time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns != nil {
		f.idle.Reset(after)
	}
}

// idle is how long a connection may carry nothing.
func (m *meter) idle() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	const most = int64(math.MaxInt64 / time.Second) // centuries
	return time.Duration(min(int64(m.limits.IdleSeconds), most)) * time.Second
}
