package sandboxtest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// sessionCases are about commands that share a shell's state, and terminals.
func sessionCases() []Case {
	sessions := caps(sandbox.CapExec, sandbox.CapFiles, sandbox.CapSessions)
	pty := caps(sandbox.CapExec, sandbox.CapFiles, sandbox.CapPTY)
	return []Case{
		{Name: "sessions/keep directory and variables", Needs: sessions, run: sessionState},
		{Name: "sessions/streams apart", Needs: caps(sandbox.CapSessions, sandbox.CapStderrInSessions), run: sessionStreams},
		{Name: "sessions/timeout ends all of it", Needs: caps(sandbox.CapSessions, sandbox.CapProcesses, sandbox.CapFiles), breaks: true, run: sessionTimeout},
		{Name: "sessions/one command at a time", Needs: sessions, breaks: true, run: sessionBusy},
		{Name: "sessions/call ids", Needs: append(sessions, sandbox.CapCallIDs), run: sessionCallIDs},
		{Name: "sessions/closed", Needs: sessions, run: sessionClosed},
		{Name: "pty/a shell", Needs: pty, run: ptyShell},
		{Name: "pty/detach and attach", Needs: pty, run: ptyDetach},
		{Name: "pty/pipes", Needs: pty, run: ptyPipes},
		{Name: "pty/close ends all of it", Needs: append(pty, sandbox.CapProcesses), run: ptyClose},
	}
}

func (e *env) session() string {
	e.Helper()
	id, err := e.OpenSession(e.Context(), sandbox.SessionOptions{Cwd: e.dir, Env: map[string]string{"GIVEN": envValue}}, sandbox.Access{})
	e.must(err)
	e.Cleanup(func() { _ = e.CloseSession(context.Background(), id, sandbox.Access{}) })
	return id
}

func sessionState(e *env) {
	id, other := e.session(), e.session()
	r := e.command(sandbox.Command{Session: id, Shell: "mkdir -p sub; cd sub; export X='a\nb'; exit 7"})
	e.wantExit(r, 7)
	if r.Session == nil || !r.Session.Kept || r.Session.Cwd != e.dir+"/sub" {
		e.Errorf("state %+v", r.Session)
	}
	e.equal("next", stdout(e.command(sandbox.Command{Session: id, Shell: `pwd; printf '%s|%s' "$X" "$GIVEN"`})), e.dir+"/sub\na\nb|"+envValue)
	e.equal("other", stdout(e.command(sandbox.Command{Session: other, Shell: `pwd; echo "${X-unset}"`})), e.dir+"\nunset\n")
	e.command(sandbox.Command{Session: id, Cwd: "/", Shell: "true"})
	e.equal("a cwd stays", stdout(e.command(sandbox.Command{Session: id, Shell: "pwd"})), "/\n")
	e.equal("no session", stdout(e.command(sandbox.Command{Shell: `echo "${X-unset}"`})), "unset\n")
}

func sessionStreams(e *env) {
	r := e.command(sandbox.Command{Session: e.session(), Shell: "echo out; echo err >&2"})
	e.equal("stdout", stdout(r), "out\n")
	e.equal("stderr", stderr(r), "err\n")
}

func sessionTimeout(e *env) {
	id := e.session()
	start := time.Now()
	r := e.command(sandbox.Command{Session: id, Shell: "export X=1; (sleep 3; echo alive > late) & setsid sleep 1000 & sleep 1000", Timeout: 500 * time.Millisecond})
	if !r.TimedOut() || time.Since(start) > e.scale(10*time.Second) {
		e.Errorf("after %v: %s", time.Since(start), describe(r))
	}
	e.equal("the session", stdout(e.command(sandbox.Command{Session: id, Shell: `sleep 3.5; echo "${X-unset}"; cat late 2>/dev/null`})), "unset\n")
}

func sessionBusy(e *env) {
	id := e.session()
	ctx, cancel := context.WithCancel(e.Context())
	done := make(chan error, 1)
	go func() {
		_, err := e.Sandbox.Run(ctx, sandbox.Command{Session: id, Shell: "touch begun; sleep 1000", Timeout: e.scale(60 * time.Second)})
		done <- err
	}()
	e.sh("until [ -e begun ]; do sleep 0.01; done")
	_, err := e.Sandbox.Run(e.Context(), sandbox.Command{Session: id, Shell: "true"})
	e.wantKind(err, sandbox.KindConflict)
	cancel()
	e.wantKind(<-done, sandbox.KindTimeout)
	e.wantExit(e.command(sandbox.Command{Session: id, Shell: "exit 3"}), 3)
}

func sessionCallIDs(e *env) {
	c := sandbox.Command{CallID: e.id("session"), Session: e.session(), Shell: "echo ran >> runs; export N=1$N; echo $N"}
	first, second := e.command(c), e.command(c)
	e.equal("first", stdout(first), "1\n")
	e.equal("second", stdout(second), "1\n")
	if first.Known || !second.Known {
		e.Errorf("known: %v, %v", first.Known, second.Known)
	}
	e.equal("runs", e.get(e.dir+"/runs"), "ran\n")
}

func sessionClosed(e *env) {
	id := e.session()
	e.must(e.CloseSession(e.Context(), id, sandbox.Access{}))
	_, err := e.Sandbox.Run(e.Context(), sandbox.Command{Session: id, Shell: "true"})
	e.wantKind(err, sandbox.KindNotFound)
	e.wantKind(e.CloseSession(e.Context(), id, sandbox.Access{}), sandbox.KindNotFound)
	_, err = e.Sandbox.Run(e.Context(), sandbox.Command{Session: e.session(), Shell: "true", Background: true})
	e.wantKind(err, sandbox.KindInvalid)
}

