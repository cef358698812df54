package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/rein-sh/rein/egress/policy"
)

// Limits of a sandbox's egress. A field that is 0 has its value from
// DefaultLimits; a negative one is an error. What a limit stops is recorded
// with the rule "limit:" and the limit's name.
type Limits struct {
	Connections    int   // limit:connections, open or being opened at once
	PerSecond      int   // limit:per_second, new connections on average; burst times as many may come at once
	Bytes          int64 // limit:bytes, both ways in total
	MaxUploadBytes int64 // limit:max_upload_bytes, from the sandbox in total
	Dials          int   // limit:dials, host connections being made at once; more wait for their turn
	Questions      int   // limit:questions, that wait for an answer at once
	Names          int   // limit:names, that were given an address
	IdleSeconds    int   // limit:idle_seconds, that a connection may carry nothing; of those that are made from then on
	NamesPerMinute int   // limit:names_per_minute, distinct ones below wildcards
}

// DefaultLimits returns the limits where nothing else is said.
func DefaultLimits() Limits {
	return Limits{
		Connections:    256,
		PerSecond:      50,
		Bytes:          16 << 30,
		MaxUploadBytes: 1 << 30,
		Dials:          32,
		Questions:      3,
		Names:          4096,
		NamesPerMinute: 60,
		IdleSeconds:    3600,
	}
}

// burst is how many seconds' worth of new connections may come at once.
const burst = 10

// orDefault returns l with its defaults.
func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	l.Connections, l.PerSecond = cmp.Or(l.Connections, d.Connections), cmp.Or(l.PerSecond, d.PerSecond)
	l.Bytes, l.MaxUploadBytes = cmp.Or(l.Bytes, d.Bytes), cmp.Or(l.MaxUploadBytes, d.MaxUploadBytes)
	l.Dials, l.Questions = cmp.Or(l.Dials, d.Dials), cmp.Or(l.Questions, d.Questions)
	l.Names, l.NamesPerMinute = cmp.Or(l.Names, d.Names), cmp.Or(l.NamesPerMinute, d.NamesPerMinute)
	l.IdleSeconds = cmp.Or(l.IdleSeconds, d.IdleSeconds)
	return l
}

// check says which limits make no sense.
func (l Limits) check() error {
	return checkLimits("limit", []limit{
		{"connections", int64(l.Connections)}, {"per_second", int64(l.PerSecond)},
		{"bytes", l.Bytes}, {"max_upload_bytes", l.MaxUploadBytes}, {"dials", int64(l.Dials)},
		{"questions", int64(l.Questions)}, {"names", int64(l.Names)}, {"names_per_minute", int64(l.NamesPerMinute)},
		{"idle_seconds", int64(l.IdleSeconds)},
	})
}

// A limit has a name.
type limit struct {
	name string
	v    int64
}

// checkLimits says which of them make no sense, and calls each what.
func checkLimits(what string, limits []limit) error {
	var bad []string
	for _, l := range limits {
		if l.v < 0 {
			bad = append(bad, fmt.Sprintf("%s %s is %d, below zero", what, l.name, l.v))
		}
	}
	if bad == nil {
		return nil
	}
	return errors.New(strings.Join(bad, "; "))
}

// overLimit is the refusal of what a limit stops.
func overLimit(name, reason string, args ...any) *refusal {
	return &refusal{policy.Verdict{Rule: "limit:" + name, Reason: fmt.Sprintf(reason, args...)}}
}

// under returns l with what a policy says instead.
func (l Limits) under(p policy.Limits) Limits {
	if p.Connections > 0 {
		l.Connections = p.Connections
	}
	if p.PerSecond > 0 {
		l.PerSecond = p.PerSecond
	}
	if p.Bytes > 0 {
		l.Bytes = p.Bytes
	}
	if p.MaxUploadBytes > 0 {
		l.MaxUploadBytes = p.MaxUploadBytes
	}
	if p.IdleSeconds > 0 {
		l.IdleSeconds = p.IdleSeconds
	}
	return l
}

