package egress

import (
	"math"
	"time"
)

// startIdle ends the flow when nothing has been carried either way for as long
// as may be. A direction that has ended counts as one that carries nothing.
func (f *flow) startIdle() {
	limit := f.gateway.meter.idle()
	f.carried.Store(time.Now().UnixNano())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil {
		return // it has been ended
	}
	f.idle = time.AfterFunc(limit, func() {
		if left := limit - time.Since(time.Unix(0, f.carried.Load())); left > 0 {
			f.again(left)
			return
		}
		f.abort(overLimit("idle_seconds", "nothing was carried for %v", limit))
	})
}

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
