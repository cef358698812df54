package daemon_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/execd/daemon"
)

// escapes are ways in which a process leaves its shell's reach. Each leaves a
// loop that appends to the file $F, however it is asked to end.
var escapes = map[string]string{
	"setsid":               `setsid sh -c "$L" & wait`,
	"double fork":          `(setsid sh -c "(sh -c \"\$L\" &) ; exit 0" &) ; sleep 100`,
	"ignores TERM":         `trap : TERM INT HUP; sh -c "$L" & while :; do sleep 1; done`,
	"process substitution": `cat <(sh -c "$L") <(sleep 100) >/dev/null`,
	"nested groups":        `set -m; sh -c 'set -m; sh -c "$L" & wait' & wait`,
	"hops":                 `hop() { sh -c "$L" & sleep 0.02; (hop &) ; }; (setsid bash -c "$(declare -f hop); hop" &) ; sleep 100`,
	"nohup":                `nohup sh -c "$L" >/dev/null 2>&1 & sleep 100`,
}

const aliveLoop = `trap : TERM HUP INT; while :; do echo x >> "$F"; sleep 0.01; done`

// quiet fails the test when the file still grows.
func quiet(t *testing.T, file string) {
	t.Helper()
	before, err := os.Stat(file)
	if err != nil {
		t.Fatalf("the loop never ran: %v", err)
	}
	time.Sleep(100 * time.Millisecond) // ten rounds of the loop
	after, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if before.Size() != after.Size() {
		t.Errorf("a process outlived its command and still writes %s", file)
	}
}

// grown waits until the loop has written.
func grown(t *testing.T, file string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if info, err := os.Stat(file); err == nil && info.Size() > 4 {
			return
		}
	}
	t.Fatalf("nothing writes %s", file)
}

func TestTimeoutEndsTheWholeTree(t *testing.T) {
	for user, opts := range users(t) {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			r := serve(t, opts)
			for name, command := range escapes {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					file := filepath.Join(r.work, strings.ReplaceAll(name, " ", "-"))
					o, err := r.Run(t.Context(), execd.RunRequest{
						Command: "echo begun; " + command, Timeout: 1000, Envs: map[string]string{"F": file, "L": aliveLoop},
						Rein: &execd.RunOptions{Capture: 1000},
					}, nil)
					if err != nil {
						t.Fatal(err)
					}
					if o.KilledBy != execd.KilledByTimeout || string(o.Stdout.Head)+string(o.Stdout.Tail) != "begun\n" {
						t.Errorf("outcome %+v", o)
					}
					// What ends by itself does so after 100 s; on a busy machine the hops are caught late.
					if o.DurationMS < 1000 || o.DurationMS > 50_000 {
						t.Errorf("returned after %d ms, which is not its time limit of 1 s", o.DurationMS)
					}
					quiet(t, file)
				})
			}
		})
	}
}

func TestNormalExitEndsLeftovers(t *testing.T) {
	for user, opts := range users(t) {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			r := serve(t, opts)
			file := filepath.Join(r.work, "loop")
			o, err := r.Run(t.Context(), execd.RunRequest{
				Command: `(setsid sh -c "$L" &); while ! test -s "$F"; do sleep 0.01; done; echo over; touch over; exit 7`,
				Envs:    map[string]string{"F": file, "L": aliveLoop}, Rein: &execd.RunOptions{Capture: 1000},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if o.ExitCode == nil || *o.ExitCode != 7 || !o.HeldOpen || o.KilledBy != "" {
				t.Errorf("outcome %+v", o)
			}
			over, err := os.Stat(filepath.Join(r.work, "over"))
			if err != nil {
				t.Fatal(err)
			}
			if late := o.StartedAt.Add(time.Duration(o.DurationMS) * time.Millisecond).Sub(over.ModTime()); late > 30*time.Second { // it would hold it for ever
				t.Errorf("a child that held the output delayed the result by %v", late)
			}
			quiet(t, file)
		})
	}
}

