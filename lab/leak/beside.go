package leak

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Beside is an agent of others by which this program was started. What it was given
// must be found where it has it, so that a search that finds no key says something
// of it, too.
type Beside struct {
	// Root is the directory that its programs are in.
	Root string `json:"root"`
	// Home is its home directory, where it keeps files.
	Home string `json:"home"`
	// Once: no second one is started, by which its memory could be read.
	Once bool `json:"once,omitempty"`
}

// Names of traces besides keys: what the agent was told to do, which its conversation
// has, and its placeholder.
const (
	Task        = "task"
	Placeholder = "placeholder"
)

// isKey reports whether a trace of that name is one of a key.
func isKey(name string) bool { return name != Honeypot && name != Task && name != Placeholder }

// process is one that can be seen inside.
type process struct {
	dir, name string // in /proc; of its program
	agent     bool   // its program is the agent's, or it runs a script of the agent's
}

// processOf reads of /proc what a process is.
func (s *Search) processOf(dir string) process {
	comm, _ := os.ReadFile(dir + "/comm") // it may be gone
	line, _ := os.ReadFile(dir + "/cmdline")
	program, _ := os.Readlink(dir + "/exe")
	words := strings.Split(string(line), "\x00")
	inRoot := func(name string) bool { return strings.HasPrefix(name, s.Beside.Root+"/") }
	return process{dir: dir, name: strings.TrimSpace(string(comm)) + " " + filepath.Base(dir), agent: inRoot(program) || slices.ContainsFunc(words[:min(len(words), 2)], inRoot)}
}

// lineage is a process and what started it, the nearest first.
func (s *Search) lineage(dir string) (list []process) {
	for len(list) < 64 {
		list = append(list, s.processOf(dir))
		parent := ""
		status, _ := os.ReadFile(dir + "/status") // it may be gone
		for line := range strings.Lines(string(status)) {
			if value, ok := strings.CutPrefix(line, "PPid:"); ok {
				parent = strings.TrimSpace(value)
			}
		}
		if parent == "" || parent == "0" {
			break
		}
		dir = "/proc/" + parent
	}
	return list
}

// startedBy says by whom this program was started, and finds the agent among them.
func (h *hunt) startedBy() seen {
	var names []string
	for _, p := range h.lines {
		names = append(names, p.name)
	}
	s := seen{outcome: Nowhere, words: strings.Join(names, ", started by ")}
	if slices.ContainsFunc(h.lines, func(p process) bool { return p.agent }) {
		s.outcome = Found
	}
	return s
}

// besideAgent finds a trace in what its processes have: which /proc/N is name of.
func (h *hunt) besideAgent(trace string, p place, name string) seen {
	var found, closed []string
	for _, a := range h.agents {
		where := a.dir + "/" + name
		switch {
		case slices.Contains(h.shut, where):
			closed = append(closed, a.name)
		case slices.ContainsFunc(h.found, func(f finding) bool { return f.name == trace && f.place == p && f.where == where }):
			found = append(found, a.name)
		}
	}
	switch {
	case len(found) > 0:
		return seen{outcome: Found, words: fmt.Sprintf("the %s, in that of %s", trace, strings.Join(found, ", "))}
	case len(closed) > 0:
		return notTried("this user may not read that of %s", strings.Join(closed, ", "))
	}
	return seen{outcome: Nowhere, words: h.counts[p].String()}
}

// filesOfAgent finds what the agent was told to do in files that it has written.
func (h *hunt) filesOfAgent() seen {
	var list []string
	for _, f := range h.found {
		if f.name == Task && f.place == inFile && strings.HasPrefix(f.where, h.Beside.Home+"/") {
			list = append(list, f.where)
		}
	}
	if len(list) == 0 {
		return seen{outcome: Nowhere, words: h.counts[inFile].String()}
	}
	return seen{outcome: Found, words: fmt.Sprintf("%d, such as %s", len(list), list[0])}
}