// screen is somebody attached to a terminal.
type screen struct {
	*env
	*sandbox.Terminal
	seen string
	code *int
}

func (e *env) attachTerminal(id string, o execd.AttachOptions) *screen {
	e.Helper()
	t, err := e.Sandbox.AttachTerminal(e.Context(), id, o, sandbox.Access{})
	e.must(err)
	e.Cleanup(func() { _ = t.Close() })
	return &screen{env: e, Terminal: t}
}

func (e *env) openTerminal(command string) string {
	e.Helper()
	id, err := e.OpenTerminal(e.Context(), sandbox.TerminalOptions{Command: command, Cwd: e.dir}, sandbox.Access{})
	e.must(err)
	e.Cleanup(func() { _ = e.CloseTerminal(context.Background(), id, sandbox.Access{}) })
	return id
}

// until reads until want was printed, or with "" to the end.
func (s *screen) until(want string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), s.scale(30*time.Second))
	defer cancel()
	for want == "" || !strings.Contains(s.seen, want) {
		ev, err := s.Next(ctx)
		if err != nil {
			s.Fatalf("waiting for %q: %v; seen %q", want, err, s.seen)
		}
		if ev.ExitCode != nil {
			if s.code = ev.ExitCode; want != "" {
				s.Fatalf("waiting for %q: it ended with %d; seen %q", want, *s.code, s.seen)
			}
			return
		}
		s.seen += string(ev.Data)
	}
	_, s.seen, _ = strings.Cut(s.seen, want)
}

func (s *screen) types(text string) {
	s.Helper()
	s.must(s.Write(s.Context(), []byte(text)))
}

// plainShell is a shell with a prompt to wait for. The quotes keep what is typed
// from being taken for what is printed.
const plainShell = "PS1='at your service> ' exec sh -i"

func ptyShell(e *env) {
	s := e.attachTerminal(e.openTerminal(plainShell), execd.AttachOptions{Since: -1, Cols: 93, Rows: 31})
	s.until("service> ")
	s.types("stty size; tty -s && echo ter''minal; echo $TERM; echo by''name >/dev/tty; pwd\n")
	s.until("31 93\r\nterminal\r\nxterm-256color\r\nbyname\r\n" + e.dir + "\r\n")
	s.until("service> ")
	s.must(s.Resize(e.Context(), 120, 40))
	s.types("stty size\n")
	s.until("40 120\r\n")
	s.types("sh -c 'echo go''ing; exec sleep 1000'\n")
	s.until("going\r\n")
	s.types("\x03") // the terminal makes a signal of it
	s.until("service> ")
	for range 2 {
		s.types("echo code $?; sh -c 'echo go''ing; exec sleep 1000'\n")
		s.until("code 130\r\n")
		s.until("going\r\n")
		s.must(s.Signal(e.Context(), "SIGINT"))
		s.until("service> ")
	}
	s.types("exit 9\n")
	s.until("")
	e.equal("exit code", *s.code, 9)
}

func ptyDetach(e *env) {
	id := e.openTerminal(plainShell)
	s := e.attachTerminal(id, execd.AttachOptions{Since: -1})
	s.until("service> ")
	_, err := e.AttachTerminal(e.Context(), id, execd.AttachOptions{}, sandbox.Access{})
	e.wantKind(err, sandbox.KindConflict)
	s.types("until [ -e go ]; do sleep 0.02; done; echo me''anwhile\n")
	s.until("\r\n")
	s.must(s.Close())
	e.sh("touch go")
	const shown = "at your service> until [ -e go ]; do sleep 0.02; done; echo me''anwhile\r\nmeanwhile\r\n"
	e.eventually(30*time.Second, "it goes on without anybody", func() bool {
		st, err := e.TerminalStatus(e.Context(), id)
		e.must(err)
		return st.Offset > int64(len(shown))
	})
	s = e.attachTerminal(id, execd.AttachOptions{Since: 0, Takeover: true})
	s.until("meanwhile\r\n")
	s.until("service> ")
	other := e.attachTerminal(id, execd.AttachOptions{Since: 0, Takeover: true})
	for err = nil; err == nil; {
		_, err = s.Next(e.Context())
	}
	if !errors.Is(err, execd.ErrTakenOver) {
		e.Errorf("taken over: %v", err)
	}
	other.types("exit\n")
	other.until("")
}

func ptyPipes(e *env) {
	s := e.attachTerminal(e.openTerminal("cat; echo error >&2; exit 5"), execd.AttachOptions{Since: -1, Pipe: true})
	text := strings.Repeat("line of text\n", 20_000)
	s.types(text)
	s.must(s.CloseInput(e.Context()))
	s.until("")
	if got := strings.Replace(s.seen, "error\n", "", 1); got != text || *s.code != 5 {
		e.Errorf("%d bytes, exit code %d", len(got), *s.code)
	}
}

func ptyClose(e *env) {
	id := e.openTerminal("trap '' HUP; setsid sh -c 'while :; do echo x >>beat; sleep 0.05; done' & wait")
	e.attachTerminal(id, execd.AttachOptions{Since: -1})
	e.appears("beat")
	e.must(e.CloseTerminal(e.Context(), id, sandbox.Access{}))
	e.still()
	_, err := e.TerminalStatus(e.Context(), id)
	e.wantKind(err, sandbox.KindNotFound)
}
