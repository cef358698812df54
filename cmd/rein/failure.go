package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/image"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/spf13/cobra"

	"github.com/rein-sh/rein/secret"
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

// Hint is what the reader can do.
func (e *usageError) Hint() string { return e.hint }

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
	if readerGone(err) {
		if cmd.Name() == "exec" || cmd.Name() == "shell" {
			return 128 + int(syscall.SIGPIPE) // as the command would have ended here
		}
		return exitFailure
	}
	if cause := context.Cause(ctx); errors.Is(cause, errInterrupted) && !errors.Is(err, errInterrupted) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	known := secret.NewMasker(a.providerKeys...)
	known.MaskShapes(nil)
	for i, line := range strings.Split(clean(known.String(err.Error())), "\n") {
		if i == 0 { // "rein: run takes ..." says rein once
			line = strings.TrimPrefix(strings.TrimPrefix(line, "rein "), "rein: ")
		}
		if i == 0 || line != "" {
			fmt.Fprintln(a.err, a.style("rein:", styleError), line)
		}
	}
	hint := cmp.Or(hintOf(err), usualHint(err))
	if hint == "" && isUsage(err) {
		hint = cmd.CommandPath() + " --help"
	}
	a.sayHint(known.String(hint))
	return exitCode(ctx, cmd, err)
}

// readerGone reports whether the reader (rein ... | head) has all it wanted.
func readerGone(err error) bool {
	e, ok := errors.AsType[*fs.PathError](err)
	return ok && e.Path == os.Stdout.Name() && errors.Is(e.Err, syscall.EPIPE)
}

// sayHint prints what can be done, if anything can. What is to be pasted stands
// on lines of its own.
func (a *app) sayHint(hint string) {
	if hint == "" {
		return
	}
	for line := range strings.SplitSeq(clean(hint), "\n") {
		fmt.Fprintln(a.err, a.style("hint:", styleHint), line)
	}
}

// usualHint is what can usually be done about an error of its kind, when
// nothing closer to it says so.
func usualHint(err error) string {
	if h := imageHints[image.KindOf(err)]; h != "" {
		return h
	}
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok {
		return ""
	}
	switch {
	case e.Op == "create":
		return ""
	case e.Op == "resume" && e.Kind == sandbox.KindConflict:
		return "rein sandbox ls shows which sandboxes are paused"
	case e.Kind == sandbox.KindNotFound && slices.Contains(wholeOps, e.Op):
		return "rein sandbox ls lists the sandboxes"
	}
	return sandboxHints[e.Kind]
}

var imageHints = map[image.Kind]string{
	image.KindUnavailable:  "check what the message names, the registry's name and port or Docker's configuration, and that this host reaches the registry",
	image.KindUnauthorized: "docker login to the registry, or check the reference",
	image.KindNotFound:     "check the reference: its registry or path, its name, its tag",
	image.KindUnsupported:  "choose an image of another form: docs/images.md says what is read",
	image.KindTooLarge:     "choose a smaller image: docs/images.md has the limits",
	image.KindCorrupt:      "the image is damaged where it comes from: have it made again, or choose another",
	image.KindRefused:      "do not use the image: it is made to do harm, or damaged",
	image.KindInUse:        "wait until whoever uses it is done",
	image.KindInvalid:      "docs/images.md says what an image and its name must be like",
	image.KindHost:         "check the files that the message names, and the room on the disk",
}

// wholeOps are about a sandbox, the others about something inside.
var wholeOps = []string{"get", "attach", "kill", "pause", "resume", "renew", "network"}

var sandboxHints = map[sandbox.Kind]string{
	sandbox.KindNotFound:    "check that what the message names is there inside",
	sandbox.KindInvalid:     "change what the message names: the directory, the variables or the command",
	sandbox.KindUnsupported: "rein probe says what sandboxes can do here",
	sandbox.KindTooLarge:    "docs/limits.md has the limits; do it in parts",
	sandbox.KindDenied:      "check the path, and the permissions inside",
	sandbox.KindLost:        "rein sandbox ls shows the state of sandboxes; one that is lost cannot be used any more",
	sandbox.KindConflict:    "rein sandbox ls shows the state of sandboxes",
	sandbox.KindUnavailable: "try again; rein sandbox ls shows the state of sandboxes",
	sandbox.KindTimeout:     "find out what it came to before you repeat it",
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
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Op == "create" && slices.Contains(refusals, e.Kind) {
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

// refusals are what a sandbox is not made for as it was asked for.
var refusals = []sandbox.Kind{sandbox.KindInvalid, sandbox.KindUnsupported, sandbox.KindDenied}

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
