package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const shellHelp = `Opens a shell in a sandbox, or runs a command there that is typed to, and exits
with its code. The arguments after -- are passed as they are.

Ctrl-p ctrl-q detaches: the program goes on, as it does when rein or the
connection ends, and --attach with the terminal's id takes it up again. The id is
said at the start and on detaching; later it stands in the sandbox's audit.jsonl.
Whoever attaches takes the terminal over. A terminal is forgotten once its
program has ended under somebody's eyes, or ten minutes after that or a last look.

What the terminal shows is filtered: text, colours, cursor movement and the
alternate screen pass; clipboard, titles, queries that a terminal would answer,
and mouse reports do not.

Where stdin or stdout is no terminal the program has pipes: its two outputs stay
apart, and its input ends where stdin does. What was started so is ended when
rein is interrupted or nobody reads its output any more, unless --keep is given;
only SIGKILL leaves rein no time to.

Exit codes that are not the program's: 128 plus a signal's number, 125 when rein
failed, 130 when interrupted, 141 when nobody read stdout any more. Detaching is
0.`

type shellOptions struct {
	sandbox.TerminalOptions
	attach string // id of a terminal
	keep   bool   // with pipes, have the program go on without us
}

func (a *app) sandboxShellCommand() *cobra.Command {
	var p place
	var o shellOptions
	var env []string
	cmd := &cobra.Command{
		Use: "shell [flags] ID [-- COMMAND [ARGUMENT...]]", Short: "open a shell in a sandbox, or type to a command", Long: shellHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 1 && cmd.ArgsLenAtDash() != 1 {
				return usage("usage: "+cmd.UseLine(), "%s takes an ID, and a command after two dashes", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.attach != "" && (len(args) > 1 || o.Cwd != "" || len(env) > 0) {
				return usage("leave out the command, --cwd and --env", "--attach takes up what runs already")
			}
			if len(args) > 1 {
				o.Command = quote(args[1:])
			}
			if o.Env, err = parseEnv(env); err != nil {
				return err
			}
			return a.withSandbox(cmd, p, args[0], func(sb *attached) error { return a.shell(cmd.Context(), sb.Sandbox, o) })
		},
	}
	p.flags(cmd)
	cmd.Flags().StringVar(&o.Cwd, "cwd", "", "`DIR` inside (default the sandbox's working directory)")
	cmd.Flags().StringArrayVar(&env, "env", nil, "`NAME=VALUE` for the program (repeatable)")
	cmd.Flags().StringVar(&o.attach, "attach", "", "attach to the terminal with this `ID`, which detaching prints")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "with pipes, leave the program running when rein or its reader goes, and say the terminal's id")
	return cmd
}

// shellAccess is how a shell is recorded.
var shellAccess = sandbox.Access{Tool: "sandbox shell"}

// replayed is how much of what a terminal showed is shown to who attaches again.
const replayed = 64 << 10

// shell runs the program of a terminal, or attaches to it, until it ends or the
// user detaches.
func (a *app) shell(ctx context.Context, sb *sandbox.Sandbox, o shellOptions) error {
	stdin, isFile := a.in.(*os.File)
	screen := a.out.terminal && isFile && term.IsTerminal(int(stdin.Fd()))
	id, at := o.attach, execd.AttachOptions{Since: 0, Pipe: !screen, Takeover: true}
	if id == "" {
		if a.env.get("NO_COLOR") != "" && o.Env["NO_COLOR"] == "" {
			o.Env["NO_COLOR"] = a.env.get("NO_COLOR")
		}
		var err error
		if id, err = sb.OpenTerminal(ctx, o.TerminalOptions, shellAccess); err != nil {
			return err
		}
	} else {
		st, err := sb.TerminalStatus(ctx, id)
		if sandbox.KindOf(err) == sandbox.KindNotFound {
			return withHint(err, "the sandbox's audit.jsonl names the terminals that were opened")
		}
		if err != nil {
			return err
		}
		at.Since = max(0, st.Offset-replayed)
	}
	out, _ := a.out.Writer.(*os.File)
	if screen {
		if cols, rows, err := term.GetSize(int(out.Fd())); err == nil {
			at.Cols, at.Rows = cols, rows
		}
	}
	t, err := sb.AttachTerminal(ctx, id, at, shellAccess)
	if err != nil {
		if o.attach == "" {
			_ = closeTerminal(ctx, sb, id) // nothing has run in it
		}
		return err
	}
	switch {
	case screen && a.err.terminal:
		a.note("rein: ctrl-p ctrl-q detaches; %s comes back", again(sb, id))
	case !screen && o.keep:
		a.note("rein: it may go on without us: %s", again(sb, id))
	}
	var code int
	if screen {
		code, err = onScreen(ctx, t, stdin, out, out, o.attach != "", typing)
	} else {
		code, err = a.piped(ctx, t)
	}
	if errors.Is(err, errStuck) { // what is said of it would not be taken either
		for _, w := range []*output{a.out, a.err} {
			if w.terminal {
				w.Writer = io.Discard
			}
		}
	}
	if err = errors.Join(err, t.Close()); err != nil {
		return a.left(ctx, sb, id, err, o.attach == "", screen || o.keep)
	}
	_ = closeTerminal(ctx, sb, id)
	if code < 0 {
		return errors.New("the program has ended, and the sandbox does not know how")
	}
	return status(code)
}

