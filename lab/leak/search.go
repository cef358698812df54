package leak

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Search is what is looked for in a sandbox, and how it is shown that it would be
// found.
type Search struct {
	Traces []Trace `json:"traces"`
	// Honey is planted, and must be found: each byte is xored with 0x5a, so that
	// it is nowhere but where it was planted. Its trace is named Honeypot.
	Honey []byte `json:"honey"`
	// Again are the arguments with which the program inside is started once more.
	Again []string `json:"again"`
	// Since is when the texts were made up, as Unix seconds: files that have not
	// changed since then cannot have them, and are not read.
	Since int64 `json:"since"`
	// Patience is how long it may take; a request that is under way meanwhile waits as
	// long.
	Patience time.Duration `json:"patience"`
	// Beside is set where an agent has started this program.
	Beside *Beside `json:"beside,omitempty"`
}

// Honeypot is the name of the trace of what is planted.
const Honeypot = "honeypot"

// Veil is how Search.Honey is written, and read.
func Veil(text []byte) []byte {
	out := make([]byte, len(text))
	for i, c := range text {
		out[i] = c ^ 0x5a
	}
	return out
}

// Outcomes of searches.
const (
	Nowhere Outcome = "nowhere"
	Found   Outcome = "found"
)

// The bounds of a search.
const (
	maxPseudo = 1 << 20 // of a file of /proc
	pseudoFor = 300 * time.Millisecond
)

// place is a kind of what is searched.
type place string

const (
	inEnviron place = "environment"
	inMemory  place = "memory"
	inProc    place = "proc"
	inFile    place = "file"
)

// finding is a trace and where it was found.
type finding struct {
	name, form, where string
	place             place
}

// hunt is one search of all there is inside.
type hunt struct {
	*Search
	ctx    context.Context
	turns  chan struct{} // directories that are searched beside others
	finder *Finder
	self   string // the directory of this process in /proc

	lines  []process // Search.lineage, where an agent is beside
	agents []process // all of that, and of a second one

	mu     sync.Mutex
	found  []finding
	shut   []string // memories and environments that this user may not read
	counts map[place]*count
}

type count struct {
	searched, closed, old, cut int
	bytes                      int64
	took                       time.Duration
	names                      []string // of what is closed, some
}

func (c *count) String() string {
	s := fmt.Sprintf("%d searched, %d MiB", c.searched, c.bytes>>20)
	if c.took > 0 {
		s += fmt.Sprintf(" in %v", c.took)
	}
	if c.old > 0 {
		s += fmt.Sprintf("; %d older than the key", c.old)
	}
	if c.closed > 0 {
		s += fmt.Sprintf("; %d that this user may not read, such as %s", c.closed, strings.Join(c.names, ", "))
	}
	if c.cut > 0 {
		s += fmt.Sprintf("; %d of which only the beginning", c.cut)
	}
	return s
}

// searching are the ways of a search: the search itself, and what it must have
// found, so that it says something.
func (s *Search) searching() []way {
	run := sync.OnceValues(s.hunt)
	each := func(name, tried string, want []Outcome, judge func(*hunt) seen) way {
		w := by("search", name, tried, want, func(context.Context, *probe) seen {
			h, err := run()
			if err != nil {
				return open("the search failed: %v", err)
			}
			return judge(h)
		})
		w.patient = s.Patience
		return w
	}
	const forms = "in plain, backwards, percent-encoded, UTF-16, hexadecimal and base64"
	list := []way{
		each("control: in a file", "a honeypot in a file, in base64", []Outcome{Found}, (*hunt).controlFile),
		each("control: in an environment", "a honeypot in the environment of a process", []Outcome{Found}, (*hunt).controlEnviron),
		each("control: in memory", "a honeypot in the memory of a process", []Outcome{Found}, (*hunt).controlMemory),
		each("the keys in environments and arguments", "/proc/*/environ and cmdline, "+forms, []Outcome{Nowhere}, func(h *hunt) seen { return h.nowhere(inEnviron) }),
		each("the keys in memory", "/proc/*/maps and mem, "+forms, []Outcome{Nowhere}, func(h *hunt) seen { return h.nowhere(inMemory) }),
		each("the keys in what else the kernel shows", "/proc without its switches, with the files that processes have open, "+forms, []Outcome{Nowhere}, func(h *hunt) seen { return h.nowhere(inProc) }),
		each("the keys in files", "every file of every file system, and its name and the targets of links, "+forms, []Outcome{Nowhere}, func(h *hunt) seen { return h.nowhere(inFile) }),
	}
	if s.Beside == nil {
		return list
	}
	return append(list,
		each("control: beside the agent", "the processes that have started this one", []Outcome{Found}, (*hunt).startedBy),
		each("control: in the agent's environment", "its placeholder", []Outcome{Found}, func(h *hunt) seen { return h.besideAgent(Placeholder, inEnviron, "environ") }),
		each("control: in the agent's memory", "what it was told to do", []Outcome{Found}, func(h *hunt) seen { return h.besideAgent(Task, inMemory, "mem") }),
		each("control: in the agent's files", "what it was told to do, in files beneath its home directory", []Outcome{Found}, (*hunt).filesOfAgent))
}

