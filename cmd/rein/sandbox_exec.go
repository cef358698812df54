package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

const execHelp = `Runs a command in a sandbox, shows its output as it comes, and exits with the
command's own code. The arguments are passed as they are, not read by a shell;
for a pipeline write

  rein sandbox exec ID -- sh -c 'make 2>&1 | tail'

Standard input is empty. Exit codes that are not the command's: 124 when the
timeout ended it, 128 plus the number of the signal that did, 125 when rein
failed, 130 when interrupted, 141 when nobody read stdout any more. Output is
exact when stdout is a file or a pipe; on a terminal, control characters are left
out.`

// exitTimeout is the code of a command that its timeout ended, as timeout(1)
// has it.
const exitTimeout = 124

func (a *app) sandboxExecCommand() *cobra.Command {
	var p place
	c := sandbox.Command{Tool: "sandbox exec"}
	timeout := config.Duration(sandbox.DefaultTimeout)
	var env []string
	cmd := &cobra.Command{
		Use: "exec [flags] ID -- COMMAND [ARGUMENT...]", Short: "run a command in a sandbox", Long: execHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || cmd.ArgsLenAtDash() != 1 {
				return usage("usage: "+cmd.UseLine(), "%s takes an ID, two dashes and a command", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if timeout == 0 {
				return usage("--timeout takes a duration above zero, such as 10m", "--timeout: there is no command without a limit")
			}
			c.Shell, c.Timeout = quote(args[1:]), time.Duration(timeout)
			if c.Env, err = parseEnv(env); err != nil {
				return err
			}
			return a.withSandbox(cmd, p, args[0], func(sb *attached) error { return a.exec(cmd.Context(), sb, c) })
		},
	}
	p.flags(cmd)
	cmd.Flags().Var(textValue[config.Duration, *config.Duration]{&timeout, "duration"}, "timeout", "end the command after this time")
	cmd.Flags().StringVar(&c.Cwd, "cwd", "", "`DIR` inside (default the sandbox's working directory)")
	cmd.Flags().StringArrayVar(&env, "env", nil, "`NAME=VALUE` for the command (repeatable)")
	return cmd
}

func parseEnv(pairs []string) (map[string]string, error) {
	env := map[string]string{}
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, usage("--env NAME=VALUE", "%q sets no variable", p)
		}
		env[k] = v
	}
	return env, nil
}

// quote makes one shell command of an argument list.
func quote(argv []string) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}

// exec runs c with its output on ours, and returns its exit code as an error.
func (a *app) exec(ctx context.Context, sb *attached, c sandbox.Command) error {
	stdout, flushOut := a.out.raw()
	stderr, flushErr := a.err.raw()
	c.Stdout, c.Stderr = stdout, stderr
	r, err := sb.Run(ctx, c)
	if err := errors.Join(err, flushOut(), flushErr()); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.OOMKilled {
		a.note("rein: the command ran out of memory")
	}
	if r.KilledBy == execd.KilledByPause {
		a.note("rein: the command kept waking while the sandbox was paused, and was ended")
	}
	if r.HeldOpen {
		a.note("rein: a process it left behind held its output open and was ended")
	}
	switch {
	case r.TimedOut():
		fmt.Fprintf(a.err, "%s the command was ended by its timeout of %s\n", a.style("rein:", styleError), config.Duration(c.Timeout))
		fmt.Fprintf(a.err, "%s --timeout raises it\n", a.style("hint:", styleHint))
		return exitStatus(exitTimeout)
	case r.ExitCode != nil:
		return status(*r.ExitCode)
	case r.Signal != "":
		return exitStatus(128 + int(unix.SignalNum(r.Signal)))
	case r.KilledBy == execd.KilledByShutdown:
		return &sandbox.Error{Kind: sandbox.KindLost, Op: "exec", Subject: sb.ID(), Err: errors.New("the sandbox ended under the command"), Hint: "rein sandbox ls"}
	}
	return errors.New("how the command ended is not known")
}

func status(code int) error {
	if code == 0 {
		return nil
	}
	return exitStatus(code)
}
