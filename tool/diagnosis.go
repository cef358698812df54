package tool

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/rein-sh/rein/evidence"
)

// Diagnosis is what an output that was seen says about why a command failed, and
// what is known to help. It is read from evidence and never guessed: no line that
// says it, no diagnosis.
type Diagnosis struct {
	Cause string `json:"cause"` // stable, snake_case
	// Seen is the line, or the status, that says so.
	Seen string `json:"seen"`
	Hint string `json:"hint"`
}

// symptom is one line of the table: what is printed, and what follows from it.
// The pattern's first group, if it has one, is what the line is about.
type symptom struct {
	cause   string
	pattern *regexp.Regexp
	hint    func(ctx context.Context, d *doctor, about string) string
}

// symptoms in the order in which they are looked for on a line: what says more
// comes first.
var symptoms = []symptom{
	{"line_ends", regexp.MustCompile(`(?:\^M: bad interpreter|env: '?[^ ']+\\r'?: No such file|\$'\\r': command not found|\r: not found)`),
		says("a script there has Windows line ends; remove them, such as with sed -i 's/\\r$//' FILE")},
	{"interpreter_missing", regexp.MustCompile(`bad interpreter: No such file or directory`),
		says("the program that the script's first line names is not installed; run the script with one that is")},
	{"header_missing", regexp.MustCompile(`fatal error: ['"]?([^'": ]+\.h(?:pp|h|xx)?)['"]?(?:: No such file or directory| file not found)`),
		says("no include path has this header; look for it with find / -name, then add its directory with -I, or work without it")},
	{"command_not_found", regexp.MustCompile(`^(?:(?:\S*sh|\S+: line \d+|\S+: \d+): (?:\d+: |line \d+: )?(?:exec: )?['"]?([^\s'":]+)['"]?: (?:command )?not found|"([^"]+)": executable file not found in \$PATH|(?:env|nohup|timeout|xargs): ['"‘]?([^'"’:]+)['"’]?: (?:No such file or directory|failed to run command))`), missingCommand},
	{"library_missing", regexp.MustCompile(`error while loading shared libraries: ([^:\s]+)`),
		says("this library is not installed; the program cannot run here without it")},
	{"no_such_file", regexp.MustCompile(`(?i)(?:no such file or directory(?:, \w+| \(os error 2\))?: ['"]?([^'"]+)['"]?$|no such file or directory, \w+ ['"]([^'"]+)['"]|(?:^|[: ])['"‘]?([^\s'"‘’:]+)['"’]?: no such file or directory|cannot open ([^:\s]+): No such file)`), missingFile},
	{"read_only", regexp.MustCompile(`(?i)read-only file system`), func(_ context.Context, d *doctor, _ string) string {
		return "that place cannot be written; " + d.b.cwd + " is the workspace and can"
	}},
	{"disk_full", regexp.MustCompile(`(?i)(?:no space left on device|disk quota exceeded|ENOSPC)`), func(_ context.Context, d *doctor, _ string) string {
		return "the sandbox's disk is full" + d.bound("disk") + ": find what takes the room with du -xk . | sort -n | tail, and remove what is not needed"
	}},
	{"out_of_memory", regexp.MustCompile(`(?:\bMemoryError\b|[Cc]annot allocate memory|JavaScript heap out of memory|std::bad_alloc|java\.lang\.OutOfMemoryError|fatal error: runtime: out of memory)`),
		func(_ context.Context, d *doctor, _ string) string {
			return "the program got no more memory" + d.bound("memory") + "; process the data in smaller pieces, or with fewer jobs at once"
		}},
	{"too_many_processes", regexp.MustCompile(`(?i)(?:(?:cannot|can't) (?:fork|start new thread)|fork: retry|fork: resource temporarily unavailable|pthread_create failed)`),
		func(_ context.Context, d *doctor, _ string) string {
			return "no more processes or threads may be started" + d.bound("pids") + "; run fewer at once (-j)"
		}},
	{"too_many_files", regexp.MustCompile(`(?i)too many open files`), says("the limit of open files is reached; close files, or work on fewer at once")},
	{"name_not_resolved", regexp.MustCompile(`(?:Could not resolve host(?:name)?:? ?([^\s;]*)|getaddrinfo (?:ENOTFOUND|EAI_AGAIN) (\S+)|lookup (\S+)(?: on \S+)?: |Temporary failure in name resolution|Name or service not known)`), unreachable},
	{"network_unreachable", regexp.MustCompile(`(?i)(?:network is unreachable|no route to host|ENETUNREACH|EHOSTUNREACH)`), unreachable},
	{"certificate_unknown", regexp.MustCompile(`(?i)(?:self[- ]signed certificate|unable to get local issuer certificate|certificate verify failed|x509: certificate signed by unknown authority|PKIX path building failed)`),
		says("the server's certificate is signed by nobody that this sandbox trusts; checking it must stay on: say in your answer which server it was")},
	{"connection_refused", regexp.MustCompile(`(?i)(?:connection refused|ECONNREFUSED)`),
		says("nothing listens there, or a policy closed it: a server of the task's own must run in the same command, or in the background")},
	{"python_module_missing", regexp.MustCompile(`(?:ModuleNotFoundError|ImportError): No module named ['"]?([\w.]+)`), missingModule("python3 -m pip list")},
	{"node_module_missing", regexp.MustCompile(`(?:Cannot find (?:module|package) ['"]([^'"]+)['"])`), missingModule("ls node_modules, or require.resolve")},
	{"go_module_missing", regexp.MustCompile(`(?:no required module provides package ([^\s;]+)|cannot find module providing package (\S+?):?\s|missing go\.sum entry)`), missingModule("go list -m all")},
	{"rust_crate_missing", regexp.MustCompile("(?:can't find crate for|no matching package named) [`‘']([^`’']+)"), missingModule("the [dependencies] of Cargo.toml, and cargo tree")},
	{"ruby_gem_missing", regexp.MustCompile(`cannot load such file -- (\S+)`), missingModule("gem list")},
	{"perl_module_missing", regexp.MustCompile(`Can't locate (\S+\.pm) in @INC`), missingModule("perl -V, which lists @INC")},
	{"wrong_format", regexp.MustCompile(`(?i)exec format error`), says("the file is no program for this machine, or a script without a first line such as #!/bin/sh")},
	{"no_input", regexp.MustCompile(`(?:EOFError: EOF when reading a line|[Ii]nappropriate ioctl for device|not a (?:tty|TTY|terminal)\b|a terminal is required to read the password)`),
		says("there is no terminal and stdin is empty: give the answers as arguments, or with an option such as --yes")},
	{"address_in_use", regexp.MustCompile(`(?i)(?:address already in use|EADDRINUSE)`), says("something listens on that port already: use another, or end what does")},
	{"not_a_repository", regexp.MustCompile(`fatal: not a git repository`), says("there is no .git here, which may have been left out of the copy; git init makes one")},
	{"dubious_ownership", regexp.MustCompile(`fatal: detected dubious ownership in repository at '([^']+)'`), func(_ context.Context, _ *doctor, about string) string {
		return "git wants to be told: git -c safe.directory=" + about + " COMMAND"
	}},
	{"permission_denied", regexp.MustCompile(`(?i)(?:permission denied(?: \(os error 13\))?: ['"]?([^'"]+)['"]?$|permission denied, \w+ ['"]([^'"]+)['"]|(?:^|[: ])['"‘]?([^\s'"‘’:]+)['"’]?: permission denied|permission denied|operation not permitted)`), forbidden},
}

