package daemon

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// warden is the daemon's side of a warden process.
type warden struct {
	os    *OS
	pid   int
	conn  *net.UnixConn
	holds int
	// cgroup is the directory of its commands' own cgroup, empty without
	// OSOptions.Cgroup.
	cgroup string
	// replies answers the pending start. It is closed when the warden is gone.
	replies chan wardenReply

	mu   sync.Mutex
	cur  *osProcess // the command it runs, nil when it is free
	used bool       // it has been given a command

	dead   bool          // collected: the pid may be another's; guarded by os.mu
	reaped chan struct{} // closed by the reaper
}

type wardenReply struct{ kind, value int }

// errWardenLost says that a warden ended before it saw a request.
var errWardenLost = errors.New("the process that starts commands had ended")

// newWarden starts a warden and waits until it is ready.
func (m *OS) newWarden() (*warden, error) {
	w := &warden{os: m, replies: make(chan wardenReply, 1), reaped: make(chan struct{})}
	if m.opts.Cgroup != "" {
		w.cgroup = filepath.Join(m.opts.Cgroup, "w"+strconv.FormatUint(m.wardens.Add(1), 10))
		if err := os.Mkdir(w.cgroup, 0o755); err != nil {
			return nil, fmt.Errorf("warden: %w", err)
		}
	}
	if err := m.spawn.start(w); err != nil {
		if w.cgroup != "" {
			err = errors.Join(err, os.Remove(w.cgroup))
		}
		return nil, err
	}
	setup, err := json.Marshal(wardenSetup{Nested: m.opts.Nested, Switch: m.opts.User != nil, NProc: m.opts.MaxProcesses, Cgroup: w.cgroup})
	if err == nil {
		err = w.write(setup, nil)
	}
	if err != nil {
		w.kill()
		return nil, fmt.Errorf("warden: %w", err)
	}
	r, ok := <-w.replies
	if !ok || r.kind != wardenReady {
		w.kill()
		return nil, errors.New("warden: it ended before it was ready (its reason is on standard error)")
	}
	w.holds = r.value
	if missing := m.expect &^ w.holds; missing != 0 {
		w.kill()
		return nil, fmt.Errorf("warden: commands would be less confined than this daemon is able to confine them (%#x)", missing)
	}
	return w, nil
}

// write sends one message, with descriptors.
func (w *warden) write(payload []byte, fds []int) error {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(payload)), uint32(len(payload)))
	b = append(b, payload...)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, _, err := w.conn.WriteMsgUnix(b, oob, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errWardenLost, err)
	}
	if n < len(b) {
		_, err = w.conn.Write(b[n:])
	}
	return err
}

// start has the warden start p. On errWardenLost nothing was started.
func (w *warden) start(p *osProcess, req wardenRequest, fds []int) error {
	w.mu.Lock()
	p.began = monotonic()
	w.cur, w.used, p.warden = p, true, w
	w.mu.Unlock()
	if err := w.write(req.append(nil), fds); err != nil {
		w.mu.Lock()
		w.cur = nil
		w.mu.Unlock()
		w.kill()
		for range w.replies { // until lost has let go of p, which is another warden's from then on
		}
		return err
	}
	r, ok := <-w.replies
	if !ok {
		return errors.New("the process that starts commands ended while it started one")
	}
	if r.kind == wardenFailed {
		w.os.release(w)
		return syscall.Errno(r.value)
	}
	return nil
}

// read handles the warden's messages until it ends.
func (w *warden) read() {
	defer w.lost()
	in := bufio.NewReaderSize(w.conn, 8*wardenMessage)
	var b [wardenMessage]byte
	for {
		if _, err := io.ReadFull(in, b[:]); err != nil {
			return
		}
		kind := int(binary.LittleEndian.Uint32(b[:]))
		value := int(int32(binary.LittleEndian.Uint32(b[4:])))
		w.mu.Lock()
		p := w.cur
		w.mu.Unlock()
		if p == nil && kind != wardenReady {
			return // not a message that a sound warden sends
		}
		switch kind {
		case wardenStarted:
			p.leader = value
			w.replies <- wardenReply{kind, value}
		case wardenReady, wardenFailed:
			w.setFree()
			w.replies <- wardenReply{kind, value}
		case wardenExited:
			p.finish(exitOf(syscall.WaitStatus(value)))
		case wardenEmpty:
			w.setFree()
			p.files.remove()
			close(p.gone)
			w.os.release(w)
		}
	}
}

// spoilt reports whether the warden's command was able to change it: under the
// same uid it can set the warden's limits and priority.
func (w *warden) spoilt() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.used && w.os.opts.Nested
}

// setFree ends the warden's command, and returns it.
func (w *warden) setFree() *osProcess {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.cur
	w.cur = nil
	if p != nil {
		w.os.past.add(wardenRun{w.pid, p.id, p.began, monotonic()})
	}
	return p
}

func exitOf(ws syscall.WaitStatus) Exit {
	if ws.Signaled() {
		return Exit{Signal: ws.Signal()}
	}
	return Exit{Code: ws.ExitStatus()}
}

