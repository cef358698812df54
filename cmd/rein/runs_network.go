package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/run/control"
	"github.com/spf13/cobra"
)

const runsAllowHelp = `Lets the sandbox of a run that works reach a host, from now to the end of the run.
Without PORT that is tls on 443 and http on 80; for other ports PROTO is needed: tls
or http, whose names are checked, or tcp. A rule that denies the host wins, and then
nothing is changed. The change is in the run's record and its report, with who made
it, and is made again when the run is resumed.

  rein runs allow last api.example.com
  rein runs allow last db.example.com:5432/tcp`

const runsDenyHelp = `Closes a host to the sandbox of a run that works, from now to the end of the run:
what is open to it is closed at once. Without PORT that is every port. A later "rein
runs allow" of the same host takes it back. The change is in the run's record and its
report, with who made it, and is made again when the run is resumed.`

func (a *app) runsAllowCommand() *cobra.Command {
	return a.runsNetworkCommand("allow ID HOST[:PORT][/PROTO]", "let a run that works reach a host", runsAllowHelp, (*control.Client).Allow)
}

func (a *app) runsDenyCommand() *cobra.Command {
	return a.runsNetworkCommand("deny ID HOST[:PORT]", "close a host to a run that works", runsDenyHelp, (*control.Client).Deny)
}

func (a *app) runsNetworkCommand(use, short, long string, change func(*control.Client, context.Context, control.Host) (control.NetworkChange, error)) *cobra.Command {
	var asJSON bool
	words := strings.Fields(use)
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: exactly(words[1:]...)}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := parseTarget(args[1])
		if err == nil && words[0] == policy.ActionDeny && r.Proto != "" {
			err = withHint(fmt.Errorf("what is denied is so whatever is spoken"), "leave /"+r.Proto+" out")
		}
		if err == nil && words[0] == policy.ActionAllow {
			err = unspoken(r)
		}
		if err != nil {
			return usage(hintOf(err), "%s: %s", args[1], err)
		}
		h := control.Host{Host: r.Host + r.CIDR, Proto: r.Proto} // one of both
		if len(r.Ports) > 0 {
			h.Port = r.Ports[0]
		}
		c, _, err := a.dialRun(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer c.Close()
		ch, err := change(c, cmd.Context(), h)
		if err != nil {
			return err
		}
		if asJSON {
			return a.printJSON(ch)
		}
		done := map[string]string{policy.ActionAllow: "may be reached", policy.ActionDeny: "may not be reached"}[ch.Action]
		fmt.Fprintf(a.out, "%s %s: policy %d of this sandbox\n", cleanLine(args[1]), done, ch.Generation)
		for _, line := range ch.Says {
			fmt.Fprintf(a.out, "  %s\n", cleanLine(line))
		}
		return nil
	}
	return cmd
}
