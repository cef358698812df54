package daemon

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// While paused, what has been stopped stays so, unless it is sent SIGCONT: by a
// timer that a program has set, or by the kernel to a process group that has
// lost its parent. The second happens once. A command that does the first again
// and again is ended, since between a waking and its discovery it runs.
const (
	// maxWakings is how often a command may wake in one pause.
	maxWakings = 3
	// maxAwake is how often in all it may be found awake: a signal needs its time
	// on a busy machine. It is half a second at least.
	maxAwake = 100
)

// How long nothing is looked for: longer and longer while nothing wakes, and
// not as long again once something has.
const (
	watchQuick = 5 * time.Millisecond
	watchSlow  = 100 * time.Millisecond
	watchWary  = 4 * watchQuick
)

// watch is a keepStopped that runs.
type watch struct{ end, done chan struct{} }

// watchOver starts keepStopped.
func (m *OS) watchOver() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		w := &watch{make(chan struct{}), make(chan struct{})}
		m.watch = w
		m.wg.Go(func() { defer close(w.done); m.keepStopped(w.end) })
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
func (m *OS) keepStopped(end chan struct{}) {
	slow := watchSlow
	signalled, seen := map[int]bool{}, wakings{}
	for wait := watchQuick; ; wait = min(2*wait, slow) {
		select {
		case <-end:
			return
		case <-time.After(wait):
		}
		list, err := m.commandProcesses()
		if err != nil {
			continue
		}
		awake := stopThose(list, signalled)
		if seen.idle(awake); len(awake) == 0 {
			continue
		}
		m.weary(seen, awake)
		slow, wait = watchWary, watchQuick/2
	}
}

// waking is what is known of the wakings of a command.
type waking struct {
	times, found int
	last         map[int]bool // the processes that were awake when it was last looked
}

// wakings are those of a pause, by command; nil: of processes of none.
type wakings map[*osProcess]*waking

// idle forgets which processes were awake and are not any more.
func (s wakings) idle(awake []procStat) {
	now := map[int]bool{}
	for _, p := range awake {
		now[p.pid] = true
	}
	for _, w := range s {
		for pid := range w.last {
			if !now[pid] {
				delete(w.last, pid)
			}
		}
	}
}

// weary counts the wakings, and ends the commands that have woken too often.
func (m *OS) weary(seen wakings, awake []procStat) {
	owners := m.owners(awake)
	found := map[*osProcess][]procStat{}
	for _, p := range awake {
		found[owners[p.pid]] = append(found[owners[p.pid]], p)
	}
	for cmd, list := range found {
		w := seen[cmd]
		if w == nil {
			w = &waking{last: map[int]bool{}}
			seen[cmd] = w
		}
		w.found++
		anew := false
		for _, p := range list {
			anew = anew || !w.last[p.pid]
			w.last[p.pid] = true
		}
		if anew {
			w.times++
		}
		if w.times > maxWakings || w.found > maxAwake {
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

// maxTaken is how often a process may be found awake that has taken its signal:
// of one with many threads each needs its time to stop, a second on a busy
// machine.
const maxTaken = 20

// halts are the processes that were seen to stand still before all of them did,
// how often each has woken since, and how often each has been awake after it took
// its signal: SIGCONT takes back one that is still pending, so that what wakes
// often may never be seen to stand still.
type halts struct {
	still map[int]bool
	woken map[int]int
	taken map[int]int
}

// take counts what is awake and has no signal pending. It is asked before what
// is awake has the next one.
func (h *halts) take(list []procStat, signalled map[int]bool) {
	for _, p := range list {
		if signalled[p.pid] && runs(p, true) && !stopPending(p.pid) && runs(p, true) {
			h.taken[p.pid]++
		}
	}
}

// stopPending reports whether a process has yet to take a SIGSTOP, and true where
// nobody says so.
func stopPending(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return true
	}
	_, rest, ok := strings.Cut(string(b), "\nShdPnd:\t") // of the whole process, as kill(2) sends it
	mask, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(mask, 16, 64)
	return !ok || err != nil || set&(1<<(unix.SIGSTOP-1)) != 0
}

// look ends what has woken too often for a pause ever to begin. A process that is
// new, or has not taken its signal yet, has not woken.
func (h *halts) look(m *OS, list, awake []procStat, signalled map[int]bool) {
	if len(awake) == 0 {
		return
	}
	var tired []procStat
	for _, p := range awake {
		if h.still[p.pid] {
			delete(h.still, p.pid)
			h.woken[p.pid]++
		}
		if h.woken[p.pid] > maxWakings || h.taken[p.pid] > maxTaken {
			tired = append(tired, p)
		}
	}
	// Looked at again at once: one that wakes often is awake whenever it is looked
	// for later.
	time.Sleep(time.Millisecond)
	for _, p := range list {
		if signalled[p.pid] && !runs(p, true) {
			h.still[p.pid] = true
		}
	}
	if len(tired) == 0 {
		return
	}
	owners := m.owners(tired)
	for _, p := range tired {
		endWoken(owners[p.pid], []procStat{p})
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
