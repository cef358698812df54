package daemon

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

// Where there is no shell a program is started all the same, when nothing in its
// command asks for one.
func TestWithoutAnyShell(t *testing.T) {
	m, err := NewOS(OSOptions{Warden: []string{"/proc/self/exe", "warden"}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.shells = nil
	env := []string{"PATH=/gone:/usr/bin:/bin", "A=1"}
	for command, want := range map[string]string{
		"echo x":               "x\n",
		"/bin/echo 'a  b' \\'": "a  b '\n",
		"'env'":                "PATH=/gone:/usr/bin:/bin\nA=1\n",
		"test x = x":           "",
	} {
		p, err := m.Start(Spec{ID: "c", Command: command, Dir: "/", Env: env})
		if err != nil {
			t.Fatalf("%q: %v", command, err)
		}
		go io.Copy(io.Discard, p.Stderr())
		out, err := io.ReadAll(p.Stdout())
		<-p.Gone()
		if string(out) != want || err != nil || p.Exit().Code != 0 {
			t.Errorf("%q: %q, %v, exit code %d", command, out, err, p.Exit().Code)
		}
	}
	for _, command := range []string{"", "echo $A", "ls | cat", "no-such-program", "/no/such/program", "''"} {
		if _, err := m.Start(Spec{ID: "c", Command: command, Dir: "/", Env: env}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "no shell") {
			t.Errorf("%q: %v", command, err)
		}
		if _, err := m.StartInteractive(Spec{ID: "t", Command: command, Dir: "/", Env: env}, nil); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q with a terminal: %v", command, err)
		}
	}
	if _, err := m.Start(Spec{ID: "s", Command: "true", Dir: "/", Env: env, KeepState: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a session: %v", err)
	}
	var start *StartError
	if _, err := m.Start(Spec{ID: "d", Command: "true", Dir: "/gone", Env: env}); !errors.As(err, &start) {
		t.Errorf("in a directory that is gone: %v", err)
	}
	p, err := m.StartInteractive(Spec{ID: "t", Command: "cat", Dir: "/", Env: env}, nil)
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, p.Stderr())
	io.WriteString(p.Input(), "typed")
	p.Input().Close()
	if out, _ := io.ReadAll(p.Stdout()); string(out) != "typed" {
		t.Errorf("%q", out)
	}
	<-p.Gone()
}

// Words that are quoted again are the same words.
func FuzzPlainWords(f *testing.F) {
	for _, s := range []string{"", "ls -l", "a'b c'\\'d", "'", "\\", "'\xff'", "'' ''"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, command string) {
		words, ok := plainWords(command)
		if !ok {
			return
		}
		var again []string
		for _, w := range words {
			again = append(again, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
		if got, ok := plainWords(strings.Join(again, " ")); !ok || !slices.Equal(got, words) {
			t.Errorf("%q: %q, then %q", command, words, got)
		}
	})
}
