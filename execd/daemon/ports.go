package daemon

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
)

var (
	_ PortOwner  = (*OS)(nil)
	_ Rememberer = (*OS)(nil)
)

// PortOwner implements PortOwner. Where the kernel remembers who made the
// connection, that is the answer. Elsewhere it is the socket's inode, from the
// kernel where both its ends are known or from /proc/net/tcp, the process that
// has it open, the warden above that. It needs CAP_SYS_PTRACE where commands run
// as another user; a socket that nobody can be seen to hold is nobody's. In a
// nested pid namespace it works from the outside.
//
// A connection waits for the answer. So who held the last one is looked at
// first, then the youngest process, which usually is who asks, and what they
// hold is read of none but those of commands.
//
// How much there is to read is the commands' choice: it ends with ctx, so that
// what nobody waits for any more is not read beside what is asked next.
func (m *OS) PortOwner(ctx context.Context, s execd.Socket) (string, error) {
	if !s.Local.Addr().IsValid() || !s.Remote.IsValid() {
		return m.ownerByPort(ctx, int(s.Local.Port()))
	}
	known, err := m.kernel.ask(s)
	switch {
	case err == nil && known.Maker != nil:
		m.makers.Store(true)
		return m.maker(*known.Maker), nil
	case err == nil:
		m.diag.Store(true)
		return m.holder(ctx, map[string]bool{socketLink(strconv.FormatUint(uint64(known.Inode), 10)): true})
	case errors.Is(err, unix.ENOENT) && m.diag.Load(): // a kernel that can tell
		return "", nil
	}
	return m.ownerByPort(ctx, int(s.Local.Port()))
}

// RemembersMakers implements Rememberer.
func (m *OS) RemembersMakers() bool { return m.makers.Load() }

// ownerByPort is who holds a socket with the local port.
func (m *OS) ownerByPort(ctx context.Context, local int) (string, error) {
	links, err := socketLinks(ctx, local)
	if err != nil || len(links) == 0 {
		return "", err
	}
	return m.holder(ctx, links)
}

// holder is the command that holds a socket, by what links of /proc/PID/fd say
// of it.
func (m *OS) holder(ctx context.Context, links map[string]bool) (string, error) {
	above := ancestry{known: m.commands(), buf: make([]byte, 1024)}
	if len(above.known) == 0 {
		return "", nil
	}
	last := int(m.lastHolder.Load())
	if id := above.command(last); id != "" && holdsSocket(ctx, last, links, 1) {
		return id, nil
	}
	pids, err := youngestFirst()
	if err != nil {
		return "", fmt.Errorf("port owner: %w", err)
	}
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if id := above.command(pid); id != "" && holdsSocket(ctx, pid, links, math.MaxInt) {
			m.lastHolder.Store(int64(pid))
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

func socketLink(inode string) string { return "socket:[" + inode + "]" }

// socketLinks are what links of /proc/PID/fd say of the sockets with a local
// port. It reads until ctx ends.
func socketLinks(ctx context.Context, local int) (map[string]bool, error) {
	links := make(map[string]bool)
	var firstErr error
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		err := readSockets(ctx, name, local, links)
		if firstErr == nil && err != nil && !os.IsNotExist(err) {
			firstErr = fmt.Errorf("port owner: %w", err)
		}
	}
	if len(links) > 0 {
		return links, nil
	}
	return nil, firstErr
}

// readSockets reads a table of sockets, see proc(5), line by line: 64 Ki sockets
// are ten megabytes.
func readSockets(ctx context.Context, name string, local int, links map[string]bool) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return socketTable(ctx, f, local, links)
}

// socketTable adds the links to sockets with the local port.
func socketTable(ctx context.Context, table io.Reader, local int, links map[string]bool) error {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if inode := socketInode(lines.Bytes(), local); inode != "" {
			links[socketLink(inode)] = true
		}
	}
	return lines.Err()
}

// socketInode is the inode that a line of the table has, when it is of the
// port. Most lines are of others: nothing is kept of them.
func socketInode(line []byte, port int) string {
	_, rest, _ := bytes.Cut(line, []byte(": "))
	addr, _, _ := bytes.Cut(rest, []byte(" "))
	_, hex, ok := bytes.Cut(addr, []byte(":"))
	if !ok {
		return ""
	}
	n, err := strconv.ParseUint(string(hex), 16, 16)
	if err != nil || int(n) != port {
		return ""
	}
	if f := bytes.Fields(line); len(f) >= 10 && string(f[9]) != "0" {
		return string(f[9])
	}
	return ""
}

// holdsSocket reads what a process has open until ctx ends, at most so many reads
// of a few hundred: a process may have a million.
func holdsSocket(ctx context.Context, pid int, links map[string]bool, reads int) bool {
	dir, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	var entries [8 << 10]byte
	var link [64]byte
	var names []string
	for ; reads > 0 && ctx.Err() == nil; reads-- {
		n, err := unix.ReadDirent(dir, entries[:])
		if err != nil || n <= 0 {
			return false // that was all, or the process has ended
		}
		_, _, names = unix.ParseDirent(entries[:n], -1, names[:0])
		for _, name := range names {
			if size, err := unix.Readlinkat(dir, name, link[:]); err == nil && links[string(link[:size])] {
				return true
			}
		}
	}
	return false
}
