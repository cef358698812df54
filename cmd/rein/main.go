// Command rein runs an AI agent's tool calls inside a sandbox, under hard
// limits, and keeps proof of what happened.
//
// This is the only place where flags, the environment and configuration files
// are read; everything beneath receives plain structs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() { os.Exit(untilForced()) }

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// echo is how long after a SIGINT another is the same one: timeout(1), for one,
// signals its child and then the group that the child is in.
const echo = 100 * time.Millisecond

// untilForced runs the command line. The first SIGINT, SIGTERM, SIGHUP, SIGQUIT or
// SIGABRT ends its context, and what has been started is cleaned up; a second
// SIGINT ends the process at once, and a second SIGQUIT or SIGABRT as the runtime
// does it, with what every goroutine is at.
func untilForced() int {
	// What our caller left open is not for the processes we start: a keeper
	// lives on, and would keep a pipe of the caller's open. Kernels before 5.11
	// lack the flag; there it stays as it was.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	environ := os.Environ()
	// Google's SDK looks for it, and talks of it on our stderr.
	_ = os.Unsetenv("GOOGLE_API_KEY")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT)
	// A reader that goes away (rein … | head) must be an error to handle, not
	// the end of the process before its sandbox. Not ignored: that would be
	// inherited by every program we start.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	done := make(chan int, 1)
	go func() {
		done <- execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, environ)
	}()
	return obey(signals, done, cancel, os.Stderr)
}

// obey waits for the exit code of the work, which signals end.
func obey(signals <-chan os.Signal, done <-chan int, cancel context.CancelCauseFunc, stderr io.Writer) int {
	var interrupted time.Time
	for {
		select {
		case code := <-done:
			return code
		case s := <-signals:
			switch {
			case s == syscall.SIGQUIT || s == syscall.SIGABRT:
				signal.Reset(s)
			case s != syscall.SIGINT:
			case interrupted.IsZero():
				interrupted = time.Now()
			case time.Since(interrupted) > echo:
				fmt.Fprintln(stderr, "\nrein: stopped without clean-up")
				fmt.Fprintln(stderr, "hint: sandboxes end by themselves at their deadline; \"rein sandbox gc --all\" ends them now")
				return exitInterrupted
			}
			cancel(fmt.Errorf("%w by %s", errInterrupted, signalName(s)))
		}
	}
}

func signalName(s os.Signal) string {
	switch s {
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGHUP:
		return "SIGHUP"
	case syscall.SIGQUIT:
		return "SIGQUIT"
	case syscall.SIGABRT:
		return "SIGABRT"
	}
	return s.String()
}

// execute runs one command line and returns its exit code. It reads nothing of
// the process but its arguments, and returns when all it started has ended.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, environ []string) int {
	a := &app{env: newEnvironment(environ), in: stdin, out: newOutput(stdout), err: newOutput(stderr)}
	a.color = a.env.get("NO_COLOR") == "" && a.env.get("TERM") != "dumb" && a.err.terminal
	root := a.command()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	a.withdrawLeft(ctx)
	if err == nil {
		return exitOK
	}
	return a.report(ctx, cmd, err)
}
