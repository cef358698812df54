package tool_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rein-sh/rein/tool"
)

// lines are what programs print, and what is known by them. The hint names what
// the line is about, or what helps.
var lines = []struct{ printed, cause, hint string }{
	// Shells say it differently.
	{"sh: 1: gti: not found", "command_not_found", "gti is not installed"},
	{"/bin/sh: 12: gti: not found", "command_not_found", "gti"},
	{"bash: line 1: gti: command not found", "command_not_found", "gti"},
	{"./build.sh: line 3: gti: command not found", "command_not_found", "gti"},
	{"sh: gti: not found", "command_not_found", "gti"},
	{`"gti": executable file not found in $PATH`, "command_not_found", "gti"},
	{"env: 'ruby2': No such file or directory", "command_not_found", "ruby2"},
	{"sh: 1: exec: gti: not found", "command_not_found", "gti is not installed"},
	// Files: main.go is there.
	{"cat: mian.go: No such file or directory", "no_such_file", "did you mean main.go?"},
	{"ls: cannot access 'mian.go': No such file or directory", "no_such_file", "main.go"},
	{"FileNotFoundError: [Errno 2] No such file or directory: 'mian.go'", "no_such_file", "main.go"},
	{"Error: ENOENT: no such file or directory, open 'mian.go'", "no_such_file", "main.go"},
	{"open mian.go: no such file or directory", "no_such_file", "main.go"},
	{"sh: 1: cannot open mian.go: No such file", "no_such_file", "main.go"},
	{"cat: src/mian.go: No such file or directory", "no_such_file", "src is not there either"},
	{"cat: zzzzzzzz: No such file or directory", "no_such_file", "has err, main.go, script"},
	{"cat: /nowhere/x: No such file or directory", "no_such_file", "there is no /nowhere/x"},
	{"main.c:1:10: fatal error: zlib.h: No such file or directory", "header_missing", "-I"},
	{"main.c:1:10: fatal error: 'zlib.h' file not found", "header_missing", "-I"},
	// Permissions: script is there, mode 644.
	{"sh: 1: ./script: Permission denied", "permission_denied", "script has the mode 644, so it cannot be executed"},
	{"PermissionError: [Errno 13] Permission denied: 'script'", "permission_denied", "644"},
	{"touch: cannot touch '/etc/x': Permission denied", "permission_denied", "not for the user"},
	{"chown: changing ownership of 'script': Operation not permitted", "permission_denied", "work in"},
	{"touch: cannot touch '/usr/x': Read-only file system", "read_only", "is the workspace and can"},
	// Certificates.
	{"curl: (60) SSL certificate problem: unable to get local issuer certificate", "certificate_unknown", "must stay on"},
	{"ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate", "certificate_unknown", "must stay on"},
	{"tls: failed to verify certificate: x509: certificate signed by unknown authority", "certificate_unknown", "must stay on"},
	// What is used up.
	{"write error: No space left on device", "disk_full", "du -xk"},
	{"OSError: [Errno 28] No space left on device", "disk_full", "du -xk"},
	{"MemoryError", "out_of_memory", "smaller pieces"},
	{"FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory", "out_of_memory", "smaller pieces"},
	{"terminate called after throwing an instance of 'std::bad_alloc'", "out_of_memory", "smaller pieces"},
	{"Exception in thread \"main\" java.lang.OutOfMemoryError: Java heap space", "out_of_memory", "smaller pieces"},
	{"sh: 1: Cannot fork", "too_many_processes", "-j"},
	{"RuntimeError: can't start new thread", "too_many_processes", "-j"},
	{"bash: fork: retry: Resource temporarily unavailable", "too_many_processes", "-j"},
	{"OSError: [Errno 24] Too many open files: 'x'", "too_many_files", "close files"},
	// The network.
	{"curl: (6) Could not resolve host: example.com", "name_not_resolved", "example.com cannot be reached"},
	{"Error: getaddrinfo EAI_AGAIN registry.npmjs.org", "name_not_resolved", "registry.npmjs.org"},
	{"dial tcp: lookup proxy.golang.org on 10.0.0.1:53: no such host", "name_not_resolved", "proxy.golang.org"},
	{"curl: (7) Failed to connect: Network is unreachable", "network_unreachable", "the network cannot be reached"},
	{"curl: (7) Failed to connect to localhost port 8080: Connection refused", "connection_refused", "nothing listens"},
	// Modules.
	{"ModuleNotFoundError: No module named 'requests'", "python_module_missing", "requests is not installed"},
	{"Error: Cannot find module 'left-pad'", "node_module_missing", "left-pad"},
	{"main.go:3:8: no required module provides package github.com/x/y; to add it:", "go_module_missing", "github.com/x/y"},
	{"error[E0463]: can't find crate for `serde`", "rust_crate_missing", "serde"},
	{"cannot load such file -- rake (LoadError)", "ruby_gem_missing", "rake"},
	{"Can't locate JSON/XS.pm in @INC (you may need to install it)", "perl_module_missing", "JSON/XS.pm"},
	{"./x: error while loading shared libraries: libssl.so.3: cannot open shared object file: No such file or directory", "library_missing", "cannot run here"},
	// Scripts and programs.
	{"/bin/bash: ./x.sh: /bin/sh^M: bad interpreter: No such file or directory", "line_ends", "sed -i"},
	{"bash: ./x.py: /usr/bin/python2: bad interpreter: No such file or directory", "interpreter_missing", "first line"},
	{"sh: 1: ./x: Exec format error", "wrong_format", "no program for this machine"},
	{"EOFError: EOF when reading a line", "no_input", "stdin is empty"},
	{"sudo: a terminal is required to read the password", "no_input", "no terminal"},
	{"OSError: [Errno 98] Address already in use", "address_in_use", "use another"},
	{"fatal: not a git repository (or any of the parent directories): .git", "not_a_repository", "git init"},
	{"fatal: detected dubious ownership in repository at '/workspace'", "dubious_ownership", "safe.directory=/workspace"},
	// Nothing is known by these.
	{"FAIL: expected foo: not found in list", "", ""},
	{"assertion failed: 1 != 2", "", ""},
	{"", "", ""},
}

