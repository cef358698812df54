package egress

import (
	"cmp"
	"sync"
	"time"
)

// HostLimits bound what all sandboxes together take that share a file, beside
// the Limits of each. A field that is 0 has its value from DefaultHostLimits; a
// negative one is an error. What one stops is recorded with the rule
// "limit:host_" and its name.
type HostLimits struct {
	Connections    int   // limit:host_connections, open or being opened at once
	PerSecond      int   // limit:host_per_second, new connections on average; burst times as many may come at once
	Bytes          int64 // limit:host_bytes, both ways within a day, see HostMeter
	MaxUploadBytes int64 // limit:host_max_upload_bytes, from the sandboxes within a day
}

// DefaultHostLimits returns the limits where nothing else is said: what four
// sandboxes may that each take all of theirs.
func DefaultHostLimits() HostLimits {
	const sandboxes = 4
	one := DefaultLimits()
	return HostLimits{
		Connections:    sandboxes * one.Connections,
		PerSecond:      sandboxes * one.PerSecond,
		Bytes:          sandboxes * one.Bytes,
		MaxUploadBytes: sandboxes * one.MaxUploadBytes,
	}
}

func (l HostLimits) orDefault() HostLimits {
	d := DefaultHostLimits()
	l.Connections, l.PerSecond = cmp.Or(l.Connections, d.Connections), cmp.Or(l.PerSecond, d.PerSecond)
	l.Bytes, l.MaxUploadBytes = cmp.Or(l.Bytes, d.Bytes), cmp.Or(l.MaxUploadBytes, d.MaxUploadBytes)
	return l
}

// Check says which limits make no sense.
func (l HostLimits) Check() error {
	return checkLimits("host limit", []limit{
		{"connections", int64(l.Connections)}, {"per_second", int64(l.PerSecond)},
		{"bytes", l.Bytes}, {"max_upload_bytes", l.MaxUploadBytes},
	})
}

// HostMeter counts for the gateways of all processes that have opened the same
// file, each with limits of its own for what all have taken. It needs no name
// of the file system after OpenHostMeter.
//
// A day is the hour that runs, by the UTC clock, and the 24 before it: within
// any 24 hours never more passes than the limit. Connections are those of
// processes that live: what one held that was killed is free at once. Bytes are
// taken from the file in advance, at most hostChunk and a sixteenth of what is
// left, and given back with a process's last connection or when the hour is
// over; what a killed process had in advance counts as used.
//
// When the file is damaged, was removed, stays locked or cannot be written,
// nothing is admitted and no further byte is carried than was taken: rule "limit:host".
type HostMeter struct {
	limits HostLimits

	mu        sync.Mutex // also held while the file is waited for
	file      *hostFile
	open      uint32 // connections of this process
	both, out advance
}

// advance is what this process may carry that counts as used.
type advance struct{ left, hour int64 }

// hostChunk is what is taken in advance at most, in bytes: at 10 Gbit/s the file
// is looked at a thousand times a second. Near the limit it is less, down to
// hostChunkLeast, and then nothing: what is left is for whoever sends it.
const (
	hostChunk      = 1 << 20
	hostChunkLeast = 64 << 10
)

// OpenHostMeter opens the file, or makes it: only its owner, who must be this
// process's user, may have access. Whoever opens it must not be given less than
// all that others are, so it is made complete or not at all. Errors are *Error.
func OpenHostMeter(path string, l HostLimits) (*HostMeter, error) {
	if err := l.Check(); err != nil {
		return nil, &Error{Kind: KindInvalid, Op: "open", Subject: path, Err: err}
	}
	f, err := openHostFile(path)
	if err != nil {
		return nil, &Error{Kind: KindHost, Op: "open", Subject: path, Err: err,
			Hint: "it counts what all sandboxes take of the network; when none runs, remove it: it is made anew, and what was used of the day is forgotten"}
	}
	return &HostMeter{limits: l.orDefault(), file: f}, nil
}

// Close gives back what the process holds. The gateways that use the meter must
// be closed.
func (m *HostMeter) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.file.close()
}

// overHost is the refusal of what a limit stops that all sandboxes share.
func overHost(name, reason string, args ...any) *refusal {
	return overLimit("host_"+name, reason+"; all sandboxes of this host share this limit", args...)
}

// unusable is the refusal of everything, because of the file.
func unusable(err error) *refusal {
	return overLimit("host", "what all sandboxes of this host share cannot be counted: %v", err)
}

