package daemon_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/rein-sh/rein/execd"
)

// typist is somebody at a terminal.
type typist struct {
	*testing.T
	*execd.Terminal
	r    *rig
	id   string
	seen strings.Builder
	code *int
}

func sit(t *testing.T, r *rig, req execd.TerminalRequest, o execd.AttachOptions) *typist {
	t.Helper()
	id, err := r.CreateTerminal(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return attachTo(t, r, id, o)
}

func attachTo(t *testing.T, r *rig, id string, o execd.AttachOptions) *typist {
	t.Helper()
	term, err := r.Attach(t.Context(), id, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { term.Close() })
	return &typist{T: t, Terminal: term, r: r, id: id}
}

func (y *typist) types(s string) {
	y.Helper()
	if err := y.Write(y.Context(), []byte(s)); err != nil {
		y.Fatal(err)
	}
}

// until reads until want has been seen, "" for the end, and forgets it.
func (y *typist) until(want string) string {
	y.Helper()
	ctx, cancel := context.WithTimeout(y.Context(), 20*time.Second)
	defer cancel()
	for {
		got := y.seen.String()
		if i := strings.Index(got, want); want != "" && i >= 0 {
			y.seen.Reset()
			y.seen.WriteString(got[i+len(want):])
			return got[:i]
		}
		e, err := y.Next(ctx)
		if err != nil {
			y.Fatalf("waiting for %q: %v; seen %q", want, err, got)
		}
		if e.ExitCode != nil {
			y.code = e.ExitCode
			if want == "" {
				return got
			}
			y.Fatalf("waiting for %q: it ended with %d; seen %q", want, *e.ExitCode, got)
		}
		if e.Stderr {
			y.seen.WriteString("[err]")
		}
		y.seen.Write(e.Data)
	}
}

const prompt = "READY> "

func shellRequest() execd.TerminalRequest {
	return execd.TerminalRequest{Command: "PS1='" + prompt + "' exec bash --norc --noprofile --noediting -i", Envs: map[string]string{"HISTFILE": ""}}
}

func TestTerminal(t *testing.T) {
	for name, opts := range users(t) {
		t.Run(name, func(t *testing.T) {
			r := serve(t, opts)
			if f, err := r.Features(t.Context()); err != nil || !f.PTY {
				t.Fatalf("features %+v, %v", f, err)
			}
			y := sit(t, r, shellRequest(), execd.AttachOptions{Since: -1, Cols: 91, Rows: 33})
			y.until(prompt)
			y.types("stty size; tty -s && echo is''tty; echo $TERM; echo t >/dev/tty\n")
			y.until("33 91\r\nistty\r\nxterm-256color\r\nt\r\n" + prompt)
			if err := y.Resize(t.Context(), 120, 40); err != nil {
				t.Fatal(err)
			}
			y.types("stty size\n")
			y.until("40 120\r\n" + prompt)

			// Job control: a controlling terminal, and its foreground.
			y.types("sh -c 'echo go''ing; exec sleep 1000'\n")
			y.until("going\r\n")
			y.types("\x03")
			y.until(prompt)
			y.types("echo code $?\n")
			y.until("code 130\r\n" + prompt)
			y.types("sh -c 'echo go''ing; exec sleep 1000'; echo code $?\n")
			y.until("going\r\n")
			if err := y.Signal(t.Context(), "SIGTERM"); err != nil {
				t.Fatal(err)
			}
			y.until("code 143\r\n" + prompt)
			if st, err := r.TerminalStatus(t.Context(), y.id); err != nil || !st.Running || st.Offset == 0 || st.ExitCode != nil {
				t.Errorf("status %+v, %v", st, err)
			}
			y.types("sleep 1000 & exit 7\n")
			y.until("")
			if *y.code != 7 {
				t.Errorf("exit code %d", *y.code)
			}
			if st, err := r.TerminalStatus(t.Context(), y.id); err != nil || st.Running || st.ExitCode == nil || *st.ExitCode != 7 {
				t.Errorf("status %+v, %v", st, err)
			}
			// Who comes later still sees it.
			late := attachTo(t, r, y.id, execd.AttachOptions{})
			if got := late.until(""); !strings.Contains(got, "33 91") || *late.code != 7 {
				t.Errorf("later: %d %q", *late.code, got)
			}
		})
	}
}

func TestTerminalDetachTakeoverReplay(t *testing.T) {
	r := serve(t, bestUser())
	y := sit(t, r, shellRequest(), execd.AttachOptions{Since: -1})
	y.until(prompt)
	_, err := r.Attach(t.Context(), y.id, execd.AttachOptions{})
	if e, ok := errors.AsType[*execd.Error](err); !ok || e.Status != 409 || e.Code != execd.CodeAlreadyConnected {
		t.Fatalf("a second: %v", err)
	}
	other := attachTo(t, r, y.id, execd.AttachOptions{Since: 0, Takeover: true})
	if _, err := y.Next(t.Context()); !errors.Is(err, execd.ErrTakenOver) {
		t.Errorf("the first: %v", err)
	}
	other.until(prompt)
	// It goes on without anybody, whatever it prints; the newest is kept.
	other.types("stty -echo; seq 1000000; echo do''ne\n")
	other.until("stty -echo")
	other.Close()
	var st execd.TerminalStatus
	for deadline := time.Now().Add(60 * time.Second); st.Offset < 7_800_000; time.Sleep(5 * time.Millisecond) {
		if st, err = r.TerminalStatus(t.Context(), y.id); err != nil || time.Now().After(deadline) {
			t.Fatalf("it stands still: %+v, %v", st, err)
		}
	}
	again := attachTo(t, r, y.id, execd.AttachOptions{Since: 5, Takeover: true})
	e, err := again.Next(t.Context())
	if err != nil || !e.Replay || e.Offset+int64(len(e.Data)) < st.Offset || len(e.Data) > execd.TerminalReplay || e.Offset <= 5 {
		t.Fatalf("replay of %d bytes from %d of %d: %v", len(e.Data), e.Offset, st.Offset, err)
	}
	again.seen.Write(e.Data)
	if got := again.until("done\r\n" + prompt); !strings.HasSuffix(got, "999999\r\n1000000\r\n") {
		t.Errorf("kept: …%q", got[max(0, len(got)-40):])
	}
	if err := r.DeleteTerminal(t.Context(), y.id); err != nil {
		t.Fatal(err)
	}
	again.until("")
	if *again.code != 129 && *again.code != 137 {
		t.Errorf("ended by its deletion: %d", *again.code)
	}
	if _, err := r.TerminalStatus(t.Context(), y.id); !execd.IsNotFound(err) {
		t.Errorf("after its deletion: %v", err)
	}
}

func TestTerminalWithPipes(t *testing.T) {
	r := serve(t, bestUser())
	y := sit(t, r, execd.TerminalRequest{Command: "cat; echo e >&2; exit 3"}, execd.AttachOptions{Pipe: true, Since: -1})
	text := strings.Repeat("0123456789abcdef", 64<<10) // more than any pipe holds
	y.types(text)
	if err := y.CloseInput(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := y.until(""); strings.Replace(got, "[err]e\n", "", 1) != text || !strings.Contains(got, "[err]e\n") || *y.code != 3 || !y.Pipe {
		t.Errorf("%d bytes, code %d", len(got), *y.code)
	}
	y = sit(t, r, execd.TerminalRequest{}, execd.AttachOptions{Pipe: true, Since: -1})
	y.types("echo $((6*7)); exit 4\n")
	if got := y.until(""); got != "42\n" || *y.code != 4 {
		t.Errorf("a shell with pipes: %q, %d", got, *y.code)
	}
	y = sit(t, r, execd.TerminalRequest{Command: "kill -TERM $$"}, execd.AttachOptions{Pipe: true, Since: -1})
	if y.until(""); *y.code != 143 {
		t.Errorf("by a signal: %d", *y.code)
	}
}

func TestTerminalRefusals(t *testing.T) {
	r := serve(t, bestUser())
	for _, c := range []struct {
		method, route, body string
		status              int
		code                string
	}{
		{"POST", "/pty", `{"cwd":"/no/such"}`, 400, execd.CodeInvalidBody},
		{"POST", "/pty", `{"command":"a\u0000"}`, 400, execd.CodeInvalidBody},
		{"POST", "/pty", `{"envs":{"A=":"b"}}`, 400, execd.CodeInvalidBody},
		{"GET", "/pty/none", ``, 404, execd.CodeSessionNotFound},
		{"GET", "/pty/none/ws", ``, 404, execd.CodeSessionNotFound},
		{"DELETE", "/pty/none", ``, 404, execd.CodeSessionNotFound},
	} {
		resp := request(t, r, c.method, c.route, strings.NewReader(c.body), nil)
		wantError(t, c.method+" "+c.route+" "+c.body, resp, c.status, c.code)
	}
	var id string
	for range execd.MaxTerminals {
		var err error
		if id, err = r.CreateTerminal(t.Context(), execd.TerminalRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := r.CreateTerminal(t.Context(), execd.TerminalRequest{})
	if e, ok := errors.AsType[*execd.Error](err); !ok || e.Status != 429 {
		t.Errorf("one too many: %v", err)
	}
	for _, q := range []string{"since=-1", "since=x", "cols=0&rows=1", "cols=1", "rows=99999&cols=1"} {
		resp := request(t, r, "GET", "/pty/"+id+"/ws?"+q, nil, nil)
		wantError(t, q, resp, 400, execd.CodeInvalidQuery)
	}
	// What is no message is said to be none, and changes nothing.
	header := map[string][]string{execd.TokenHeader: {testToken}}
	ws, _, err := websocket.Dial(t.Context(), r.url+"/pty/"+id+"/ws", &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	for _, m := range []struct {
		kind websocket.MessageType
		data string
	}{
		{websocket.MessageText, "{"}, {websocket.MessageText, `{"type":"what"}`}, {websocket.MessageText, `{"type":"signal","signal":"SIGSTOP"}`},
		{websocket.MessageText, `{"type":"resize","cols":-1,"rows":5}`}, {websocket.MessageBinary, ""}, {websocket.MessageBinary, "\x01x"},
	} {
		if err := ws.Write(t.Context(), m.kind, []byte(m.data)); err != nil {
			t.Fatal(err)
		}
		for answered := false; !answered; {
			kind, b, err := ws.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			answered = kind == websocket.MessageText && strings.Contains(string(b), execd.CodeInvalidFrame)
		}
	}
}

// heldUp waits until a program that prints much is held up by who is attached: it
// has printed, and prints no more.
func heldUp(t *testing.T, r *rig, id string) (printed int64) {
	t.Helper()
	for still := 0; still < 20; time.Sleep(10 * time.Millisecond) {
		st, err := r.TerminalStatus(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if still++; st.Offset != printed || printed < 256<<10 {
			printed, still = st.Offset, 0
		}
		if st.Offset > 64<<20 {
			t.Fatal("it is not held up")
		}
	}
	return printed
}

// A reader that takes nothing holds the program up, and neither the daemon's
// memory nor the next one to attach.
func TestTerminalSlowReader(t *testing.T) {
	r := serve(t, bestUser())
	y := sit(t, r, execd.TerminalRequest{Command: "yes"}, execd.AttachOptions{Since: -1})
	heldUp(t, r, y.id)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	o := attachTo(t, r, y.id, execd.AttachOptions{Since: 0, Takeover: true})
	for n := 0; n < 4<<20; {
		e, err := o.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		n += len(e.Data)
	}
	if err := r.DeleteTerminal(ctx, y.id); err != nil {
		t.Error(err)
	}
}

func FuzzTerminalFrame(f *testing.F) {
	r := serve(f, bestUser())
	id, err := r.CreateTerminal(f.Context(), execd.TerminalRequest{Command: "exec cat >/dev/null"})
	if err != nil {
		f.Fatal(err)
	}
	ws, _, err := websocket.Dial(f.Context(), r.url+"/pty/"+id+"/ws?pty=0", &websocket.DialOptions{
		HTTPHeader: map[string][]string{execd.TokenHeader: {testToken}}})
	if err != nil {
		f.Fatal(err)
	}
	defer ws.CloseNow()
	f.Add(true, []byte(`{"type":"resize","cols":1,"rows":1}`))
	f.Add(true, []byte(`{"type":"stdin","data":"x"}`))
	f.Add(false, []byte("\x00x"))
	f.Fuzz(func(t *testing.T, text bool, b []byte) {
		if strings.Contains(strings.ToLower(string(b)), "eof") || strings.Contains(strings.ToLower(string(b)), "signal") {
			return // what ends the program
		}
		kind := websocket.MessageBinary
		if text {
			kind = websocket.MessageText
		}
		if err := ws.Write(t.Context(), kind, b); err != nil {
			t.Fatal(err)
		}
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"ping"}`)); err != nil {
			t.Fatal(err)
		}
		for {
			_, b, err := ws.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if string(b) == `{"type":"pong"}` {
				return
			}
		}
	})
}
