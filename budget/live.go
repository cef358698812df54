package budget

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// FixedError says that a limit cannot be changed once the work has begun: the
// sandbox and the tools were made with it.
type FixedError struct{ Limit Limit }

func (e *FixedError) Error() string {
	return fmt.Sprintf("limit %s cannot be changed while a run works", e.Limit)
}

// Hint says which limits can.
func (e *FixedError) Hint() string {
	return "max_steps, max_tool_calls, max_wall_time, max_tokens and max_cost can; set it for the next run with " + e.Limit.Flag()
}

// SetLimit raises or lowers a limit of a round or the run, in its unit (counts,
// nanoseconds or USD), and returns what it was. Lowered below what is used, it
// stops the work at the next check; what is reserved already is not taken back.
// A limit that cannot be changed is a *FixedError, an amount that makes no sense
// an *InvalidError, and then nothing has changed. The caller records it.
func (t *Tree) SetLimit(limit Limit, amount int64) (old int64, err error) {
	t.mu.Lock()
	l := t.limits
	switch limit {
	case LimitSteps:
		old, l.MaxSteps = int64(l.MaxSteps), int(min(amount, math.MaxInt))
	case LimitToolCalls:
		old, l.MaxToolCalls = int64(l.MaxToolCalls), int(min(amount, math.MaxInt))
	case LimitWallTime:
		old, l.MaxWallTime = int64(l.MaxWallTime), time.Duration(amount)
	case LimitTokens:
		old, l.MaxTokens = l.MaxTokens, amount
	case LimitCost:
		old, l.MaxCost = int64(l.MaxCost), USD(amount)
	default:
		err = &FixedError{Limit: limit}
	}
	if err == nil {
		err = l.Validate()
	}
	if err == nil {
		t.limits = l
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
