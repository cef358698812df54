package run

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/sandbox"
)

// renewer gives the sandbox its time: it renews it as long as there is
// progress, and ends the work when there is none.
type renewer struct {
	r        *runner
	progress budget.Progress
	moved    chan struct{} // the lease was changed
	quit     chan struct{} // the sandbox is about to be destroyed
	once     sync.Once
	deadline time.Time // the newest that the lease follows, of the loop

	mu    sync.Mutex
	lease budget.Lease
	spent bool // its time is not made longer any more
}

func newRenewer(r *runner, lease budget.Lease) *renewer {
	return &renewer{r: r, lease: lease, moved: make(chan struct{}, 1), quit: make(chan struct{})}
}

// late is how much later than its absolute end a sandbox may end because its
// making took time: setting it right is a request to the provider.
const late = 5 * time.Second

// born takes the end that the sandbox was given. Its life counts from when it
// was there, the run's deadline from before.
func (k *renewer) born(ctx context.Context, end time.Time) {
	next := k.current()
	if end.Before(next.Absolute.Add(late)) {
		return
	}
	next.End = next.Absolute
	if err := k.move(ctx, next); err != nil {
		k.r.warn("the sandbox may live until %s, longer than the run: its end could not be moved: %v", end.Format(time.TimeOnly), err)
	}
}

// halt makes the loop end: there is nothing to be renewed any more.
func (k *renewer) halt() { k.once.Do(func() { close(k.quit) }) }

// start keeps the lease until ctx ends; stop is told why the work must end
// before that. The channel is closed when the renewer has ended.
func (k *renewer) start(ctx context.Context, stop context.CancelCauseFunc) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.loop(ctx, stop)
	}()
	return ended
}

func (k *renewer) loop(ctx context.Context, stop context.CancelCauseFunc) {
	final := false
	for {
		changed := k.r.tree.Changed()
		k.follow(ctx)
		due := time.Until(k.current().DecideAt())
		if final { // until the run's deadline is moved
			due = forever
		}
		if !k.sleep(ctx, due, changed) {
			return
		}
		next, decision := k.current().Decide(time.Now(), k.r.o.Attended || k.progress.Since())
		final = decision == budget.Final
		switch decision {
		case budget.ExpiredNoProgress:
			stop(errNoProgress)
			return
		case budget.Renew:
			if err := k.renew(ctx, next); err != nil {
				stop(err)
				return
			}
		}
	}
}

// forever is longer than any run.
const forever = 1 << 62

// sleep waits for d, or until the lease or a limit was changed. It reports
// whether there is still something to be renewed.
func (k *renewer) sleep(ctx context.Context, d time.Duration, changed <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-k.quit:
		return false
	case <-k.moved:
	case <-changed:
	case <-timer.C:
	}
	return true
}

// follow makes the absolute end follow the run's deadline, which may be moved. A
// run whose deadline was moved into the past still has the time to save what it
// did, and destroys its sandbox itself. One that is past it otherwise, as when it is
// resumed late, has only the margin.
func (k *renewer) follow(ctx context.Context) {
	now := k.current()
	deadline := k.r.tree.Deadline()
	if deadline.Equal(k.deadline) || now.Until(deadline).Absolute.Equal(now.Absolute) {
		return
	}
	k.deadline = deadline
	if at := time.Now(); deadline.Before(at) {
		deadline = at
	}
	next := now.Until(deadline)
	if next.End.Before(now.End) && ctx.Err() == nil {
		if err := k.move(ctx, next); err != nil && ctx.Err() == nil {
			k.r.warn("the sandbox may outlive the run, which now ends earlier: %v", err)
		}
	}
	k.mu.Lock()
	k.lease.Absolute = next.Absolute
	k.mu.Unlock()
}

// Renewals that fail are tried again after renewWait, which doubles each time,
// until only half the time is left in which outputs are saved.
const renewWait = time.Second

// renewError is a sandbox that would end under the work.
type renewError struct {
	end time.Time
	err error
}

func (e *renewError) Error() string {
	return fmt.Sprintf("the sandbox could not be renewed and ends at %s: %v", e.end.Format(time.TimeOnly), e.err)
}

func (e *renewError) Unwrap() error { return e.err }

// renew moves the end to that of next. When that fails for too long, or for
// good, the work has to end while its outputs can still be saved.
func (k *renewer) renew(ctx context.Context, next budget.Lease) error {
	now := k.current()
	last := now.End.Add(-now.SaveBefore / 2)
	for wait := renewWait; ; wait *= 2 {
		attempt, cancel := context.WithDeadline(ctx, last)
		err := k.move(attempt, next)
		cancel()
		if err == nil {
			k.progress.Renewed()
			k.r.emit(Event{Kind: EventSandbox, Text: "renewed until " + k.current().End.Format(time.TimeOnly)})
			return nil
		}
		switch kind := sandbox.KindOf(err); {
		case ctx.Err() != nil:
			return nil // the work has ended
		case kind == sandbox.KindNotFound, kind == sandbox.KindLost:
			return err
		case kind == sandbox.KindDenied, kind == sandbox.KindUnsupported, kind == sandbox.KindInvalid, !time.Now().Add(wait).Before(last):
			return &renewError{end: now.End, err: err}
		}
		k.r.warn("the sandbox could not be renewed, which is tried again in %s: %v", wait, err)
		if !k.sleep(ctx, wait, nil) {
			return nil
		}
	}
}

// current is the lease, as the next renewal goes by the limits in force.
func (k *renewer) current() budget.Lease {
	renewal := k.r.tree.Renewal()
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.lease
	l.Renewal = renewal
	return l
}

// life is how long the sandbox lives, as things are now, without the time for
// its destruction.
func (k *renewer) life() time.Duration {
	left := time.Until(k.current().End)
	return left - min(cleanupTime, left/4)
}

// left is how long a call may take, so that it ends before outputs have to be
// saved: with the renewal that is due, if one is.
func (k *renewer) left() time.Duration {
	l := k.current()
	return time.Until(l.Expected(k.progress.Since()).Add(-l.SaveBefore))
}

// move sets the sandbox's end to that of next. The end in force is the
// provider's answer.
func (k *renewer) move(ctx context.Context, next budget.Lease) error {
	end, err := k.r.box.Renew(ctx, next.End)
	if err != nil {
		return err
	}
	next.End = end
	k.mu.Lock()
	k.lease = next
	k.mu.Unlock()
	select {
	case k.moved <- struct{}{}:
	default:
	}
	return nil
}

// shorten is what a model may do to the sandbox's life.
func (k *renewer) shorten(ctx context.Context, ttl time.Duration) (time.Time, error) {
	now := k.current()
	next := now.Shorten(time.Now(), ttl)
	if !next.End.Before(now.End) {
		return now.End, nil
	}
	err := k.move(ctx, next)
	return k.current().End, err
}

// spend says that the sandbox gets no more time: work that came to nothing new
// does not buy any, also not for its end.
func (k *renewer) spend() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spent = true
}

// extend gives the sandbox the time that saving and checking need, within its
// absolute end.
func (k *renewer) extend(ctx context.Context, need time.Duration) {
	next := k.current()
	end := time.Now().Add(need)
	if end.After(next.Absolute) {
		end = next.Absolute
	}
	k.mu.Lock()
	spent := k.spent
	k.mu.Unlock()
	if spent || !end.After(next.End) {
		return
	}
	next.End = end
	if err := k.move(ctx, next); err != nil {
		k.r.warn("the sandbox could not be given the time to save its outputs: %v", err)
	}
}
