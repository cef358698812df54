package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// OSOptions say how an OS machine runs commands.
type OSOptions struct {
	// Warden is the program and arguments that call RunWarden. Required.
	Warden []string
	// User runs the commands; nil runs them as the daemon's own user.
	User *User
	// Nested gives every command its own pid namespace, under the daemon's own
	// uid. It needs CAP_SYS_ADMIN and CAP_SETPCAP and excludes User and Cgroup.
	Nested bool
	// Init says that this process is pid 1: every orphan is reaped.
	Init bool
	// MaxProcesses bounds the processes of the commands' user; 0: no bound.
	MaxProcesses int
	// Cgroup is the directory of a cgroup v2, in which each command is started
	// in a child of its own, which also ends it; empty: the daemon's own.
	Cgroup string
	// Dir is an existing directory, writable by the daemon only, that the
	// commands' user can pass through: long commands and pipe statuses.
	// Required.
	Dir string
	// OOMEvents is the memory event counter of the sandbox, or nil.
	OOMEvents *os.File
	// UserName is what Traits reports; empty: the uid.
	UserName string
}

// OS runs commands as real processes on Linux. The zero value is not usable;
// call NewOS.
//
// Its limits: a command whose every process forks and exits within
// microseconds, changing its session each time, can outrun Kill for as long as
// other commands run, since then nothing but its descent tells it apart. And
// where a warden dies by accident, what its command left behind is ended too.
type OS struct {
	opts   OSOptions
	expect int // what every warden must hold for its commands
	spawn  *spawner
	shells []string // where shells are looked for
	bash   pipeTrap
	wg     sync.WaitGroup

	wardens atomic.Uint64 // made so far
	kernel  kernel
	diag    atomic.Bool // the kernel tells of single sockets
	makers  atomic.Bool // it tells who made them, also after their end
	past    past

	lastHolder atomic.Int64 // pid of who held the connection that was asked about last

	gate      sync.RWMutex // read-locked while a command is started
	stopped   map[int]bool // between Stop and Continue: processes that were stopped already
	watch     *watch       // between them, too; guarded by mu
	processes func() ([]procStat, error)

	mu     sync.Mutex
	closed bool
	spare  chan *warden // gets the spare warden that is being made and is nobody's yet; nil: none
	idle   []*warden
	live   map[*warden]bool
	reaper *reaper
}

// maxIdleWardens are kept for the next commands.
const maxIdleWardens = 4

// NewOS returns a machine. The first warden starts in the background.
func NewOS(opts OSOptions) (*OS, error) {
	if len(opts.Warden) == 0 || !filepath.IsAbs(opts.Dir) {
		return nil, errors.New("execd: OSOptions needs Warden and an absolute Dir")
	}
	if opts.Nested && opts.User != nil {
		return nil, errors.New("execd: Nested runs commands as the daemon's own user")
	}
	if opts.Nested && opts.Cgroup != "" {
		// Only clone3 starts a process in a cgroup, and a nested warden gives it up.
		return nil, errors.New("execd: Nested commands cannot be started in a cgroup")
	}
	m := &OS{opts: opts, expect: expectedHolds(opts), live: make(map[*warden]bool), processes: processes, shells: shells[:]}
	m.bash = newPipeTrap(opts.Dir)
	m.spawn = newSpawner(&m.wg)
	if opts.Init {
		m.reaper = newReaper(m)
	}
	m.mu.Lock()
	m.spareLocked()
	m.mu.Unlock()
	return m, nil
}

var (
	_ Machine = (*OS)(nil)
	_ Reducer = (*OS)(nil)
)

// Traits implements Machine.
func (m *OS) Traits() Traits {
	t := Traits{PipeStatus: m.bash.usable(), OOMFlag: m.oomKills() >= 0, Argv: true, Separation: "reduced", User: m.opts.UserName}
	uid := os.Geteuid()
	if m.opts.User != nil {
		uid = int(m.opts.User.UID)
	}
	if t.User == "" {
		t.User = strconv.Itoa(uid)
	}
	if uid != os.Geteuid() {
		t.Separation = "full"
	}
	return t
}

