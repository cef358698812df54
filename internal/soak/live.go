package soak

import (
	"context"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
)

// Change is a limit that is raised or lowered while the run works.
type Change struct {
	After  time.Duration // since the work began
	Limit  budget.Limit
	Amount int64
}

// live has some plans change their limits. No such run is resumed: that it had
// been changed would be on record if it came over the control socket, which
// there is none of in simulated time.
func (g dice) live(p *Plan) {
	if len(p.Crashes) > 0 || !g.one(3) {
		return
	}
	for range 1 + g.IntN(3) {
		p.Changes = append(p.Changes, Change{pick(g, 0, time.Second, 30*time.Second, 5*time.Minute, p.Limits.MaxWallTime/2), "", 0})
		c := &p.Changes[len(p.Changes)-1]
		switch g.IntN(5) {
		case 0:
			c.Limit, c.Amount = budget.LimitSteps, pick[int64](g, 1, 3, 20)
		case 1:
			c.Limit, c.Amount = budget.LimitToolCalls, pick[int64](g, 1, 3, 30)
		case 2:
			c.Limit, c.Amount = budget.LimitWallTime, int64(pick(g, time.Second, time.Minute, 10*time.Minute, 20*time.Minute, 3*time.Hour))
		case 3:
			c.Limit, c.Amount = budget.LimitTokens, pick[int64](g, 1, 5000, 50_000, 2_000_000)
		case 4:
			c.Limit, c.Amount = budget.LimitCost, int64(pick(g, budget.USD(1), budget.Dollars(0.05), budget.Dollars(20)))
		}
	}
}

// changing is a worker under whose hands the limits change.
type changing struct {
	run.Worker
	changes []Change
}

func (w changing) Work(ctx context.Context, s *run.Session) (run.Outcome, error) {
	for _, c := range w.changes {
		defer time.AfterFunc(c.After, func() {
			if _, err := s.Budget().SetLimit(c.Limit, c.Amount); err != nil {
				panic(err) // every change of a plan makes sense
			}
		}).Stop()
	}
	return w.Worker.Work(ctx, s)
}

// most has each limit as high as it ever was.
func (p Plan) most() budget.Limits {
	l := p.Limits
	for _, c := range p.Changes {
		switch c.Limit {
		case budget.LimitSteps:
			l.MaxSteps = max(l.MaxSteps, int(c.Amount))
		case budget.LimitToolCalls:
			l.MaxToolCalls = max(l.MaxToolCalls, int(c.Amount))
		case budget.LimitWallTime:
			l.MaxWallTime = max(l.MaxWallTime, time.Duration(c.Amount))
		case budget.LimitTokens:
			l.MaxTokens = max(l.MaxTokens, c.Amount)
		case budget.LimitCost:
			l.MaxCost = max(l.MaxCost, budget.USD(c.Amount))
		}
	}
	return l
}
