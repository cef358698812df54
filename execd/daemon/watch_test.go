package daemon_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/execd/daemon"
)

// wake writes to a file without end, and has timers send SIGCONT after first,
// and each time after every, as often as that fits in 30 s. A timer each,
// because Linux sets a periodic one anew only when its signal arrives, and a stop
// drops what waits.
func wake(first, every string) {
	signal.Notify(make(chan os.Signal, 1), unix.SIGCONT)
	at, err := time.ParseDuration(first)
	if err != nil {
		panic(err)
	}
	step, err := time.ParseDuration(every)
	if err != nil {
		panic(err)
	}
	for ; at < 30*time.Second; at += step {
		// struct sigevent: sigev_value, sigev_signo, sigev_notify (0: SIGEV_SIGNAL)
		event := struct {
			value         uint64
			signo, notify int32
			_             [48]byte
		}{signo: int32(unix.SIGCONT)}
		var id int32
		if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&id))); errno != 0 {
			panic(errno)
		}
		spec := [2]unix.Timespec{1: unix.NsecToTimespec(int64(at))}
		if _, _, errno := unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(id), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0); errno != 0 {
			panic(errno)
		}
	}
	for {
		f, err := os.OpenFile("beat", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(f)
		f.Close()
	}
}

// background starts the test binary as a waker.
func background(t *testing.T, r *rig, id, first, every string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Run(t.Context(), execd.RunRequest{Command: "echo $$ >pid; exec " + self + " waker " + first + " " + every, Background: true, Cwd: r.work,
		Rein: &execd.RunOptions{ID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it beats", func() bool { return size(t, r.work+"/beat") > 2 })
}

// outcome waits for the end of a command.
func outcome(t *testing.T, r *rig, id string) (o execd.Outcome) {
	t.Helper()
	eventually(t, id+" has ended", func() bool {
		st, err := r.Status(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if st.Rein != nil && st.Rein.Outcome != nil {
			o = *st.Rein.Outcome
		}
		return st.Rein != nil && st.Rein.Outcome != nil
	})
	return o
}

// What wakes again and again in a pause runs no further, and is said to have
// been ended for it. What runs beside it goes on.
func TestPauseEndsWhatKeepsWaking(t *testing.T) {
	for _, every := range []string{"5ms", "10ms", "25ms", "150ms"} {
		t.Run(every, func(t *testing.T) {
			r := serve(t, daemon.OSOptions{})
			background(t, r, "waker", "25ms", every)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := r.Run(ctx, execd.RunRequest{Command: "while :; do sleep 0.01; done", Background: true, Rein: &execd.RunOptions{ID: "honest"}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			pause(t, r)
			var before int64
			eventually(t, "it stands still", func() bool {
				before = size(t, r.work+"/beat")
				time.Sleep(2 * still)
				return size(t, r.work+"/beat") == before
			})
			resume(t, r)
			if o := outcome(t, r, "waker"); o.KilledBy != execd.KilledByPause || o.Signal != "SIGKILL" {
				t.Errorf("killed by %q, signal %q", o.KilledBy, o.Signal)
			}
			if st, err := r.Status(t.Context(), "honest"); err != nil || !st.Running {
				t.Errorf("the other: %+v, %v", st, err)
			}
		})
	}
}

// What wakes once is stopped again, and goes on after the pause. Here the test
// wakes it.
func TestPauseSparesWhatWakesOnce(t *testing.T) {
	r := serve(t, daemon.OSOptions{})
	background(t, r, "waker", "1h", "1h")
	b, err := os.ReadFile(r.work + "/pid")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	pause(t, r)
	if err := unix.Kill(pid, unix.SIGCONT); err != nil { // it wakes in this call, and may be stopped before it runs
		t.Fatal(err)
	}
	var before int64
	eventually(t, "it stands still", func() bool {
		before = size(t, r.work+"/beat")
		time.Sleep(still)
		return size(t, r.work+"/beat") == before
	})
	resume(t, r)
	eventually(t, "it goes on", func() bool { return size(t, r.work+"/beat") > before })
	if err := r.Interrupt(t.Context(), "waker"); err != nil {
		t.Fatal(err)
	}
	if o := outcome(t, r, "waker"); o.KilledBy != execd.KilledByInterrupt {
		t.Errorf("killed by %q, signal %q", o.KilledBy, o.Signal)
	}
}
