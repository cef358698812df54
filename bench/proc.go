package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// stat returns the parent and the start time of a process; ok is false when it
// is gone or only waits to be reaped.
func stat(pid int) (parent int, start string, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", false
	}
	// The name in parentheses may hold anything; what follows it is numbers.
	_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	f := strings.Fields(rest)
	if len(f) < 20 || f[0] == "Z" {
		return 0, "", false
	}
	parent, err = strconv.Atoi(f[1])
	return parent, f[19], err == nil
}

// descendants returns root and every process beneath it.
func descendants(root int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, _, ok := stat(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	tree := []int{root}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree, nil
}

// keeper returns the process that owns a sandbox, from its state directory.
func keeper(stateDir, id string) (int, error) {
	data, err := os.ReadFile(filepath.Join(stateDir, "live", id, "keeper.json"))
	if err != nil {
		return 0, err
	}
	var owner struct {
		PID int `json:"pid"`
	}
	err = json.Unmarshal(data, &owner)
	return owner.PID, err
}

// processes returns the keeper of a sandbox, and it with all that it started.
func processes(stateDir, id string) (owner int, tree []int, err error) {
	if owner, err = keeper(stateDir, id); err != nil {
		return 0, nil, err
	}
	tree, err = descendants(owner)
	return owner, tree, err
}

// program is the first word of a process's command line.
func program(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(string(line), "\x00")
	return filepath.Base(name)
}

// A watch follows the resident memory of one process.
type watch struct {
	what   string
	pid    int
	before int64
}

// watches returns rein (this process) and a sandbox's keeper and execd.
func watches(stateDir, id string) ([]watch, error) {
	owner, tree, err := processes(stateDir, id)
	if err != nil {
		return nil, err
	}
	w := []watch{{what: "rein", pid: os.Getpid()}, {what: "keeper", pid: owner}}
	for _, pid := range tree {
		if program(pid) == "execd" {
			w = append(w, watch{what: "execd", pid: pid})
		}
	}
	if len(w) != 3 {
		return nil, fmt.Errorf("found %d processes of execd beneath keeper %d, want one", len(w)-2, owner)
	}
	return w, nil
}

// start forgets the peak so far and notes what is resident now.
func (w *watch) start() error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("%s: %w (run the benchmark as root)", w.what, err)
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

// A trace is everything that living sandboxes consist of on this host.
type trace struct {
	stateDir   string
	ids        []string
	processes  map[int]string // start times by pid
	namespaces map[string]bool
}

// traceOf looks at sandboxes while they are alive.
func traceOf(stateDir string, ids []string) (*trace, error) {
	t := &trace{stateDir: stateDir, ids: ids, processes: map[int]string{}, namespaces: map[string]bool{}}
	for _, id := range ids {
		_, tree, err := processes(stateDir, id)
		if err != nil {
			return nil, err
		}
		for _, pid := range tree {
			if _, start, ok := stat(pid); ok {
				t.processes[pid] = start
			}
			if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil {
				t.namespaces[ns] = true
			}
		}
	}
	own, err := os.Readlink("/proc/self/ns/net")
	delete(t.namespaces, own)
	return t, err
}

// left lists what is still there of the traced sandboxes.
func (t *trace) left() ([]string, error) {
	var left []string
	for pid, start := range t.processes {
		if _, now, ok := stat(pid); ok && now == start {
			left = append(left, fmt.Sprintf("process %d (%s)", pid, program(pid)))
		}
	}
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if ns, err := os.Readlink(l); err == nil && t.namespaces[ns] {
			left = append(left, "network namespace "+ns+" of "+l)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		if t.mentions(line) || strings.Contains(line, t.stateDir) {
			left = append(left, "mount "+strings.TrimSpace(line))
		}
	}
	for _, root := range []string{"/sys/fs/cgroup", filepath.Join(t.stateDir, "live")} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && t.mentions(path) {
				left = append(left, "directory "+path)
				return fs.SkipDir
			}
			return nil // what goes away while we look is not left
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	slices.Sort(left)
	return left, nil
}

func (t *trace) mentions(text string) bool {
	return slices.ContainsFunc(t.ids, func(id string) bool { return strings.Contains(text, id) })
}
