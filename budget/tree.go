package budget

import (
	"math"
	"sync"
	"time"
)

// TreeOptions configure a Tree.
type TreeOptions struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Warn is told of warnings, on the goroutine whose action caused them and
	// before that action returns. It may use the Tree. Nil tells nobody.
	Warn func(Warning)
}

// Tree counts what a run uses against its Limits. Its root is the run; its
// branches are the rounds made with Round. All methods may be called
// concurrently, and the limits are exact whatever the interleaving.
type Tree struct {
	now   func() time.Time
	warn  func(Warning)
	start time.Time
	began Limits

	mu     sync.Mutex
	limits Limits
	used   Usage // Wall and Waiting excepted
	held   Spent // reserved, not yet settled
	kept   Kept
	told   marks
	clocks map[*clock]bool
	moved  chan struct{} // closed when a limit changes
	waits  int           // open Waiting calls
	since  time.Time
	waited time.Duration // without the waits that are open

	renewal time.Duration // see Renewal
}

// NewTree starts the run's clock. Invalid limits are an error (see
// Limits.Validate).
func NewTree(l Limits, o TreeOptions) (*Tree, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Tree{began: l, limits: l, now: o.Now, warn: o.Warn, start: o.Now(), told: marks{}, clocks: map[*clock]bool{}, moved: make(chan struct{})}, nil
}

// Began returns the limits that the run began with.
func (t *Tree) Began() Limits { return t.began }

// Limits returns the limits in force now; SetLimit changes them.
func (t *Tree) Limits() Limits {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.limits
}

// Deadline is when the run's wall clock ends, as things are now.
func (t *Tree) Deadline() time.Time { return t.start.Add(t.Limits().MaxWallTime) }

// Remaining is the wall time left, never negative.
func (t *Tree) Remaining() time.Duration { return max(0, t.Deadline().Sub(t.now())) }

// WorkRemaining is Remaining without what is kept for the last turn.
func (t *Tree) WorkRemaining() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, t.limits.MaxWallTime-t.keeps().Time-t.now().Sub(t.start))
}

// Check returns the *Breach of a limit of the run that is used up, or nil: the
// wall clock, tokens or cost. Ask before spending.
func (t *Tree) Check() error { return t.act(func(time.Time) error { return nil }) }

// Spent is what a model's reply cost.
type Spent struct {
	Tokens int64 // input and output
	Cost   USD
}

// Spend counts what was spent; a negative amount counts as nothing. It is
// counted in any case; the *Breach says that it went over a limit.
func (t *Tree) Spend(s Spent) error {
	t.mu.Lock()
	t.used.Tokens = add(t.used.Tokens, s.Tokens)
	t.used.Cost = USD(add(int64(t.used.Cost), int64(s.Cost)))
	used, l := t.used, t.limits
	warnings := t.marked(t.now())
	t.mu.Unlock()
	t.tell(warnings)
	switch {
	case used.Tokens > l.MaxTokens:
		return breach(LimitTokens, used.Tokens, l.MaxTokens)
	case used.Cost > l.MaxCost:
		return breach(LimitCost, int64(used.Cost), int64(l.MaxCost))
	}
	return nil
}

// add is a+b without overflow, for b above zero.
func add(a, b int64) int64 {
	if b = max(0, b); a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// act does take, which may refuse, unless a limit of the run is used up, and
// tells the warnings that result.
func (t *Tree) act(take func(now time.Time) error) error {
	t.mu.Lock()
	now := t.now()
	err := t.exhausted(now)
	if err == nil {
		err = take(now)
	}
	warnings := t.marked(now)
	t.mu.Unlock()
	t.tell(warnings)
	return err
}

// exhausted returns the *Breach of a limit of the run that is used up. The
// caller holds mu.
func (t *Tree) exhausted(now time.Time) error {
	switch l, wall := t.limits, now.Sub(t.start); {
	case wall >= l.MaxWallTime:
		return breach(LimitWallTime, int64(wall), int64(l.MaxWallTime))
	case t.used.Tokens >= l.MaxTokens:
		return breach(LimitTokens, t.used.Tokens, l.MaxTokens)
	case t.used.Cost >= l.MaxCost:
		return breach(LimitCost, int64(t.used.Cost), int64(l.MaxCost))
	}
	return nil
}

// marked returns the warnings of the run's limits that are due. The caller
// holds mu.
func (t *Tree) marked(now time.Time) []Warning {
	var due []Warning
	l := t.limits
	due = t.told.due(due, LimitWallTime, int64(now.Sub(t.start)), int64(l.MaxWallTime))
	due = t.told.due(due, LimitTokens, t.used.Tokens, l.MaxTokens)
	return t.told.due(due, LimitCost, int64(t.used.Cost), int64(l.MaxCost))
}

func (t *Tree) tell(warnings []Warning) {
	if t.warn == nil {
		return
	}
	for _, w := range warnings {
		t.warn(w)
	}
}

// Waiting tells that the run waits for somebody else: an approval, a rate
// limit. Call done when it goes on; calling it again does nothing. Waits may
// overlap. Waiting does not stop the wall clock: it is only reported apart.
func (t *Tree) Waiting() (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits == 0 {
		t.since = t.now()
	}
	t.waits++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.waits--; t.waits == 0 {
			t.waited += t.now().Sub(t.since)
		}
	})
}

