package daemon

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
)

// Stopper is implemented by machines that can stop all processes of commands.
type Stopper interface {
	// Stop returns when none of them runs any more; when it fails all go on.
	// No command can be started until Continue.
	Stop(ctx context.Context) error
	// Continue lets those go on that ran before Stop.
	Continue() error
}

var _ Stopper = (*OS)(nil)

// pause answers POST /rein/pause. Every later request but a resume is refused.
func (s *Server) pause(w http.ResponseWriter, r *http.Request) {
	m, ok := s.cfg.Machine.(Stopper)
	if !ok {
		fail(w, refuse(http.StatusNotImplemented, execd.CodeNotFound, "this machine cannot stop its processes"))
		return
	}
	s.pausing.Lock()
	defer s.pausing.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), execd.PauseTimeout)
	defer cancel()
	s.paused.Store(true)
	if err := m.Stop(ctx); err != nil {
		s.paused.Store(false)
		fail(w, err)
		return
	}
	done(w)
}

// resume answers POST /rein/resume.
func (s *Server) resume(w http.ResponseWriter, _ *http.Request) {
	s.pausing.Lock()
	defer s.pausing.Unlock()
	if !s.paused.Load() {
		fail(w, refuse(http.StatusConflict, execd.CodeConflict, "nothing is paused"))
		return
	}
	if err := s.cfg.Machine.(Stopper).Continue(); err != nil {
		fail(w, err)
		return
	}
	s.paused.Store(false)
	done(w)
}

// Stop implements Stopper. What forks while it is looked for is found the next
// time: its parent has been stopped.
func (m *OS) Stop(ctx context.Context) error {
	m.gate.Lock()
	defer m.gate.Unlock()
	if m.stopped != nil {
		return nil
	}
	before := map[int]bool{} // stopped by somebody else
	list, err := m.commandProcesses()
	for _, p := range list {
		before[p.pid] = p.stopped
	}
	for wait := time.Millisecond; err == nil; wait = min(2*wait, 50*time.Millisecond) {
		running := 0
		for _, p := range list {
			if !p.stopped && !p.zombie {
				running++
				unix.Kill(p.pid, unix.SIGSTOP) // an error means that it has ended
			}
		}
		if running == 0 {
			m.stopped = before
			return nil
		}
		select {
		case <-time.After(wait):
			list, err = m.commandProcesses()
		case <-ctx.Done():
			err = fmt.Errorf("%d processes do not stop: %w", running, context.Cause(ctx))
		}
	}
	m.proceed(list, before)
	return fmt.Errorf("stop the commands: %w", err)
}

// Continue implements Stopper.
func (m *OS) Continue() error {
	m.gate.Lock()
	defer m.gate.Unlock()
	list, err := m.commandProcesses()
	if err != nil {
		return fmt.Errorf("let the commands go on: %w", err)
	}
	m.proceed(list, m.stopped)
	m.stopped = nil
	return nil
}

// proceed lets go on what was not stopped before. Children go first: a shell
// that is told of a stop then finds it over, and says nothing of it.
func (m *OS) proceed(list []procStat, before map[int]bool) {
	for _, p := range slices.Backward(list) {
		if !before[p.pid] {
			unix.Kill(p.pid, unix.SIGCONT)
		}
	}
}

// commandProcesses lists what descends from this process, parents first,
// without the wardens.
func (m *OS) commandProcesses() ([]procStat, error) {
	list, err := processes()
	if err != nil {
		return nil, err
	}
	wardens := m.wardenPids()
	return slices.DeleteFunc(descendants(list, os.Getpid(), nil), func(p procStat) bool { return wardens[p.pid] }), nil
}