// lost runs once, when the warden's socket has ended: on dismissal, when it was
// killed, or by accident.
func (w *warden) lost() {
	defer close(w.replies) // last: a start that fails by it then cleans up
	w.kill()
	w.conn.Close()
	w.os.retire(w)
	w.reap()
	if w.cgroup != "" {
		w.killCgroup()
		defer os.Remove(w.cgroup) // an empty one costs nothing, should it stay
	}
	p := w.setFree()
	if p == nil {
		return
	}
	if !w.os.opts.Nested && p.leader > 0 {
		unix.Kill(-p.leader, unix.SIGKILL)
	}
	if w.os.opts.Init {
		w.os.killOrphans()
	}
	if p.leader == 0 {
		return // its start fails
	}
	select {
	case <-p.done:
	default:
		e := Exit{Err: errors.New("the process that watched the command ended")}
		if p.killed.Load() {
			e = Exit{Signal: syscall.SIGKILL}
		}
		p.finish(e)
	}
	p.files.remove()
	close(p.gone)
}

// kill ends the warden process. In a nested pid namespace everything in it
// ends too. The lock is the one that is held when a pid is given back.
func (w *warden) kill() {
	w.os.mu.Lock()
	defer w.os.mu.Unlock()
	if !w.dead {
		unix.Kill(w.pid, unix.SIGKILL)
	}
}

// killCgroup ends every process of the warden's command at once, forks under
// way included (cgroup-v2.rst, "cgroup.kill").
// It fails where there is no such cgroup, or where the kernel cannot (Linux
// before 5.14).
func (w *warden) killCgroup() error {
	if w.cgroup == "" {
		return errors.ErrUnsupported
	}
	return os.WriteFile(filepath.Join(w.cgroup, "cgroup.kill"), []byte("1"), 0)
}

// reap waits until the killed warden has been collected.
func (w *warden) reap() {
	if w.os.reaper != nil {
		<-w.reaped
		return
	}
	w.os.mu.Lock()
	w.dead = true
	delete(w.os.live, w)
	w.os.mu.Unlock()
	for {
		if _, err := unix.Wait4(w.pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}

// dismiss lets a free warden end by itself.
func (w *warden) dismiss() { w.conn.CloseWrite() }

// close ends the warden and its command, and returns when both are gone.
func (w *warden) close() {
	w.mu.Lock()
	p := w.cur
	w.mu.Unlock()
	if p != nil {
		p.Kill()
		t := time.NewTimer(2 * time.Second)
		defer t.Stop()
		select {
		case <-p.gone:
		case <-t.C:
		}
	}
	w.kill()
}

// spawner forks wardens from one thread that lives as long as the machine,
// because a warden is told to end with the thread that made it.
type spawner struct {
	mu     sync.Mutex
	closed bool
	reqs   chan func()
}

func newSpawner(wg *sync.WaitGroup) *spawner {
	s := &spawner{reqs: make(chan func())}
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this
		// The daemon's timers may be late (see sandbox/local), those of commands are
		// as late as Linux has them by default. Where it cannot be set it is that.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(50*time.Microsecond), 0, 0, 0)
		for f := range s.reqs {
			f()
		}
	})
	return s
}

func (s *spawner) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.reqs)
	}
}

// start forks w's process, with a control socket to it.
func (s *spawner) start(w *warden) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("warden: socketpair: %w", err)
	}
	defer unix.Close(pair[1])
	file := os.NewFile(uintptr(pair[0]), "warden")
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return fmt.Errorf("warden: %w", err)
	}
	w.conn = conn.(*net.UnixConn)
	done := make(chan error)
	s.reqs <- func() { done <- w.fork(pair[1]) }
	if err := <-done; err != nil {
		w.conn.Close()
		return fmt.Errorf("warden: %w", err)
	}
	return nil
}

// fork starts the warden's process and the reader of its messages, registered
// before anything can reap it, and only if Close will find it.
func (w *warden) fork(control int) error {
	m := w.os
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("/dev/null: %w", err)
	}
	defer unix.Close(null)
	attr := &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{},
		Files: []uintptr{uintptr(null), uintptr(null), 2, uintptr(control)},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	if m.opts.Nested {
		attr.Sys.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	w.pid, err = syscall.ForkExec(m.opts.Warden[0], m.opts.Warden, attr)
	if err != nil {
		return fmt.Errorf("start %s: %w", m.opts.Warden[0], err)
	}
	m.live[w] = true
	m.wg.Go(w.read)
	return nil
}

// reaper collects every child of pid 1: wardens, and orphans that a lost
// warden left. Nothing else in this process may wait for children.
type reaper struct {
	os   *OS
	sigs chan os.Signal
	stop chan struct{}
	done chan struct{}
}

func newReaper(m *OS) *reaper {
	r := &reaper{os: m, sigs: make(chan os.Signal, 1), stop: make(chan struct{}), done: make(chan struct{})}
	signal.Notify(r.sigs, syscall.SIGCHLD)
	go r.loop()
	return r
}

func (r *reaper) loop() {
	defer close(r.done)
	defer signal.Stop(r.sigs)
	for {
		select {
		case <-r.sigs:
			for r.reapOne() {
			}
		case <-r.stop:
			return
		}
	}
}

// reapOne holds the lock over wait4 and the mark, so that no signal can go to
// a pid that has been given back.
func (r *reaper) reapOne() bool {
	r.os.mu.Lock()
	defer r.os.mu.Unlock()
	pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
	if err == unix.EINTR {
		return true
	}
	if err != nil || pid == 0 {
		return false
	}
	for w := range r.os.live {
		if w.pid == pid {
			w.dead = true
			delete(r.os.live, w)
			close(w.reaped)
		}
	}
	return true
}

// close ends the reaper; no warden may be left.
func (r *reaper) close() {
	close(r.stop)
	<-r.done
}
