package budget

import "time"

// The arithmetic of a sandbox's life.
const (
	// Margin is added to the estimate at birth, and is how long a sandbox may
	// outlive its run's deadline: the time to save outputs and clean up.
	Margin = 3 * time.Minute
	// MaxEstimate caps the estimate.
	MaxEstimate = 15 * time.Minute
	// SaveBefore is how long before an end the saving of outputs starts.
	SaveBefore = 60 * time.Second
)

// Estimate is how long a run of that wall time is expected to need its sandbox
// before it must show progress: the wall time, at most MaxEstimate.
func Estimate(wall time.Duration) time.Duration { return min(wall, MaxEstimate) }

// Lease is the life of a run's sandbox. It is a value: its methods are pure.
type Lease struct {
	Born time.Time
	End  time.Time
	// Absolute is what End never passes: the run's deadline plus Margin.
	Absolute time.Time
	// Estimate is what one renewal adds.
	Estimate time.Duration
}

// NewLease returns the lease of a sandbox born at born, for a run with these
// limits that must end at deadline. It lives l.TTL, or Estimate plus Margin,
// and never past Absolute.
func NewLease(l Limits, born, deadline time.Time) Lease {
	estimate := Estimate(l.MaxWallTime)
	ttl := l.TTL
	if ttl == 0 {
		ttl = estimate + Margin
	}
	absolute := deadline.Add(Margin)
	return Lease{Born: born, End: earlier(born.Add(ttl), absolute), Absolute: absolute, Estimate: estimate}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// TTL is the time to live at birth, or after the renewals so far.
func (l Lease) TTL() time.Duration { return l.End.Sub(l.Born) }

// DecideAt is when to call Decide: SaveBefore the end.
func (l Lease) DecideAt() time.Time { return l.End.Add(-SaveBefore) }

// Shorten moves the end to now+ttl when that is earlier; it never extends.
// Progress renews a shortened lease as any other.
func (l Lease) Shorten(now time.Time, ttl time.Duration) Lease {
	l.End = earlier(l.End, now.Add(max(0, ttl)))
	return l
}

// Decision is what becomes of a lease.
type Decision string

// The decisions.
const (
	// Keep: it is too early to decide.
	Keep Decision = "keep"
	// Renew: move the sandbox's end to the returned lease's.
	Renew Decision = "renew"
	// ExpiredNoProgress: nothing new since the last renewal. Save the outputs
	// and end the run; the sandbox ends by itself at End.
	ExpiredNoProgress Decision = "expired_no_progress"
	// Final: End is the absolute end, past the run's deadline.
	Final Decision = "final"
)

// Decide says what to do at now, given whether there was progress since the
// last renewal, and the lease that results. Only Renew changes the lease; use
// the new one when the provider has renewed.
func (l Lease) Decide(now time.Time, progress bool) (Lease, Decision) {
	switch {
	case now.Before(l.DecideAt()):
		return l, Keep
	case !l.End.Before(l.Absolute):
		return l, Final
	case !progress:
		return l, ExpiredNoProgress
	}
	l.End = earlier(l.End.Add(l.Estimate), l.Absolute)
	return l, Renew
}
