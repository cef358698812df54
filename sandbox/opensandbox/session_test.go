package opensandbox_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/execd/daemon"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
)

// inSession runs a command in a session and returns its output.
func inSession(t *testing.T, sb *sandbox.Sandbox, id, shell string) (sandbox.Result, string) {
	t.Helper()
	r, err := sb.Run(t.Context(), sandbox.Command{Session: id, Shell: shell})
	if err != nil {
		t.Fatalf("%s: %v", shell, err)
	}
	return r, string(r.Stdout.Head) + string(r.Stderr.Head)
}

// Sessions of a server's own execd keep what they should. Both streams are one,
// and a variable that the execd would not take is refused.
func TestSessionOfServersExecd(t *testing.T) {
	sb := create(t, open(t, serve(t, &opensandboxtest.Server{}), nil), spec())
	id, err := sb.OpenSession(t.Context(), sandbox.SessionOptions{Cwd: "/tmp/new"}, sandbox.Access{})
	if err != nil {
		t.Fatal(err)
	}
	if _, out := inSession(t, sb, id, "export X=1; mkdir -p sub; cd sub; echo out; echo; echo err >&2"); out != "out\nerr\n" {
		t.Errorf("both streams without blank lines: %q", out)
	}
	if r, out := inSession(t, sb, id, `pwd; echo "$X"; exit 7`); out != "/tmp/new/sub\n1\n" || *r.ExitCode != 7 {
		t.Errorf("the next command: %q, %v", out, *r.ExitCode)
	}
	other, err := sb.OpenSession(t.Context(), sandbox.SessionOptions{}, sandbox.Access{})
	if err != nil {
		t.Fatal(err)
	}
	if _, out := inSession(t, sb, other, `pwd; echo "${X-unset}"`); out != sb.Info().Cwd+"\nunset\n" {
		t.Errorf("another session: %q", out)
	}
	_, err = sb.OpenSession(t.Context(), sandbox.SessionOptions{Env: map[string]string{"A": "b"}}, sandbox.Access{})
	wantRefusal(t, err, sandbox.KindUnsupported, "export")
	_, err = sb.OpenTerminal(t.Context(), sandbox.TerminalOptions{}, sandbox.Access{})
	wantRefusal(t, err, sandbox.KindUnsupported, "") // as the original on Windows
}

// A session that has ended is said to be gone, although the server's execd says
// of a command in it only that something went wrong inside.
func TestSessionGone(t *testing.T) {
	p := open(t, serve(t, &opensandboxtest.Server{}), nil)
	sb := create(t, p, spec())
	id, err := sb.OpenSession(t.Context(), sandbox.SessionOptions{}, sandbox.Access{})
	if err != nil {
		t.Fatal(err)
	}
	inSession(t, sb, id, "true")
	ep, err := p.Endpoint(t.Context(), sb.ID(), execd.Port)
	if err != nil {
		t.Fatal(err)
	}
	c := execd.NewClient(execd.Options{BaseURL: ep.BaseURL, Header: ep.Header, DialContext: ep.DialContext})
	defer c.Close()
	if err := c.DeleteSession(t.Context(), id); err != nil { // as when its execd was started again
		t.Fatal(err)
	}
	_, err = c.RunInSession(t.Context(), id, execd.RunRequest{Command: "true"}, nil)
	if e, ok := errors.AsType[*execd.Error](err); !ok || e.Status != http.StatusInternalServerError {
		t.Errorf("the execd says %v, and the original a 500", err)
	}
	_, err = sb.Run(t.Context(), sandbox.Command{Session: id, Shell: "true"})
	wantRefusal(t, err, sandbox.KindNotFound, "")
	wantRefusal(t, sb.CloseSession(t.Context(), id, sandbox.Access{}), sandbox.KindNotFound, "")
	if r, err := sb.Run(t.Context(), sandbox.Command{Shell: "exit 3"}); err != nil || *r.ExitCode != 3 {
		t.Errorf("the sandbox afterwards: %+v, %v", r.Outcome, err)
	}
}