// admit counts one more connection, or says why there may not be one. Who is
// admitted calls release once.
func (m *HostMeter) admit() *refusal {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var refused *refusal
	before := m.open
	err := m.file.change(func(c *hostCounts) error {
		now := time.Now()
		c.age(now)
		if refused = m.spent(c); refused != nil {
			return nil
		}
		ours, err := m.file.claim()
		if err != nil {
			return err
		}
		if !ours {
			refused = overHost("connections", "%d sandboxes have connections", hostSlots)
			return nil
		}
		n, err := m.file.connections(m.open, m.limits.Connections)
		switch {
		case err != nil:
			return err
		case n >= int64(m.limits.Connections):
			refused = overHost("connections", "%d connections are open", n)
		case !c.allow(now, m.limits.PerSecond):
			refused = overHost("per_second", "more than %d new connections per second", m.limits.PerSecond)
		default:
			return m.count(m.open + 1)
		}
		return nil
	})
	if err != nil {
		m.open = before
		return unusable(err)
	}
	return refused
}

// count has the file say how many connections are open.
func (m *HostMeter) count(open uint32) error {
	if err := m.file.count(open); err != nil {
		return err
	}
	m.open = open
	return nil
}

// release is the end of a connection that was admitted. When the file cannot be
// written it goes on counting the connection, until it can be with the next.
func (m *HostMeter) release() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open--
	// An error is that of the next admit as well, which is refused for it.
	_ = m.file.change(func(c *hostCounts) error {
		c.age(time.Now())
		if m.open == 0 {
			m.both.giveBack(c.Hour, &c.Both)
			m.out.giveBack(c.Hour, &c.Out)
		}
		return m.file.count(m.open)
	})
}

// spent says which number of bytes has been used up.
func (m *HostMeter) spent(c *hostCounts) *refusal {
	switch {
	case used(&c.Out)-m.out.left >= m.limits.MaxUploadBytes:
		return m.overUpload()
	case used(&c.Both)-m.both.left >= m.limits.Bytes:
		return m.overBytes()
	}
	return nil
}

func (m *HostMeter) overUpload() *refusal {
	return overHost("max_upload_bytes", "%d bytes have been sent within a day", m.limits.MaxUploadBytes)
}

func (m *HostMeter) overBytes() *refusal {
	return overHost("bytes", "%d bytes have gone both ways within a day", m.limits.Bytes)
}

// send returns how many of n bytes may leave, and the refusal of the others.
func (m *HostMeter) send(n int) (int, *refusal) {
	if m == nil {
		return n, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.ensure(int64(n), int64(n))
	may := min(int64(n), m.out.left, m.both.left)
	m.out.left -= may
	m.both.left -= may
	switch {
	case may == int64(n):
		return n, nil
	case err != nil:
		return int(may), unusable(err)
	case m.out.left == 0:
		return int(may), m.overUpload()
	}
	return int(may), m.overBytes()
}

// unsend gives back what send took and was not sent.
func (m *HostMeter) unsend(n int) {
	if m == nil || n == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out.left += int64(n)
	m.both.left += int64(n)
}

// receive is send for the other way.
func (m *HostMeter) receive(n int) (int, *refusal) {
	if m == nil {
		return n, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.ensure(0, int64(n))
	may := min(int64(n), m.both.left)
	m.both.left -= may
	switch {
	case may == int64(n):
		return n, nil
	case err != nil:
		return int(may), unusable(err)
	}
	return int(may), m.overBytes()
}

// ensure has out and both hold as many bytes, of this hour, or what is left.
func (m *HostMeter) ensure(out, both int64) error {
	hour := hourOf(time.Now())
	if m.out.holds(hour, out) && m.both.holds(hour, both) {
		return nil
	}
	o, b := m.out, m.both
	err := m.file.change(func(c *hostCounts) error {
		c.age(time.Now())
		m.out.take(c.Hour, &c.Out, out, m.limits.MaxUploadBytes)
		m.both.take(c.Hour, &c.Both, both, m.limits.Bytes)
		return nil
	})
	if err != nil { // what is not written down was not taken
		m.out, m.both = o, b
	}
	return err
}

// holds reports whether a has n bytes of this hour, or of the next: it is the
// file's where a clock was put back, see age.
func (a *advance) holds(hour, n int64) bool {
	return n == 0 || (a.hour == hour || a.hour == hour+1) && a.left >= n
}

// take fills a with n bytes and some more, or what is left below the limit.
func (a *advance) take(hour int64, d *day, n, limit int64) {
	if a.hour != hour {
		a.giveBack(hour, d)
		a.hour = hour
	}
	if n <= a.left {
		return
	}
	left := max(0, limit-used(d))
	n = min(n-a.left, left)
	if more := min(hostChunk, (left-n)/16); more >= hostChunkLeast {
		n += more
	}
	d[0] += n
	a.left += n
}

// giveBack takes what is left of a out of the hour it was counted in.
func (a *advance) giveBack(hour int64, d *day) {
	if ago := hour - a.hour; ago >= 0 && ago < int64(len(d)) {
		d[ago] = max(0, d[ago]-a.left)
	}
	a.left = 0
}
