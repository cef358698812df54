package daemon

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// osProcess is one command of an OS machine.
type osProcess struct {
	os             *OS
	id             string
	files          *commandFiles
	stdout, stderr io.ReadCloser
	oomBefore      int64

	warden *warden // set before Start returns, never changed
	leader int     // pid of the leader as its warden sees it
	began  int64   // before its warden was asked for it, see monotonic; set before Start returns

	killed   atomic.Bool // we sent SIGKILL
	woken    atomic.Bool // because it kept waking in a pause
	killOnce sync.Once
	exit     Exit
	state    []byte // what a shell with Spec.KeepState wrote
	done     chan struct{}
	gone     chan struct{}
}

var _ Process = (*osProcess)(nil)

func (p *osProcess) Stdout() io.ReadCloser { return p.stdout }
func (p *osProcess) Stderr() io.ReadCloser { return p.stderr }
func (p *osProcess) Done() <-chan struct{} { return p.done }
func (p *osProcess) Exit() Exit            { return p.exit }
func (p *osProcess) Gone() <-chan struct{} { return p.gone }

// finish records how the leader ended. It is called once, by the reader of the
// warden's messages.
func (p *osProcess) finish(e Exit) {
	if e.Err == nil && e.Signal == 0 {
		e.PipeStatus = p.files.pipeStatus()
		p.state = p.files.shellState()
	}
	died := e.Signal == syscall.SIGKILL || e.Err != nil || e.Signal == 0 && e.Code == 128+int(syscall.SIGKILL)
	e.OOMKilled = died && !p.killed.Load() && p.oomBefore >= 0 && p.os.oomKills() > p.oomBefore
	e.Woken = p.woken.Load()
	p.exit = e
	close(p.done)
}

// Signal implements Process.
func (p *osProcess) Signal(sig syscall.Signal) error {
	select {
	case <-p.gone:
		return nil
	default:
	}
	if sig == syscall.SIGKILL {
		p.killed.Store(true)
	}
	pid := p.leader
	if p.os.opts.Nested {
		if pid = p.outerLeader(); pid == 0 {
			return nil
		}
	}
	err := unix.Kill(-pid, sig)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// outerLeader finds the leader's pid in the daemon's own pid namespace.
func (p *osProcess) outerLeader() int {
	list, err := processes()
	if err != nil {
		return 0
	}
	buf := make([]byte, 4096)
	for _, s := range list {
		if s.ppid != p.warden.pid {
			continue
		}
		b, err := readInto("/proc/"+strconv.Itoa(s.pid)+"/status", buf)
		if err == nil && innermostPid(b) == p.leader {
			return s.pid
		}
	}
	return 0
}

// innermostPid reads the last number of NSpid in /proc/N/status, or 0.
func innermostPid(status []byte) int {
	_, rest, ok := bytes.Cut(status, []byte("\nNSpid:"))
	if !ok {
		return 0
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	f := bytes.Fields(line)
	if len(f) == 0 {
		return 0
	}
	pid, err := strconv.Atoi(string(f[len(f)-1]))
	if err != nil {
		return 0
	}
	return pid
}

// Kill implements Process.
func (p *osProcess) Kill() {
	select {
	case <-p.gone:
		return
	default:
	}
	p.killed.Store(true)
	p.killOnce.Do(func() { p.os.wg.Go(p.killTree) })
}

// killTree ends what descends from the command's warden until the warden says
// that nothing is left.
func (p *osProcess) killTree() {
	if p.os.opts.Nested {
		p.warden.kill() // the kernel ends the pid namespace with it
		return
	}
	wait := time.Millisecond
	for {
		select {
		case <-p.gone:
			return
		default:
		}
		if p.warden.killCgroup() != nil {
			p.killDescendants()
		}
		t := time.NewTimer(wait)
		select {
		case <-p.gone:
			t.Stop()
			return
		case <-t.C:
		}
		wait = min(2*wait, 20*time.Millisecond)
	}
}

// killDescendants sends SIGKILL to all that descends from the warden now.
func (p *osProcess) killDescendants() {
	if killAll(subtree(p.warden.pid), p.warden.pid) > 0 {
		return // whatever was missed is found the next time
	}
	if list, err := processes(); err == nil {
		killAll(descendants(list, p.warden.pid, nil), p.warden.pid)
	}
}

// killOrphans ends what a dead warden left to this process: every descendant
// that has no live warden above it. Only pid 1 inherits such processes.
func (m *OS) killOrphans() {
	for range 100 {
		list, err := processes()
		if err != nil {
			return
		}
		self := unix.Getpid()
		if killAll(descendants(list, self, m.wardenPids()), unix.Getpgrp()) == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