// controlled says where the honeypot was found.
func (h *hunt) controlled(p place, where string) seen {
	for _, f := range h.found {
		if f.name == Honeypot && f.place == p && strings.Contains(f.where, where) {
			return seen{outcome: Found, words: f.where + ", " + f.form}
		}
	}
	return seen{outcome: Nowhere, words: h.counts[p].String()}
}

func (h *hunt) controlFile() seen    { return h.controlled(inFile, "lab-honeypot") }
func (h *hunt) controlEnviron() seen { return h.controlled(inEnviron, "environ") }

// controlMemory is not tried where no other process's memory can be read: then no
// program of this user's can read it either.
func (h *hunt) controlMemory() seen {
	s := h.controlled(inMemory, "")
	if s.outcome == Nowhere && h.counts[inMemory].searched == 0 {
		return notTried("this user may read no other process's memory: %s", h.counts[inMemory])
	}
	return s
}

// nowhere says where traces of keys were found.
func (h *hunt) nowhere(p place) seen {
	var list []string
	for _, f := range h.found {
		if isKey(f.name) && f.place == p {
			list = append(list, fmt.Sprintf("the key %s, %s, in %s", f.name, f.form, f.where))
		}
	}
	if len(list) > 0 {
		return seen{outcome: Found, words: strings.Join(list[:min(len(list), 5)], "; ")}
	}
	return seen{outcome: Nowhere, words: h.counts[p].String()}
}

// hunt plants the honeypot and searches. One that does not come to its end in time
// has failed.
func (s *Search) hunt() (*hunt, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.Patience*7/8)
	defer cancel()
	h := &hunt{Search: s, ctx: ctx, turns: make(chan struct{}, atOnce), finder: NewFinder(s.Traces...), counts: map[place]*count{inEnviron: {}, inMemory: {}, inProc: {}, inFile: {}}}
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return nil, err
	}
	h.self = "/proc/" + self
	if s.Beside != nil {
		h.lines = s.lineage(h.self)
	}
	remove, err := s.plant(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	if s.Beside != nil {
		end, err := h.second()
		if err != nil {
			return nil, err
		}
		defer end()
		for _, dir := range numbers() {
			if p := s.processOf(dir); p.agent {
				h.agents = append(h.agents, p)
			}
		}
	}
	var all sync.WaitGroup
	all.Go(func() { h.timed(inFile, func() { h.files("/") }) })
	h.timed(inMemory, h.processes)
	h.timed(inProc, func() { h.pseudo("/proc") })
	all.Wait()
	return h, ctx.Err()
}

// timed notes how long a part of the search took.
func (h *hunt) timed(p place, search func()) {
	start := time.Now()
	search()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[p].took = time.Since(start).Round(time.Millisecond)
}

// look searches one thing. It is closed when it could not be opened.
func (h *hunt) look(p place, where string, r io.Reader, opened error) {
	n, found, err := int64(0), map[string]string(nil), opened
	if opened == nil {
		n, found, err = h.finder.Find(r)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.counts[p]
	c.bytes += n
	for name, form := range found {
		h.found = append(h.found, finding{name: name, form: form, where: where, place: p})
	}
	if err != nil && n == 0 {
		if c.closed++; len(c.names) < 3 {
			c.names = append(c.names, where)
		}
		if p == inMemory || p == inEnviron {
			h.shut = append(h.shut, where)
		}
		return
	}
	c.searched++
}

// text searches a text that was read elsewhere: a name, the target of a link.
func (h *hunt) text(p place, where, text string) {
	_, found, _ := h.finder.Find(strings.NewReader(text)) // a text is always readable
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, form := range found {
		h.found = append(h.found, finding{name: name, form: form, where: where, place: p})
	}
}

// file searches a file's content, or its beginning of limit bytes; 0 is all.
func (h *hunt) file(p place, name string, limit int64) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		h.look(p, name, nil, err)
		return
	}
	defer f.Close()
	var r io.Reader = f
	if limit > 0 {
		r = io.LimitReader(f, limit)
	}
	h.look(p, name, r, nil)
}

