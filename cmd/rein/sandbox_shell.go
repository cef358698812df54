package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const shellHelp = `Opens a shell in a sandbox, or runs a command there that is typed to, and exits
with its code. The arguments after -- are passed as they are.

Ctrl-p ctrl-q detaches: the shell goes on, and --attach takes it up again, as it
does when rein or the connection ended. Whoever attaches takes the terminal over.

What the terminal shows is filtered: text, colours, cursor movement and the
alternate screen pass; clipboard, titles, queries that a terminal would answer,
and mouse reports do not.

Where stdin or stdout is no terminal the program has pipes: its two outputs stay
apart, and its input ends where stdin does. Exit codes that are not the
program's: 128 plus a signal's number, 125 when rein failed, 130 when
interrupted. Detaching is 0.`

type shellOptions struct {
	sandbox.TerminalOptions
	attach string // id of a terminal
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
			h, err := a.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			sb, err := a.attach(cmd.Context(), h, args[0])
			if err != nil {
				return err
			}
			defer func() { err = closeAfter(err, sb) }()
			return a.shell(cmd.Context(), sb.Sandbox, o)
		},
	}
	p.flags(cmd)
	cmd.Flags().StringVar(&o.Cwd, "cwd", "", "`DIR` inside (default the sandbox's working directory)")
	cmd.Flags().StringArrayVar(&env, "env", nil, "`NAME=VALUE` for the program (repeatable)")
	cmd.Flags().StringVar(&o.attach, "attach", "", "attach to the terminal with this `ID`, which detaching prints")
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
			closeTerminal(ctx, sb, id) // nothing has run in it
		}
		return err
	}
	var code int
	if screen {
		if code, err = onScreen(ctx, t, stdin, out, o.attach != ""); err != nil {
			_, newline := io.WriteString(out, "\n") // wherever the cursor was left
			err = errors.Join(err, newline)
		}
	} else {
		code, err = a.piped(ctx, t)
	}
	err = errors.Join(err, t.Close())
	e, answered := errors.AsType[*execd.Error](err)
	switch {
	case answered && e.Code == execd.CodeStartFailed:
		if o.attach == "" {
			closeTerminal(ctx, sb, id)
		}
		return err
	case errors.Is(err, errDetached), ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		a.note("rein: detached; it goes on until the sandbox ends: rein sandbox shell %s --attach %s", sb.ID(), id)
		if errors.Is(err, errDetached) {
			return nil
		}
		return err
	case errors.Is(err, execd.ErrTakenOver):
		return withHint(err, fmt.Sprintf("rein sandbox shell %s --attach %s takes it back", sb.ID(), id))
	case err != nil:
		return withHint(err, fmt.Sprintf("what ran there may go on: rein sandbox shell %s --attach %s", sb.ID(), id))
	}
	closeTerminal(ctx, sb, id)
	if code < 0 {
		return errors.New("the program has ended, and the sandbox does not know how")
	}
	return status(code)
}

// closeTerminal forgets a terminal in which nothing runs. Whether that works
// changes nothing: the sandbox forgets it by itself after a while.
func closeTerminal(ctx context.Context, sb *sandbox.Sandbox, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = sb.CloseTerminal(ctx, id, shellAccess)
}

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
		if _, err = w.Write(e.Data); err != nil {
			break
		}
	}
	cancel(nil)
	in.stop()
	if in.ends() {
		feeding.Wait()
	}
	return code, errors.Join(err, flushOut(), flushErr())
}

// onScreen connects the user's terminal with that of the program. Whatever
// happens, it leaves the user's terminal as it was.
func onScreen(ctx context.Context, t *sandbox.Terminal, stdin, stdout *os.File, again bool) (code int, err error) {
	before, err := term.MakeRaw(int(stdin.Fd()))
	if err != nil {
		return 0, fmt.Errorf("the terminal: %w", err)
	}
	var shown screen
	var once sync.Once
	restore := func() {
		once.Do(func() {
			io.WriteString(stdout, shown.reset())
			discardInput(stdin) // an answer of the terminal's is not for the user's shell
			term.Restore(int(stdin.Fd()), before)
		})
	}
	defer restore()
	guard := func() { // a panic ends the process from whichever goroutine
		if r := recover(); r != nil {
			restore()
			panic(r)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	in := newKeyboard(stdin)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer in.stop()
	defer cancel(nil)
	tasks.Go(func() { defer guard(); typing(ctx, t, in, cancel) })
	tasks.Go(func() { defer guard(); resizing(ctx, t, stdout, again) })
	for {
		e, err := t.Next(ctx)
		if err != nil {
			return 0, err
		}
		if e.ExitCode != nil {
			return *e.ExitCode, nil
		}
		if _, err := stdout.Write(shown.filter(e.Data)); err != nil {
			return 0, err
		}
	}
}

// Detaching: ctrl-p, and ctrl-q within detachWait.
const (
	detachFirst  = 'p' & 0x1f
	detachSecond = 'q' & 0x1f
	detachWait   = 500 * time.Millisecond
)

// typing sends what is typed until the user detaches.
func typing(ctx context.Context, t *sandbox.Terminal, in *keyboard, detach context.CancelCauseFunc) {
	buf := make([]byte, 16<<10)
	held := false
	for {
		wait := time.Duration(-1)
		if held {
			wait = detachWait
		}
		n, err := in.read(buf, wait)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			if err == io.EOF { // the terminal is gone
				detach(errDetached)
			}
			return
		}
		send, now := detachable(buf[:n], &held)
		if len(send) > 0 && t.Write(ctx, send) != nil {
			return // Next says what became of the connection
		}
		if now {
			detach(errDetached)
			return
		}
	}
}

// detachable returns what of the keys is to be sent, and whether they detach.
// held says that ctrl-p was typed last and is not sent yet; no keys mean that
// the time for ctrl-q is over.
func detachable(keys []byte, held *bool) (send []byte, detach bool) {
	if len(keys) == 0 {
		if *held {
			*held = false
			return []byte{detachFirst}, false
		}
		return nil, false
	}
	for _, k := range keys {
		if *held {
			*held = false
			if k == detachSecond {
				return send, true
			}
			send = append(send, detachFirst)
		}
		if k == detachFirst {
			*held = true
			continue
		}
		send = append(send, k)
	}
	return send, false
}

// resizing tells the program how large the terminal is. For a program that was
// there before, the size is changed and changed back, so that it draws anew.
func resizing(ctx context.Context, t *sandbox.Terminal, stdout *os.File, again bool) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	defer signal.Stop(changed)
	for {
		if cols, rows, err := term.GetSize(int(stdout.Fd())); err == nil && cols > 0 && rows > 0 {
			if again && rows > 1 && t.Resize(ctx, cols, rows-1) != nil {
				return
			}
			again = false
			if t.Resize(ctx, cols, rows) != nil {
				return
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