// Reduced implements Reducer. It waits for a warden only where none can say
// beforehand what it will hold.
func (m *OS) Reduced() []string {
	holds := m.expect
	if m.opts.Nested {
		w, err := m.take()
		if err != nil {
			return []string{err.Error()}
		}
		m.release(w)
		holds = w.holds
	}
	var list []string
	if holds&holdsBounding == 0 && os.Geteuid() == 0 {
		list = append(list, "capability bounding set not empty (no_new_privs is set)")
	}
	if m.opts.MaxProcesses > 0 && holds&holdsNProc == 0 {
		list = append(list, "a command can raise its process limit (the daemon lacks CAP_SYS_RESOURCE)")
	}
	if m.opts.Nested && holds&holdsProc == 0 {
		list = append(list, "/proc shows the outer pid namespace")
	}
	if m.opts.User != nil && holds&holdsGroups == 0 {
		list = append(list, "supplementary groups could not be dropped")
	}
	return list
}

// Start implements Machine.
func (m *OS) Start(spec Spec) (Process, error) {
	m.gate.RLock()
	defer m.gate.RUnlock()
	if m.stopped != nil {
		return nil, isPaused()
	}
	req, files, err := m.request(spec)
	if err != nil {
		if p := m.unstarted(spec, err); p != nil {
			return p, nil
		}
		return nil, err
	}
	p := &osProcess{os: m, id: spec.ID, files: files, done: make(chan struct{}), gone: make(chan struct{})}
	out, outW, err := outputPipe()
	if err != nil {
		files.remove()
		return nil, err
	}
	errp, errW, err := outputPipe()
	if err != nil {
		files.remove()
		out.Close()
		unix.Close(outW)
		return nil, err
	}
	p.stdout, p.stderr = out, errp
	p.oomBefore = m.oomKills()
	direct, plain := withoutShell(req, spec.Command)
	plain = plain && len(spec.Argv) == 0
	if plain {
		err = m.startOn(p, direct, outW, errW)
	}
	if _, refused := errors.AsType[syscall.Errno](err); !plain || refused {
		err = m.startOn(p, req, outW, errW)
	}
	unix.Close(outW)
	unix.Close(errW)
	if err != nil {
		close(p.gone) // for Close, which may be ending it
		files.remove()
		out.Close()
		errp.Close()
		if p := m.unstarted(spec, err); p != nil {
			return p, nil
		}
		return nil, m.explain(spec, req, err)
	}
	return p, nil
}

// startOn has a free warden start the process. A warden that turns out to be
// dead before it has seen the request is replaced once.
func (m *OS) startOn(p *osProcess, req wardenRequest, fds ...int) error {
	for try := 0; ; try++ {
		w, err := m.take()
		if err != nil {
			return err
		}
		err = w.start(p, req, fds)
		if errors.Is(err, errWardenLost) && try == 0 {
			continue
		}
		return err
	}
}

// explain turns the errno of a failed start into what was at fault.
func (m *OS) explain(spec Spec, req wardenRequest, err error) error {
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return err
	}
	switch errno {
	case syscall.E2BIG:
		return &StartError{"the environment is too large for the kernel", err}
	case syscall.EAGAIN:
		return &StartError{"the process limit is reached: end some processes first", err}
	case syscall.EINVAL, syscall.EPERM:
		if spec.UID != nil {
			return &StartError{fmt.Sprintf("cannot run as uid %d, gid %d here", req.UID, req.GID), err}
		}
	case syscall.ENOENT, syscall.ENOTDIR, syscall.EACCES, syscall.ELOOP, syscall.ENAMETOOLONG:
		_, programErr := os.Stat(req.Path)
		_, dirErr := os.Stat(req.Dir)
		shell, _ := m.findShell()
		switch {
		case shell == "" && dirErr == nil:
			return fmt.Errorf("%s cannot be started, and there is no shell: %w", req.Path, err)
		case programErr != nil:
			return fmt.Errorf("no shell at %s: %w", req.Path, err)
		case errno == syscall.ENOENT && dirErr == nil:
			return fmt.Errorf("%s lacks its interpreter or loader: %w", req.Path, err)
		}
		return &StartError{"cannot enter cwd " + spec.Dir, err}
	}
	return fmt.Errorf("start %s: %w", req.Path, err)
}

