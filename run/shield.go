package run

import "context"

// shield is a context that does not end with the one it is made of, before the
// record is at its end.
type shield struct {
	inner context.Context
	end   context.CancelCauseFunc
}

// pass ends what has ended outside.
func (s shield) pass() {
	if s.inner.Err() != nil {
		s.end(context.Cause(s.inner))
	}
}

// halt ends the work where the record says that it was ended. The worker finds
// it ended at its very next step, as it was.
func (p *Past) halt() {
	p.mu.Lock()
	stop, shields := p.stop, p.shields
	if p.at < p.stopAt {
		stop = nil
	}
	p.mu.Unlock()
	if stop == nil || !stop() {
		return
	}
	for _, s := range shields {
		s.pass()
	}
}

// shield is inner for a worker that follows the record: it ends where the record
// says that the work was ended, and as inner does once that is at its end. Whoever
// takes it ends it, and what watches over it, with the function returned.
func (p *Past) shield(inner context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, end := context.WithCancelCause(context.WithoutCancel(inner))
	p.mu.Lock()
	p.shields = append(p.shields, shield{inner, end})
	p.mu.Unlock()
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-p.live:
		}
		if p.Binding() {
			return
		}
		select {
		case <-ctx.Done():
		case <-inner.Done():
			end(context.Cause(inner))
		}
	}()
	return ctx, end
}

// work is the shield of what the worker does before its last turn.
func (p *Past) work(inner context.Context) (context.Context, context.CancelFunc) {
	ctx, end := p.shield(inner)
	p.mu.Lock()
	p.endWork = end
	p.mu.Unlock()
	p.halt()
	return ctx, func() { end(context.Canceled) }
}

// end ends the work, but not its last turn.
func (p *Past) end(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.endWork != nil {
		p.endWork(cause)
	}
}
