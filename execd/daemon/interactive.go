package daemon

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Interactive is implemented by machines that can run a program for somebody
// who types.
type Interactive interface {
	// StartInteractive starts a program with a terminal of this size, or with
	// pipes when it is nil. An empty Spec.Command is a shell of its own.
	StartInteractive(spec Spec, size *Size) (InteractiveProcess, error)
}

// Size of a terminal, in characters.
type Size struct{ Cols, Rows uint16 }

// InteractiveProcess is a program with input. With a terminal Stdout has all of
// its output, and Stderr is nil.
type InteractiveProcess interface {
	Process
	// Input is the program's input. Closing that of a terminal does nothing.
	Input() io.WriteCloser
	// Resize changes the terminal's size; with pipes it does nothing.
	Resize(Size) error
	// SignalForeground sends sig to the terminal's foreground process group, or
	// with pipes, or where the foreground is not known, to the command's.
	SignalForeground(sig syscall.Signal) error
}

var _ Interactive = (*OS)(nil)

// interactiveProcess is a command with input.
type interactiveProcess struct {
	*osProcess
	input    *os.File
	terminal *os.File // nil with pipes
}

// StartInteractive implements Interactive.
func (m *OS) StartInteractive(spec Spec, size *Size) (InteractiveProcess, error) {
	m.gate.RLock()
	defer m.gate.RUnlock()
	if m.stopped != nil {
		return nil, isPaused()
	}
	req, err := m.interactiveRequest(spec)
	if err != nil {
		return nil, err
	}
	p := &interactiveProcess{osProcess: &osProcess{os: m, id: spec.ID, files: &commandFiles{}, done: make(chan struct{}), gone: make(chan struct{})}}
	p.oomBefore = m.oomKills()
	var child []int
	if size != nil {
		req.Input = inputTerminal
		child, err = p.openTerminal(*size, req)
	} else {
		req.Input = inputPipe
		child, err = p.openPipes()
	}
	if err == nil {
		err = m.startOn(p.osProcess, req, child...)
		if err != nil {
			close(p.gone) // for Close, which may be ending it
			p.closeAll()
			err = m.explain(spec, req, err)
		}
	}
	for _, fd := range child {
		unix.Close(fd)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// interactiveRequest is the request for a shell, or for a command.
func (m *OS) interactiveRequest(spec Spec) (wardenRequest, error) {
	shell, _ := m.findShell()
	req := wardenRequest{Path: shell, Args: []string{filepath.Base(shell)}, Dir: spec.Dir, Env: spec.Env}
	if spec.Command != "" {
		req.Args = append(req.Args, "-c", " "+spec.Command) // never an option
	}
	if len(spec.Command) > maxArgument {
		return req, &StartError{Reason: fmt.Sprintf("a command for a terminal has at most %d bytes", maxArgument)}
	}
	if err := m.identity(spec, &req); err != nil {
		return req, err
	}
	if shell == "" {
		return req, req.noShell(spec.Command)
	}
	if !hasKey(spec.Env, "SHELL") {
		req.Env = append(spec.Env[:len(spec.Env):len(spec.Env)], "SHELL="+shell)
	}
	return req, nil
}

// openTerminal makes a terminal and returns the program's end of it.
func (p *interactiveProcess) openTerminal(size Size, req wardenRequest) ([]int, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("no terminal: /dev/ptmx: %w", err)
	}
	p.terminal = os.NewFile(uintptr(fd), "terminal")
	p.input, p.stdout = p.terminal, p.terminal
	fail := func(what string, err error) ([]int, error) {
		p.terminal.Close()
		return nil, fmt.Errorf("no terminal: %s: %w", what, err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return fail("unlock", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return fail("number", err)
	}
	name := "/dev/pts/" + strconv.Itoa(n)
	slave, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(name, err)
	}
	if req.Switch {
		// Where it cannot be given away, programs use it by their descriptors
		// and as /dev/tty; only opening it by name fails.
		_ = unix.Fchown(slave, int(req.UID), int(req.GID))
		_ = unix.Fchmod(slave, 0o600)
	}
	if err := p.Resize(size); err != nil {
		unix.Close(slave)
		return fail("size", err)
	}
	return []int{slave}, nil
}

// openPipes makes three pipes and returns the program's ends.
func (p *interactiveProcess) openPipes() (child []int, err error) {
	fail := func(err error) ([]int, error) {
		for _, fd := range child {
			unix.Close(fd)
		}
		p.closeAll()
		return nil, err
	}
	for _, end := range []*io.ReadCloser{&p.stdout, &p.stderr} {
		r, w, err := outputPipe()
		if err != nil {
			return fail(err)
		}
		*end, child = r, append(child, w)
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return fail(fmt.Errorf("pipe: %w", err))
	}
	child = append(child, fds[0])
	if err := unix.SetNonblock(fds[1], true); err != nil {
		unix.Close(fds[1])
		return fail(fmt.Errorf("pipe: %w", err))
	}
	p.input = os.NewFile(uintptr(fds[1]), "|input")
	return child, nil
}

func (p *interactiveProcess) closeAll() {
	for _, c := range []io.Closer{p.stdout, p.stderr} {
		if c != nil {
			c.Close()
		}
	}
	if p.input != nil {
		p.input.Close()
	}
}

type terminalInput struct{ io.Writer }

func (terminalInput) Close() error { return nil }

// Input implements InteractiveProcess.
func (p *interactiveProcess) Input() io.WriteCloser {
	if p.terminal != nil {
		return terminalInput{p.terminal}
	}
	return p.input
}

// Resize implements InteractiveProcess.
func (p *interactiveProcess) Resize(s Size) error {
	if p.terminal == nil {
		return nil
	}
	c, err := p.terminal.SyscallConn()
	if err != nil {
		return err
	}
	var ioctlErr error
	err = c.Control(func(fd uintptr) {
		ioctlErr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Cols})
	})
	if err == nil {
		err = ioctlErr
	}
	return err
}

// SignalForeground implements InteractiveProcess.
func (p *interactiveProcess) SignalForeground(sig syscall.Signal) error {
	if p.terminal == nil {
		return p.Signal(sig)
	}
	c, err := p.terminal.SyscallConn()
	if err != nil {
		return err
	}
	group := 0
	if err := c.Control(func(fd uintptr) { group, _ = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP) }); err != nil {
		return err
	}
	if group > 1 && unix.Kill(-group, sig) == nil {
		return nil
	}
	// gVisor tells the foreground to nobody outside the terminal's session. Two
	// signals the terminal itself sends there; the others go to the leader's group.
	key := map[syscall.Signal]byte{syscall.SIGINT: 'C' & 0x1f, syscall.SIGQUIT: '\\' & 0x1f}[sig]
	pressed := false
	if key != 0 {
		// Without waiting: what is typed and not read may fill the terminal.
		err = c.Control(func(fd uintptr) {
			n, err := unix.Write(int(fd), []byte{key})
			pressed = err == nil && n == 1
		})
	}
	if err != nil || pressed {
		return err
	}
	return p.Signal(sig)
}
