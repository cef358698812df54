package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// StateOfShell runs a command with another shell than bash, with the trap in
// front, and returns the directory and the variable A that it left.
func StateOfShell(t *testing.T, shell, dir, command string) string {
	t.Helper()
	files := &commandFiles{statePath: filepath.Join(dir, "x.st")}
	req := wardenRequest{Path: shell}
	if err := (&OS{}).trapInFront(Spec{Command: command}, &req, files); err != nil {
		t.Fatal(err)
	}
	req.Args[0] = "sh" // for busybox
	cmd := exec.Cmd{Path: shell, Args: req.Args, Env: []string{"PATH=/usr/bin:/bin"}}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 5 || len(out) > 0 {
		t.Errorf("%s: %v, %q", shell, err, out)
	}
	b, err := os.ReadFile(files.statePath)
	if err != nil {
		t.Fatal(err)
	}
	got, env, err := parseState(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range env {
		if strings.HasPrefix(kv, "A=") {
			got += " " + kv
		}
	}
	return got
}

func FuzzParseState(f *testing.F) {
	f.Add([]byte("/usr\x00A=b\x00\x00."))
	f.Add([]byte("/usr\x00\x00."))
	f.Add([]byte("\x00."))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir, env, err := parseState(b)
		if err != nil && (dir != "" || env != nil) {
			t.Errorf("%q: %q %q with %v", b, dir, env, err)
		}
		for _, kv := range append(env, dir) {
			if strings.Contains(kv, "\x00") {
				t.Errorf("%q: %q", b, kv)
			}
		}
	})
}
