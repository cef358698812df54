package main

import (
	"fmt"

	"github.com/rein-sh/rein/lab"
	"github.com/spf13/cobra"
)

const labHelp = `The experiments show on this machine, with this provider, whether the boundaries
rein promises hold. None needs a model or a network.

  a1   the tool chain without a model: structured results, a failing command's
       exit code and stderr, the sandbox destroyed

Exits 0 when the experiment passes, 1 when it fails, 2 for a usage error.`

func (a *app) labCommand() *cobra.Command {
	return group("lab", "the experiments: do the boundaries hold on this machine?", labHelp, a.labA1Command())
}

func (a *app) labA1Command() *cobra.Command {
	var asJSON bool
	var target, runtime string
	cmd := &cobra.Command{
		Use: "a1", Short: "the tool chain without a model", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := a.load()
			if err != nil {
				return err
			}
			_, t, err := resolveTarget(f.Config, place{target: target, runtime: runtime})
			if err != nil {
				return err
			}
			p, err := a.openProvider(cmd.Context(), f, t)
			if err != nil {
				return err
			}
			state, err := a.env.stateDir()
			if err != nil {
				return err
			}
			masker, err := a.masker(cmd.Context(), f.Config)
			if err != nil {
				return err
			}
			a.sweep(cmd.Context(), p)
			result, err := lab.A1(cmd.Context(), lab.Env{Provider: p, Spec: specOf(t), Masker: masker, StateDir: state, Progress: a.labStep})
			if err != nil {
				return err
			}
			return a.labResult(result, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	cmd.Flags().StringVar(&target, "target", "", "run it in the target `NAME` of the configuration")
	cmd.Flags().StringVar(&runtime, "runtime", "", "run it with this `RUNTIME`: gvisor, runc, or a path")
	return cmd
}

func (a *app) labStep(s lab.Step) {
	mark, st := "ok  ", styleGood
	if !s.Pass {
		mark, st = "FAIL", styleError
	}
	fmt.Fprintf(a.err, "%s %s (%d ms)\n", a.style(mark, st), cleanLine(s.Name), s.DurationMS)
	if !s.Pass {
		fmt.Fprintf(a.err, "     expected %s\n     got      %s\n", cleanLine(s.Expected), cleanLine(s.Got))
	}
}

func (a *app) labResult(r lab.Result, asJSON bool) error {
	if asJSON {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		verdict := "pass"
		if !r.Pass {
			verdict = "fail"
		}
		fmt.Fprintf(a.out, "%s %s: %s (%s/%s, %d steps, %d ms)\n", cleanLine(r.Experiment), verdict, cleanLine(r.Title),
			cleanLine(r.Provider), cleanLine(r.Runtime), len(r.Steps), r.DurationMS)
	}
	if r.AuditHead != "" {
		fmt.Fprintf(a.err, "audit %s head %s\n", cleanLine(r.AuditPath), cleanLine(r.AuditHead))
	}
	if !r.Pass {
		return exitStatus(exitFailure)
	}
	return nil
}
