package local_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// Where the limit of processes is one that a command may raise, it is none.
func TestProcessLimitStays(t *testing.T) {
	box, err := sandbox.Create(t.Context(), provider(t, "runc"), sandbox.Spec{TTL: 2 * time.Minute, Resources: sandbox.Resources{PIDs: 64}},
		sandbox.Options{Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		r, err := box.Run(t.Context(), sandbox.Command{Shell: "ulimit -Su $(ulimit -Hu); [ $(ulimit -Su) -le 192 ]"})
		if err != nil {
			t.Fatal(err)
		}
		if r.ExitCode == nil || *r.ExitCode != 0 {
			t.Fatalf("it raised its own limit: %q %q", r.Stdout.Head, r.Stderr.Head)
		}
	}
}

// Empty files take memory that no size counts.
func TestFilesAreBounded(t *testing.T) {
	box, err := sandbox.Create(t.Context(), provider(t, "runc"), sandbox.Spec{TTL: 2 * time.Minute, Resources: sandbox.Resources{Disk: 64 << 20}},
		sandbox.Options{Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	r, err := box.Run(t.Context(), sandbox.Command{Shell: "df --output=itotal / /dev/shm /run/rein /dev | tail -n +2"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"16384", "16384", "147456", "16384"}
	if got := strings.Fields(string(r.Stdout.Head)); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("files: %v, not %v", got, want)
	}
}

// headless is a process whose first thread has ended: the kernel shows it as a
// zombie, and the others go on.
const headless = `python3 -c '
import ctypes, threading, time
def beat():
    while True:
        with open("/tmp/beat", "a") as f: f.write("%f\n" % time.time())
        time.sleep(0.02)
threading.Thread(target=beat).start()
ctypes.CDLL(None).pthread_exit(None)
'`

// Such a process ends with its command, and stands still in a pause.
func TestHeadlessProcess(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			box, err := sandbox.Create(t.Context(), provider(t, runtime), sandbox.Spec{TTL: 2 * time.Minute}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			size := func() string {
				r, err := box.Run(t.Context(), sandbox.Command{Shell: "stat -c %s /tmp/beat; rm -f /tmp/beat"})
				if err != nil || !r.OK() {
					t.Fatalf("%v %s", err, r.Stderr.Head)
				}
				return string(r.Stdout.Head)
			}
			wait := "until [ -s /tmp/beat ]; do sleep 0.01; done"
			if r, err := box.Run(t.Context(), sandbox.Command{Shell: "setsid " + headless + " & " + wait}); err != nil || !r.OK() {
				t.Fatalf("%v %+v %s", err, r.Outcome, r.Stderr.Head)
			}
			size()
			if r, err := box.Run(t.Context(), sandbox.Command{Shell: "sleep 0.2; ! ls /tmp/beat"}); err != nil || !r.OK() {
				t.Errorf("it outlived its command: %v %s", err, r.Stdout.Head)
			}

			if _, err := box.Run(t.Context(), sandbox.Command{CallID: "headless", Shell: headless, Background: true}); err != nil {
				t.Fatal(err)
			}
			if _, err := box.Run(t.Context(), sandbox.Command{Shell: wait}); err != nil {
				t.Fatal(err)
			}
			if err := box.Pause(t.Context(), sandbox.PauseOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(500 * time.Millisecond) // the length of the pause is what is measured
			if err := box.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			// Some beats more, so that one of them is certainly from afterwards.
			r, err := box.Run(t.Context(), sandbox.Command{Shell: `sleep 0.3; awk 'NR > 1 && $1 - last > gap { gap = $1 - last } { last = $1 } END { print gap + 0 }' /tmp/beat`})
			var gap float64
			if _, scanErr := fmt.Sscan(string(r.Stdout.Head), &gap); err != nil || scanErr != nil || gap < 0.4 {
				t.Errorf("the longest gap is %v s for a pause of 0.5 s: %v %s", gap, err, r.Stderr.Head)
			}
		})
	}
}
