// Package isolation is what hostile code tries against the walls of its sandbox,
// each with the exact refusal that is expected, and with a control that shows
// that the same attempt succeeds where nothing refuses it. A small program in
// testdata/trial does all of it in one tree of processes; the tests of
// sandbox/local run it in sandboxes and beside them. What leaves over the network
// is package lab/leak's.
package isolation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Possible is the outcome of an attempt that nothing refused.
const Possible = "possible"

// Control says where an attempt is made besides, to show that it works.
type Control string

// The controls.
const (
	// Own: on the host, in namespaces of its own, where it has every capability.
	Own Control = "own"
	// Outside: on the host, as who runs the test.
	Outside Control = "outside"
	// Root: the same, and only root can.
	Root Control = "root"
	// Beside: in the sandbox, on something of the program's own.
	Beside Control = "beside"
)

// Want are the outcomes expected: an errno or signal, or what was seen instead.
type Want struct {
	Runc   string // rein is run by root
	OneID  string // runc, and rein is run by an ordinary user; empty: as Runc
	GVisor string
}

// Trial is one attempt.
type Trial struct {
	Area, Name string
	Want       Want
	Control    Control
	// Works are the outcomes of the control that show that nothing but the sandbox
	// refuses it: Possible unless said otherwise.
	Works []string
	Note  string // what there is to say of the outcome

	do   func(Host) error
	twin func(Host) error // for Beside
}

// Host says what of the host is to be reached.
type Host struct {
	Abstract     string `json:"abstract"`      // an abstract socket that is listened on
	SharedKey    int    `json:"shared_key"`    // System V shared memory
	SharedMemory string `json:"shared_memory"` // a file in /dev/shm
	Queue        string `json:"queue"`         // a POSIX message queue
	Key          string `json:"key"`           // a key of the user's keyring
	Marker       string `json:"marker"`        // in the environment of a process
	File         string `json:"file"`          // a file that everybody may read
	Keeper       string `json:"keeper"`        // the keeper's socket
	Mount        string `json:"mount"`         // where a directory of the host is mounted read-only: socket, fifo, file

	Where Where    `json:"where"`
	Only  []string `json:"only,omitempty"`  // the trials to make; none: all
	Trial string   `json:"trial,omitempty"` // this process makes only this one
}

// Where the program runs. It believes none that it cannot see for itself: on the
// host itself, some trials would change the host.
type Where string

// The places.
const (
	Sandbox    Where = "sandbox"
	Namespaces Where = "namespaces" // of its own, of which it is the first process
	TheHost    Where = "host"       // only trials whose control is Outside or Root
)

// check refuses to try anything in another place than the one named.
func (w Where) check() error {
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return err
	}
	initial := strings.Join(strings.Fields(string(ids)), " ") == "0 0 4294967295"
	_, err = os.Lstat("/.rein/execd")
	switch {
	case w == TheHost, w == Sandbox && err == nil, w == Namespaces && !initial:
		return nil
	}
	return fmt.Errorf("this is not %q", w)
}

// tries reports whether the trial is made there.
func (w Where) tries(t Trial) bool {
	switch w {
	case Sandbox:
		return true
	case Namespaces:
		return t.Control == Own
	case TheHost:
		return t.Control == Outside || t.Control == Root
	}
	return false
}

// Row is what became of one trial.
type Row struct {
	Trial string `json:"trial"`
	Got   string `json:"got"`
	Twin  string `json:"twin,omitempty"`
}

// Main is the program: it reads a Host and writes Rows as JSON.
func Main(in io.Reader, out io.Writer) error {
	var h Host
	if err := json.NewDecoder(in).Decode(&h); err != nil {
		return fmt.Errorf("read what to try: %w", err)
	}
	if err := h.Where.check(); err != nil {
		return err
	}
	if h.Where == Namespaces && h.Trial == "" {
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			return fmt.Errorf("mount /proc: %w", err)
		}
	}
	if h.Trial == "" {
		return json.NewEncoder(out).Encode(all(h))
	}
	if h.Trial == waiting { // until its starter closes the pipe
		_, err := io.Copy(io.Discard, in)
		return err
	}
	if h.Trial == bearing {
		return json.NewEncoder(out).Encode(Row{Trial: bearing, Got: outcome(rights())})
	}
	for _, t := range Trials() {
		if t.Name == h.Trial && h.Where.tries(t) {
			row := Row{Trial: t.Name, Got: outcome(t.do(h))}
			if t.twin != nil && h.Where == Sandbox {
				row.Twin = outcome(t.twin(h))
			}
			return json.NewEncoder(out).Encode(row)
		}
	}
	return fmt.Errorf("there is no trial %q", h.Trial)
}

// What the program does when a trial starts it again.
const (
	waiting = "wait"
	bearing = "say what rights it has"
)

// all tries each in a process of its own: some end theirs, some would change it.
func all(h Host) []Row {
	trials := slices.DeleteFunc(Trials(), func(t Trial) bool {
		return !h.Where.tries(t) || len(h.Only) > 0 && !slices.Contains(h.Only, t.Name)
	})
	rows := make([]Row, len(trials))
	next := make(chan int)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range next {
				rows[i] = alone(h, trials[i].Name)
			}
		})
	}
	for i := range trials {
		next <- i
	}
	close(next)
	wg.Wait()
	return rows
}

// self is the program once more.
const self = "/proc/self/exe"

// patience is how long a trial may take: each is a few system calls.
const patience = 20 * time.Second

func alone(h Host, trial string) Row {
	h.Trial = trial
	cmd, out := again(h)
	defer time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }).Stop()
	err := cmd.Run()
	var row Row
	if json.Unmarshal(out.Bytes(), &row) == nil && row.Trial == trial {
		return row
	}
	row = Row{Trial: trial, Got: fmt.Sprintf("%v: %s", err, cmd.Stderr)}
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		if status := ended.Sys().(syscall.WaitStatus); status.Signaled() {
			row.Got = unix.SignalName(status.Signal())
		}
	}
	return row
}

// outcome is what an attempt came to.
func outcome(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return Possible
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	case errors.Is(err, os.ErrNotExist):
		return "ENOENT"
	}
	return err.Error()
}
