package daemon

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// While paused, what has been stopped stays so, unless it is sent SIGCONT: by a
// timer that a program has set, or by the kernel to a process group that has
// lost its parent. The second happens once. A command that does the first again
// and again is ended, since between a waking and its discovery it runs.

// How long nothing is looked for: longer and longer while nothing wakes, and
// not as long again once something has.
const (
	watchQuick = 5 * time.Millisecond
	watchSlow  = 100 * time.Millisecond
	watchWary  = 4 * watchQuick
)

// watch is a keepStopped that runs.
type watch struct {
	sent      halts
	end, done chan struct{}
}

// watchOver starts keepStopped for what has been stopped.
func (m *OS) watchOver(sent halts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		w := &watch{sent, make(chan struct{}), make(chan struct{})}
		m.watch = w
		m.wg.Go(func() { defer close(w.done); m.keepStopped(w) })
	}
}

// unwatchLocked tells keepStopped to end, and returns it, nil when there was
// none.
func (m *OS) unwatchLocked() *watch {
	w := m.watch
	if w != nil {
		close(w.end)
		m.watch = nil
	}
	return w
}

// keepStopped stops again what wakes, and ends what does so too often.
func (m *OS) keepStopped(w *watch) {
	slow, seen := watchSlow, wakings{}
	for wait := watchQuick; ; wait = min(2*wait, slow) {
		select {
		case <-w.end:
			return
		case <-time.After(wait):
		}
		list, err := m.commandProcesses()
		if err != nil {
			continue
		}
		awake, woken := w.sent.stop(list)
		if m.weary(seen, woken, maxWakings); len(awake) > 0 {
			slow, wait = watchWary, watchQuick/2
		}
	}
}

// maxWakings is how often a command may wake in one pause, and lateWakings how
// often where the pause has not begun in a quarter of its time: the kernel does
// it once.
const (
	maxWakings  = 3
	lateWakings = 1
)

// wakings is how often a command was found to have woken; nil: processes of none.
type wakings map[*osProcess]int

// weary counts the wakings, and ends the commands that have woken too often.
func (m *OS) weary(seen wakings, woken []procStat, limit int) {
	if len(woken) == 0 {
		return
	}
	owners := m.owners(woken)
	of := map[*osProcess][]procStat{}
	for _, p := range woken {
		of[owners[p.pid]] = append(of[owners[p.pid]], p)
	}
	for cmd, list := range of {
		if seen[cmd]++; seen[cmd] > limit {
			endWoken(cmd, list)
		}
	}
}

// endWoken ends a command of which these processes kept waking, or the processes
// where the command has ended before them.
func endWoken(cmd *osProcess, list []procStat) {
	if cmd != nil {
		cmd.endWoken()
		return
	}
	for _, p := range list {
		fmt.Fprintf(os.Stderr, "process %d kept waking while the sandbox was paused, and was killed\n", p.pid)
		unix.Kill(p.pid, unix.SIGKILL)
	}
}

// endWoken ends a command that kept waking.
func (p *osProcess) endWoken() {
	if !p.woken.Swap(true) {
		fmt.Fprintf(os.Stderr, "the command %s kept waking while the sandbox was paused, and was killed\n", p.id)
	}
	p.Kill()
}

// owners tells of which command each process is, as far as it is known.
func (m *OS) owners(of []procStat) map[int]*osProcess {
	list, err := m.processes()
	if err != nil {
		return nil
	}
	parents := make(map[int]int, len(list))
	for _, p := range list {
		parents[p.pid] = p.ppid
	}
	m.mu.Lock()
	wardens := make(map[int]*warden, len(m.live))
	for w := range m.live {
		wardens[w.pid] = w
	}
	m.mu.Unlock()
	owners := map[int]*osProcess{}
	for _, p := range of {
		for pid, steps := p.pid, 0; pid > 1 && steps <= len(list); pid, steps = parents[pid], steps+1 {
			if w := wardens[pid]; w != nil {
				w.mu.Lock()
				owners[p.pid] = w.cur
				w.mu.Unlock()
				break
			}
		}
	}
	return owners
}
