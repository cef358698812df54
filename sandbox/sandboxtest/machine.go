package sandboxtest

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rein-sh/rein/execd/daemon"
)

// machine is a daemon.Machine of interpreted commands. A process is a
// goroutine, and what it leaves in the background are the interpreter's jobs.
type machine struct {
	files *files
	clock Clock

	mu     sync.Mutex
	closed bool
	live   sync.WaitGroup
	ctx    context.Context // ends in Close
	cancel context.CancelFunc
}

var (
	_ daemon.Machine     = (*machine)(nil)
	_ daemon.StateKeeper = (*machine)(nil)
	_ daemon.Stateful    = (*command)(nil)
)

// KeepsState implements daemon.StateKeeper.
func (m *machine) KeepsState() bool { return true }

func newMachine(f *files, c Clock) *machine {
	m := &machine{files: f, clock: c}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Traits of an interpreter in the daemon's own process.
func (m *machine) Traits() daemon.Traits {
	return daemon.Traits{Argv: true, Separation: "reduced", User: "user"}
}

// Close ends every command and waits until they have.
func (m *machine) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.live.Wait()
	return nil
}

// Start begins to interpret a command.
func (m *machine) Start(spec daemon.Spec) (daemon.Process, error) {
	if spec.UID != nil || spec.GID != nil {
		return nil, &daemon.StartError{Reason: "commands cannot run as another user here"}
	}
	if info, err := m.files.stat(spec.Dir, true); err != nil || !info.IsDir() {
		return nil, &daemon.StartError{Reason: "cwd is not a directory", Err: cause(err)}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errors.New("the sandbox has ended")
	}
	c := &command{done: make(chan struct{}), gone: make(chan struct{})}
	c.ctx, c.kill = context.WithCancel(m.ctx)
	c.stdout, c.outw = io.Pipe()
	c.stderr, c.errw = io.Pipe()
	m.live.Go(func() { c.run(&shell{files: m.files, clock: m.clock}, spec) })
	return c, nil
}

// command is one interpreted command, a daemon.Process.
type command struct {
	ctx            context.Context
	kill           context.CancelFunc
	stdout, stderr *io.PipeReader
	outw, errw     *io.PipeWriter
	done, gone     chan struct{}

	mu     sync.Mutex
	signal syscall.Signal
	exit   daemon.Exit
	dir    string // left by the command
	env    []string
}

// State implements daemon.Stateful.
func (c *command) State() (dir string, env []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dir == "" {
		return "", nil, errors.New("the interpreter did not end well")
	}
	return c.dir, c.env, nil
}

func (c *command) run(s *shell, spec daemon.Spec) {
	stderr := c.errw
	if spec.MergeStderr {
		stderr = c.outw
	}
	source := spec.Command
	if len(spec.Argv) > 0 { // the interpreter is what starts programs here
		source = words(spec.Argv)
	}
	code, rest, err := s.run(c.ctx, task{
		source: source, dir: spec.Dir, env: spec.Env, stdout: c.outw, stderr: stderr,
	})
	c.mu.Lock()
	c.exit = daemon.Exit{Code: code}
	if c.ctx.Err() != nil {
		c.exit = daemon.Exit{Signal: c.signal}
		if c.signal == 0 {
			c.exit.Signal = syscall.SIGKILL
		}
	} else if err != nil {
		c.exit = daemon.Exit{Err: err}
	} else if spec.KeepState && s.left != nil {
		c.dir, c.env = s.left()
	}
	c.mu.Unlock()
	close(c.done)
	rest(c.ctx)
	for s.running.Load() > 0 && c.ctx.Err() == nil { // jobs of subshells
		s.pause(c.ctx, 5*time.Millisecond)
	}
	c.outw.Close()
	c.errw.Close()
	c.kill()
	close(c.gone)
}

// words is a command of exactly these words.
func words(argv []string) string {
	var quoted []string
	for _, a := range argv {
		quoted = append(quoted, "'"+strings.ReplaceAll(a, "'", `'\''`)+"'")
	}
	return strings.Join(quoted, " ")
}

func (c *command) Stdout() io.ReadCloser { return c.stdout }
func (c *command) Stderr() io.ReadCloser { return c.stderr }
func (c *command) Done() <-chan struct{} { return c.done }
func (c *command) Gone() <-chan struct{} { return c.gone }

// Signal ends the command: an interpreted one handles no signal.
func (c *command) Signal(sig syscall.Signal) error {
	c.mu.Lock()
	if c.signal == 0 {
		c.signal = sig
	}
	c.mu.Unlock()
	c.stop()
	return nil
}

func (c *command) Kill() { c.stop() }

// stop also unblocks whoever writes to a pipe that nobody reads.
func (c *command) stop() {
	c.kill()
	c.outw.CloseWithError(os.ErrClosed)
	c.errw.CloseWithError(os.ErrClosed)
}

func (c *command) Exit() daemon.Exit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exit
}
