package budget

import (
	"cmp"
	"time"
)

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

// Terms are the numbers of a sandbox's life; a zero one is the constant of that
// name, or what Estimate says. Only experiments set them: no run has time to
// wait minutes for a renewal that it is to show.
type Terms struct{ Estimate, Margin, SaveBefore time.Duration }

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
	// Renewal, when not 0, is what the sandbox has from a renewal on instead; no
	// renewal makes its life shorter.
	Renewal time.Duration
	// Margin is how much Absolute is after the run's deadline, and SaveBefore how
	// long before End the decision is made.
	Margin, SaveBefore time.Duration
}

// Lease returns the lease on these terms of a sandbox born at born, for a run with
// these limits that must end at deadline. It lives l.TTL, or Estimate plus Margin,
// and never past Absolute.
func (t Terms) Lease(l Limits, born, deadline time.Time) Lease {
	t.Estimate = cmp.Or(t.Estimate, Estimate(l.MaxWallTime))
	t.Margin, t.SaveBefore = cmp.Or(t.Margin, Margin), cmp.Or(t.SaveBefore, SaveBefore)
	ttl := cmp.Or(l.TTL, t.Estimate+t.Margin)
	absolute := deadline.Add(t.Margin)
	return Lease{Born: born, End: earlier(born.Add(ttl), absolute), Absolute: absolute,
		Estimate: t.Estimate, Margin: t.Margin, SaveBefore: t.SaveBefore}
}

// Until returns the lease of a run the deadline of which was moved. A lease
// that would outlive it ends with it; no lease is made longer.
func (l Lease) Until(deadline time.Time) Lease {
	l.Absolute = deadline.Add(l.Margin)
	l.End = earlier(l.End, l.Absolute)
	return l
}

// Expected is the end, as things are now: with the renewal that is due when
// there was progress since the last one.
func (l Lease) Expected(progress bool) time.Time {
	if progress {
		return l.renewed(l.DecideAt())
	}
	return l.End
}

// renewed is the end after a renewal at now.
func (l Lease) renewed(now time.Time) time.Time {
	end := l.End.Add(l.Estimate)
	if l.Renewal > 0 {
		if end = now.Add(l.Renewal); end.Before(l.End) {
			end = l.End
		}
	}
	return earlier(end, l.Absolute)
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
func (l Lease) DecideAt() time.Time { return l.End.Add(-l.SaveBefore) }

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
	l.End = l.renewed(now)
	return l, Renew
}
