package daemon_test

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rein-sh/rein/execd/daemon"
)

// users are the ways commands can run on this machine, root or not.
func users(t testing.TB) map[string]daemon.OSOptions {
	t.Helper()
	m := map[string]daemon.OSOptions{"own user": {}}
	if os.Geteuid() == 0 {
		m["other user"] = daemon.OSOptions{User: &daemon.User{UID: 61234, GID: 61235}}
		m["nested"] = daemon.OSOptions{Nested: true}
	}
	return m
}

func newOS(t *testing.T, opts daemon.OSOptions) *daemon.OS {
	t.Helper()
	opts.Warden = wardenArgs
	opts.Dir = publicDir(t)
	m, err := daemon.NewOS(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// publicDir is a directory that every user can pass through.
func publicDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "execd-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

var testEnv = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/"}

var nextID = make(chan int, 1)

func init() { nextID <- 0 }

func newID() string {
	n := <-nextID
	nextID <- n + 1
	return "t" + string(rune('a'+n%26)) + time.Now().Format("150405.000000000")
}

func start(t *testing.T, m daemon.Machine, command string) daemon.Process {
	t.Helper()
	p, err := m.Start(daemon.Spec{ID: newID(), Command: command, Dir: "/", Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// output runs a command to its end and returns both streams and how it ended.
func output(t *testing.T, m daemon.Machine, command string) (string, string, daemon.Exit) {
	t.Helper()
	p := start(t, m, command)
	errc := make(chan string)
	go func() {
		b, _ := io.ReadAll(p.Stderr())
		errc <- string(b)
	}()
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	stderr := <-errc
	await(t, p.Done(), "the end of "+command)
	await(t, p.Gone(), "the end of everything of "+command)
	return string(out), stderr, p.Exit()
}

func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("waited 20 s for %s", what)
	}
}

func TestOSRunsCommands(t *testing.T) {
	for name, opts := range users(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newOS(t, opts)
			for _, c := range []struct {
				command, stdout, stderr string
				code                    int
				signal                  syscall.Signal
			}{
				{"echo out; echo err >&2; exit 3", "out\n", "err\n", 3, 0},
				{"kill -9 $$", "", "", 0, syscall.SIGKILL},
				{"kill -TERM $$", "", "", 0, syscall.SIGTERM},
				{"read line; echo \"[$line] $?\"", "[] 1\n", "", 0, 0},
				{"umask; ulimit -c; pwd", "0022\n0\n/\n", "", 0, 0},
				{"ls /proc/self/fd | tr '\\n' ' '", "0 1 2 3 ", "", 0, 0},
				{"grep -E 'Cap(Inh|Prm|Eff|Amb)|NoNewPrivs' /proc/self/status | tr -d '\\t\\n'",
					"CapInh:0000000000000000CapPrm:0000000000000000CapEff:0000000000000000CapAmb:0000000000000000NoNewPrivs:1", "", 0, 0},
				{"sleep 0.01 & exit 0", "", "", 0, 0},
			} {
				if opts.User == nil && !opts.Nested && os.Geteuid() == 0 && strings.Contains(c.command, "Cap") {
					continue // root's own commands, only in tests
				}
				out, errs, exit := output(t, m, c.command)
				if out != c.stdout || errs != c.stderr || exit.Code != c.code || exit.Signal != c.signal || exit.Err != nil {
					t.Errorf("%s:\n got %q %q %+v\nwant %q %q code %d signal %v", c.command, out, errs, exit, c.stdout, c.stderr, c.code, c.signal)
				}
			}
		})
	}
}

// The counter of the sandbox's cgroup says whether a SIGKILL was for memory.
func TestOOMFlag(t *testing.T) {
	events, err := os.CreateTemp(t.TempDir(), "memory.events")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	set := func(n string) {
		t.Helper()
		if _, err := events.WriteAt([]byte("low 0\noom 3\noom_kill "+n+"\n"), 0); err != nil {
			t.Fatal(err)
		}
	}
	set("1")
	m := newOS(t, daemon.OSOptions{OOMEvents: events})
	if !m.Traits().OOMFlag {
		t.Error("no flag")
	}
	for _, c := range []struct {
		command string
		count   string // after the start
		kill    bool
		want    bool
	}{
		{"sleep 0.2; kill -9 $$", "2", false, true},
		{"sleep 0.2; sh -c 'kill -9 $$'; exit $?", "3", false, true},
		{"sleep 0.2; kill -9 $$", "3", false, false},
		{"sleep 0.2; exit 1", "4", false, false},
		{"sleep 100", "5", true, false},
	} {
		p := start(t, m, c.command)
		set(c.count)
		if c.kill {
			p.Kill()
		}
		await(t, p.Gone(), c.command)
		if e := p.Exit(); e.OOMKilled != c.want {
			t.Errorf("%s with count %s: %+v", c.command, c.count, e)
		}
		p.Stdout().Close()
		p.Stderr().Close()
	}
}

// Under the same uid a command can set its warden's limits; the next command
// has another warden.
func TestCommandCannotSpoilTheNext(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a nested pid namespace takes root: this is tested as root, and in a user namespace by cmd/rein-execd")
	}
	m := newOS(t, daemon.OSOptions{Nested: true})
	p := start(t, m, "prlimit --pid 1 --nofile=0:0")
	<-p.Done()
	if e := p.Exit(); e.Code != 0 || e.Err != nil {
		t.Fatalf("%+v", e)
	}
	<-p.Gone()
	for range 3 {
		p := start(t, m, "echo alive")
		out, err := io.ReadAll(p.Stdout())
		if err != nil || string(out) != "alive\n" {
			t.Errorf("%q, %v", out, err)
		}
		<-p.Gone()
	}
}
