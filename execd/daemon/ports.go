package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
)

var _ PortOwner = (*OS)(nil)

// PortOwner implements PortOwner: the socket's inode, from the kernel where both
// its ends are known or from /proc/net/tcp, the process that has it open, the
// warden above that. It needs CAP_SYS_PTRACE where commands run as another user;
// a socket that nobody can be seen to hold is nobody's. In a nested pid namespace
// it works from the outside.
//
// A connection waits for the answer. So the youngest process is looked at
// first, which usually is who asks, and what they hold is read of none but
// those of commands.
//
// How much there is to read is the commands' choice: it ends with ctx, so that
// what nobody waits for any more is not read beside what is asked next.
func (m *OS) PortOwner(ctx context.Context, s execd.Socket) (string, error) {
	inodes, err := m.links(s)
	if err != nil || len(inodes) == 0 {
		return "", err
	}
	pids, err := youngestFirst()
	if err != nil {
		return "", fmt.Errorf("port owner: %w", err)
	}
	above := ancestry{known: m.commands(), buf: make([]byte, 1024)}
	if len(above.known) == 0 {
		return "", nil
	}
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if id := above.command(pid); id != "" && holdsSocket(ctx, pid, inodes) {
			return id, nil
		}
	}
	return "", ctx.Err()
}

// commands are the ids of the commands that run, by their wardens' pids.
func (m *OS) commands() map[int]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := make(map[int]string, len(m.live))
	for w := range m.live {
		w.mu.Lock()
		if w.cur != nil {
			ids[w.pid] = w.cur.id
		}
		w.mu.Unlock()
	}
	return ids
}

// youngestFirst lists the processes that /proc shows, by falling pids.
func youngestFirst() ([]int, error) {
	names, err := processNames()
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	slices.Reverse(pids)
	return pids, nil
}

// ancestry tells which command a process is of.
type ancestry struct {
	known map[int]string // by pid; empty for processes that are of none
	buf   []byte
}

// command is the command whose warden pid is or descends from. A process whose
// parent ends meanwhile gets another one, the warden at the latest: it is
// looked at again.
func (a *ancestry) command(pid int) string {
	const rounds, depth = 3, 1 << 10
	for range rounds {
		p, id := pid, ""
		var path []int
		for ok := false; p > 1 && len(path) < depth; p = a.parent(p) {
			if id, ok = a.known[p]; ok {
				break
			}
			path = append(path, p)
		}
		if p == gone {
			continue
		}
		for _, p := range path {
			a.known[p] = id
		}
		return id
	}
	return ""
}

// gone is the parent of a process that has ended.
const gone = -1

func (a *ancestry) parent(pid int) int {
	b, err := readInto("/proc/"+strconv.Itoa(pid)+"/stat", a.buf)
	if err != nil {
		return gone
	}
	s, ok := parseStat(b)
	if !ok {
		return gone
	}
	return s.ppid
}

// links are what links of /proc/PID/fd say of a socket, or of the sockets with
// its local port.
func (m *OS) links(s execd.Socket) (map[string]bool, error) {
	if !s.Local.Addr().IsValid() || !s.Remote.IsValid() {
		return socketLinks(int(s.Local.Port()))
	}
	inode, err := socketInode(s)
	switch {
	case err == nil:
		m.diag.Store(true)
		return map[string]bool{socketLink(strconv.FormatUint(uint64(inode), 10)): true}, nil
	case errors.Is(err, unix.ENOENT) && m.diag.Load(): // a kernel that can tell
		return nil, nil
	}
	return socketLinks(int(s.Local.Port()))
}

func socketLink(inode string) string { return "socket:[" + inode + "]" }

// socketLinks are what links of /proc/PID/fd say of the sockets with a local
// port.
func socketLinks(local int) (map[string]bool, error) {
	inodes := make(map[string]bool)
	var firstErr error
	for _, f := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(f)
		if err != nil {
			if firstErr == nil && !os.IsNotExist(err) {
				firstErr = fmt.Errorf("port owner: %w", err)
			}
			continue
		}
		socketInodes(b, local, inodes)
	}
	if len(inodes) > 0 {
		return inodes, nil
	}
	return nil, firstErr
}

// socketInodes adds the links to sockets with the local port, see proc(5).
func socketInodes(table []byte, port int, inodes map[string]bool) {
	for line := range bytes.Lines(table) {
		// Most lines are of other ports: nothing is kept of them.
		_, rest, _ := bytes.Cut(line, []byte(": "))
		addr, _, _ := bytes.Cut(rest, []byte(" "))
		_, hex, ok := bytes.Cut(addr, []byte(":"))
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(string(hex), 16, 16)
		if err != nil || int(n) != port {
			continue
		}
		if f := bytes.Fields(line); len(f) >= 10 && string(f[9]) != "0" {
			inodes[socketLink(string(f[9]))] = true
		}
	}
}

// holdsSocket reads what a process has open until ctx ends.
func holdsSocket(ctx context.Context, pid int, links map[string]bool) bool {
	dir, err := os.Open("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		return false
	}
	defer dir.Close()
	const atOnce = 512
	buf := make([]byte, 64)
	for ctx.Err() == nil {
		names, err := dir.Readdirnames(atOnce) // a process may have a million
		for _, n := range names {
			if size, err := unix.Readlinkat(int(dir.Fd()), n, buf); err == nil && links[string(buf[:size])] {
				return true
			}
		}
		if err != nil {
			return false // io.EOF, or the process has ended
		}
	}
	return false
}
