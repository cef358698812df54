package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// A warden is a small process, this same program run again, that starts one
// command at a time and is the subreaper of everything descended from it.
// Linux gives a process that loses its parent to its nearest living subreaper,
// whatever session or group it moved to and however often it forked, so the
// descendants of a warden are exactly the processes of its command: a command
// is over when the warden has no child left, which wait4 says for nothing. The
// price is one message each way on a socket; wardens are kept and used again.
//
// Wardens hold no secret. Their own privileges go to their children as little
// as they can: before the first command a warden empties its capability
// bounding set, sets no_new_privs and keeps only what changing the user needs.
//
// Where commands run under the daemon's own uid (nested), a warden is also the
// first process of a pid namespace, so that its command can neither see nor
// signal the daemon, and killing the warden kills all of the command at once.

// wardenFD is the descriptor of a warden's control socket.
const wardenFD = 3

// wardenSetup is the first message to a warden.
type wardenSetup struct {
	Nested bool   // first process of its pid namespace: confine children under the same uid
	Switch bool   // children run as another user: keep the capabilities for that
	NProc  int    // RLIMIT_NPROC of children; 0: not limited
	Cgroup string // cgroup v2 directory that children are started in; empty: the daemon's own
}

// Kinds of a warden's messages.
const (
	wardenReady   = 1 // Value: a set of holds
	wardenStarted = 2 // Value: pid of the leader as the warden sees it
	wardenFailed  = 3 // Value: errno; the warden is free
	wardenExited  = 4 // Value: wait status of the leader
	wardenEmpty   = 5 // no process is left; the warden is free
)

// What a ready warden reports to hold for its children.
const (
	holdsBounding = 1 << iota // the bounding set is empty
	holdsNoPrivs              // no_new_privs is set
	holdsNProc                // the process limit can be set
	holdsProc                 // /proc shows the nested namespace
	holdsGroups               // no supplementary groups
)

// RunWarden is the body of a warden process. The control socket is descriptor
// 3. It returns when the daemon is gone or something is wrong beyond repair;
// the caller should then exit. It must be called from the main goroutine.
func RunWarden() error {
	runtime.LockOSThread()
	runtime.GOMAXPROCS(1)
	// Signals are received and dropped rather than ignored: what is ignored
	// stays ignored in children.
	signal.Notify(make(chan os.Signal, 1))
	w := &wardenProc{ownAdj: -1}
	payload, _, err := w.receive()
	if err != nil {
		return fmt.Errorf("warden setup: %w", err)
	}
	if err := json.Unmarshal(payload, &w.setup); err != nil {
		return fmt.Errorf("warden setup: %w", err)
	}
	holds, err := w.confine()
	if err != nil {
		return fmt.Errorf("warden setup: %w", err)
	}
	if err := w.send(wardenReady, holds); err != nil {
		return err
	}
	for {
		if err := w.serve(); err != nil {
			return err
		}
	}
}

// wardenProc is the state of this process when it is a warden.
type wardenProc struct {
	setup  wardenSetup
	holds  int
	null   uintptr // /dev/null, standard input of children
	cgroup int     // descriptor of setup.Cgroup
	ownAdj int     // oom_score_adj of the warden
	oomAdj int     // descriptor of /proc/self/oom_score_adj, or -1
	buf    []byte
}

// serve runs one command from its request to the end of its last process.
func (w *wardenProc) serve() error {
	payload, fds, err := w.receive()
	if err != nil {
		return err
	}
	req, err := parseWardenRequest(payload)
	if err != nil {
		return err
	}
	pid, err := w.start(req, fds)
	for _, fd := range fds {
		unix.Close(fd)
	}
	if err != nil {
		errno, ok := err.(syscall.Errno)
		if !ok {
			errno = syscall.EIO
		}
		return w.send(wardenFailed, int(errno))
	}
	if err := w.send(wardenStarted, pid); err != nil {
		return err
	}
	return w.collect(pid)
}

// collect waits for the children, of which pid is the leader, to the last.
func (w *wardenProc) collect(leader int) error {
	var message []byte
	for {
		// What is known is sent before waiting, and together with the end when
		// there is nothing to wait for, as after most commands.
		flag := 0
		if len(message) > 0 {
			flag = unix.WNOHANG
		}
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, flag, nil)
		switch {
		case err == unix.EINTR:
		case err == unix.ECHILD:
			return w.sendAll(appendMessage(message, wardenEmpty, 0))
		case err != nil:
			return fmt.Errorf("wait4: %w", err)
		case pid == 0:
			if err := w.sendAll(message); err != nil {
				return err
			}
			message = nil
		case pid == leader:
			message = appendMessage(message, wardenExited, int(ws))
		}
	}
}

// start forks the command from this thread, whose privileges it inherits.
func (w *wardenProc) start(req wardenRequest, fds []int) (int, error) {
	if len(fds) != req.Input.descriptors() {
		return 0, syscall.EBADF
	}
	std := []uintptr{w.null, 0, 0}
	switch {
	case req.Input == inputTerminal:
		std[0], std[1], std[2] = uintptr(fds[0]), uintptr(fds[0]), uintptr(fds[0])
	case req.Merge:
		std[1], std[2] = uintptr(fds[0]), uintptr(fds[0])
	default:
		std[1], std[2] = uintptr(fds[0]), uintptr(fds[1])
	}
	if req.Input == inputPipe {
		std[0] = uintptr(fds[2])
	}
	attr := &syscall.ProcAttr{
		Dir:   req.Dir,
		Env:   req.Env,
		Files: std,
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: req.Input == inputTerminal},
	}
	if w.setup.Cgroup != "" {
		// Born in it (CLONE_INTO_CGROUP): there is no moment outside.
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, w.cgroup
	}
	if req.Switch {
		attr.Sys.Credential = &syscall.Credential{Uid: req.UID, Gid: req.GID, NoSetGroups: true}
	}
	w.raiseOOM(true)
	undo := w.limitNProc()
	pid, err := syscall.ForkExec(req.Path, req.Args, attr)
	undo()
	w.raiseOOM(false)
	if err == nil && w.holds&holdsNProc != 0 {
		// The soft limit came with fork; this takes away the right to raise it
		// to the warden's own. A command that is quicker gains nprocSlack.
		n := uint64(w.setup.NProc)
		unix.Prlimit(pid, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: n, Max: n}, nil)
	}
	return pid, err
}

// childOOMAdj is added to the score of commands, so that the kernel ends them
// before the daemon when the sandbox is out of memory.
const childOOMAdj = 500

// raiseOOM raises or restores this process's own score around a fork: children
// inherit it, without a moment at which they do not have it.
func (w *wardenProc) raiseOOM(up bool) {
	if w.oomAdj < 0 {
		return
	}
	v := w.ownAdj
	if up {
		v = min(v+childOOMAdj, 1000)
	}
	unix.Pwrite(w.oomAdj, fmt.Append(nil, v), 0)
}

// limitNProc sets the soft process limit that a fork then inherits, and
// returns what restores it. The warden itself stays unlimited: the Go runtime
// cannot go on when it gets no thread.
func (w *wardenProc) limitNProc() func() {
	if w.setup.NProc <= 0 {
		return func() {}
	}
	var old unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &old) != nil {
		return func() {}
	}
	unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: min(uint64(w.setup.NProc), old.Max), Max: old.Max})
	return func() { unix.Setrlimit(unix.RLIMIT_NPROC, &old) }
}
