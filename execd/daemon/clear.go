package daemon

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
)

// Clearer is implemented by machines whose commands can leave processes behind
// that no Process accounts for.
type Clearer interface {
	// Clear ends every process of commands, whatever it did to get away, and
	// returns how many it found, once none is left. None is started meanwhile.
	// begun is called when they are counted and about to be ended.
	Clear(ctx context.Context, begun func()) (ended int, err error)
}

var _ Clearer = (*OS)(nil)

// clear answers POST /rein/clear: everything that commands, sessions, terminals
// and the image's entrypoint have started is ended.
func (s *Server) clear(w http.ResponseWriter, r *http.Request) {
	s.pausing.Lock() // neither a pause nor another of these
	defer s.pausing.Unlock()
	if s.paused.Load() {
		fail(w, isPaused())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), execd.ClearTimeout)
	defer cancel()
	var c execd.Cleared
	var procs []Process
	begun := func() { procs = s.commands.interruptAll(execd.KilledByInterrupt) }
	if m, ok := s.cfg.Machine.(Clearer); ok {
		var err error
		if c.Processes, err = m.Clear(ctx, begun); err != nil {
			fail(w, err)
			return
		}
	} else {
		begun()
		c.Processes = len(procs)
	}
	for _, p := range procs {
		p.Kill()
		select {
		case <-p.Gone():
		case <-ctx.Done():
			fail(w, fmt.Errorf("clear: a command does not end: %w", context.Cause(ctx)))
			return
		}
	}
	reply(w, c)
}

// interruptAll ends every running command and returns all of which something
// may be left.
func (r *registry) interruptAll(reason string) []Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	var procs []Process
	for _, e := range r.entries {
		if e.job != nil {
			e.job.interrupt(reason)
		}
		if e.proc != nil {
			procs = append(procs, e.proc)
		}
	}
	return procs
}

// Clear implements Clearer. All is stopped before anything is killed: what
// cannot run cannot fork, so that nothing is born behind the list's back. What
// resists the stop is killed all the same, again and again until nothing is left.
func (m *OS) Clear(ctx context.Context, begun func()) (ended int, err error) {
	stopping, cancel := context.WithTimeout(ctx, execd.ClearTimeout/3)
	stopErr := m.Stop(stopping)
	cancel()
	if stopErr == nil {
		defer m.startAgain()
	} else { // it let all go on: keep commands from starting by ourselves
		m.gate.Lock()
		defer m.gate.Unlock()
	}
	var begin sync.Once
	seen := map[int]bool{}
	for wait, empty := time.Millisecond, 0; ; wait = min(2*wait, 50*time.Millisecond) {
		list, err := m.commandProcesses()
		if err != nil {
			return len(seen), fmt.Errorf("clear: %w", err)
		}
		begin.Do(begun)
		m.killCommands()
		alive := 0
		for _, p := range list {
			if p.zombie {
				continue
			}
			alive++
			seen[p.pid] = true
			unix.Kill(p.pid, unix.SIGKILL)
		}
		if alive > 0 {
			empty = 0
		} else if empty++; empty == 2 {
			return len(seen), nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return len(seen), fmt.Errorf("clear: %d processes do not end: %w", alive, context.Cause(ctx))
		}
	}
}

// startAgain lets commands be started again after a Stop of which nothing is to go on.
func (m *OS) startAgain() {
	m.mu.Lock()
	w := m.unwatchLocked()
	m.mu.Unlock()
	if w != nil {
		<-w.done
	}
	m.gate.Lock()
	m.stopped = nil
	m.gate.Unlock()
}

// killCommands kills the command of every warden, each in one step where there
// are cgroups.
func (m *OS) killCommands() {
	m.mu.Lock()
	wardens := slices.Collect(maps.Keys(m.live))
	m.mu.Unlock()
	for _, w := range wardens {
		w.mu.Lock()
		p := w.cur
		w.mu.Unlock()
		if p != nil {
			w.killCgroup() // where that fails they are found one by one
			p.Kill()
		}
	}
}