// Close implements Machine. It ends every command and waits for the wardens.
func (m *OS) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	m.unwatchLocked()
	m.idle = nil
	var running []*warden
	for w := range m.live {
		running = append(running, w)
	}
	m.mu.Unlock()
	var ending sync.WaitGroup
	for _, w := range running {
		ending.Go(w.close)
	}
	ending.Wait()
	m.spawn.close()
	m.wg.Wait()
	m.kernel.close()
	if m.reaper != nil {
		m.reaper.close()
	}
	return nil
}

var errClosed = errors.New("execd: the machine is closed")

// take returns a free warden and sees to it that there will be another.
func (m *OS) take() (*warden, error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, errClosed
	}
	var w *warden
	var spare chan *warden
	if n := len(m.idle); n > 0 {
		w, m.idle = m.idle[n-1], m.idle[:n-1]
	} else {
		spare, m.spare = m.spare, nil
	}
	if len(m.idle) == 0 && (w != nil || spare != nil || m.opts.Nested) {
		m.spareLocked()
	}
	m.mu.Unlock()
	if w != nil {
		return w, nil
	}
	if spare != nil {
		if w := <-spare; w != nil {
			return w, nil
		} // else the next attempt meets the same error, if it lasts, and reports it
	}
	return m.newWarden()
}

// release makes a warden free again, or ends it when there are enough or when
// its command may have spoilt it for the next.
func (m *OS) release(w *warden) {
	if w.spoilt() {
		w.kill()
		return
	}
	m.mu.Lock()
	if !m.closed && m.live[w] && len(m.idle) < maxIdleWardens {
		m.idle = append(m.idle, w)
		m.mu.Unlock()
		return
	}
	m.mu.Unlock()
	w.dismiss()
}

// spareLocked has a warden made in the background, unless one is being made
// that nobody waits for.
func (m *OS) spareLocked() {
	if m.spare != nil || m.closed {
		return
	}
	spare := make(chan *warden, 1)
	m.spare = spare
	m.wg.Go(func() {
		w, err := m.newWarden()
		if err != nil {
			w = nil
		}
		m.mu.Lock()
		taken := m.spare != spare
		if !taken {
			m.spare = nil
		}
		m.mu.Unlock()
		switch {
		case taken:
			spare <- w
		case w != nil:
			m.release(w)
		}
	})
}

// retire takes a warden that is ending out of the pool.
func (m *OS) retire(w *warden) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.idle = slices.DeleteFunc(m.idle, func(o *warden) bool { return o == w })
}

// wardenPids returns the live wardens' pids.
func (m *OS) wardenPids() map[int]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	pids := make(map[int]bool, len(m.live))
	for w := range m.live {
		pids[w.pid] = true
	}
	return pids
}

// pipeSize is asked for output pipes: fewer switches between the command and
// the daemon. The kernel's default stays where that much is not allowed.
const pipeSize = 1 << 20

// outputPipe returns the read end as a file and the write end as a descriptor.
// The write end stays blocking, as programs expect of their output.
func outputPipe() (io.ReadCloser, int, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, fmt.Errorf("pipe: %w", err)
	}
	unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, -1, fmt.Errorf("pipe: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "|output"), fds[1], nil
}