// CallTimeout returns the timeout of a call that asks for asked (0 or less: the
// default): never more than the wall time left, without what is kept of it. A
// call that asks for more than it may, or when no time is left, gets a *Breach.
func (t *Tree) CallTimeout(asked time.Duration) (time.Duration, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.limits
	if asked <= 0 {
		asked = l.CallTimeout
	}
	if asked > l.MaxCallTimeout {
		return 0, breach(LimitMaxCallTimeout, int64(asked), int64(l.MaxCallTimeout))
	}
	wall, kept := t.now().Sub(t.start), t.keeps().Time
	if left := l.MaxWallTime - kept - wall; left > 0 {
		return min(asked, left), nil
	}
	b := breach(LimitWallTime, int64(wall), int64(l.MaxWallTime))
	b.Kept = int64(kept)
	return 0, b
}

// Usage is what a run has used so far, over all its rounds.
type Usage struct {
	Steps, ToolCalls int
	Tokens           int64
	Cost             USD
	Wall             time.Duration // since NewTree
	Waiting          time.Duration // part of Wall
}

// Usage returns what has been used so far.
func (t *Tree) Usage() Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	u := t.used
	u.Wall, u.Waiting = now.Sub(t.start), t.waited
	if t.waits > 0 {
		u.Waiting += now.Sub(t.since)
	}
	return u
}

// Round begins a round: one user message up to the final answer.
func (t *Tree) Round() *Round { return &Round{tree: t, told: marks{}} }

// Round counts the steps and calls of one round. Its methods may be called
// concurrently.
type Round struct {
	tree *Tree

	// Guarded by tree.mu.
	steps, calls int
	told         marks
}

// Step takes one step: ask before each request to the model. It returns a
// *Breach, and counts nothing, when the steps, or a limit of the run, are used up.
func (r *Round) Step() error {
	return r.take(LimitSteps, &r.steps, &r.tree.used.Steps, true)
}

// Left is how many steps and calls may still be taken, without the step that is
// kept for the last turn.
func (r *Round) Left() (steps, calls int) {
	t := r.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, t.limits.MaxSteps-t.keeps().Steps-r.steps), max(0, t.limits.MaxToolCalls-r.calls)
}

// Near is the warning of each limit, of the round and the run, that is nearly
// used up, whether or not it was given: the order is that of the layers.
func (r *Round) Near() []Warning {
	t := r.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	l, near := t.limits, marks{}
	list := near.due(nil, LimitSteps, int64(r.steps), int64(l.MaxSteps))
	list = near.due(list, LimitToolCalls, int64(r.calls), int64(l.MaxToolCalls))
	list = near.due(list, LimitWallTime, int64(t.now().Sub(t.start)), int64(l.MaxWallTime))
	list = near.due(list, LimitTokens, t.used.Tokens, l.MaxTokens)
	return near.due(list, LimitCost, int64(t.used.Cost), int64(l.MaxCost))
}

// LastStep takes the step that is kept for the last turn, or any other.
func (r *Round) LastStep() error {
	return r.take(LimitSteps, &r.steps, &r.tree.used.Steps, false)
}

// Call takes one tool call: ask before each. It returns a *Breach, and counts
// nothing, when the calls, or a limit of the run, are used up.
func (r *Round) Call() error {
	return r.take(LimitToolCalls, &r.calls, &r.tree.used.ToolCalls, true)
}

// Begun takes a tool call that has begun already: a process that has ended since
// asked for it, and no limit is asked again.
func (r *Round) Begun() {
	t := r.tree
	t.mu.Lock()
	r.calls++
	t.used.ToolCalls++
	due := r.told.due(nil, LimitToolCalls, int64(r.calls), int64(t.limits.MaxToolCalls))
	t.mu.Unlock()
	t.tell(due)
}

// take counts one of what limit bounds. Work leaves what is kept for the last
// turn; the last turn does not.
func (r *Round) take(limit Limit, used, total *int, work bool) error {
	var due []Warning
	t := r.tree
	err := t.act(func(now time.Time) error {
		most, kept := t.limits.MaxToolCalls, t.keeps()
		if limit == LimitSteps {
			most = t.limits.MaxSteps
		}
		steps, wall := 0, now.Sub(t.start)
		if work && wall >= t.limits.MaxWallTime-kept.Time {
			b := breach(LimitWallTime, int64(wall), int64(t.limits.MaxWallTime))
			b.Kept = int64(kept.Time)
			return b
		}
		if work && limit == LimitSteps {
			steps = kept.Steps
		}
		if *used >= most-steps {
			b := breach(limit, int64(*used), int64(most))
			b.Kept = int64(steps)
			return b
		}
		*used++
		*total++
		due = r.told.due(nil, limit, int64(*used), int64(most))
		return nil
	})
	t.tell(due)
	return err
}
