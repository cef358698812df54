package main

import (
	"fmt"

	"github.com/rein-sh/rein/run"
	"github.com/spf13/cobra"
)

const replayHelp = `Does a finished run again from its record: the model is answered for with the replies
it gave, the tools with the results there were, and the loop has to make the same
calls, come to the same verdicts and end for the same reason. Nothing is asked,
executed or written, and no key is needed. The record is checked first: the audit
log's chain up to the head in the report, and each entry of the transcript.

A difference means that this rein, or the configuration, is not what the run was
made with. Exit codes: 0 the same, 1 not the same or not to be replayed, 2 usage.`

func (a *app) runsReplayCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "replay ID", Short: "do a run again from its record, without executing anything", Long: replayHelp, Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := a.runDir(args[0])
			if err != nil {
				return err
			}
			rep, err := readReport(cmd.Context(), dir, args[0])
			if err != nil {
				return err
			}
			if err := run.Replayable(rep); err != nil {
				return err
			}
			a.keyless = true
			o, w, _, err := a.begun(cmd.Context(), dir)
			if err != nil {
				return err
			}
			res, err := run.Replay(cmd.Context(), dir, rep.AuditHead.String(), o, w.(run.Resumer))
			if err != nil {
				return err
			}
			return a.sayReplayed(res, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

func (a *app) sayReplayed(r *run.Replayed, asJSON bool) error {
	if r.Changed {
		a.note("the configuration is not the one the run was made with")
	}
	if asJSON {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		for _, d := range r.Differences {
			fmt.Fprintln(a.out, cleanLine(d.String()))
		}
		verdict := "the same"
		if !r.Same {
			verdict = "not the same"
		}
		fmt.Fprintf(a.out, "%s: %d requests, %d replies, %d calls, ended as %s\n", verdict, r.Requests, r.Replies, r.Calls, cleanLine(string(r.Replayed)))
	}
	if !r.Same {
		return exitStatus(exitFailure)
	}
	return nil
}
