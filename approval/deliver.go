package approval

import (
	"context"
	"errors"
	"time"
)

// UndeliveredError is of a channel that a question did not get through, and may
// later: the gate tries again until the question expires.
type UndeliveredError struct{ Err error }

func (e *UndeliveredError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *UndeliveredError) Unwrap() error { return e.Err }

// retryEvery is how long a gate waits before it tries a channel again.
const retryEvery = 2 * time.Second

// deliver asks through a channel, again and again while the question does not
// get through. It warns of that once.
func (g *Gate) deliver(ctx context.Context, c Channel, q Question) (Decision, error) {
	warned := false
	for {
		d, err := c.Ask(ctx, q)
		if _, again := errors.AsType[*UndeliveredError](err); !again {
			return d, err
		}
		if !warned {
			g.o.Warn("a question could not be delivered by %s, which is tried for %s: %v", c.Name(), g.o.Timeout, err)
			warned = true
		}
		timer := time.NewTimer(retryEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return Decision{}, err
		}
	}
}
