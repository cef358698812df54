package opensandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// pauseTimeout bounds a pause or resumption whose context has no end:
// Kubernetes commits and restores the sandbox's file system.
const pauseTimeout = 3 * time.Minute

// Pause freezes a sandbox. On Kubernetes its file system is kept and its
// processes end. Its deadline goes on: the server knows no other way.
func (p *Provider) Pause(ctx context.Context, id string, o sandbox.PauseOptions) error {
	if o.Hold != 0 {
		return &sandbox.Error{Kind: sandbox.KindUnsupported, Op: "pause", Subject: id,
			Err: errors.New("an OpenSandbox server lets the deadline go on while a sandbox is paused"), Hint: "renew it first"}
	}
	return p.change(ctx, "pause", id, sandbox.StateRunning, sandbox.StatePaused)
}

// Resume lets a paused sandbox go on, and makes sure that its network policy is
// still in force and rein's execd still there. The addresses of its ports may
// be others than before.
func (p *Provider) Resume(ctx context.Context, id string) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, pauseTimeout)
		defer cancel()
	}
	if err := p.change(ctx, "resume", id, sandbox.StatePaused, sandbox.StateRunning); err != nil {
		return err
	}
	ep, err := p.answering(ctx, id)
	if err != nil {
		return err
	}
	rec, err := p.record(id)
	if err != nil {
		return nil // made elsewhere
	}
	if rec.Network, err = p.denied(ctx, id); err != nil {
		return p.shut(ctx, id, err)
	}
	if rec.Port == 0 {
		return nil
	}
	own, err := p.ownEndpoint(ctx, id, rec)
	if err == nil && p.ours(ctx, own) {
		return nil
	}
	if err := p.plant(ctx, id, ep, &rec); err != nil {
		return &sandbox.Error{Kind: sandbox.KindHost, Op: "resume", Subject: id, Err: fmt.Errorf("rein's execd did not come back: %w", err)}
	}
	return p.keep(id, rec)
}

// shut sees to a sandbox that runs, perhaps with the network open: one whose
// policy is wrong is ended, one that could not be asked is paused again.
func (p *Provider) shut(ctx context.Context, id string, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	if _, ok := errors.AsType[unverified](why); ok || sandbox.KindOf(why) != sandbox.KindUnsupported {
		err := p.change(ctx, "pause", id, sandbox.StateRunning, sandbox.StatePaused)
		switch sandbox.KindOf(err) {
		case "":
			kind := sandbox.KindUnavailable
			if sandbox.KindOf(why) == sandbox.KindTimeout {
				kind = sandbox.KindTimeout
			}
			return &sandbox.Error{Kind: kind, Op: "resume", Subject: id, Err: fmt.Errorf("it is paused again: %w", why)}
		case sandbox.KindConflict, sandbox.KindNotFound, sandbox.KindLost: // another was quicker
			return &sandbox.Error{Kind: sandbox.KindConflict, Op: "resume", Subject: id, Err: err}
		}
	}
	return &sandbox.Error{Kind: sandbox.KindLost, Op: "resume", Subject: id, Hint: sandbox.HintOf(why),
		Err: errors.Join(fmt.Errorf("it was ended: %w", why), p.Kill(ctx, id))}
}

// change asks for a change of state and waits until it is there. The request is
// not made twice: when its reply is lost the state says what became of it.
func (p *Provider) change(ctx context.Context, op, id string, from, to sandbox.State) error {
	path, err := p.path(op, id, "/"+op)
	if err != nil {
		return err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, pauseTimeout)
		defer cancel()
	}
	// The server answers a second pause with an error of its own inside.
	r, err := p.get(ctx, op, id)
	if err != nil {
		return err
	}
	if have := p.info(r).State; have != from {
		return &sandbox.Error{Kind: sandbox.KindConflict, Op: op, Subject: id, Err: fmt.Errorf("it is %s", have)}
	}
	for try := 1; ; try++ {
		short, cancel := context.WithTimeout(ctx, requestTimeout)
		err = p.server.do(short, http.MethodPost, path, nil, nil, nil)
		cancel()
		_, lost := errors.AsType[unclear](err)
		// Two at once get in each other's way inside the server, which says so of
		// one although both come true.
		a, answered := errors.AsType[*answer](err)
		if err == nil || lost || answered && a.Status == http.StatusInternalServerError {
			break
		}
		if asked := asksToWait(err); !retried(err) || try >= tries && asked == 0 || !pause(ctx, try, asked) {
			if answered && a.Status == http.StatusBadRequest {
				return &sandbox.Error{Kind: sandbox.KindUnsupported, Op: op, Subject: id, Err: err, Hint: "the server's runtime may not be able to " + op + " sandboxes"}
			}
			return p.fault(ctx, op, id, err)
		}
	}
	return p.reach(ctx, op, id, from, to, err)
}

// settleTime is how long a state may stay what it was when the reply to the
// request that changes it was lost, or was an error of the server's own.
const settleTime = 5 * time.Second

// reach waits until the state is to.
func (p *Provider) reach(ctx context.Context, op, id string, from, to sandbox.State, lost error) error {
	start := time.Now()
	for {
		r, err := p.get(ctx, op, id)
		if err != nil {
			return err
		}
		switch have := p.info(r).State; {
		case have == to:
			return nil
		case have == sandbox.StateLost:
			return &sandbox.Error{Kind: sandbox.KindLost, Op: op, Subject: id, Err: errors.New(shorten(r.Status.Reason + " " + r.Status.Message))}
		case have == from && lost != nil && time.Since(start) > settleTime:
			return p.fault(ctx, op, id, lost)
		}
		if err := sleep(ctx, readyPoll); err != nil {
			return &sandbox.Error{Kind: sandbox.KindTimeout, Op: op, Subject: id, Err: fmt.Errorf("it is %s: %w", shorten(r.Status.State), err)}
		}
	}
}
