package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/secret"
)

const rotateHelp = `Puts another value behind the placeholder of the secret NAME, without a restart of
anything: the next request has it, and those under way keep the one they have. The
value is read again from where the configuration has the secret, or with --stdin from
standard input; it is on no command line and in no record. It must have the length and
the beginning of the one that the sandbox was made with.`

const sandboxRotateHelp = rotateHelp + `

A sandbox of a run is changed with "rein runs rotate", so that the run masks the value.`

const runsRotateHelp = rotateHelp + `

The run reads it, in the environment that it was started in: a secret of env: is
changed with --stdin alone.`

// readGiven reads a secret's value from standard input.
func (a *app) readGiven(name string) (secret.Value, error) {
	data, err := io.ReadAll(io.LimitReader(a.in, maxKeySize+1))
	if err != nil {
		return secret.Value{}, fmt.Errorf("read the value from stdin: %w", err)
	}
	value := trimmed(string(data))
	if why := notAKey(string(data), value); why != "" {
		return secret.Value{}, usage("write the key alone to standard input", "no key for %s: standard input %s", name, why)
	}
	return secret.New(name, value), nil
}

func (a *app) sandboxRotateCommand() *cobra.Command {
	var p place
	var given bool
	cmd := &cobra.Command{
		Use: "rotate ID NAME", Short: "change a secret of a sandbox behind its placeholder", Long: sandboxRotateHelp, Args: exactly("ID", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSandbox(cmd, p, args[0], func(sb *attached) error {
				if id := sb.Info().Labels[run.LabelRun]; id != "" {
					return usage("rein runs rotate "+id+" "+args[1], "sandbox %s is of a run", sb.ID())
				}
				value, err := a.readForSandbox(cmd.Context(), p, args[1], given)
				if err != nil {
					return err
				}
				if err := sb.RotateSecret(cmd.Context(), args[1], value); err != nil {
					return err
				}
				_, err = fmt.Fprintf(a.out, "%s: the secret %s has another value\n", sb.ID(), args[1])
				return cmp.Or(a.minted.outlive(sb.ID()), err)
			})
		},
	}
	p.flags(cmd)
	cmd.Flags().BoolVar(&given, "stdin", false, "read the value from standard input")
	return cmd
}

// readForSandbox reads the value that a secret of a sandbox is to have.
func (a *app) readForSandbox(ctx context.Context, p place, name string, given bool) (secret.Value, error) {
	if given {
		return a.readGiven(name)
	}
	f, err := a.load()
	if err != nil {
		return secret.Value{}, err
	}
	if _, known := f.Config.Secrets[name]; !known {
		return secret.Value{}, usage("its name is that under secrets: in the configuration that the sandbox was made with; --stdin needs no configuration", "the configuration has no secret %q", name)
	}
	a.minted.place = p.args()
	return a.vaultSecret(ctx, f.Config, name, false)
}

func (a *app) runsRotateCommand() *cobra.Command {
	var given bool
	cmd := &cobra.Command{
		Use: "rotate ID NAME", Short: "change a secret of a run that works behind its placeholder", Long: runsRotateHelp, Args: exactly("ID", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := a.dialRun(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer c.Close()
			var value secret.Value
			if given {
				if value, err = a.readGiven(args[1]); err != nil {
					return err
				}
			}
			if err := c.Rotate(cmd.Context(), args[1], value); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "the secret %s has another value\n", cleanLine(args[1]))
			return err
		},
	}
	cmd.Flags().BoolVar(&given, "stdin", false, "read the value from standard input")
	return cmd
}