// A quick child that merely finishes a moment after its shell is not cut off.
// The moment is short, and on a busy machine may pass before the child runs.
func TestShortLeftoverMayFinish(t *testing.T) {
	r := serve(t, bestUser())
	var o execd.Outcome
	for range 10 {
		var err error
		o, err = r.Run(t.Context(), execd.RunRequest{Command: "(sleep 0.03; echo late) & exit 0", Rein: &execd.RunOptions{Capture: 1000}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if string(o.Stdout.Head)+string(o.Stdout.Tail) == "late\n" && !o.HeldOpen {
			return
		}
	}
	t.Errorf("outcome %+v", o)
}

func TestLeftoversOfOneCommandAreNotAnothers(t *testing.T) {
	for user, opts := range users(t) {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			r := serve(t, opts)
			file := filepath.Join(r.work, "other")
			env := map[string]string{"F": file, "L": aliveLoop}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			other := make(chan execd.Outcome, 1)
			go func() {
				// Escaped as far as a process can, while its command goes on.
				o, _ := r.Run(ctx, execd.RunRequest{Command: `(setsid sh -c "(sh -c \"\$L\" &)" &); sleep 100`, Envs: env,
					Rein: &execd.RunOptions{ID: "other", Capture: 1000}}, nil)
				other <- o
			}()
			grown(t, file)
			for i := range 10 {
				if _, err := r.Run(t.Context(), execd.RunRequest{Command: fmt.Sprintf("(setsid sleep 1%d &) ; exit 0", i)}, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Truncate(file, 0); err != nil {
				t.Fatal(err)
			}
			grown(t, file) // or it was ended as a leftover of another
			if err := r.Interrupt(t.Context(), "other"); err != nil {
				t.Error(err)
			}
			if o := <-other; o.KilledBy != execd.KilledByInterrupt {
				t.Errorf("outcome %+v", o)
			}
			quiet(t, file)
		})
	}
}

func TestBackgroundLeftoversLive(t *testing.T) {
	r := serve(t, bestUser())
	file := filepath.Join(r.work, "server")
	_, err := r.Run(t.Context(), execd.RunRequest{Command: `sh -c "$L" & echo started`, Background: true,
		Envs: map[string]string{"F": file, "L": aliveLoop}, Rein: &execd.RunOptions{ID: "bg"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	st := ended(t, r, "bg")
	if st.ExitCode == nil || *st.ExitCode != 0 || st.Rein == nil || st.Rein.Outcome == nil || !st.Rein.Outcome.HeldOpen {
		t.Errorf("status %+v", st)
	}
	grown(t, file)
	if err := r.Interrupt(t.Context(), "bg"); err != nil {
		t.Error(err)
	}
	quiet(t, file)
	if err := r.Interrupt(t.Context(), "bg"); !hasStatus(err, 409) {
		t.Errorf("second interrupt: %v, want status 409", err)
	}
}

// ended polls until a command has ended.
func ended(t *testing.T, r *rig, id string) execd.Status {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		st, err := r.Status(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if !st.Running {
			return st
		}
	}
	t.Fatalf("%s still runs", id)
	return execd.Status{}
}

func hasStatus(err error, status int) bool {
	e, ok := err.(*execd.Error)
	return ok && e.Status == status
}

func TestCommandsCannotReachTheDaemon(t *testing.T) {
	for user, opts := range users(t) {
		if user == "own user" {
			continue // no separation, and none is claimed
		}
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			if opts.User != nil { // one that no other test uses: all its processes are ended
				opts.User = &daemon.User{UID: 61299, GID: 61299}
			}
			m := newOS(t, opts)
			self := strconv.Itoa(os.Getpid())
			out, _, _ := output(t, m, "kill -0 "+self+" 2>/dev/null && echo reached; cat /proc/"+self+"/environ 2>/dev/null && echo read; "+
				"kill -9 $PPID 2>/dev/null; kill -0 $PPID 2>/dev/null && test $PPID != 1 && echo reached the warden; echo done")
			if out != "done\n" {
				t.Errorf("got %q", out)
			}
			// A command that has ended itself and everything it can see leaves the
			// machine whole.
			p := start(t, m, "kill -9 -1")
			await(t, p.Gone(), "kill -9 -1")
			if out, _, _ := output(t, m, "echo on"); out != "on\n" {
				t.Errorf("after kill -9 -1: %q", out)
			}
		})
	}
}

// A warden that is killed by accident loses its command, and nothing else.
func TestLostWarden(t *testing.T) {
	m := newOS(t, daemon.OSOptions{})
	p := start(t, m, "sleep 0.2; kill -9 $PPID; sleep 100")
	await(t, p.Gone(), "the end of a command without a warden")
	if e := p.Exit(); e.Err == nil {
		t.Errorf("exit %+v, want an error", e)
	}
	if out, _, _ := output(t, m, "echo on"); out != "on\n" {
		t.Errorf("the next command gave %q", out)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	m := newOS(t, bestUser())
	file := filepath.Join(publicDir(t), "loop")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	p, err := m.Start(daemon.Spec{ID: "x", Command: `(setsid sh -c "$L" &); sleep 100`, Dir: "/", Env: append(testEnv, "F="+file, "L="+aliveLoop)})
	if err != nil {
		t.Fatal(err)
	}
	grown(t, file)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	quiet(t, file)
	if e := p.Exit(); e.Signal != syscall.SIGKILL {
		t.Errorf("exit %+v", e)
	}
	if _, err := m.Start(daemon.Spec{ID: "y", Command: "true", Dir: "/"}); err == nil {
		t.Error("a closed machine started a command")
	}
}
