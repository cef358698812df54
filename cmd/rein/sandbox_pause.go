package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/sandbox"
)

const pauseHelp = `Stops everything in a sandbox until "rein sandbox resume". Commands that run wait,
and their timeouts go on; new requests are refused. The sandbox's end comes all
the same, unless --hold has it wait for as long as the pause, and at most that.
--json prints the sandbox as it is then, with the end in force.`

const resumeHelp = `Lets everything in a paused sandbox go on. --json prints the sandbox as it is then,
with the end in force: one that --hold held is later by the time of the pause.`

func (a *app) sandboxPauseCommand() *cobra.Command {
	var p place
	var hold config.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use: "pause ID", Short: "stop everything in a sandbox for a while", Long: pauseHelp, Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if most := maxTTL(); time.Duration(hold) > most {
				return usage("--hold "+config.Duration(most).String()+" at most", "--hold %s: a pause holds a sandbox's end for at most %s", hold, config.Duration(most))
			}
			return a.withSandbox(cmd, p, args[0], func(sb *attached) error {
				if err := sb.Pause(cmd.Context(), sandbox.PauseOptions{Hold: time.Duration(hold)}); err != nil {
					return err
				}
				return a.printState(cmd, sb.Sandbox, asJSON)
			})
		},
	}
	p.flags(cmd)
	cmd.Flags().Var(textValue[config.Duration, *config.Duration]{&hold, "duration"}, "hold", "have the sandbox's end wait meanwhile, at most this long")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printState prints, when that is asked for, what became of a sandbox. What was
// done is done if that cannot be found out.
func (a *app) printState(cmd *cobra.Command, sb *sandbox.Sandbox, asJSON bool) error {
	if !asJSON {
		return nil
	}
	info, err := sb.Refresh(cmd.Context())
	if err != nil {
		return fmt.Errorf("%s is done; what came of it is not known: %w", cmd.Name(), err)
	}
	return a.printJSON(info)
}

func (a *app) sandboxResumeCommand() *cobra.Command {
	var p place
	var asJSON bool
	cmd := &cobra.Command{
		Use: "resume ID", Short: "let a paused sandbox go on", Long: resumeHelp, Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSandbox(cmd, p, args[0], func(sb *attached) error {
				if err := sb.Resume(cmd.Context()); err != nil {
					return err
				}
				return a.printState(cmd, sb.Sandbox, asJSON)
			})
		},
	}
	p.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
