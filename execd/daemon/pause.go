package daemon

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
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

// isPaused refuses what cannot be done while the sandbox is paused.
func isPaused() error {
	return refuse(http.StatusConflict, execd.CodeConflict, "the sandbox is paused")
}

// pause answers POST /rein/pause. Every later request but a resume is refused.
func (s *Server) pause(w http.ResponseWriter, r *http.Request) {
	m, ok := s.cfg.Machine.(Stopper)
	if !ok {
		fail(w, refuse(http.StatusNotImplemented, execd.CodeNotFound, "this machine cannot stop its processes"))
		return
	}
	s.pausing.Lock()
	defer s.pausing.Unlock()
	if s.paused.Load() {
		done(w) // whoever asked first may not have had the answer
		return
	}
	// Done or undone, whether or not the caller still waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), execd.PauseTimeout)
	defer cancel()
	s.paused.Store(true)
	err := s.standStill(ctx, m)
	if err != nil {
		s.paused.Store(false)
		fail(w, err)
		return
	}
	done(w)
}

// standStill stops the commands, and what changes files for a client.
func (s *Server) standStill(ctx context.Context, m Stopper) error {
	for wait := time.Millisecond; !s.changing.TryLock(); wait = min(2*wait, 50*time.Millisecond) {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("a request still changes files: %w", context.Cause(ctx))
		}
	}
	err := m.Stop(ctx)
	if err != nil {
		s.changing.Unlock()
	}
	return err
}

// changes makes a route that changes files one that does so only while the
// sandbox is not paused: a pause waits for it, and it, whenever it has waited
// for the client, for the end of a pause.
func changes(f route) route {
	return func(s *Server, w http.ResponseWriter, r *http.Request) {
		s.changing.RLock()
		defer s.changing.RUnlock()
		r.Body = &pausable{r.Body, &s.changing}
		f(s, w, r)
	}
}

// pausable is the body of a request that holds mu for reading but while it waits
// for the client.
type pausable struct {
	io.ReadCloser
	mu *sync.RWMutex
}

func (b *pausable) Read(p []byte) (int, error) {
	b.mu.RUnlock()
	defer b.mu.RLock()
	return b.ReadCloser.Read(p)
}

// resume answers POST /rein/resume.
func (s *Server) resume(w http.ResponseWriter, _ *http.Request) {
	s.pausing.Lock()
	defer s.pausing.Unlock()
	if !s.paused.Load() {
		done(w)
		return
	}
	if err := s.cfg.Machine.(Stopper).Continue(); err != nil {
		fail(w, err)
		return
	}
	s.paused.Store(false)
	s.changing.Unlock()
	done(w)
}

// Stop implements Stopper. What forks while it is looked for is found the next
// time: its parent has been stopped. So there is a next time until nothing new
// is found.
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
	sent, seen, still := halts{}, wakings{}, false
	late, limit := time.Now().Add(execd.PauseTimeout/4), maxWakings
	for wait := time.Millisecond; err == nil; wait = min(2*wait, 50*time.Millisecond) {
		awake, woken := sent.stop(list)
		if time.Now().After(late) {
			limit = lateWakings
		}
		m.weary(seen, woken, limit)
		running := len(awake)
		if running == 0 && still {
			m.stopped = before
			m.watchOver(sent)
			return nil
		}
		if still = running == 0; still {
			wait = time.Millisecond
		}
		select {
		case <-time.After(wait):
			var next []procStat
			if next, err = m.commandProcesses(); err == nil {
				list = next // else what has been stopped is in the one before
			}
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
	m.mu.Lock()
	w := m.unwatchLocked()
	m.mu.Unlock()
	sent := halts{}
	if w != nil {
		<-w.done // or it might stop what goes on
		sent = w.sent
	}
	list, err := m.commandProcesses()
	if err != nil {
		m.watchOver(sent) // all stay stopped
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
	list, err := m.processes()
	if err != nil {
		return nil, err
	}
	own := descendants(list, os.Getpid(), nil)
	if m.opts.Init {
		// All others too: gVisor tells no parent of a process whose first thread
		// has ended.
		known := map[int]bool{os.Getpid(): true}
		for _, p := range own {
			known[p.pid] = true
		}
		own = append(slices.DeleteFunc(list, func(p procStat) bool { return known[p.pid] }), own...)
	}
	wardens := m.wardenPids()
	return slices.DeleteFunc(own, func(p procStat) bool { return wardens[p.pid] }), nil
}