func TestDiagnosis(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.call(tool.WriteFile, "path", "main.go", "content", "package main\n")
	b.call(tool.WriteFile, "path", "script", "content", "#!/bin/sh\n", "mode", "644")
	b.call(tool.WriteFile, "path", ".env", "content", "KEY=x\n")
	for _, stream := range []string{"&2", "&1"} {
		for _, l := range lines {
			b.call(tool.WriteFile, "path", "err", "content", "before\n"+l.printed+"\nafter\n")
			r := b.call(tool.RunCommand, "command", "cat err >"+stream+"; exit 1")
			d := r.Diagnosis
			switch {
			case l.cause == "" && d == nil:
			case d == nil || d.Cause != l.cause || d.Seen != l.printed || !strings.Contains(d.Hint, l.hint):
				t.Errorf("%s: %+v", l.printed, d)
			case strings.Contains(d.Hint, ".env"):
				t.Errorf("%s: the hint names a file with secrets: %s", l.printed, d.Hint)
			}
			if r := b.call(tool.RunCommand, "command", "cat err >"+stream); r.Diagnosis != nil {
				t.Errorf("%s: a command that succeeded is diagnosed: %+v", l.printed, r.Diagnosis)
			}
		}
	}
}

// What the exit code alone says: which signal ended a program, and that a part
// of a pipeline failed.
func TestDiagnosisByStatus(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for code, want := range map[int]string{139: "SIGSEGV", 137: "SIGKILL", 134: "SIGABRT", 3: "", 1: ""} {
		d := b.call(tool.RunCommand, "command", fmt.Sprintf("exit %d", code)).Diagnosis
		if (d != nil) != (want != "") || d != nil && (d.Cause != "signal" || !strings.Contains(d.Hint, want)) {
			t.Errorf("exit code %d: %+v", code, d)
		}
	}
}

func FuzzDiagnosis(f *testing.F) {
	for _, l := range lines {
		f.Add(l.printed)
	}
	f.Fuzz(func(t *testing.T, printed string) {
		for _, line := range strings.Split(printed, "\n") {
			tool.Examine(line) // must not panic
		}
	})
}
