package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processes returns the command line of every process, by pid.
func processes() (map[int]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := map[int]string{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(line) == 0 {
			continue // gone meanwhile, or a thread of the kernel
		}
		all[pid] = string(bytes.TrimRight(bytes.ReplaceAll(line, []byte{0}, []byte{' '}), " "))
	}
	return all, nil
}

// isOurs reports whether a process is a part of rein's or of a runtime.
func isOurs(cmdline string) bool {
	for _, name := range []string{"rein ", "rein-execd", "rein-runsc", "runsc-", "runc "} {
		if strings.Contains(cmdline, name) {
			return true
		}
	}
	return false
}

// A watch follows the resident memory of one process.
type watch struct {
	what   string
	pid    int
	before int64
}

// ours returns rein (this process), and the keeper and the execd that were
// started since before.
func ours(before map[int]string) ([]watch, error) {
	now, err := processes()
	if err != nil {
		return nil, err
	}
	w := []watch{{what: "rein", pid: os.Getpid()}}
	for pid, line := range now {
		if before[pid] == line {
			continue
		}
		switch {
		case strings.HasSuffix(line, " keep"):
			w = append(w, watch{what: "keeper", pid: pid})
		case strings.Contains(line, "rein-execd"):
			w = append(w, watch{what: "execd", pid: pid})
		}
	}
	if len(w) != 3 {
		return nil, fmt.Errorf("expected one new keeper and one execd, found %+v", w)
	}
	return w, nil
}

// start forgets the peak so far and notes what is resident now.
func (w *watch) start() error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.pid), []byte("5"), 0); err != nil {
		return err
	}
	var err error
	w.before, err = status(w.pid, "VmRSS:")
	return err
}

// grown is the peak since start above what was resident then.
func (w *watch) grown() (int64, error) {
	peak, err := status(w.pid, "VmHWM:")
	return peak - w.before, err
}

// status reads a size from /proc/PID/status, in bytes.
func status(pid int, key string) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, key)
}
