package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rein-sh/rein/sandbox/local"
	"github.com/spf13/cobra"
)

const gcHelp = `Removes what sandboxes left behind that ended without their keeper: processes,
directories, cgroups. Every command that uses sandboxes does so first. With --all,
sandboxes that still live are ended as well, whoever uses them.`

// sweeper is implemented by providers that can leave something behind.
type sweeper interface {
	Sweep(ctx context.Context, all bool) (local.SweepReport, error)
}

// gcReport is what "rein sandbox gc --json" prints.
type gcReport struct {
	Ended   []string `json:"ended"`   // they were alive
	Removed []string `json:"removed"` // left-overs
	Kept    []string `json:"kept"`    // alive and left alone
}

func (a *app) sandboxGCCommand() *cobra.Command {
	var p place
	var all, asJSON bool
	cmd := &cobra.Command{
		Use: "gc", Short: "remove what dead sandboxes left behind; with --all end the live ones, too", Long: gcHelp, Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := a.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			report, failed := a.collect(cmd.Context(), h, all)
			if asJSON {
				return errors.Join(a.printJSON(report), failed)
			}
			for _, line := range []struct {
				what string
				ids  []string
			}{{"ended", report.Ended}, {"removed", report.Removed}, {"kept", report.Kept}} {
				for _, id := range line.ids {
					fmt.Fprintln(a.out, line.what, cleanLine(id))
				}
			}
			return failed
		},
	}
	p.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "end live sandboxes, too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// collect sweeps; with all, what lives is ended first, recorded like any kill.
func (a *app) collect(ctx context.Context, h *host, all bool) (gcReport, error) {
	r := gcReport{Ended: []string{}, Removed: append([]string{}, h.swept...), Kept: []string{}}
	var failed error
	if all {
		list, err := h.provider.List(ctx, nil)
		failed = errors.Join(failed, err)
		for _, s := range list {
			if _, err := a.end(ctx, h, s.ID); err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			r.Ended = append(r.Ended, s.ID)
		}
	}
	if s, ok := h.provider.(sweeper); ok {
		swept, err := s.Sweep(ctx, all)
		failed = errors.Join(failed, err)
		r.Removed = append(r.Removed, swept.Removed...)
		r.Kept = append(r.Kept, swept.Kept...)
	}
	return r, failed
}

// sweep removes left-overs before a provider is used. What cannot be removed
// now is said, and is no reason not to go on.
func (a *app) sweep(ctx context.Context, p any) []string {
	s, ok := p.(sweeper)
	if !ok {
		return nil
	}
	swept, err := s.Sweep(ctx, false)
	if err != nil {
		a.note("warning: left-overs of dead sandboxes remain: %s", err)
	}
	return swept.Removed
}