// pseudo searches what the kernel shows of processes, and of itself. Files that would not
// end, or wait, are given little time.
func (h *hunt) pseudo(top string) {
	_ = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error { // what cannot be listed cannot be read
		switch {
		case h.ctx.Err() != nil:
			return h.ctx.Err()
		case err != nil:
			return fs.SkipDir
		case d.Type().IsRegular() && !slices.Contains([]string{"mem", "environ", "cmdline", "kcore", "kmsg", "pagemap"}, d.Name()):
			h.brief(name)
		case d.IsDir() && (slices.Contains([]string{"task", "fd", "map_files", "sys", "irq", "bus", "fs", "driver", "tty", "acpi"}, d.Name())):
			return fs.SkipDir
		}
		return nil
	})
}

// brief searches the beginning of a file, as far as it comes in a moment.
func (h *hunt) brief(name string) {
	done := make(chan struct{})
	go func() { // ends with the file, or this process
		defer close(done)
		h.file(inProc, name, maxPseudo)
	}()
	t := time.NewTimer(pseudoFor)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// files searches every file of every file system but the kernel's, many directories
// at once.
func (h *hunt) files(dir string) {
	if h.ctx.Err() != nil || dir == "/proc" || dir == "/sys" {
		return
	}
	f, err := os.Open(dir)
	if err != nil {
		h.look(inFile, dir, nil, err)
		return
	}
	entries, err := f.ReadDir(-1)
	if err != nil {
		h.look(inFile, dir, nil, err)
	}
	var below []string
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if e.IsDir() {
			h.text(inFile, "the name "+name, e.Name())
			below = append(below, name)
			continue
		}
		h.entry(int(f.Fd()), name, e)
	}
	_ = f.Close() // it was read only
	var all sync.WaitGroup
	defer all.Wait()
	for _, name := range below {
		select {
		case h.turns <- struct{}{}:
			all.Go(func() {
				defer func() { <-h.turns }()
				h.files(name)
			})
		default:
			h.files(name)
		}
	}
}

// entry searches what a directory has and is none itself. What was there before the
// keys were made up is left out: nobody can set the time of the last change.
func (h *hunt) entry(dir int, name string, e fs.DirEntry) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW); err == nil && st.Ctim.Sec > 1 && st.Ctim.Sec < h.Since {
		h.mu.Lock()
		h.counts[inFile].old++
		h.mu.Unlock()
		return
	}
	h.text(inFile, "the name "+name, e.Name())
	switch {
	case e.Type()&fs.ModeSymlink != 0:
		if target, err := os.Readlink(name); err == nil {
			h.text(inFile, "the link "+name, target)
		}
	case e.Type().IsRegular():
		h.file(inFile, name, 0)
	}
}

// plant puts the honeypot where the search must find it, and returns what takes it
// away again.
func (s *Search) plant(ctx context.Context) (remove func(), err error) {
	text := string(Veil(s.Honey))
	dir, err := os.MkdirTemp("", "lab-honeypot-")
	if err != nil {
		return nil, err
	}
	ends := []func(){func() { _ = os.RemoveAll(dir) }} // the sandbox ends soon
	remove = func() {
		for _, end := range slices.Backward(ends) {
			end()
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "lab-honeypot"), []byte("x"+base64.StdEncoding.EncodeToString([]byte("k="+text))), 0o600); err != nil {
		remove()
		return nil, err
	}
	for _, env := range [][]string{{"LAB_HONEYPOT=" + text}, nil} {
		end, err := hold(ctx, s.Again, env, s.Honey)
		if err != nil {
			remove()
			return nil, err
		}
		ends = append(ends, end)
	}
	return remove, nil
}
