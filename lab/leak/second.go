package leak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SecondVariable is set for an agent that this program has started itself, and so for
// what that runs: it has the directory with the FIFOs "ready", which is to be written
// to, and "end", which is to be waited for.
const SecondVariable = "REIN_LAB_SECOND"

// second starts the agent beside which the search is once more, where this user may
// read the memory of what it has started alone, and waits until it runs what its model
// has told it to. end ends it.
func (h *hunt) second() (end func(), err error) {
	i := slices.IndexFunc(h.lines, func(p process) bool { return p.agent })
	if i < 0 || h.Beside.Once { // which a control says
		return func() {}, nil
	}
	_, mem, err := memoryOf(h.lines[i].dir)
	if err == nil {
		return func() {}, mem.Close()
	}
	for i+1 < len(h.lines) && h.lines[i+1].agent {
		i++ // the first of its processes
	}
	dir, err := os.MkdirTemp("", "lab-second-")
	if err != nil {
		return nil, err
	}
	end = func() { _ = os.RemoveAll(dir) } // the sandbox ends soon
	for _, name := range []string{"ready", "end"} {
		err = errors.Join(err, unix.Mkfifo(filepath.Join(dir, name), 0o600))
	}
	var ready *os.File
	if err == nil { // both ends, so that opening it waits for nobody
		ready, err = os.OpenFile(filepath.Join(dir, "ready"), os.O_RDWR|syscall.O_NONBLOCK, 0)
	}
	if err == nil {
		defer ready.Close()
		end, err = started(h.ctx, h.lines[i], dir)
	}
	if err == nil {
		deadline, _ := h.ctx.Deadline() // it has one
		err = ready.SetReadDeadline(time.Now().Add(time.Until(deadline) / 2))
	}
	if err == nil {
		_, err = ready.Read(make([]byte, 1))
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("the agent, started once more: %w", err)
	}
	return end, nil
}

// started starts a process's program as that was started, with a directory that is
// removed when it has ended.
func started(ctx context.Context, p process, dir string) (end func(), err error) {
	program, err1 := os.Readlink(p.dir + "/exe")
	at, err2 := os.Readlink(p.dir + "/cwd")
	line, err3 := os.ReadFile(p.dir + "/cmdline")
	env, err4 := os.ReadFile(p.dir + "/environ")
	end = func() { _ = os.RemoveAll(dir) }
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return end, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Args = strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	cmd.Env = append(strings.Split(strings.TrimSuffix(string(env), "\x00"), "\x00"), SecondVariable+"="+dir)
	cmd.Dir, cmd.SysProcAttr = at, &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		return end, err
	}
	return func() {
		_ = cmd.Cancel() // it may have ended by itself
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}, nil
}
