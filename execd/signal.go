package execd

import "strings"

// signals are what another daemon calls the signals that end commands: Go's
// words for them.
var signals = map[string]string{
	"hangup": "SIGHUP", "interrupt": "SIGINT", "quit": "SIGQUIT", "illegal instruction": "SIGILL", "trace/breakpoint trap": "SIGTRAP",
	"aborted": "SIGABRT", "bus error": "SIGBUS", "floating point exception": "SIGFPE", "killed": "SIGKILL",
	"user defined signal 1": "SIGUSR1", "segmentation fault": "SIGSEGV", "user defined signal 2": "SIGUSR2",
	"broken pipe": "SIGPIPE", "alarm clock": "SIGALRM", "terminated": "SIGTERM", "CPU time limit exceeded": "SIGXCPU",
	"file size limit exceeded": "SIGXFSZ", "bad system call": "SIGSYS",
}

// signalIn finds the signal in a traceback such as ["signal: killed"], or "".
func signalIn(traceback []string) string {
	for _, line := range traceback {
		if word, ok := strings.CutPrefix(line, "signal: "); ok {
			return signals[strings.TrimSuffix(word, " (core dumped)")]
		}
	}
	return ""
}
