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
func NewLease(l Limits, born, deadline time.Time) Lease { panic("to come") }

// TTL is the time to live at birth, or after the renewals so far.
func (l Lease) TTL() time.Duration { return l.End.Sub(l.Born) }

// DecideAt is when to call Decide: SaveBefore the end.
func (l Lease) DecideAt() time.Time { return l.End.Add(-SaveBefore) }

// Shorten moves the end to now+ttl when that is earlier; it never extends.
func (l Lease) Shorten(now time.Time, ttl time.Duration) Lease { panic("to come") }

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
// last renewal, and the lease that results.
func (l Lease) Decide(now time.Time, progress bool) (Lease, Decision) { panic("to come") }

// Progress decides whether a run makes progress: a successful result that is
// new. A call that was made before never counts, whatever it returns; a result
// that differs from an earlier one only in digits, times and dates is not new;
// more output of a background command counts. All methods may be called
// concurrently. The zero Progress is ready to use.
type Progress struct{}

// Call tells of a finished call: the tool and its arguments, whether it
// succeeded, and its result as the model saw it, without ids and durations. It
// reports whether that was progress.
func (p *Progress) Call(tool string, args []byte, ok bool, result []byte) bool { panic("to come") }

// Background tells how many bytes the background command id has printed by now,
// and reports whether that was progress: more than ever before.
func (p *Progress) Background(id string, bytes int64) bool { panic("to come") }

// Since reports whether there was progress since the last call of Renewed, or
// the beginning.
func (p *Progress) Since() bool { panic("to come") }

// Renewed tells that the lease was renewed: progress counts from zero again.
// What has been seen is not forgotten.
func (p *Progress) Renewed() { panic("to come") }

// Normalize returns text with what changes by itself between two runs of the
// same thing made equal: numbers, times and dates, and the width of spaces.
func Normalize(text []byte) []byte { panic("to come") }
