package daemon

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// halt is what is known of a process that has been sent SIGSTOP.
type halt struct {
	still bool   // it stood still
	taken bool   // it ran, and had taken the signal
	user  uint64 // its time in user mode after that was seen, in ticks
	dark  int    // how often in a row it ran and nobody said whether it had taken it
}

// halts are the processes that have been sent SIGSTOP, by pid.
type halts map[int]halt

// maxDark is how often a process may be found to run, where the kernel does not
// say whether it has taken its signal, before that counts as a waking.
const maxDark = 20

// ranTicks is how much time in user mode shows that a process has run: what
// stat says of it is scaled, and may grow by one without.
const ranTicks = 2

// stop stops what runs, and returns that, and what of it has woken: has run after
// it stood still or took its signal. That does not depend on how long a signal
// needs to arrive, which on a busy machine is anything, nor on what waits where
// no signal reaches it.
func (h halts) stop(list []procStat) (awake, woken []procStat) {
	for _, p := range list {
		was, signalled := h[p.pid]
		if !runs(p, signalled) {
			if signalled {
				h[p.pid] = halt{still: true}
			}
			continue
		}
		awake = append(awake, p)
		now := halt{}
		if signalled {
			var woke bool
			if now, woke = was.again(p.pid); woke {
				woken = append(woken, p)
			}
		}
		h[p.pid] = now
		unix.Kill(p.pid, unix.SIGSTOP) // an error means that it has ended
	}
	if len(awake) > 0 {
		h.settle(awake)
	}
	return awake, woken
}

// settle looks again at once: what wakes often is awake whenever it is looked for
// later.
func (h halts) settle(awake []procStat) {
	time.Sleep(time.Millisecond)
	for _, p := range awake {
		if !runs(p, true) {
			h[p.pid] = halt{still: true}
		}
	}
}

// again is what is known of a process that runs although it has been sent
// SIGSTOP, and whether it has woken. It may also not have taken the signal yet,
// or have threads that have not: those run on until each is reached. One that
// takes it wakes all that wait (signal(7), and do_signal_stop in the kernel), so
// that none is seen to wait afterwards.
func (was halt) again(pid int) (now halt, woke bool) {
	pending, known := stopPending(pid)
	if !known {
		if now.dark = was.dark + 1; now.dark > maxDark {
			return halt{}, true
		}
		return now, was.still
	}
	if pending {
		return now, was.still
	}
	waits, _ := hasThread(pid, func(state byte) bool { return state == 'S' })
	now.taken, now.user = true, userTime(pid)
	return now, was.still || waits || was.taken && now.user >= was.user+ranTicks
}

// stopPending reports whether a process has yet to take a SIGSTOP. gVisor does
// not say.
func stopPending(pid int) (pending, known bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false, false
	}
	_, rest, ok := strings.Cut(string(b), "\nShdPnd:\t") // of the whole process, as kill(2) sends it
	mask, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(mask, 16, 64)
	return set&(1<<(unix.SIGSTOP-1)) != 0, ok && err == nil
}

// userTime is how long a process has run in user mode, in ticks; 0 when it has
// ended.
func userTime(pid int) uint64 {
	b, err := readInto("/proc/"+strconv.Itoa(pid)+"/stat", make([]byte, 1024))
	if err != nil {
		return 0
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 12 {
		return 0
	}
	n, _ := strconv.ParseUint(string(f[11]), 10, 64) // utime
	return n
}

// runs reports whether a thread of a process runs, or may at any time. One that
// waits in the kernel where no signal reaches it, for a disk or for a child of
// vfork(2), is as good as stopped once it has the signal.
func runs(p procStat, signalled bool) bool {
	found, err := hasThread(p.pid, func(state byte) bool {
		switch state {
		case 'T', 't', 'Z', 'X':
			return false
		case 'D':
			return !signalled
		}
		return true
	})
	if err != nil { // over, or under gVisor one whose first thread has ended
		return !p.zombie && !signalled
	}
	return found
}

// hasThread reports whether a thread of a process is in a state (proc_pid_stat(5))
// that is asked for. One that cannot be read has ended.
func hasThread(pid int, wanted func(state byte) bool) (bool, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	buf := make([]byte, 1024)
	for _, t := range tasks {
		b, err := readInto(dir+t.Name()+"/stat", buf)
		if err != nil {
			continue
		}
		end := bytes.LastIndexByte(b, ')')
		if end < 0 || end+2 >= len(b) || wanted(b[end+2]) {
			return true, nil
		}
	}
	return false, nil
}
