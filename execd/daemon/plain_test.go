package daemon

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestIsPlain(t *testing.T) {
	dir := t.TempDir()
	env := []string{"A_1=", "PATH=/nowhere:bin:" + os.Getenv("PATH")}
	for name, text := range map[string]string{"bin/tool": "#!/bin/sh\n", "script": "#!/bin/sh\n", "bare": "echo\n", "short": "#!"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	for command, want := range map[string]bool{
		"true":                    true,
		"tool test":               true,
		"./script x":              true,
		"  sh test.sh ":           true,
		"ls -run=TestX ./...":     true,
		"/usr/bin/env":            true,
		"sh -m http.server a@b,c": true,

		"no-such-program": false, // bash says it in the words everybody knows
		"./bare":          false,
		"./short":         false,
		"./bin":           false,
		"./gone":          false,
		"":                false,
		"  ":              false,
		"echo -e x":       false,
		"A=1 ls":          false,
		"%1":              false,
		"time ls":         false,
		"ls *.go":         false,
		"ls ~":            false,
		"ls | sh":         false,
		"ls; sh":          false,
		"ls\nls":          false,
		"ls 'b'":          false,
		"ls $B":           false,
		"ls >b":           false,
		"ls {b,c}":        false,
		"ls # b":          false,
		"ls &":            false,
		"ls \u00e4":       false,
		"source x":        false,
		"[ -f x ]":        false,
		"ls\\ b":          false,
		"!true":           false,
		"ls\tb":           false,
		"kill -SIGINT 1":  false,
	} {
		if got := isPlain(command, dir, env); got != want {
			t.Errorf("isPlain(%q) = %v", command, got)
		}
	}
	for _, kv := range []string{"BASH_ENV=/x", "BASH_FUNC_ls%%=() { :; }", "a.b=c", "1a=b", "=x"} {
		if isPlain("ls", dir, append([]string{kv}, env...)) {
			t.Errorf("a command with %q in its environment is plain", kv)
		}
	}
}

// Every builtin and keyword of the bash that is here is known to be one.
func TestShellWords(t *testing.T) {
	out, err := exec.Command("bash", "-c", "compgen -b; compgen -k").Output()
	if err != nil {
		t.Fatal(err)
	}
	start := 0
	for i, c := range out {
		if c != '\n' {
			continue
		}
		word := string(out[start:i])
		start = i + 1
		if word != "true" && word != "false" && !shellWords[word] && !strings.ContainsAny(word, "[]{}!") {
			t.Errorf("%q is done by bash itself", word)
		}
	}
}
