package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/run/control"
	"github.com/spf13/cobra"
)

// liveRun is a run in the list, with what it does if it works.
type liveRun struct {
	run.Summary
	Live *control.Status `json:"live,omitempty"`
}

// asking bounds how long one run of a list is asked.
const asking = 2 * time.Second

// live asks the runs that have no report what they do.
func live(ctx context.Context, list []run.Summary) []liveRun {
	out := make([]liveRun, len(list))
	for i, s := range list {
		out[i].Summary = s
		if s.Reason != "" {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, asking)
		if c, err := control.Dial(ctx, s.Dir); err == nil {
			if st, err := c.Status(ctx); err == nil {
				out[i].Live = &st
			}
			c.Close()
		}
		cancel()
	}
	return out
}

// state is a run's state in a word or a few.
func (l liveRun) state() string {
	switch {
	case l.Reason != "":
		return string(l.Reason)
	case l.Live == nil:
		return "unfinished"
	case l.Live.Waiting != "":
		return "waits: " + short(l.Live.Waiting, 50)
	}
	return "works: " + short(l.Live.Doing, 50)
}

// dialRun connects to the run named id, which has to be working.
func (a *app) dialRun(ctx context.Context, id string) (*control.Client, string, error) {
	dir, err := a.runDir(id)
	if err != nil {
		return nil, "", err
	}
	c, err := control.Dial(ctx, dir)
	if errors.Is(err, control.ErrNotRunning) {
		return nil, dir, usage("rein runs ls shows which runs work", "run %s: %s", id, err)
	}
	return c, dir, err
}

const runsApproveHelp = `Answers the question of that id, which a run waits for. Without QUESTION it shows what
waits. No other question ever has that id: what was read is what is answered.

What is approved is bound to the exact command, its directory, variables and the
content of the files it runs, and holds once; --for-run lets the same pass to the end
of the run. --list only lists.`

func (a *app) runsApproveCommand() *cobra.Command {
	var deny, forRun, list, asJSON bool
	var reason string
	cmd := &cobra.Command{Use: "approve ID [QUESTION]", Short: "answer what a run waits for: approve, or deny", Long: runsApproveHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 2 {
				return nil
			}
			return exactly("ID")(cmd, args)
		}}
	fl := cmd.Flags()
	fl.BoolVar(&deny, "deny", false, "say no")
	fl.BoolVar(&forRun, "for-run", false, "answer the same question the same way to the end of the run")
	fl.BoolVar(&list, "list", false, "only list what waits")
	fl.StringVar(&reason, "reason", "", "`TEXT` for the record, and for the model when it is denied")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		c, _, err := a.dialRun(ctx, args[0])
		if err != nil {
			return err
		}
		defer c.Close()
		pending, err := c.Pending(ctx)
		if err != nil {
			return err
		}
		if list {
			if asJSON {
				return a.printJSON(append([]control.Pending{}, pending...))
			}
			if len(pending) == 0 {
				a.note("the run waits for no answer")
			}
			a.sayPending(pending)
			return nil
		}
		q, err := choose(pending, args[1:])
		if err != nil {
			a.sayPending(pending)
			return err
		}
		answer := control.Answer{ID: q.ID, Hash: q.Hash, Decision: control.Approve, Scope: control.Once, Reason: reason}
		if deny {
			answer.Decision = control.Deny
		}
		if forRun {
			answer.Scope = control.ForRun
		}
		if err := c.Approve(ctx, answer); err != nil {
			return err
		}
		if asJSON {
			return a.printJSON(map[string]any{"question": q, "decision": answer.Decision, "scope": answer.Scope})
		}
		text := q.Text
		if q.Kind == string(approval.Host) { // what follows it is about it
			text, _, _ = strings.Cut(text, "\n")
		}
		fmt.Fprintf(a.out, "%s: %s\n", map[control.Decision]string{control.Approve: "approved", control.Deny: "denied"}[answer.Decision], short(text, 200))
		return nil
	}
	return cmd
}

// choose finds the question of that id. What is not named is not answered: it may
// not be what was read.
func choose(pending []control.Pending, id []string) (control.Pending, error) {
	switch {
	case len(pending) == 0:
		return control.Pending{}, usage("rein runs ls shows what runs wait for", "the run waits for no answer")
	case len(id) == 0:
		return control.Pending{}, usage("name the question that is answered, such as "+cleanLine(pending[0].ID), "no question is named")
	}
	for _, q := range pending {
		if q.ID == id[0] {
			return q, nil
		}
	}
	return control.Pending{}, usage("name one that waits", "no question %q waits for an answer", id[0])
}

// sayPending prints questions. What they show was written by a model.
func (a *app) sayPending(pending []control.Pending) {
	for _, q := range pending {
		fmt.Fprintf(a.out, "%s  %s, asked %s, expires %s\n", cleanLine(q.ID), strings.TrimSpace(cleanLine(q.Kind)+" "+cleanLine(q.Tool)),
			q.Since.Local().Format(time.TimeOnly), q.Expires.Local().Format(time.TimeOnly))
		for line := range strings.SplitSeq(clean(q.Text), "\n") {
			fmt.Fprintf(a.out, "    %s\n", line)
		}
		if q.Cwd != "" {
			fmt.Fprintf(a.out, "  in %s\n", cleanLine(q.Cwd))
		}
		if len(q.Env) > 0 {
			fmt.Fprintf(a.out, "  with %s\n", cleanLine(strings.Join(q.Env, ", ")))
		}
		for _, name := range slices.Sorted(maps.Keys(q.Files)) {
			fmt.Fprintf(a.out, "  runs %s, SHA-256 %s\n", cleanLine(name), cleanLine(q.Files[name]))
		}
		fmt.Fprintf(a.out, "  because %s\n", cleanLine(cmp.Or(q.Why, "a rule asks")))
		if q.Hidden || q.Cut {
			fmt.Fprintln(a.out, "  not all of it is shown: it is long, or has characters that cannot be seen")
		}
	}
}

func (a *app) runsStopCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "stop ID", Short: "stop a run that works: outputs are saved, the sandbox is destroyed", Args: exactly("ID"),
		Long: "Stops a run as an interrupt at its terminal does: what it has done is saved, its\nchecks are not run, its sandbox is destroyed, its report is written.",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, dir, err := a.dialRun(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer c.Close()
			if err := c.Stop(cmd.Context(), reason); err != nil {
				return err
			}
			id := filepath.Base(dir)
			_, err = fmt.Fprintf(a.out, "%s: told to stop; its outputs are saved, its sandbox is destroyed, and rein runs report %s shows it then\n", id, id)
			return err
		}}
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` for the record and the report")
	return cmd
}
