package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/execd"
)

// Refresh asks the provider for the sandbox's state now.
func (s *Sandbox) Refresh(ctx context.Context) (Info, error) {
	if err := s.usable("refresh"); err != nil {
		return s.Info(), err
	}
	ctx, cancel := bounded(ctx, DefaultOpTimeout)
	defer cancel()
	info, err := s.provider.Get(ctx, s.id)
	if err != nil {
		return s.Info(), asError("refresh", s.id, err)
	}
	s.mu.Lock()
	s.info = info
	s.mu.Unlock()
	return info, nil
}

// Renew moves the end of the sandbox to until, earlier or later, and returns
// the end now in force. KindNotFound when it has ended already.
func (s *Sandbox) Renew(ctx context.Context, until time.Time) (time.Time, error) {
	var end time.Time
	err := s.lifecycle(ctx, "renew", audit.KindRenewIntent, audit.KindSandboxRenewed, until, func(ctx context.Context, o *LifecycleOutcome) (err error) {
		end, err = s.provider.Renew(ctx, s.id, until)
		o.ExpiresAt = end
		if err == nil {
			s.mu.Lock()
			s.info.ExpiresAt = end
			s.mu.Unlock()
		}
		return err
	})
	return end, err
}

// Pause stops everything in the sandbox without ending it; KindUnsupported
// when the provider has no CapPause. See Pauser.
func (s *Sandbox) Pause(ctx context.Context, o PauseOptions) error {
	return s.lifecycle(ctx, "pause", audit.KindPauseIntent, audit.KindPaused, time.Time{}, func(ctx context.Context, _ *LifecycleOutcome) error {
		err := Pause(ctx, s.provider, s.id, o)
		if err == nil {
			s.setState(StatePaused)
		}
		return err
	})
}

// Resume undoes Pause. It asks anew how execd is reached: a remote provider's
// answer may be another than before.
func (s *Sandbox) Resume(ctx context.Context) error {
	return s.lifecycle(ctx, "resume", audit.KindResumeIntent, audit.KindResumed, time.Time{}, func(ctx context.Context, _ *LifecycleOutcome) error {
		if err := Resume(ctx, s.provider, s.id); err != nil {
			return err
		}
		s.setState(StateRunning)
		ep, err := s.provider.Endpoint(ctx, s.id, execd.Port)
		if err != nil {
			return err
		}
		s.client.Relocate(execd.Options{BaseURL: ep.BaseURL, Header: ep.Header, DialContext: ep.DialContext})
		if s.met {
			return nil
		}
		return s.meet(ctx, "resume") // it was paused when we attached
	})
}

// Pause pauses a sandbox of a provider that can.
func Pause(ctx context.Context, p Provider, id string, o PauseOptions) error {
	if o.Hold < 0 {
		return &Error{Kind: KindInvalid, Op: "pause", Subject: id, Err: fmt.Errorf("the deadline cannot be held for %v", o.Hold)}
	}
	if pauser, ok := p.(Pauser); ok {
		return pauser.Pause(ctx, id, o)
	}
	return cannotPause("pause", p, id)
}

// Resume resumes a sandbox of a provider that can.
func Resume(ctx context.Context, p Provider, id string) error {
	if pauser, ok := p.(Pauser); ok {
		return pauser.Resume(ctx, id)
	}
	return cannotPause("resume", p, id)
}

func cannotPause(op string, p Provider, id string) error {
	return &Error{Kind: KindUnsupported, Op: op, Subject: id, Err: fmt.Errorf("provider %s cannot pause sandboxes", p.Name())}
}

// lifecycle does one recorded act of the provider.
func (s *Sandbox) lifecycle(ctx context.Context, op string, before, after audit.Kind, until time.Time, act func(context.Context, *LifecycleOutcome) error) error {
	if err := s.usable(op); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx, DefaultOpTimeout)
	defer cancel()
	if err := s.append(before, "", LifecycleIntent{ExpiresAt: until}); err != nil {
		return err
	}
	start := s.opt.Now()
	var o LifecycleOutcome
	err := asError(op, s.id, act(ctx, &o))
	o.OK, o.DurationMS, o.Failure = err == nil, s.since(start), failure(err)
	return also(err, s.append(after, "", o))
}

// Kill ends the sandbox and returns when the provider has confirmed that it is
// gone. It is idempotent, and shielded (see KillContext): it goes on although ctx has
// ended, and it is done even if it cannot be recorded, which is then the error.
// Commands still running end with KindLost.
func (s *Sandbox) Kill(ctx context.Context) error {
	s.killing.Lock()
	defer s.killing.Unlock()
	s.mu.Lock()
	killed := s.killed
	s.mu.Unlock()
	if killed {
		return nil
	}
	recordErr := s.append(audit.KindKillIntent, "", LifecycleIntent{})
	s.end(&Error{Kind: KindLost, Op: "kill", Subject: s.id, Err: errors.New("the sandbox is being killed")})
	ctx, cancel := KillContext(ctx)
	defer cancel()
	start := s.opt.Now()
	err := s.provider.Kill(ctx, s.id)
	if err == nil {
		err = s.verifyGone(ctx)
	}
	err = asError("kill", s.id, err)
	kind := audit.KindKilled
	if err != nil {
		kind = audit.KindKillFailed
	} else {
		s.mu.Lock()
		s.killed = true
		s.ended = &Error{Kind: KindNotFound, Op: "kill", Subject: s.id, Err: errors.New("the sandbox has been killed")}
		s.mu.Unlock()
	}
	_ = s.release() // of what is gone
	return also(err, recordErr, s.append(kind, "", LifecycleOutcome{
		OK: err == nil, Verified: err == nil, DurationMS: s.since(start), Failure: failure(err)}))
}

// verifyGone asks the provider until it knows the sandbox no more.
func (s *Sandbox) verifyGone(ctx context.Context) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		info, err := s.provider.Get(ctx, s.id)
		if KindOf(err) == KindNotFound {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("the provider still has it, state %s", info.State)
		}
		select {
		case <-ctx.Done():
			return &Error{Kind: KindTimeout, Op: "kill", Subject: s.id, Err: err, Hint: "rein sandbox gc removes what is left"}
		case <-time.After(wait):
		}
	}
}
