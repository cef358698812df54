package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes this test binary stand in for rein, so that the scripts run
// the code under test, with the race detector when the tests have it.
// Sandboxes are real: rein's other programs are those of the build.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"rein": main})
}

// binaries is the directory with rein-keep, rein-execd and rein-runsc. What is missing is
// built, as make build does it.
func binaries(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("REIN_TEST_BIN")
	if dir == "" {
		dir = filepath.Join("..", "..", "bin")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rein-keep", "rein-execd", "rein-runsc"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		t.Logf("building %s", path)
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "../"+name)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("make build makes %s; building it here failed: %v\n%s", name, err, out)
		}
	}
	return dir
}

func TestScripts(t *testing.T) {
	bin := binaries(t)
	examples, err := filepath.Abs(filepath.Join("..", "..", "examples"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", e.Getenv("PATH")+string(filepath.ListSeparator)+bin)
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("EXAMPLES", examples)
			e.Setenv("XDG_CONFIG_HOME", "")
			e.Setenv("XDG_STATE_HOME", "")
			e.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector sleeps a second in every rein that ends well
			e.Defer(func() { endAll(t, e) })
			return os.MkdirAll(filepath.Join(e.WorkDir, "home"), 0o700)
		},
		Condition: condition(bin),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": code, "keep": keep, "waitfor": waitFor, "goneafter": goneAfter, "registry": registryCommand,
			"pane": pane, "opensandbox": openSandbox, "webhook": webhookCommand, "documented": documented, "world": worldCommand, "npm": npmCommand,
		},
	})
}

// condition knows which runtimes are on this machine.
func condition(bin string) func(string) (bool, error) {
	return func(name string) (bool, error) {
		switch name {
		case "ci":
			return os.Getenv("CI") == "true", nil
		case "runc":
			_, err := exec.LookPath("runc")
			return err == nil, nil
		}
		return false, fmt.Errorf("no condition %q", name)
	}
}

// endAll ends what a failed script left behind.
func endAll(t *testing.T, e *testscript.Env) {
	if socket := filepath.Join(e.WorkDir, "tmux"); exists(socket) { // of pane
		_ = exec.Command("tmux", "-S", socket, "kill-server").Run() // it ends by itself with its last window
	}
	if _, err := os.Stat(filepath.Join(e.WorkDir, "home", ".local", "state", "rein", "live")); err != nil {
		return
	}
	cmd := exec.Command("rein", "sandbox", "gc", "--all")
	cmd.Env = e.Vars
	cmd.Path = lookPath(e.Getenv("PATH"), "rein")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("clean-up: %v\n%s", err, out)
	}
}

func lookPath(path, name string) string {
	for _, dir := range filepath.SplitList(path) {
		if p := filepath.Join(dir, name); exists(p) {
			return p
		}
	}
	return name
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// code N COMMAND... runs a command that must exit with N.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		got = e.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// keep NAME [FIELD] sets a variable to a word of the last line of stdout or,
// with a leading 2, of stderr: the last word, or the one after FIELD.
func keep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: keep NAME [2] [FIELD]")
	}
	stream := "stdout"
	name, args := args[0], args[1:]
	if len(args) > 0 && args[0] == "2" {
		stream, args = "stderr", args[1:]
	}
	text := strings.TrimSpace(ts.ReadFile(stream))
	lines := strings.Split(text, "\n")
	words := strings.Fields(lines[len(lines)-1])
	if len(words) == 0 {
		ts.Fatalf("%s is empty", stream)
	}
	value := words[len(words)-1]
	if len(args) > 0 {
		value = ""
		for i, w := range words[:len(words)-1] {
			if w == args[0] {
				value = words[i+1]
			}
		}
		if value == "" {
			ts.Fatalf("no %q in %q", args[0], lines[len(lines)-1])
		}
	}
	ts.Setenv(name, value)
}

// waitFor FILE waits until a file is there and not empty.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfor FILE")
	}
	path := ts.MkAbs(args[0])
	poll(ts, args[0]+" did not appear", func() bool {
		st, err := os.Stat(path)
		return err == nil && st.Size() > 0
	})
}

// goneAfter DIR waits until a directory is empty or gone.
func goneAfter(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: goneafter DIR")
	}
	path := ts.MkAbs(args[0])
	poll(ts, args[0]+" is not empty", func() bool {
		entries, err := os.ReadDir(path)
		return err != nil || len(entries) == 0
	})
}

// pane REGEXP waits until the screen of the tmux with the socket $TMUX_SOCKET,
// colours included, matches.
func pane(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: pane REGEXP")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	var shown string
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if ts.Exec("tmux", "-S", ts.Getenv("TMUX_SOCKET"), "capture-pane", "-p", "-e") == nil {
			shown = ts.ReadFile("stdout")
		}
		if want.MatchString(shown) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("the screen does not match %s:\n%s", args[0], shown)
		}
	}
}

func poll(ts *testscript.TestScript, failure string, done func() bool) {
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("%s", failure)
		}
	}
}
