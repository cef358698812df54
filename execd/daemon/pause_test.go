package daemon_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/execd"
)

// still is how long is watched that nothing happens.
const still = 300 * time.Millisecond

func size(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// beat runs a command that writes to a file without end.
func beat(t *testing.T, r *rig, command string) (file string) {
	t.Helper()
	id, err := r.CreateTerminal(t.Context(), execd.TerminalRequest{Command: command})
	if err != nil {
		t.Fatal(err)
	}
	attachTo(t, r, id, execd.AttachOptions{Since: -1, Pipe: true})
	file = r.work + "/beat"
	eventually(t, "it beats", func() bool { return size(t, file) > 2 })
	return file
}

func pause(t *testing.T, r *rig) {
	t.Helper()
	if err := r.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func resume(t *testing.T, r *rig) {
	t.Helper()
	if err := r.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestPause(t *testing.T) {
	for name, opts := range users(t) {
		t.Run(name, func(t *testing.T) {
			r := serve(t, opts)
			file := beat(t, r, "trap : CONT; setsid sh -c 'while :; do echo >>beat; sleep 0.01; done' & while :; do sleep 0.01; done")
			resume(t, r) // of what is not paused: whoever asked first may not have had the answer
			pause(t, r)
			pause(t, r)
			before := size(t, file)
			for _, c := range []struct{ method, route, body string }{
				{"GET", "/ping", ""}, {"POST", "/command", `{"command":"touch ran"}`}, {"POST", "/session", "{}"}, {"POST", "/pty", "{}"},
				{"GET", "/files/info?path=/", ""}, {"POST", "/directories", `{"ran":{}}`}, {"GET", "/no/such", ""},
			} {
				wantError(t, c.method+" "+c.route, request(t, r, c.method, c.route, strings.NewReader(c.body), nil), 409, execd.CodeConflict)
			}
			time.Sleep(still)
			if after := size(t, file); after != before {
				t.Errorf("%d bytes have been written while it was paused", after-before)
			}
			resume(t, r)
			resume(t, r)
			eventually(t, "it goes on", func() bool { return size(t, file) > before })
			if _, err := os.Stat(r.work + "/ran"); err == nil {
				t.Error("what was refused has happened")
			}
		})
	}
}

// What was stopped before a pause stays so after it.
func TestPauseLeavesStoppedAlone(t *testing.T) {
	r := serve(t, bestUser())
	file := beat(t, r, "sh -c 'echo $$ >pid; kill -STOP $$; touch woken' & while :; do echo >>beat; sleep 0.01; done")
	stopped := func() bool {
		pid, _ := os.ReadFile(r.work + "/pid")
		b, _ := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		_, rest, _ := strings.Cut(string(b), ") ")
		return strings.HasPrefix(rest, "T")
	}
	eventually(t, "it has stopped itself", stopped)
	pause(t, r)
	resume(t, r)
	before := size(t, file)
	eventually(t, "the other goes on", func() bool { return size(t, file) > before+2 })
	if _, err := os.Stat(r.work + "/woken"); err == nil || !stopped() {
		t.Error("it has been woken")
	}
}

func TestPauseWithTerminalAttached(t *testing.T) {
	r := serve(t, bestUser())
	y := sit(t, r, execd.TerminalRequest{Command: "stty -echo; echo up; while read -r line; do echo \"$line\"; done"}, execd.AttachOptions{Since: 0})
	y.until("up\r\n")
	pause(t, r)
	y.types("to be read later\n")
	_, err := r.Attach(t.Context(), y.id, execd.AttachOptions{Takeover: true})
	if e, ok := errors.AsType[*execd.Error](err); !ok || e.Code != execd.CodeConflict {
		t.Errorf("attaching: %v", err)
	}
	next := make(chan string, 1)
	go func() {
		e, err := y.Next(t.Context())
		if err != nil {
			next <- err.Error()
			return
		}
		next <- string(e.Data)
	}()
	select {
	case got := <-next:
		t.Errorf("while paused: %q", got)
	case <-time.After(still):
	}
	resume(t, r)
	if got := <-next; got != "to be read later\r\n" {
		t.Errorf("afterwards: %q", got)
	}
}

// An upload stands still with the sandbox: what comes meanwhile is written later,
// and the file appears only then.
func TestPauseWithUploadOpen(t *testing.T) {
	r := serve(t, bestUser())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := r.Upload(t.Context(), execd.UploadMetadata{Path: r.work + "/file", Rein: &execd.UploadOptions{}}, out, 2<<20)
		done <- err
	}()
	half := strings.Repeat("x", 1<<20)
	begun := func() { // what was written may still be on its way
		t.Helper()
		eventually(t, "the daemon writes", func() bool {
			names, err := filepath.Glob(r.work + "/.rein-*")
			return err == nil && len(names) > 0
		})
	}
	if _, err := io.WriteString(in, half); err != nil {
		t.Fatal(err)
	}
	begun()
	pause(t, r)
	go func() {
		_, err := io.WriteString(in, half)
		in.CloseWithError(err)
	}()
	select {
	case err := <-done:
		t.Fatalf("it has ended while paused: %v", err)
	case <-time.After(still):
	}
	if size(t, r.work+"/file") != 0 {
		t.Error("the file is there")
	}
	resume(t, r)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := size(t, r.work+"/file"); got != 2<<20 {
		t.Errorf("%d bytes", got)
	}
	// One that nobody goes on with is in the way neither of a pause nor of the end.
	ctx, cancel := context.WithCancel(t.Context())
	out, in = io.Pipe()
	go func() {
		_, err := r.Upload(ctx, execd.UploadMetadata{Path: r.work + "/other", Rein: &execd.UploadOptions{}}, out, 2<<20)
		done <- err
	}()
	if _, err := io.WriteString(in, half); err != nil {
		t.Fatal(err)
	}
	begun()
	pause(t, r)
	cancel()
	in.CloseWithError(ctx.Err())
	if err := <-done; err == nil {
		t.Error("an upload that was cut is a success")
	}
}
