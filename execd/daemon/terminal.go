package daemon

import (
	"fmt"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
)

// terminal makes the terminal event of an outcome. Clients of OpenSandbox take
// the exit code from it: execution_complete is 0, else the number in evalue,
// which is -1 where there is none. What they do not know is in "rein".
func terminal(o *execd.Outcome, rein *execd.RunOptions, captured bool) execd.Event {
	e := execd.Event{Type: execd.EventError, ExecutionTime: o.DurationMS}
	if rein != nil {
		sent := *o
		if !captured { // the output went as events
			sent.Stdout.Head, sent.Stdout.Tail, sent.Stdout.HeadLines = nil, nil, 0
			sent.Stderr.Head, sent.Stderr.Tail, sent.Stderr.HeadLines = nil, nil, 0
		}
		e.Rein = &execd.EventExtra{Outcome: &sent}
	}
	switch value, trace := failure(o); {
	case value == "0":
		e.Type = execd.EventComplete
	default:
		e.ExecutionTime = 0
		e.Error = &execd.ErrorValue{Name: "CommandExecError", Value: value, Traceback: []string{trace}}
	}
	return e
}

// failure gives the evalue and its explanation, "0" for success.
func failure(o *execd.Outcome) (value, trace string) {
	switch {
	case o.KilledBy == execd.KilledByTimeout:
		return "-1", fmt.Sprintf("signal: killed (timeout after %d ms)", o.DurationMS)
	case o.KilledBy != "" && o.ExitCode == nil:
		return "-1", "signal: killed (" + o.KilledBy + ")"
	case o.Signal != "":
		return "-1", "signal: " + signalText(o.Signal)
	case o.ExitCode == nil:
		return "-1", "exit status unknown"
	case *o.ExitCode == 0 && o.KilledBy != "":
		return "-1", "exit status 0 after " + o.KilledBy
	}
	return strconv.Itoa(*o.ExitCode), "exit status " + strconv.Itoa(*o.ExitCode)
}

func signalName(s syscall.Signal) string {
	if n := unix.SignalName(s); n != "" {
		return n
	}
	return "SIG" + strconv.Itoa(int(s))
}

// signalText is how os/exec, and so OpenSandbox, words a signal: "killed".
func signalText(name string) string {
	if s := unix.SignalNum(name); s != 0 {
		return s.String()
	}
	return name
}
