package run

import (
	"context"
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

	mu    sync.Mutex
	lease budget.Lease
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

// renewRetry is how long the renewer waits before it tries a failed renewal again.
const renewRetry = 5 * time.Second

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
	for {
		timer := time.NewTimer(time.Until(k.current().DecideAt()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-k.quit:
			timer.Stop()
			return
		case <-k.moved:
			timer.Stop()
			continue
		case <-timer.C:
		}
		next, decision := k.current().Decide(time.Now(), k.progress.Since())
		switch decision {
		case budget.ExpiredNoProgress:
			stop(errNoProgress)
			return
		case budget.Renew:
			if err := k.move(ctx, next); err != nil {
				if kind := sandbox.KindOf(err); kind == sandbox.KindNotFound || kind == sandbox.KindLost {
					stop(err)
					return
				}
				k.r.warn("the sandbox could not be renewed: %v", err)
				if !sleep(ctx, renewRetry) {
					return
				}
				continue
			}
			k.progress.Renewed()
			k.r.emit(Event{Kind: EventSandbox, Text: "renewed until " + next.End.Format(time.TimeOnly)})
		case budget.Final:
			return // the run's deadline comes first
		case budget.Keep:
			if !sleep(ctx, time.Second) { // the clock went back
				return
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (k *renewer) current() budget.Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lease
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

// extend gives the sandbox the time that saving and checking need, within its
// absolute end.
func (k *renewer) extend(ctx context.Context, need time.Duration) {
	next := k.current()
	end := time.Now().Add(need)
	if end.After(next.Absolute) {
		end = next.Absolute
	}
	if !end.After(next.End) {
		return
	}
	next.End = end
	if err := k.move(ctx, next); err != nil {
		k.r.warn("the sandbox could not be given the time to save its outputs: %v", err)
	}
}
