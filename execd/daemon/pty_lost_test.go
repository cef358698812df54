package daemon_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/rein-sh/rein/execd"
)

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// Who goes away while the program does not read what was typed is detached: the
// program goes on, another can attach, and what was typed is not lost to it.
func TestTerminalClientGoesWhileNothingIsRead(t *testing.T) {
	for _, c := range []struct {
		name string
		prep string
		pipe bool
	}{{"pipes", "", true}, {"terminal", "stty raw -echo; ", false}} {
		t.Run(c.name, func(t *testing.T) {
			r := serve(t, bestUser())
			y := sit(t, r, execd.TerminalRequest{Command: c.prep + "echo up; until [ -e go ]; do sleep 0.02; done; seq 300000; head -c 200000 | wc -c; exec sleep 1000"},
				execd.AttachOptions{Since: 0, Pipe: c.pipe})
			y.until("up")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := y.Write(ctx, []byte(strings.Repeat("x", 8<<20))); err == nil {
				t.Fatal("8 MiB found room")
			}
			y.Close()
			var again *execd.Terminal
			eventually(t, "nobody is attached any more", func() (ok bool) {
				var err error
				again, err = r.Attach(t.Context(), y.id, execd.AttachOptions{Since: -1})
				if e, refused := errors.AsType[*execd.Error](err); err != nil && (!refused || e.Code != execd.CodeAlreadyConnected) {
					t.Fatal(err)
				}
				return err == nil
			})
			again.Close()
			if err := os.WriteFile(r.work+"/go", nil, 0o644); err != nil {
				t.Fatal(err)
			}
			var st execd.TerminalStatus
			eventually(t, "the output goes on", func() bool {
				var err error
				if st, err = r.TerminalStatus(t.Context(), y.id); err != nil {
					t.Fatal(err)
				}
				return st.Offset > 1_988_895 // of seq
			})
			attachTo(t, r, y.id, execd.AttachOptions{Since: st.Offset - 1000, Takeover: true}).until("200000")
		})
	}
}

// A takeover needs no word from who is attached, and a signal none of the input
// before it.
func TestTerminalTakeoverAndSignalWhileNothingIsRead(t *testing.T) {
	r := serve(t, bestUser())
	y := sit(t, r, execd.TerminalRequest{Command: "stty raw isig -echo; echo up; exec sleep 1000"}, execd.AttachOptions{Since: 0})
	y.until("up")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	typing := make(chan error, 1)
	go func() { typing <- y.Write(ctx, []byte(strings.Repeat("x", 8<<20))) }()
	eventually(t, "it has been typed", func() bool { // more than any buffer holds
		select {
		case err := <-typing:
			t.Fatalf("8 MiB found room: %v", err)
			return false
		case <-time.After(300 * time.Millisecond):
			return true
		}
	})
	other := attachTo(t, r, y.id, execd.AttachOptions{Since: -1, Takeover: true})
	if err := other.Signal(t.Context(), "SIGINT"); err != nil {
		t.Fatal(err)
	}
	if other.until(""); *other.code != 130 {
		t.Errorf("exit code %d", *other.code)
	}
	cancel()
	<-typing
}

// Who has been taken over types nothing any more, also one who has not read of
// it, and cannot be told.
func TestTerminalTakenOverTypesNothing(t *testing.T) {
	r := serve(t, bestUser())
	y := sit(t, r, execd.TerminalRequest{Command: "stty -echo; echo up; seq 2000000; while read -r line; do echo \"got $line\"; done"}, execd.AttachOptions{Since: 0})
	y.until("up")
	if n := heldUp(t, r, y.id); n >= 14_888_896 { // as much as seq prints
		t.Fatal("all that was printed found room")
	}
	other := attachTo(t, r, y.id, execd.AttachOptions{Since: -1, Takeover: true})
	if _, err := other.Next(t.Context()); err != nil { // so it is attached
		t.Fatal(err)
	}
	for range 300 { // as long as it is connected
		if y.Write(t.Context(), []byte("mine\n")) != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	other.types("yours\n")
	if got := other.until("got yours"); strings.Contains(got, "mine") {
		t.Errorf("%q", got[max(0, len(got)-100):])
	}
}

// The two outputs of pipes are apart from the first byte on, and stay so in what
// is kept.
func TestTerminalStreamsApart(t *testing.T) {
	r := serve(t, bestUser())
	for i := range 100 {
		y := sit(t, r, execd.TerminalRequest{Command: "echo e >&2"}, execd.AttachOptions{Pipe: true, Since: int64(i%2) - 1})
		if got := y.until(""); got != "[err]e\n" {
			t.Fatalf("time %d: %q", i, got)
		}
		if err := r.DeleteTerminal(t.Context(), y.id); err != nil {
			t.Fatal(err)
		}
	}
	y := sit(t, r, execd.TerminalRequest{Command: "echo up; read x; echo late >&2; read x; echo out; exec sleep 1000"}, execd.AttachOptions{Since: 0, Pipe: true})
	y.until("up\n")
	y.types("\n")
	y.until("[err]late\n")
	y.types("\n")
	y.until("out\n")
	y.Close()
	late := attachTo(t, r, y.id, execd.AttachOptions{Since: 0, Takeover: true})
	if got := late.until("out\n"); got != "up\n[err]late\n" {
		t.Errorf("kept: %q", got)
	}
	late.Close()
	// Clients that know no more than OpenSandbox's daemon get it in one frame.
	ws, _, err := websocket.Dial(t.Context(), r.url+"/pty/"+y.id+"/ws?since=3&takeover=1", &websocket.DialOptions{
		HTTPHeader: map[string][]string{execd.TokenHeader: {testToken}}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if _, b, err := ws.Read(t.Context()); err != nil || string(b) != "\x03\x00\x00\x00\x00\x00\x00\x00\x03late\nout\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// A start that failed says so, and is tried again by who attaches again.
func TestTerminalStartFails(t *testing.T) {
	r := serve(t, bestUser())
	dir := r.work + "/there"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	id, err := r.CreateTerminal(t.Context(), execd.TerminalRequest{Command: "echo begun", Cwd: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := attachTo(t, r, id, execd.AttachOptions{Since: -1}).Next(t.Context())
		if e, ok := errors.AsType[*execd.Error](err); !ok || e.Code != execd.CodeStartFailed || e.Status != 400 {
			t.Fatalf("start in a directory that is gone: %v", err)
		}
		if st, err := r.TerminalStatus(t.Context(), id); err != nil || st.Running || st.ExitCode != nil {
			t.Fatalf("status %+v, %v", st, err)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	attachTo(t, r, id, execd.AttachOptions{Since: -1}).until("begun")
}