// meter counts what the limits bound.
type meter struct {
	host  *HostMeter    // nil: nothing is shared
	dials chan struct{} // one for each dial under way
	rate  *rate.Limiter

	mu     sync.Mutex
	open   int
	limits Limits

	total, out       atomic.Int64 // bytes so far
	maxTotal, maxOut atomic.Int64
}

func newMeter(l Limits, host *HostMeter) *meter {
	m := &meter{host: host, rate: rate.NewLimiter(0, 0), dials: make(chan struct{}, l.Dials)}
	m.set(l)
	return m
}

// set puts other limits in force, but for Dials.
func (m *meter) set(l Limits) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.maxTotal.Store(l.Bytes)
	m.maxOut.Store(l.MaxUploadBytes)
	many := l.PerSecond
	if many <= math.MaxInt/burst {
		many *= burst
	}
	if l.PerSecond != m.limits.PerSecond {
		m.rate = rate.NewLimiter(rate.Limit(l.PerSecond), many)
	}
	m.limits = l
}

// admit counts one more connection of the sandbox, or says why there may not be
// one. Who is admitted calls release once.
func (m *meter) admit() *refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.spent(); r != nil {
		return r
	}
	if m.open >= m.limits.Connections {
		return overLimit("connections", "%d connections are open", m.open)
	}
	if !m.rate.Allow() {
		return overLimit("per_second", "more than %d new connections per second", m.limits.PerSecond)
	}
	m.open++
	return nil
}

func (m *meter) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open--
}

// turn waits until one more dial may be made. Whose turn it is calls done.
func (m *meter) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, turnTimeout,
		overLimit("dials", "%d connections were being made for %v", cap(m.dials), turnTimeout))
	defer cancel()
	select {
	case m.dials <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *meter) done() { <-m.dials }

// spent says which number of bytes has been used up.
func (m *meter) spent() *refusal {
	switch {
	case m.out.Load() >= m.maxOut.Load():
		return m.overUpload()
	case m.total.Load() >= m.maxTotal.Load():
		return m.overBytes()
	}
	return nil
}

func (m *meter) overUpload() *refusal {
	return overLimit("max_upload_bytes", "%d bytes have been sent", m.maxOut.Load())
}

func (m *meter) overBytes() *refusal {
	return overLimit("bytes", "%d bytes have gone both ways", m.maxTotal.Load())
}

// send returns how many of n bytes may leave, and the refusal of the others.
func (m *meter) send(n int) (int, *refusal) {
	var over *refusal
	may := take(&m.out, n, m.maxOut.Load())
	if may < n {
		over = m.overUpload()
	}
	both := take(&m.total, may, m.maxTotal.Load())
	if both < may {
		m.out.Add(int64(both - may))
		over = m.overBytes()
	}
	shared, refused := m.host.send(both)
	if shared < both {
		m.out.Add(int64(shared - both))
		m.total.Add(int64(shared - both))
		over = refused
	}
	return shared, over
}

// unsend gives back what send took and was not sent.
func (m *meter) unsend(n int) {
	m.out.Add(int64(-n))
	m.total.Add(int64(-n))
	m.host.unsend(n)
}

// receive is send for the other way.
func (m *meter) receive(n int) (int, *refusal) {
	var over *refusal
	may := take(&m.total, n, m.maxTotal.Load())
	if may < n {
		over = m.overBytes()
	}
	shared, refused := m.host.receive(may)
	if shared < may {
		m.total.Add(int64(shared - may))
		over = refused
	}
	return shared, over
}

// take adds n to the counter, or what is left below its limit, and returns
// which.
func take(counter *atomic.Int64, n int, limit int64) int {
	for {
		now := counter.Load()
		add := min(int64(n), max(0, limit-now))
		if counter.CompareAndSwap(now, now+add) {
			return int(add)
		}
	}
}
