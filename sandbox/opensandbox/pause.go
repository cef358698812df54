package opensandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/rein-sh/rein/egress/policy"
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
	_, err := p.change(ctx, "pause", id, sandbox.StateRunning, sandbox.StatePaused)
	return err
}

// Resume lets a paused sandbox go on, and makes sure that its network policy is
// still in force and rein's execd still there. The addresses of its ports may
// be others than before. One at a time resumes a sandbox: a second one that
// could not see its policy would pause it again under the first.
func (p *Provider) Resume(ctx context.Context, id string) error {
	if _, busy := p.changing.LoadOrStore(id, true); busy {
		return &sandbox.Error{Kind: sandbox.KindConflict, Op: "resume", Subject: id, Err: errors.New("it is being resumed")}
	}
	defer p.changing.Delete(id)
	ctx, cancel := bounded(ctx, pauseTimeout)
	defer cancel()
	sent, err := p.change(ctx, "resume", id, sandbox.StatePaused, sandbox.StateRunning)
	if err != nil && sent && ctx.Err() != nil {
		// Nobody waits for it any more, and it may run all the same.
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
		defer cancel()
		if p.reach(own, "resume", id, sandbox.StatePaused, sandbox.StateRunning, err) == nil {
			return p.shut(ctx, id, err)
		}
	}
	if err != nil {
		return err
	}
	if err := p.resumed(ctx, id); err != nil {
		return p.shut(ctx, id, err)
	}
	return nil
}

// resumed looks at a sandbox that runs again, at its network before anything
// else.
func (p *Provider) resumed(ctx context.Context, id string) error {
	host := func(subject, hint string, err error) error {
		return &sandbox.Error{Kind: sandbox.KindHost, Op: "resume", Subject: subject, Err: err, Hint: hint}
	}
	rec, recErr := p.record(id)
	network, err := p.enforced(ctx, "resume", id, rec.policies()...)
	if recErr != nil && sandbox.KindOf(err) == sandbox.KindUnsupported { // with rules, perhaps, of the host that made it
		if got, e := p.policy(ctx, id); e == nil && got.Policy != nil && got.Policy.DefaultAction == policy.ActionDeny && len(got.Policy.Egress) > 0 {
			return &sandbox.Error{Kind: sandbox.KindUnsupported, Op: "resume", Subject: id, Hint: "resume it on the host that made it",
				Err: unverified{errors.New("whether its network policy is the one that was asked for is known to the host that made it only")}}
		}
	}
	if err != nil {
		return err
	}
	ep, err := p.answering(ctx, "resume", id)
	if err != nil {
		return err
	}
	switch {
	case errors.Is(recErr, fs.ErrNotExist):
		return nil // it was made on another host
	case recErr != nil:
		return host(p.recordPath(id), "remove that file, and the sandbox is used through the server's execd", recErr)
	}
	if rec.Network = network; rec.Port != 0 {
		own, err := p.ownEndpoint(ctx, id, rec)
		if err != nil || !p.ours(ctx, own) {
			if err := p.plant(ctx, id, ep, &rec); err != nil {
				return host(id, "", fmt.Errorf("rein's execd did not come back: %w", err))
			}
		}
	}
	if err := p.keep(id, rec); err != nil {
		return host(p.opts.StateDir, "", err)
	}
	return p.filled(ctx, id, rec)
}

// shut sees to a sandbox that runs and must not, perhaps with the network open:
// one whose policy is wrong is ended, one of which something is not known or
// does not work is paused again.
func (p *Provider) shut(ctx context.Context, id string, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	if _, ok := errors.AsType[unverified](why); ok || sandbox.KindOf(why) != sandbox.KindUnsupported {
		_, err := p.change(ctx, "pause", id, sandbox.StateRunning, sandbox.StatePaused)
		switch sandbox.KindOf(err) {
		case "":
			kind := sandbox.KindUnavailable
			if k := sandbox.KindOf(why); k == sandbox.KindTimeout || k == sandbox.KindHost {
				kind = k
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
// not made twice: when its reply is lost the state says what became of it. sent
// says that the change may come although there is an error.
func (p *Provider) change(ctx context.Context, op, id string, from, to sandbox.State) (sent bool, err error) {
	path, err := p.path(op, id, "/"+op)
	if err != nil {
		return false, err
	}
	ctx, cancel := bounded(ctx, pauseTimeout)
	defer cancel()
	// The server answers a second pause with an error of its own inside.
	r, err := p.get(ctx, op, id)
	if err != nil {
		return false, err
	}
	if have := p.info(r).State; have != from {
		return false, &sandbox.Error{Kind: sandbox.KindConflict, Op: op, Subject: id, Err: fmt.Errorf("it is %s", have)}
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
				return false, &sandbox.Error{Kind: sandbox.KindUnsupported, Op: op, Subject: id, Err: err, Hint: "the server's runtime may not be able to " + op + " sandboxes"}
			}
			return false, p.fault(ctx, op, id, err)
		}
	}
	return true, p.reach(ctx, op, id, from, to, err)
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
