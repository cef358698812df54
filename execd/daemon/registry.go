package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rein-sh/rein/execd"
)

// Bounds of what is stored of finished commands.
const (
	inlineRecord = 512       // a record this small stays in memory
	recordBudget = 256 << 20 // bytes of records on disk; beyond it the oldest lose their output
)

// registry knows the commands: those that run, and the newest
// execd.MaxStoredCommands that have ended. What they printed is on disk.
type registry struct {
	dir    string // OS path of the records
	budget int64  // bytes of records on disk

	mu      sync.Mutex
	entries map[string]*entry
	ended   []*entry // oldest first
	first   int      // where ended begins
	onDisk  int64
	shedTo  int // entries of ended before this have lost their output
}

// entry is one command id. Its fields are guarded by registry.mu but started,
// which is closed when job or startErr is set.
type entry struct {
	id       string
	started  chan struct{}
	startErr error
	job      *job    // until its record is stored
	proc     Process // as long as a process of it may be left
	inline   []byte  // the record, when small
	size     int64   // of the record on disk
}

// record is a finished command as it is stored.
type record struct {
	Content  string
	LogPath  string
	EndedAt  time.Time
	Captured bool
	Outcome  execd.Outcome
}

func newRegistry(dir string) *registry {
	return &registry{dir: dir, budget: recordBudget, entries: make(map[string]*entry)}
}

// claim returns the entry of id, and whether the caller is the one to start
// the command: whoever asks first.
func (r *registry) claim(id string) (e *entry, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[id]; ok {
		return e, false
	}
	e = &entry{id: id, started: make(chan struct{})}
	r.entries[id] = e
	return e, true
}

// fail records that nothing was started; the id is free again.
func (r *registry) fail(e *entry, err error) {
	r.mu.Lock()
	delete(r.entries, e.id)
	e.startErr = err
	r.mu.Unlock()
	close(e.started)
}

func (r *registry) running(e *entry, j *job) {
	r.mu.Lock()
	e.job, e.proc = j, j.proc
	r.mu.Unlock()
	close(e.started)
}

func (r *registry) get(id string) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entries[id]
}

// state returns what e is now: a job that runs or was not stored yet, else nil;
// and its process while any of it may be left.
func (r *registry) state(e *entry) (*job, Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.job, e.proc
}

// store keeps the record of a finished job and lets go of the job.
func (r *registry) store(e *entry, j *job) {
	b := encodeRecord(recordOf(j))
	var size int64
	if len(b) > inlineRecord {
		if err := writeNew(r.path(e.id), b, 0o600); err == nil {
			size, b = int64(len(b)), nil
		} else {
			// The disk is full: what became of the command is still known.
			os.Remove(r.path(e.id))
			b = encodeRecord(recordOf(j).withoutOutput())
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.job, e.inline, e.size = nil, b, size
	r.onDisk += size
	r.ended = append(r.ended, e)
	r.forgetLocked()
	r.shedLocked()
}

// gone lets go of a process of which nothing is left.
func (r *registry) gone(e *entry) {
	r.mu.Lock()
	e.proc = nil
	r.mu.Unlock()
}

// endAll ends every running command and waits at most d for the results.
func (r *registry) endAll(d time.Duration) {
	r.mu.Lock()
	var jobs []*job
	for _, e := range r.entries {
		if e.job != nil {
			jobs = append(jobs, e.job)
		}
	}
	r.mu.Unlock()
	deadline := time.Now().Add(d)
	for _, j := range jobs {
		j.interrupt(execd.KilledByShutdown)
	}
	for _, j := range jobs {
		waitFor(j.finished, time.Until(deadline))
	}
}

func (r *registry) forgetLocked() {
	for len(r.ended)-r.first > execd.MaxStoredCommands {
		e := r.ended[r.first]
		r.ended[r.first] = nil
		r.first++
		delete(r.entries, e.id)
		if e.size > 0 {
			os.Remove(r.path(e.id))
			r.onDisk -= e.size
		}
	}
	if r.first > execd.MaxStoredCommands {
		r.ended = append([]*entry(nil), r.ended[r.first:]...)
		r.shedTo = max(0, r.shedTo-r.first)
		r.first = 0
	}
}

// shedLocked takes the output from the oldest records until the rest fits. The
// ids stay known: what has run once is never run again.
func (r *registry) shedLocked() {
	r.shedTo = max(r.shedTo, r.first)
	for r.onDisk > r.budget && r.shedTo < len(r.ended)-1 {
		e := r.ended[r.shedTo]
		r.shedTo++
		if e.size == 0 {
			continue
		}
		rec, err := r.readLocked(e)
		if err != nil {
			continue
		}
		e.inline = encodeRecord(rec.withoutOutput())
		os.Remove(r.path(e.id))
		r.onDisk -= e.size
		e.size = 0
	}
}

// read returns the record of a stored entry.
func (r *registry) read(e *entry) (record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readLocked(e)
}

func (r *registry) readLocked(e *entry) (record, error) {
	b := e.inline
	if e.size > 0 {
		var err error
		if b, err = readPlain(r.path(e.id)); err != nil {
			return record{}, err
		}
	}
	var rec record
	err := json.Unmarshal(b, &rec)
	return rec, err
}

func (r *registry) path(id string) string { return filepath.Join(r.dir, id+".json") }

func recordOf(j *job) record {
	rec := record{Content: j.req.Command, EndedAt: j.endedAt, Captured: j.captured(), Outcome: j.outcome}
	if j.req.Background {
		rec.LogPath = j.spill.path
	}
	return rec
}

// keptContent is how much of the command text a record without output keeps.
const keptContent = 200

func (rec record) withoutOutput() record {
	if len(rec.Content) > keptContent {
		rec.Content = rec.Content[:keptContent] + "…"
	}
	o := &rec.Outcome
	o.Stdout.Head, o.Stdout.Tail, o.Stdout.HeadLines = nil, nil, 0
	o.Stderr.Head, o.Stderr.Tail, o.Stderr.HeadLines = nil, nil, 0
	return rec
}

func encodeRecord(rec record) []byte {
	b, err := json.Marshal(rec)
	if err != nil {
		panic(err) // plain data
	}
	return b
}
