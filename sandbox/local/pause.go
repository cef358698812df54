package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

var _ sandbox.Pauser = (*Provider)(nil)

// Pause has execd stop every process of user code. The cgroup's freezer would
// do it from outside, but gVisor's kernel does not survive it: a notification
// of its seccomp filter that is under way when the processes freeze is lost.
func (p *Provider) Pause(ctx context.Context, id string, o sandbox.PauseOptions) error {
	return p.asLost("pause", id, p.ask(ctx, "pause", id, http.MethodPost, "/pause", pauseRequest{o.Hold}, nil))
}

// Resume lets them go on.
func (p *Provider) Resume(ctx context.Context, id string) error {
	return p.asLost("resume", id, p.ask(ctx, "resume", id, http.MethodPost, "/resume", nil, nil))
}

// asLost makes of a keeper that has gone a sandbox that has. One that takes too
// long is there.
func (p *Provider) asLost(op, id string, err error) error {
	e, ok := errors.AsType[*sandbox.Error](err)
	switch {
	case !ok || e.Kind != sandbox.KindLost:
		return err
	case errors.Is(err, context.DeadlineExceeded):
		e.Kind = sandbox.KindTimeout
		return e
	}
	return notFound(op, id)
}

type pauseRequest struct {
	Hold time.Duration `json:"hold"` // nanoseconds
}

// hold is a deadline that stands still for a while.
type hold struct {
	since time.Time
	most  time.Duration
	end   time.Time // the deadline in force meanwhile
}

// pause and resume are one transition at a time.
func (k *keeper) pause(ctx context.Context, most time.Duration) error {
	k.transition.Lock()
	defer k.transition.Unlock()
	if err := k.require(sandbox.StateRunning, "pause"); err != nil {
		return err
	}
	if err := k.execd(ctx, (*execd.Client).Pause); err != nil {
		// It may have happened all the same: undone, so that both agree.
		return &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "pause", Err: errors.Join(err, k.execd(ctx, (*execd.Client).Resume))}
	}
	if !k.become(sandbox.StateRunning, sandbox.StatePaused) {
		return k.require(sandbox.StateRunning, "pause") // it has ended meanwhile
	}
	if most > 0 {
		h := &hold{since: time.Now(), most: most, end: k.deadline.Time().Add(most)}
		if k.deadline.Move(h.end) == nil { // else it has passed, and the sandbox ends
			k.held = h
		}
	}
	return nil
}

func (k *keeper) resume(ctx context.Context) error {
	k.transition.Lock()
	defer k.transition.Unlock()
	if err := k.require(sandbox.StatePaused, "resume"); err != nil {
		return err
	}
	if err := k.execd(ctx, (*execd.Client).Resume); err != nil {
		return &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "resume", Err: err}
	}
	if h := k.held; h != nil {
		k.held = nil
		if unused := h.most - time.Since(h.since); unused > 0 && k.deadline.Time().Equal(h.end) { // it was not renewed meanwhile
			if err := k.deadline.Move(h.end.Add(-unused)); err != nil {
				return &sandbox.Error{Kind: sandbox.KindNotFound, Op: "resume", Err: err}
			}
		}
	}
	k.become(sandbox.StatePaused, sandbox.StateRunning)
	return nil
}

// require refuses an operation in any state but one.
func (k *keeper) require(s sandbox.State, op string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == s {
		return nil
	}
	e := &sandbox.Error{Kind: sandbox.KindConflict, Op: op, Err: errors.New(strings.TrimSpace(fmt.Sprintf("the sandbox is %s %s", strings.ToLower(string(k.state)), k.reason)))}
	switch k.state {
	case sandbox.StateLost:
		e.Kind = sandbox.KindLost
	case sandbox.StatePaused:
		e.Hint = "rein sandbox resume " + k.cfg.Info.ID
	}
	return e
}

// become moves from one state to another, if it is still the one.
func (k *keeper) become(from, to sandbox.State) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state != from {
		return false
	}
	k.state = to
	return true
}

// execd asks the daemon inside.
func (k *keeper) execd(ctx context.Context, ask func(*execd.Client, context.Context) error) error {
	header := http.Header{}
	header.Set(execd.TokenHeader, k.cfg.Token)
	c := execd.NewClient(execd.Options{BaseURL: "http://execd", Header: header,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return k.gateway.DialContext(ctx, execd.Port)
		}})
	defer c.Close()
	// Done or undone, whether or not the caller still waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*execd.PauseTimeout)
	defer cancel()
	return ask(c, ctx)
}

// endNest kills the sandbox and returns when the kernel has taken it down.
func (k *keeper) endNest() {
	if k.nest == nil || k.nest.cmd == nil {
		return // it was never started
	}
	k.nest.cmd.Process.Kill() // an error means it has ended
	<-k.nest.gone
}

func (s *controlServer) pause(w http.ResponseWriter, r *http.Request) {
	var req pauseRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, 4096)).Decode(&req); err != nil || req.Hold < 0 {
		refuse(w, http.StatusBadRequest, sandbox.KindInvalid, errors.New("hold is not a time"))
		return
	}
	answer(w, s.keeper.pause(r.Context(), req.Hold))
}

func (s *controlServer) resume(w http.ResponseWriter, r *http.Request) {
	answer(w, s.keeper.resume(r.Context()))
}

// answer says 204, or what went wrong.
func answer(w http.ResponseWriter, err error) {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		refuse(w, http.StatusConflict, e.Kind, e)
		return
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, sandbox.KindInternal, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
