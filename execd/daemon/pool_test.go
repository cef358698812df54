package daemon

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func poolOS(t *testing.T, nested bool) *OS {
	t.Helper()
	m, err := NewOS(OSOptions{Warden: []string{"/proc/self/exe", "warden"}, Dir: t.TempDir(), Nested: nested})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// closeInTime ends the machine and checks that it left nothing.
func closeInTime(t *testing.T, m *OS) {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- m.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Close waits for ever")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.live); n > 0 || len(m.idle) > 0 {
		t.Errorf("%d wardens are left, %d of them idle", n, len(m.idle))
	}
	if left := childrenOf(os.Getpid()); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// Close ends what is starting, wherever it has got to, and nothing starts
// afterwards.
func TestCloseDuringStarts(t *testing.T) {
	kinds := []bool{false}
	if os.Geteuid() == 0 {
		kinds = append(kinds, true)
	}
	for _, nested := range kinds {
		for round := range 40 {
			m := poolOS(t, nested)
			var starting sync.WaitGroup
			var mu sync.Mutex
			var running []Process
			for i := range 8 {
				starting.Go(func() {
					p, err := m.Start(Spec{ID: fmt.Sprint("c", i), Command: "sleep 100", Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}})
					if err == nil {
						mu.Lock()
						running = append(running, p)
						mu.Unlock()
					}
				})
			}
			if round%2 == 0 {
				starting.Go(func() { m.Reduced() })
			}
			time.Sleep(time.Duration(round) * 250 * time.Microsecond) // anywhere in the starts
			closeInTime(t, m)
			starting.Wait()
			for _, p := range running {
				if !isClosed(p.Gone()) {
					t.Error("a command outlived the machine")
				}
				p.Stdout().Close()
				p.Stderr().Close()
			}
			if _, err := m.Start(Spec{ID: "late", Command: "true", Dir: "/"}); !errors.Is(err, errClosed) {
				t.Errorf("a start after Close: %v", err)
			}
		}
	}
}

// A start that fails while the machine closes keeps it no longer than one that
// succeeds. One that is killed before it has failed counts as started.
func TestCloseDuringFailingStarts(t *testing.T) {
	for round := range 40 {
		m := poolOS(t, false)
		var starting sync.WaitGroup
		for i := range 4 {
			starting.Go(func() {
				p, err := m.Start(Spec{ID: fmt.Sprint("c", i), Command: "true", Dir: "/nowhere"})
				if err != nil {
					return
				}
				p.Stdout().Close()
				p.Stderr().Close()
				if !waitFor(p.Gone(), 10*time.Second) || p.Exit().Signal != unix.SIGKILL {
					t.Errorf("in a directory that is not there it ended with %+v", p.Exit())
				}
			})
		}
		time.Sleep(time.Duration(round) * 250 * time.Microsecond)
		closeInTime(t, m)
		starting.Wait()
	}
}

// A warden may die at any moment; a start then fails or is given another one,
// and every command that started ends.
func TestWardensDieDuringStarts(t *testing.T) {
	m := poolOS(t, false)
	stop := make(chan struct{})
	var killing, starting sync.WaitGroup
	killing.Go(func() {
		for !isClosed(stop) {
			m.mu.Lock()
			for w := range m.live {
				if !w.dead {
					unix.Kill(w.pid, unix.SIGKILL)
				}
				break
			}
			m.mu.Unlock()
			time.Sleep(500 * time.Microsecond)
		}
	})
	for i := range 4 {
		starting.Go(func() {
			for k := range 100 {
				p, err := m.Start(Spec{ID: fmt.Sprint("c", i, "-", k), Command: "echo | cat", Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}})
				if err != nil {
					continue
				}
				p.Stdout().Close()
				p.Stderr().Close()
				if !waitFor(p.Gone(), 10*time.Second) {
					t.Error("a command never ended")
					return
				}
			}
		})
	}
	starting.Wait()
	close(stop)
	killing.Wait()
	closeInTime(t, m)
}

// A warden that cannot be made for want of descriptors leaves nothing behind,
// at whichever step it fails.
func TestWardenWithoutDescriptors(t *testing.T) {
	m := poolOS(t, false)
	w, err := m.take()
	if err != nil {
		t.Fatal(err)
	}
	m.release(w)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for spare := range 12 {
		m.mu.Lock()
		before := len(m.live)
		m.mu.Unlock()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(entries) - 1 + spare), Max: old.Max}); err != nil {
			t.Fatal(err)
		}
		w, err := m.newWarden()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			w.dismiss()
			<-w.replies // closed when it is gone
			continue
		}
		failed++
		m.mu.Lock()
		if len(m.live) != before {
			t.Errorf("with %d descriptors to spare: %v, and a warden is left", spare, err)
		}
		m.mu.Unlock()
	}
	if failed == 0 || failed == 12 {
		t.Errorf("%d of 12 attempts failed", failed)
	}
	closeInTime(t, m)
}
