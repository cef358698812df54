package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/run"
	"github.com/spf13/cobra"
)

const pruneRunsHelp = `Removes the records of runs: audit log, transcript, report, patch and artifacts.
--older-than removes those that ended so long ago, --max-size the oldest until all
together take no more. With both, what either says.

A run that works is never removed. One that was killed, and could be resumed, is
removed only with --all. Sandboxes are not touched: "rein sandbox gc" is for them.`

func (a *app) runsPruneCommand() *cobra.Command {
	var asJSON bool
	var older config.Duration
	var most config.Size
	p := run.PrunePolicy{}
	cmd := &cobra.Command{
		Use: "prune", Short: "remove the records of old runs", Long: pruneRunsHelp, Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.Age, p.Bytes = time.Duration(older), int64(most)
			if p.Age <= 0 && p.Bytes <= 0 {
				return usage("give --older-than, such as 720h, or --max-size, such as 1GiB; --dry-run shows what would go", "nothing says which runs to remove")
			}
			state, err := a.env.stateDir()
			if err != nil {
				return err
			}
			gone, err := run.Prune(cmd.Context(), state, p)
			if asJSON {
				return errors.Join(err, a.printJSON(append([]run.Pruned{}, gone...)))
			}
			done := "removed"
			if p.DryRun {
				done = "would remove"
			}
			var size int64
			for _, r := range gone {
				size += r.Bytes
				fmt.Fprintln(a.out, done, r.RunID)
			}
			if err == nil {
				a.note("%s %d runs, %s", done, len(gone), bytesText(size))
			}
			return err
		},
	}
	fl := cmd.Flags()
	fl.Var(textValue[config.Duration, *config.Duration]{&older, "duration"}, "older-than", "remove runs that ended so long ago, such as 720h")
	fl.Var(textValue[config.Size, *config.Size]{&most, "size"}, "max-size", "remove the oldest until all together take no more, such as 1GiB")
	fl.BoolVar(&p.All, "all", false, "also runs that were killed and could be resumed")
	fl.BoolVar(&p.DryRun, "dry-run", false, "remove nothing, and say what would be")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
