package budget

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
)

// UnknownError is a name that no limit has which could be set.
type UnknownError struct{ Limit Limit }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("there is no limit %q to set", string(e.Limit))
}

// Hint lists those that there are.
func (e *UnknownError) Hint() string {
	var names []string
	for _, s := range Standard().List() {
		names = append(names, string(s.Limit))
	}
	return "there are " + strings.Join(names, ", ")
}

// With returns the limits with one of them set, in its unit (counts, bytes,
// nanoseconds or USD), and what it was. They are valid, or the error is that of
// Validate, or an *UnknownError.
func (l Limits) With(limit Limit, amount int64) (with Limits, old int64, err error) {
	count := func(p *int) { old, *p = int64(*p), int(min(amount, math.MaxInt)) }
	duration := func(p *time.Duration) { old, *p = int64(*p), time.Duration(amount) }
	switch limit {
	case LimitCallTimeout:
		duration(&l.CallTimeout)
	case LimitMaxCallTimeout:
		duration(&l.MaxCallTimeout)
	case LimitOutputBytes:
		count(&l.OutputBytes)
	case LimitOutputLines:
		count(&l.OutputLines)
	case LimitSteps:
		count(&l.MaxSteps)
	case LimitToolCalls:
		count(&l.MaxToolCalls)
	case LimitWallTime:
		duration(&l.MaxWallTime)
	case LimitTokens:
		old, l.MaxTokens = l.MaxTokens, amount
	case LimitCost:
		old, l.MaxCost = int64(l.MaxCost), USD(amount)
	case LimitTTL:
		duration(&l.TTL)
	default:
		return l, 0, &UnknownError{Limit: limit}
	}
	return l, old, l.Validate()
}

// SetLimit raises or lowers a limit, in its unit, and returns what it was. A
// limit of a round or the run holds from the next check on: lowered below what
// is used, it stops the work there; what is reserved already is not taken back.
// One of a call holds from the next call on, and the time to live from the next
// renewal on (see Renewal). An amount that makes no sense, by itself or beside
// the other limits, is an error as With returns it, and then nothing has
// changed. The caller records it.
func (t *Tree) SetLimit(limit Limit, amount int64) (old int64, err error) {
	t.mu.Lock()
	l, old, err := t.limits.With(limit, amount)
	if err == nil {
		t.limits = l
		if limit == LimitTTL {
			t.renewal = l.TTL
		}
	}
	warnings := t.marked(t.now())
	t.mu.Unlock()
	if err != nil {
		return 0, err
	}
	t.changed()
	t.tell(warnings)
	return old, nil
}

// Renewal is the time to live that SetLimit has set: what a sandbox has from its
// next renewal on. 0: it was not changed, and a renewal adds one estimate.
func (t *Tree) Renewal() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.renewal
}

// Changed returns a channel that is closed at the next change of a limit.
func (t *Tree) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.moved
}

// changed makes the contexts follow, and tells who waits for a change.
func (t *Tree) changed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.clocks {
		c.set()
	}
	close(t.moved)
	t.moved = make(chan struct{})
}

// Context returns a context that ends at Deadline, also when that is moved, with
// the *Breach of the wall clock as its cause. It ends by real time, whatever
// TreeOptions.Now is, and states no deadline of its own, since that may move.
func (t *Tree) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return t.clocked(parent, false)
}

// WorkContext is Context for work: it ends before, by the time that is kept for
// the last turn.
func (t *Tree) WorkContext(parent context.Context) (context.Context, context.CancelFunc) {
	return t.clocked(parent, true)
}

// clock ends one context when its time is over.
type clock struct {
	tree  *Tree
	work  bool
	timer *time.Timer
	end   context.CancelCauseFunc
}

func (t *Tree) clocked(parent context.Context, work bool) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	c := &clock{tree: t, work: work, end: end}
	t.mu.Lock()
	left, _ := c.left()
	c.timer = time.AfterFunc(left, c.ring)
	t.clocks[c] = true
	t.mu.Unlock()
	return ctx, sync.OnceFunc(func() {
		t.mu.Lock()
		c.timer.Stop()
		delete(t.clocks, c)
		t.mu.Unlock()
		end(context.Canceled)
	})
}

// left is the time to the clock's end, and what is kept of it. The caller holds mu.
func (c *clock) left() (left, kept time.Duration) {
	if c.work {
		kept = c.tree.keeps().Time
	}
	return time.Until(c.tree.start.Add(c.tree.limits.MaxWallTime - kept)), kept
}

// set makes the clock ring when it should. The caller holds mu.
func (c *clock) set() {
	left, _ := c.left()
	c.timer.Reset(left)
}

func (c *clock) ring() {
	c.tree.mu.Lock()
	defer c.tree.mu.Unlock()
	left, kept := c.left()
	if left > 0 {
		c.timer.Reset(left)
		return
	}
	most := int64(c.tree.limits.MaxWallTime)
	b := breach(LimitWallTime, most-int64(kept), most)
	b.Kept = int64(kept)
	c.end(b)
}
