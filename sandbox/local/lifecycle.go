package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/sandbox"
)

// Get asks the keeper. A sandbox whose keeper is gone is lost until it is
// killed, swept, or its deadline passes.
func (p *Provider) Get(ctx context.Context, id string) (sandbox.Info, error) {
	var info sandbox.Info
	err := p.ask(ctx, "get", id, http.MethodGet, "/info", nil, &info)
	if sandbox.KindOf(err) != sandbox.KindLost {
		return info, err
	}
	var live liveInfo
	if err := readJSON(filepath.Join(p.dir(id), infoFile), &live); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return info, notFound("get", id)
		}
		return info, hostError("get", id, err)
	}
	info = live.Info
	switch creating := p.creating(id); {
	case creating:
		info.State = sandbox.StatePending
	case p.ended(id) || time.Now().After(info.ExpiresAt):
		return sandbox.Info{}, notFound("get", id)
	default:
		info.State, info.Reason = sandbox.StateLost, "keeper_gone"
	}
	return info, nil
}

// ended reports whether the keeper ended the sandbox itself: it was killed, or
// its deadline passed.
func (p *Provider) ended(id string) bool {
	st, err := os.Stat(filepath.Join(p.dir(id), endedFile))
	return err == nil && st.Size() > 0
}

// creating reports whether the process that creates the sandbox still does.
func (p *Provider) creating(id string) bool {
	var creator processID
	return readJSON(filepath.Join(p.dir(id), creatorFile), &creator) == nil && creator.alive()
}

// List returns the live sandboxes with these labels, newest first.
func (p *Provider) List(ctx context.Context, labels map[string]string) ([]sandbox.Info, error) {
	ids, err := p.liveIDs()
	if err != nil {
		return nil, err
	}
	var infos []sandbox.Info
	for _, id := range ids {
		info, err := p.Get(ctx, id)
		if sandbox.KindOf(err) == sandbox.KindNotFound {
			continue // it ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		if matches(info.Labels, labels) {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b sandbox.Info) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return infos, nil
}

func matches(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Renew moves the deadline of a running sandbox.
func (p *Provider) Renew(ctx context.Context, id string, until time.Time) (time.Time, error) {
	if !until.After(time.Now()) {
		return time.Time{}, &sandbox.Error{Kind: sandbox.KindInvalid, Op: "renew", Subject: id,
			Err: fmt.Errorf("%s has passed", until.Format(time.RFC3339)), Hint: "rein sandbox kill " + id}
	}
	var r renewReply
	err := p.ask(ctx, "renew", id, http.MethodPost, "/renew", renewRequest{Until: until}, &r)
	if sandbox.KindOf(err) == sandbox.KindLost {
		return time.Time{}, notFound("renew", id)
	}
	return r.ExpiresAt, err
}

// Kill ends the sandbox and removes what is left of it.
func (p *Provider) Kill(ctx context.Context, id string) error {
	if err := checkID("kill", id); err != nil {
		return nil // it cannot have existed
	}
	if _, err := os.Stat(p.dir(id)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return p.remove(ctx, id)
}

// remove ends the keeper, and with it the sandbox, waits until both are gone,
// and removes cgroup, id range and directory, in the reverse order of their
// making. It may be repeated, also after it failed half-way.
func (p *Provider) remove(ctx context.Context, id string) error {
	dir := p.dir(id)
	asked := p.ask(ctx, "kill", id, http.MethodPost, "/kill", nil, nil) == nil
	if err := endFrom(ctx, filepath.Join(dir, keeperFile), asked); err != nil {
		return hostError("kill", id, err)
	}
	var live liveInfo // complete: its writer is gone
	if err := readJSON(filepath.Join(dir, infoFile), &live); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return hostError("kill", id, err)
	}
	// The kernel takes the nest down with its keeper; it may need a moment.
	if err := endFrom(ctx, filepath.Join(dir, nestFile), asked); err != nil {
		return hostError("kill", id, err)
	}
	if err := removeCgroups(live.CgroupPaths); err != nil {
		return hostError("kill", id, err)
	}
	if live.IDBase != 0 {
		if err := os.Remove(p.idsPath(live.IDBase)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return hostError("kill", id, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return hostError("kill", id, err)
	}
	return nil
}

// endFrom ends the process whose identity a file holds, if there is one.
func endFrom(ctx context.Context, file string, asked bool) error {
	var proc processID
	err := readJSON(file, &proc)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return endProcess(ctx, proc, asked)
}

// endProcess waits for a process to end: by itself when it was asked to, by
// force when it was not or takes too long.
func endProcess(ctx context.Context, proc processID, asked bool) error {
	fd, err := unix.PidfdOpen(proc.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(fd)
	// The descriptor holds whatever has the pid now; only then is its identity
	// certain. Whether it has ended says only the descriptor: a process whose
	// first thread has gone before the others looks like a zombie, and lives.
	now, err := identify(proc.PID)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && now != proc {
		return nil
	}
	if err != nil {
		return err
	}
	if asked {
		if ended, err := waitPidfd(ctx, fd, 5*time.Second); ended || err != nil {
			return err
		}
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("pidfd_send_signal", err)
	}
	ended, err := waitPidfd(ctx, fd, 10*time.Second)
	if !ended && err == nil {
		err = fmt.Errorf("process %d does not end", proc.PID)
	}
	return err
}

// waitPidfd waits until the process has ended, at most for limit.
func waitPidfd(ctx context.Context, fd int, limit time.Duration) (ended bool, err error) {
	end := time.Now().Add(limit)
	for {
		left := min(time.Until(end), 100*time.Millisecond) // to notice ctx
		if left <= 0 {
			return false, nil
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, os.NewSyscallError("poll", err)
		}
		if n > 0 {
			return true, nil
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
	}
}
