package daemon

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var _ PortOwner = (*OS)(nil)

// PortOwner implements PortOwner: the socket's inode from /proc/net/tcp, the
// process that has it open, the warden above that. It needs CAP_SYS_PTRACE
// where commands run as another user; a socket that nobody can be seen to hold
// is nobody's. In a nested pid namespace it works from the outside.
func (m *OS) PortOwner(local int) (string, error) {
	inodes := make(map[string]bool)
	var firstErr error
	for _, f := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(f)
		if err != nil {
			if firstErr == nil {
				firstErr = err
			}
			continue
		}
		socketInodes(b, local, inodes)
	}
	if len(inodes) == 0 {
		if firstErr != nil && !os.IsNotExist(firstErr) {
			return "", fmt.Errorf("port owner: %w", firstErr)
		}
		return "", nil
	}
	list, err := processes()
	if err != nil {
		return "", fmt.Errorf("port owner: %w", err)
	}
	m.mu.Lock()
	commands := make(map[int]string, len(m.live))
	for w := range m.live {
		w.mu.Lock()
		if w.cur != nil {
			commands[w.pid] = w.cur.id
		}
		w.mu.Unlock()
	}
	m.mu.Unlock()
	for warden, id := range commands {
		for _, p := range descendants(list, warden, nil) {
			if holdsSocket(p.pid, inodes) {
				return id, nil
			}
		}
	}
	return "", nil
}

// socketInodes adds the inodes of sockets with the local port, see proc(5).
func socketInodes(table []byte, port int, inodes map[string]bool) {
	for line := range bytes.Lines(table) {
		f := strings.Fields(string(line))
		if len(f) < 10 {
			continue
		}
		_, hex, ok := strings.Cut(f[1], ":")
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port && f[9] != "0" {
			inodes[f[9]] = true
		}
	}
}

func holdsSocket(pid int, inodes map[string]bool) bool {
	dir, err := os.Open("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		return false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return false
	}
	buf := make([]byte, 64)
	for _, n := range names {
		size, err := unix.Readlinkat(int(dir.Fd()), n, buf)
		if err != nil {
			continue
		}
		link := string(buf[:size])
		if inode, ok := strings.CutPrefix(link, "socket:["); ok && inodes[strings.TrimSuffix(inode, "]")] {
			return true
		}
	}
	return false
}