// again is the command line that attaches to a terminal.
func again(sb *sandbox.Sandbox, id string) string {
	return fmt.Sprintf("rein sandbox shell %s --attach %s", sb.ID(), id)
}

// left sees to a terminal that was left, for the reason err, before its program
// has ended: one that we opened and that nobody is to keep is closed.
func (a *app) left(ctx context.Context, sb *sandbox.Sandbox, id string, err error, opened, keep bool) error {
	e, answered := errors.AsType[*execd.Error](err)
	interrupted := ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
	switch {
	case sandbox.KindOf(err) == sandbox.KindLost: // and all that ran there
		return err
	case answered && e.Code == execd.CodeStartFailed:
		if opened {
			_ = closeTerminal(ctx, sb, id)
		}
		return startHint(err, e, sb.ID())
	case errors.Is(err, execd.ErrTakenOver):
		return withHint(err, again(sb, id)+" takes it back")
	case opened && !keep:
		if closed := closeTerminal(ctx, sb, id); closed != nil {
			return withHint(errors.Join(err, closed), "what ran there may go on: "+again(sb, id))
		}
		if interrupted {
			err = withHint(err, "the program has been ended; --keep leaves it running")
		}
		return err
	case errors.Is(err, errDetached), interrupted, readerGone(err):
		a.note("rein: detached; it goes on until the sandbox ends: %s", again(sb, id))
		if errors.Is(err, errDetached) {
			return nil
		}
		return err
	}
	return withHint(err, "what ran there may go on: "+again(sb, id))
}

// startHint says what can be started where e, in err, says that there is no shell.
func startHint(err error, e *execd.Error, sandboxID string) error {
	if !strings.Contains(e.Message, "no shell") {
		return err
	}
	return withHint(err, fmt.Sprintf("without a shell, a program and its plain arguments can be run: rein sandbox shell %s -- /PATH/TO/PROGRAM", sandboxID))
}

// closeTerminal ends and forgets a terminal. Where nothing runs in it, whether
// that works changes nothing: the sandbox forgets it by itself after a while.
func closeTerminal(ctx context.Context, sb *sandbox.Sandbox, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	err := sb.CloseTerminal(ctx, id, shellAccess)
	if k := sandbox.KindOf(err); k == sandbox.KindNotFound || k == sandbox.KindLost {
		return nil
	}
	return err
}

// closeWait bounds closing a terminal, which gives a program seconds to end.
const closeWait = 15 * time.Second

var errDetached = errors.New("detached")

// piped connects our streams with a program that has pipes.
func (a *app) piped(ctx context.Context, t *sandbox.Terminal) (int, error) {
	stdout, flushOut := a.out.raw()
	stderr, flushErr := a.err.raw()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	in := newKeyboard(a.in)
	var feeding sync.WaitGroup
	feeding.Go(func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := in.read(buf, -1)
			if n > 0 && t.Write(ctx, buf[:n]) != nil {
				return // Next says what became of the connection
			}
			if err != nil {
				if err == io.EOF {
					_ = t.CloseInput(ctx)
				}
				return
			}
		}
	})
	code, err := 0, error(nil)
	for {
		var e execd.TerminalEvent
		if e, err = t.Next(ctx); err != nil {
			break
		}
		if e.ExitCode != nil {
			code = *e.ExitCode
			break
		}
		w := stdout
		if e.Stderr {
			w = stderr
		}
		if err = deliver(ctx, w, e.Data); err != nil {
			break
		}
	}
	cancel(nil)
	in.stop()
	if in.ends() {
		feeding.Wait()
	}
	if errors.Is(err, errStuck) {
		return code, err
	}
	return code, errors.Join(err, flushOut(), flushErr())
}

// patience is how long output that is on its way may still take when rein is to
// end.
const patience = 2 * time.Second

// errStuck says that output was given up.
var errStuck = errors.New("what the program prints to takes nothing")

// deliver writes p. A terminal that is stopped, or a pipe that nobody reads, takes
// nothing for ever, and a write to it cannot be undone: when ctx ends it is waited
// for with patience, and then left, to end with the process.
func deliver(ctx context.Context, w io.Writer, p []byte) error {
	done := make(chan error, 1)
	go func() {
		_, err := w.Write(p)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return fmt.Errorf("%w (%w)", context.Cause(ctx), errStuck)
	}
}
