package budget

import (
	"context"
	"fmt"
	"time"
)

// Breach is a limit that stops the work. Used and Max are in the unit of the
// limit (Limit.Format writes them).
type Breach struct {
	Limit Limit
	Used  int64
	Max   int64
	Flag  string // what raises it
}

func (b *Breach) Error() string {
	return fmt.Sprintf("stopped by %s: %s of %s", b.Limit, b.Limit.Format(b.Used), b.Limit.Format(b.Max))
}

// Hint names the flag that raises the limit.
func (b *Breach) Hint() string { panic("to come") }

// Warning says that a limit is nearly used up. Each is given once a limit and
// mark; one event that passes both marks gives the higher only.
type Warning struct {
	Limit   Limit
	Percent int // 80 or 95
	Used    int64
	Max     int64
	Flag    string
}

func (w Warning) String() string { panic("to come") }

// TreeOptions configure a Tree.
type TreeOptions struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Warn is told of warnings, on the goroutine whose action caused them and
	// before that action returns. It may use the Tree.
	Warn func(Warning)
}

// Tree counts what a run uses against its Limits. Its root is the run; its
// rounds are made with Round. All methods may be called concurrently, and the
// limits are exact whatever the interleaving.
type Tree struct{}

// NewTree starts the run's clock. Invalid limits are an error (see
// Limits.Validate).
func NewTree(l Limits, o TreeOptions) (*Tree, error) { panic("to come") }

// Limits returns the limits in force.
func (t *Tree) Limits() Limits { panic("to come") }

// Deadline is when the run's wall clock ends.
func (t *Tree) Deadline() time.Time { panic("to come") }

// Remaining is the wall time left, never negative.
func (t *Tree) Remaining() time.Duration { panic("to come") }

// Context returns a context that ends at Deadline with the *Breach of the wall
// clock as its cause. It uses real time, whatever TreeOptions.Now is.
func (t *Tree) Context(parent context.Context) (context.Context, context.CancelFunc) {
	panic("to come")
}

// Check returns the *Breach of a limit of the run that is used up, or nil: the
// wall clock, tokens or cost. Ask before spending.
func (t *Tree) Check() error { panic("to come") }

// Spent is what a model's reply cost.
type Spent struct {
	Tokens int64 // input and output
	Cost   USD
}

// Spend counts what was spent; negative amounts count nothing. It is counted in
// any case; the *Breach says that it went over a limit.
func (t *Tree) Spend(s Spent) error { panic("to come") }

// Waiting tells that the run waits for somebody else: an approval, a rate
// limit. Call done when it goes on; calling it again does nothing. Waits may
// overlap. Waiting does not stop the wall clock: it is only reported apart.
func (t *Tree) Waiting() (done func()) { panic("to come") }

// CallTimeout returns the timeout of a call that asks for asked (0: the
// default): never more than the wall time left. A call that asks for more than
// it may, or when no time is left, gets a *Breach.
func (t *Tree) CallTimeout(asked time.Duration) (time.Duration, error) { panic("to come") }

// Usage is what a run has used so far, over all its rounds.
type Usage struct {
	Steps, ToolCalls int
	Tokens           int64
	Cost             USD
	Wall             time.Duration // since NewTree
	Waiting          time.Duration // part of Wall
}

// Working is Wall without Waiting.
func (u Usage) Working() time.Duration { return u.Wall - u.Waiting }

// Usage returns what has been used so far.
func (t *Tree) Usage() Usage { panic("to come") }

// Round begins a round: one user message up to the final answer.
func (t *Tree) Round() *Round { panic("to come") }

// Round counts the steps and calls of one round.
type Round struct{}

// Step takes one step: ask before each request to the model. It returns a
// *Breach, and counts nothing, when the steps, or a limit of the run, are used up.
func (r *Round) Step() error { panic("to come") }

// Call takes one tool call: ask before each. It returns a *Breach, and counts
// nothing, when the calls, or a limit of the run, are used up.
func (r *Round) Call() error { panic("to come") }