// The original says no more of a session's command that took too long than that
// something went wrong, in the middle of a stream: its outcome is unknown.
func TestSessionTimeout(t *testing.T) {
	sb := create(t, open(t, serve(t, &opensandboxtest.Server{}), nil), spec())
	id, err := sb.OpenSession(t.Context(), sandbox.SessionOptions{}, sandbox.Access{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = sb.Run(t.Context(), sandbox.Command{Session: id, Shell: "export X=1; sleep 1000", Timeout: 100 * time.Millisecond})
	wantRefusal(t, err, sandbox.KindTimeout, "cannot be asked")
	if err == nil || !strings.Contains(err.Error(), "timeout after 100ms") {
		t.Errorf("error %v", err)
	}
	if _, out := inSession(t, sb, id, `echo "${X-unset}"`); out != "unset\n" {
		t.Errorf("the session afterwards: %q", out)
	}
}

// cancelling ends a context with the first output.
type cancelling context.CancelFunc

func (c cancelling) Write(p []byte) (int, error) { c(); return len(p), nil }

// The stream of a command in a session of the server's execd is closed at once
// when it is cancelled: that ends it, and nothing else does.
func TestSessionCancelled(t *testing.T) {
	sb := create(t, open(t, serve(t, &opensandboxtest.Server{}), nil), spec())
	id, err := sb.OpenSession(t.Context(), sandbox.SessionOptions{}, sandbox.Access{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var since time.Time
	_, err = sb.Run(ctx, sandbox.Command{Session: id, Shell: "echo started; sleep 1000", Stdout: cancelling(func() { since = time.Now(); cancel() })})
	wantRefusal(t, err, sandbox.KindTimeout, "its shell alone")
	if took := time.Since(since); !errors.Is(err, context.Canceled) || took > sandbox.InterruptTimeout*9/10 {
		t.Errorf("%v after %v", err, took)
	}
}

// Variables that the server's execd would leave out without a word are refused.
func TestNoVariables(t *testing.T) {
	s := &opensandboxtest.Server{}
	sb := create(t, open(t, serve(t, s), nil), spec())
	id, err := sb.OpenSession(t.Context(), sandbox.SessionOptions{}, sandbox.Access{})
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"A": "b"}
	_, err = sb.Run(t.Context(), sandbox.Command{Session: id, Shell: "true", Env: env})
	wantRefusal(t, err, sandbox.KindUnsupported, "export")
	_, err = sb.OpenTerminal(t.Context(), sandbox.TerminalOptions{Command: "true", Env: env}, sandbox.Access{})
	wantRefusal(t, err, sandbox.KindUnsupported, "export")
	if r, err := sb.Run(t.Context(), sandbox.Command{Shell: `test "$A" = b`, Env: env}); err != nil || !r.OK() {
		t.Errorf("outside of sessions it takes them: %+v, %v", r.Outcome, err)
	}
}

// A gateway's 404 page is no word about a file, and no reason to say that there
// is none.
func TestGatewaysPageIsNoFile(t *testing.T) {
	s := &opensandboxtest.Server{}
	sb := create(t, open(t, serve(t, s), nil), spec())
	s.Once(opensandboxtest.Command, opensandboxtest.Answer(404, "text/html", "<h1>404 Not Found</h1>"))
	_, err := sb.Run(t.Context(), sandbox.Command{Shell: "true"})
	wantRefusal(t, err, sandbox.KindTimeout, "cannot be asked")
	s.Once(opensandboxtest.Upload, opensandboxtest.Answer(404, "text/html", "<h1>404 Not Found</h1>"))
	_, err = sb.WriteFile(t.Context(), "/tmp/f", []byte("x"), sandbox.WriteOptions{})
	wantRefusal(t, err, sandbox.KindUnavailable, "")
	_, err = sb.ReadFile(t.Context(), "/tmp/f", sandbox.ReadOptions{})
	wantRefusal(t, err, sandbox.KindNotFound, "") // the execd's own word
}

// original is an execd like OpenSandbox's, with the processes of this host.
func original(t *testing.T) *execd.Client {
	t.Helper()
	machine, err := daemon.NewOS(daemon.OSOptions{Warden: []string{"/proc/self/exe", "warden"}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	d, err := daemon.New(daemon.Config{Token: "of the test", Machine: machine, StateDir: t.TempDir(), Home: dir, Cwd: dir,
		Env: map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	h := d.Handler()
	srv := httptest.NewServer(opensandboxtest.Execd{Daemon: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set(execd.TokenHeader, "of the test")
		h.ServeHTTP(w, r)
	})})
	c := execd.NewClient(execd.Options{BaseURL: srv.URL})
	t.Cleanup(func() {
		c.Close()
		srv.CloseClientConnections()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	return c
}

// Terminals of the original: all that was printed is sent to who attaches and
// does not say from where, and their status does not tell how they ended.
func TestTerminalOfServersExecd(t *testing.T) {
	c := original(t)
	id, err := c.CreateTerminal(t.Context(), execd.TerminalRequest{Command: "echo first; read x; echo got $x; exit 5"})
	if err != nil {
		t.Fatal(err)
	}
	first := attach(t, c, id, "first\n")
	_ = first.Close()
	var term *execd.Terminal
	for term == nil { // until the daemon has noticed
		if term, err = c.Attach(t.Context(), id, execd.AttachOptions{Since: -1, Pipe: true}); err != nil && !isConflict(err) {
			t.Fatal(err)
		}
	}
	defer term.Close()
	if err := term.Write(t.Context(), []byte("line\n")); err != nil {
		t.Fatal(err)
	}
	if out, code := readAll(t, term); out != "first\ngot line\n" || code != 5 {
		t.Errorf("%q, exit code %d", out, code)
	}
	if st, err := c.TerminalStatus(t.Context(), id); err != nil || st.Running || st.ExitCode != nil || st.Offset == 0 {
		t.Errorf("%+v, %v", st, err)
	}
	if err := c.DeleteTerminal(t.Context(), id); err != nil {
		t.Error(err)
	}
	if _, err := c.TerminalStatus(t.Context(), id); !execd.IsNotFound(err) {
		t.Errorf("a terminal that there is not: %v", err)
	}
}

func isConflict(err error) bool {
	e, ok := errors.AsType[*execd.Error](err)
	return ok && e.Status == http.StatusConflict
}

// attach attaches and reads until want was printed.
func attach(t *testing.T, c *execd.Client, id, want string) *execd.Terminal {
	t.Helper()
	term, err := c.Attach(t.Context(), id, execd.AttachOptions{Since: -1, Pipe: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for seen := ""; !strings.Contains(seen, want); {
		ev, err := term.Next(ctx)
		if err != nil {
			t.Fatalf("after %q: %v", seen, err)
		}
		seen += string(ev.Data)
	}
	return term
}

// readAll reads to the end.
func readAll(t *testing.T, term *execd.Terminal) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	seen := ""
	for {
		ev, err := term.Next(ctx)
		if err != nil {
			t.Fatalf("after %q: %v", seen, err)
		}
		if ev.ExitCode != nil {
			return seen, *ev.ExitCode
		}
		seen += string(ev.Data)
	}
}
