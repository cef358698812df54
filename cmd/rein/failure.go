package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/image"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/spf13/cobra"
)

// The exit codes of every command but "sandbox exec" and "lab"; "run" gives
// each a meaning (docs/exit-codes.md).
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotAccepted = 3
	exitBudget      = 4
	exitStuck       = 5
	exitNeedsHuman  = 6
	exitLost        = 7
	exitModel       = 8
	exitExec        = 125 // "sandbox exec" and "shell": rein failed, not the command
	exitInterrupted = 130
)

// usageError is a command line or an environment that makes no sense. It
// always has a hint.
type usageError struct{ message, hint string }

func (e *usageError) Error() string { return e.message }

func usage(hint, format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...), hint: hint}
}

// hinted is an error with something the reader can do.
type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }

func withHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	return &hinted{err, hint}
}

// exitStatus ends the program with a code; everything has been said already.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// report prints why cmd failed and returns the exit code.
func (a *app) report(ctx context.Context, cmd *cobra.Command, err error) int {
	if status, ok := errors.AsType[exitStatus](err); ok {
		return int(status)
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok && e.Path == os.Stdout.Name() && errors.Is(e.Err, syscall.EPIPE) {
		return exitFailure // the reader (rein ... | head) has all it wanted
	}
	if cause := context.Cause(ctx); errors.Is(cause, errInterrupted) && !errors.Is(err, errInterrupted) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	for i, line := range strings.Split(clean(err.Error()), "\n") {
		if i == 0 { // "rein: run takes ..." says rein once
			line = strings.TrimPrefix(strings.TrimPrefix(line, "rein "), "rein: ")
		}
		if i == 0 || line != "" {
			fmt.Fprintln(a.err, a.style("rein:", styleError), line)
		}
	}
	hint := hintOf(err)
	if hint == "" && isUsage(err) {
		hint = cmd.CommandPath() + " --help"
	}
	if hint != "" {
		for line := range strings.SplitSeq(clean(hint), "\n") {
			fmt.Fprintln(a.err, a.style("hint:", styleHint), line)
		}
	}
	return exitCode(ctx, cmd, err)
}

// hintOf is what the reader can do about err: the first hint in its tree, from
// the outside in.
func hintOf(err error) string {
	if err == nil {
		return ""
	}
	if h := ownHint(err); h != "" {
		return h
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return hintOf(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if h := hintOf(inner); h != "" {
				return h
			}
		}
	}
	return ""
}

// ownHint is the hint of one error, in the form its package gives it.
func ownHint(err error) string {
	switch e := err.(type) {
	case *hinted:
		return e.hint
	case *usageError:
		return e.hint
	case *config.PlaceError:
		return e.Hint
	case *sandbox.Error:
		return e.Hint
	case *model.Error:
		return e.Hint
	case *audit.Error:
		return e.Hint
	case *image.Error:
		return e.Hint
	case interface{ Hint() string }:
		return e.Hint()
	}
	return ""
}

// isUsage reports whether the command line or the configuration is at fault: a
// sandbox that cannot be made as it was asked for is, too.
func isUsage(err error) bool {
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Op == "create" && (e.Kind == sandbox.KindInvalid || e.Kind == sandbox.KindUnsupported) {
		return true
	}
	if k := image.KindOf(err); k == image.KindInvalid || k == image.KindDenied {
		return true
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*config.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*run.UsageError](err); ok {
		return true
	}
	_, ok := errors.AsType[*config.PlaceError](err)
	return ok
}

// exitCode is the one place where an error becomes a number.
func exitCode(ctx context.Context, cmd *cobra.Command, err error) int {
	switch {
	case errors.Is(context.Cause(ctx), errInterrupted):
		return exitInterrupted
	case cmd.Name() == "exec", cmd.Name() == "shell":
		return exitExec
	case isUsage(err):
		return exitUsage
	case sandbox.KindOf(err) == sandbox.KindLost && cmd.Name() == "run":
		return exitLost
	}
	return exitFailure
}
