package daemon

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// procStat is what the kill of a tree needs to know of a process.
type procStat struct {
	pid, ppid, pgrp int
	zombie          bool // over: also a process whose first thread has ended lives on in the others
	stopped         bool // by a signal or a tracer; of the first thread
}

// parseStat reads /proc/N/stat. The name in parentheses may hold anything,
// also parentheses and spaces.
func parseStat(b []byte) (procStat, bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open || end+2 > len(b) {
		return procStat{}, false
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 4 || len(f[0]) != 1 {
		return procStat{}, false
	}
	var s procStat
	var errs [3]error
	s.pid, errs[0] = strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	s.ppid, errs[1] = strconv.Atoi(string(f[1]))
	s.pgrp, errs[2] = strconv.Atoi(string(f[2]))
	s.zombie = f[0][0] == 'Z' || f[0][0] == 'X'
	if s.zombie && len(f) > 17 { // num_threads
		threads, err := strconv.Atoi(string(f[17]))
		s.zombie = err != nil || threads < 2
	}
	s.stopped = f[0][0] == 'T' || f[0][0] == 't'
	return s, errs == [3]error{}
}

// processes lists every process that /proc shows.
func processes() ([]procStat, error) {
	names, err := processNames()
	if err != nil {
		return nil, err
	}
	list := make([]procStat, 0, len(names))
	buf := make([]byte, 1024)
	for _, name := range names {
		if b, err := readInto("/proc/"+name+"/stat", buf); err == nil {
			if s, ok := parseStat(b); ok {
				list = append(list, s)
			}
		}
	}
	return list, nil
}

// processNames are the directories that /proc has of processes: their pids.
func processNames() ([]string, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	return slices.DeleteFunc(names, func(name string) bool { return name[0] < '1' || name[0] > '9' }), err
}

// readInto reads a small file of /proc in one call, without the bookkeeping of
// os.File.
func readInto(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// descendants returns those of list that descend from root, without root and
// without the subtrees of the processes in except.
func descendants(list []procStat, root int, except map[int]bool) []procStat {
	children := make(map[int][]procStat, len(list))
	for _, p := range list {
		children[p.ppid] = append(children[p.ppid], p)
	}
	var found []procStat
	queue := []int{root}
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		for _, c := range children[next] {
			if c.pid == root || except[c.pid] {
				continue
			}
			found = append(found, c)
			queue = append(queue, c.pid)
		}
	}
	return found
}

// subtree returns what descends from root by the kernel's lists of children,
// which cost by the size of the tree and not of the machine. They may miss a
// process while others end (proc(5)), and not every kernel has them: an empty
// answer means nothing.
func subtree(root int) []procStat {
	var found []procStat
	seen := map[int]bool{root: true}
	buf := make([]byte, 1024)
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, pid := range childrenOf(queue[0]) {
			if seen[pid] {
				continue
			}
			seen[pid] = true
			b, err := readInto("/proc/"+strconv.Itoa(pid)+"/stat", buf)
			if err != nil {
				continue
			}
			if s, ok := parseStat(b); ok {
				found = append(found, s)
				queue = append(queue, pid)
			}
		}
	}
	return found
}

// childrenOf lists the children of all threads of a process.
func childrenOf(pid int) []int {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var list []int
	for _, task := range tasks {
		b, err := os.ReadFile(dir + "/" + task.Name() + "/children")
		if err != nil {
			continue
		}
		for _, f := range bytes.Fields(b) {
			if n, err := strconv.Atoi(string(f)); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}

// killAll sends SIGKILL to the processes and to their process groups except
// spare, and returns how many were alive. A group is killed in one step that no
// fork can slip through; a process can only be in a group of its own session,
// and sessions do not cross commands, so the groups are the command's own.
func killAll(list []procStat, spare int) (alive int) {
	groups := make(map[int]bool)
	for _, p := range list {
		if p.zombie {
			continue
		}
		alive++
		if p.pgrp > 1 && p.pgrp != spare && !groups[p.pgrp] {
			groups[p.pgrp] = true
			unix.Kill(-p.pgrp, unix.SIGKILL)
		}
		unix.Kill(p.pid, unix.SIGKILL)
	}
	return alive
}
