package daemon

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A program and its arguments are started as they are: what a shell would make
// something of, and what makes bash the one to start, is like anything else.
func TestArgv(t *testing.T) {
	dir := programs(t)
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o711); err != nil {
		t.Fatal(err)
	}
	m, err := NewOS(OSOptions{Warden: []string{"/proc/self/exe", "warden"}, Dir: state})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	env := []string{"PATH=/gone:" + dir + "/bin:/usr/bin:/bin", "BASH_FUNC_env%%=() { echo a function; }", "SHELL=/x"}
	for _, c := range []struct {
		argv     []string
		out, err string
		code     int
	}{
		{[]string{"printf", "<%s>", "\x01\x7f", "$HOME", "a b", "'", "*", "\xff", ""}, "<\x01\x7f><$HOME><a b><'><*><\xff><>", "", 0},
		{[]string{dir + "/bin/fails"}, "out\n", "err\n", 3},
		{[]string{"./bin/true"}, "mine\n", "", 5},
		{[]string{"true"}, "mine\n", "", 5}, // no builtin
		{[]string{"bash", "-c", "echo $0 $1", "a", "b"}, "a b\n", "", 0},
		{[]string{"no-such-program"}, "", "no-such-program: cannot be started: no such file or directory\n", 127},
		{[]string{dir + "/gone"}, "", dir + "/gone: cannot be started: no such file or directory\n", 127},
		{[]string{dir + "/bin/lost"}, "", dir + "/bin/lost: cannot be started: no such file or directory\n", 127},
		{[]string{dir + "/bin/bare"}, "", dir + "/bin/bare: cannot be started: exec format error\n", 126},
		{[]string{dir + "/bin/folder"}, "", dir + "/bin/folder: cannot be started: permission denied\n", 126},
		{[]string{"env"}, strings.Join(env, "\n") + "\nPWD=" + dir + "\n", "", 0},
	} {
		p, err := m.Start(Spec{ID: "a", Command: "exit 77", Argv: c.argv, Dir: dir, Env: env})
		if err != nil {
			t.Errorf("%q: %v", c.argv, err)
			continue
		}
		said := make(chan []byte)
		go func() {
			b, _ := io.ReadAll(p.Stderr())
			said <- b
		}()
		out, _ := io.ReadAll(p.Stdout())
		stderr := <-said
		<-p.Gone()
		if string(out) != c.out || string(stderr) != c.err || p.Exit().Code != c.code {
			t.Errorf("%q: %q, %q, exit code %d", c.argv, out, stderr, p.Exit().Code)
		}
	}
	var start *StartError
	if _, err := m.Start(Spec{ID: "a", Argv: []string{"env"}, Dir: dir + "/gone", Env: env}); !errors.As(err, &start) {
		t.Errorf("in a directory that is gone: %v", err)
	}
}

// A program by its name alone is none that the user may have put there.
func TestFixedPrograms(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "execd-test-") // which is sticky: others cannot replace what is in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	own := uint32(os.Geteuid())
	group := uint32(os.Getegid())
	for _, d := range []string{"", "plain", "open", "group", "sticky"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(base, d), 0o755), os.Chmod(filepath.Join(base, d),
			map[string]os.FileMode{"open": 0o777, "group": 0o775, "sticky": 0o777 | os.ModeSticky}[d]|0o755)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(base, d, "p"), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(base+"/plain/loose", nil, 0o755), os.Chmod(base+"/plain/loose", 0o757), os.Symlink("../open/p", base+"/plain/over"),
		os.Symlink("p", base+"/plain/link"), os.Symlink("loop", base+"/plain/loop"), os.Symlink("plain", base+"/dir"), os.Symlink("../plain/p", base+"/open/back")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"plain/p": true, "open/p": false, "group/p": false, "sticky/p": true, "plain/loose": false, "plain/over": false,
		"plain/link": true, "plain/loop": false, "dir/p": true, "dir/link": true, "open/back": false, "plain/gone": false} {
		req := wardenRequest{Switch: true, UID: own + 4242, GID: group}
		if got := req.fixed(filepath.Join(base, name)); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if owner := (wardenRequest{Switch: true, UID: own, GID: group}); own != 0 && owner.fixed(base+"/plain/p") {
		t.Error("who owns it can change it")
	}
	if os.Geteuid() != 0 {
		return
	}
	if changeable(&unix.Stat_t{Mode: unix.S_IFDIR | 0o755}, 4242, nil) {
		t.Error("root's own directory")
	}
	m := &OS{opts: OSOptions{User: &User{UID: 4242, GID: 4242}}}
	spec := Spec{ID: "a", Argv: []string{"p"}, Fixed: true, Env: []string{"PATH=" + base + "/open:" + base + "/plain:relative"}}
	if req, err := m.argv(spec); err != nil || req.Path != base+"/plain/p" {
		t.Errorf("%s, %v", req.Path, err)
	}
	spec.Env = []string{"PATH=" + base + "/open"}
	if _, err := m.argv(spec); err == nil || !strings.Contains(err.Error(), "absolute path") {
		t.Errorf("%v", err)
	}
	spec.Argv = []string{base + "/open/p"}
	if req, err := m.argv(spec); err != nil || req.Path != spec.Argv[0] {
		t.Errorf("a path is what was asked for: %v", err)
	}
}
