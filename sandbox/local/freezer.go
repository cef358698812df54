package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// freezer stops and thaws all processes of a cgroup at once. Its files are
// opened while the keeper may still open any.
type freezer struct {
	control *os.File // freezer.state (v1) or cgroup.freeze (v2)
	state   *os.File // freezer.state (v1) or cgroup.events (v2)
	words   [2]string
	signs   [2]string // how a line of state says that it is thawed, frozen
}

// openFreezer returns nil where the cgroup cannot be frozen.
func (c *cgroup) openFreezer() *freezer {
	if c == nil {
		return nil
	}
	f := &freezer{words: [2]string{"0", "1"}, signs: [2]string{"frozen 0", "frozen 1"}}
	control, state := filepath.Join(c.manager.Path(""), "cgroup.freeze"), filepath.Join(c.manager.Path(""), "cgroup.events")
	if c.threaded {
		// freezer-subsystem.rst: there is no file of events.
		f.words = [2]string{"THAWED", "FROZEN"}
		f.signs = f.words
		control = filepath.Join(c.manager.Path("freezer"), freezerState)
		state = control
	}
	var err error
	if f.control, err = os.OpenFile(control, os.O_WRONLY, 0); err != nil {
		return nil
	}
	if f.state, err = os.Open(state); err != nil {
		f.control.Close()
		return nil
	}
	return f
}

// freezerState is the file of a cgroup v1 that freezes it.
const freezerState = "freezer.state"

// freezeTimeout is how long the kernel may take to stop every process: one that
// waits for a disk cannot be stopped before it has its answer.
const freezeTimeout = 5 * time.Second

// freeze stops everything, or nothing when it fails.
func (f *freezer) freeze(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	err := f.set(ctx, 1)
	if err != nil {
		return errors.Join(fmt.Errorf("freeze the cgroup: %w", err), f.thaw())
	}
	return nil
}

// thaw lets everything go on.
func (f *freezer) thaw() error {
	ctx, cancel := context.WithTimeout(context.Background(), freezeTimeout)
	defer cancel()
	if err := f.set(ctx, 0); err != nil {
		return fmt.Errorf("thaw the cgroup: %w", err)
	}
	return nil
}

// set asks for a state until it is reached. Version 1 may stay FREEZING until
// it is asked again.
func (f *freezer) set(ctx context.Context, want int) error {
	for wait := 500 * time.Microsecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if _, err := f.control.WriteAt([]byte(f.words[want]), 0); err != nil {
			return err
		}
		buf := make([]byte, 256)
		n, err := f.state.ReadAt(buf, 0)
		if err != nil && err != io.EOF {
			return err
		}
		for line := range strings.Lines(string(buf[:n])) {
			if strings.TrimSpace(line) == f.signs[want] {
				return nil
			}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("it is %q still: %w", strings.TrimSpace(string(buf[:n])), ctx.Err())
		}
	}
}

// thawCgroups lets go what a keeper that was killed had frozen. Under version 1
// a frozen process does not even die.
func thawCgroups(paths []string) error {
	var errs []error
	for _, path := range paths {
		f, err := os.OpenFile(filepath.Join(path, freezerState), os.O_WRONLY, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue // another hierarchy, or gone
		}
		if err == nil {
			_, err = f.WriteString("THAWED")
			f.Close()
		}
		if err != nil && !errors.Is(err, unix.ENODEV) { // removed meanwhile
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