// says is a hint that is the same whatever the line is about.
func says(hint string) func(context.Context, *doctor, string) string {
	return func(context.Context, *doctor, string) string { return hint }
}

// maxExamined bounds how many lines of each stream are examined.
const maxExamined = 400

// diagnose is what the result of a command says about why it failed; nil when it
// did not, or nothing is known by what is seen. cwd is where it was started.
func (b *builtin) diagnose(ctx context.Context, r *Result, cwd string) *Diagnosis {
	if r.Background != nil && r.Background.Running || r.ExitCode == nil {
		return nil
	}
	if *r.ExitCode == 0 {
		return hiddenFailure(r)
	}
	d := &doctor{b: b, cwd: cmp.Or(cwd, b.cwd)}
	for _, text := range []string{r.Stderr, r.Stdout} {
		lines := strings.Split(text, "\n")
		lines = lines[max(0, len(lines)-maxExamined):]
		for _, line := range lines {
			if found := d.examine(ctx, strings.TrimRight(line, "\n ")); found != nil {
				return found
			}
		}
	}
	return bySignal(r)
}

func (d *doctor) examine(ctx context.Context, line string) *Diagnosis {
	s, about := match(line)
	if s == nil {
		return nil
	}
	return &Diagnosis{Cause: s.cause, Seen: strings.TrimSpace(evidence.Cut(line, maxLine)), Hint: d.b.Masker.String(s.hint(ctx, d, about))}
}

// maxLine is how much of a line is looked at, in bytes.
const maxLine = 500

// match finds the symptom that a line shows, and what the line is about.
func match(line string) (*symptom, string) {
	if line = evidence.Cut(line, maxLine); line == "" {
		return nil, ""
	}
	for i := range symptoms {
		m := symptoms[i].pattern.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		for _, about := range m[1:] {
			if about != "" {
				return &symptoms[i], about
			}
		}
		return &symptoms[i], ""
	}
	return nil, ""
}

// hiddenFailure is a pipeline that ended well although a part of it did not.
func hiddenFailure(r *Result) *Diagnosis {
	for i, code := range r.PipeStatus {
		if code != 0 && code != 141 && i < len(r.PipeStatus)-1 { // 141: the next one had read enough
			return &Diagnosis{Cause: "pipe", Seen: fmt.Sprintf("pipe_status %v", r.PipeStatus),
				Hint: fmt.Sprintf("the exit code is that of the last program of the pipeline; number %d of it exited with %d", i+1, code)}
		}
	}
	return nil
}

// bySignal is an exit code with which a shell says that a signal ended its
// program, when rein sent none.
func bySignal(r *Result) *Diagnosis {
	if r.Err != nil && r.Err.Code != CodeNetworkDenied {
		return nil
	}
	name, ok := map[int]string{129: "SIGHUP", 130: "SIGINT", 132: "SIGILL", 134: "SIGABRT", 135: "SIGBUS", 136: "SIGFPE", 137: "SIGKILL", 139: "SIGSEGV", 141: "SIGPIPE", 143: "SIGTERM"}[*r.ExitCode]
	if !ok {
		return nil
	}
	return &Diagnosis{Cause: "signal", Seen: fmt.Sprintf("exit code %d", *r.ExitCode),
		Hint: fmt.Sprintf("%d is how a shell says that %s ended the program; rein did not send it", *r.ExitCode, name)}
}
