package daemon

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rein-sh/rein/execd"
)

// countingMachine starts nothing.
type countingMachine struct{ started atomic.Int64 }

func (m *countingMachine) Start(Spec) (Process, error) {
	m.started.Add(1)
	return nil, errors.New("this machine starts nothing")
}
func (m *countingMachine) Traits() Traits { return Traits{} }
func (m *countingMachine) Close() error   { return nil }

// finished is a job that has ended with so much output.
func finished(id string, output int) *job {
	zero := 0
	j := &job{id: id, req: execd.RunRequest{Command: "c", Rein: &execd.RunOptions{ID: id}}, finished: make(chan struct{}), endedAt: time.Now()}
	j.outcome = execd.Outcome{ExitCode: &zero, Stdout: execd.Output{Bytes: int64(output), Tail: []byte(strings.Repeat("x", output))}}
	close(j.finished)
	return j
}

func keep(r *registry, id string, output int) {
	e, _ := r.claim(id)
	j := finished(id, output)
	r.running(e, j)
	r.store(e, j)
}

// Under one uid a command can put a FIFO where a result is kept or /etc/passwd
// was. Nothing waits for it.
func TestFIFOsAreNotWaitedFor(t *testing.T) {
	r := newRegistry(t.TempDir())
	if err := syscall.Mkfifo(r.path("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	keep(r, "before", 2*inlineRecord)
	if rec, err := r.read(r.get("before")); err != nil || rec.Outcome.Stdout.Bytes != 2*inlineRecord {
		t.Errorf("%+v, %v", rec, err)
	}
	keep(r, "after", 2*inlineRecord)
	path := r.path("after")
	if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.read(r.get("after")); err == nil {
		t.Error("a FIFO was read as a result")
	}
	if got := nameIn(path, 0, "nobody"); got != "nobody" {
		t.Errorf("a FIFO names a user %q", got)
	}
}

func TestOldestResultsAreForgotten(t *testing.T) {
	r := newRegistry(t.TempDir())
	const extra = 50
	sizeOf := func(i int) int { return 600 * (i % 20 / 19) } // one in twenty is on disk
	for i := range execd.MaxStoredCommands + extra {
		keep(r, "id"+strconv.Itoa(i), sizeOf(i))
	}
	for i := range execd.MaxStoredCommands + extra {
		id := "id" + strconv.Itoa(i)
		e := r.get(id)
		if (e == nil) != (i < extra) {
			t.Fatalf("%s: known %v", id, e != nil)
		}
		if e == nil {
			if _, err := os.Stat(r.path(id)); err == nil {
				t.Fatalf("the file of %s is left", id)
			}
			continue
		}
		if rec, err := r.read(e); err != nil || rec.Outcome.Stdout.Bytes != int64(sizeOf(i)) {
			t.Fatalf("%s: %+v %v", id, rec, err)
		}
	}
	if len(r.entries) != execd.MaxStoredCommands {
		t.Errorf("%d entries", len(r.entries))
	}
}

// Beyond the budget the oldest lose their output but stay known: an id that
// has run is never run again.
func TestOldOutputIsShed(t *testing.T) {
	r := newRegistry(t.TempDir())
	const output = 64 << 10
	r.budget = 10 * output
	for i := range 20 {
		keep(r, strconv.Itoa(i), output)
	}
	var with int
	for i := range 20 {
		e := r.get(strconv.Itoa(i))
		if e == nil {
			t.Fatalf("%d is forgotten", i)
		}
		rec, err := r.read(e)
		if err != nil || rec.Outcome.ExitCode == nil || rec.Outcome.Stdout.Bytes != output {
			t.Fatalf("%d: %+v %v", i, rec, err)
		}
		if len(rec.Outcome.Stdout.Tail) > 0 {
			with++
		} else if with > 0 {
			t.Errorf("%d lost its output before an older one", i)
		}
	}
	if with < 5 || with > 10 || r.onDisk > r.budget {
		t.Errorf("%d have output, %d bytes on disk", with, r.onDisk)
	}
}

// A disk that is full loses output, not outcomes.
func TestFullDisk(t *testing.T) {
	r := newRegistry(t.TempDir() + "/missing")
	keep(r, "a", 1<<20)
	if rec, err := r.read(r.get("a")); err != nil || rec.Outcome.ExitCode == nil || len(rec.Outcome.Stdout.Tail) != 0 {
		t.Errorf("%+v %v", rec, err)
	}
}
