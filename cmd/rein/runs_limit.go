package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/run/control"
	"github.com/spf13/cobra"
)

// count is a number with an optional k, m or g.
type count int64

func (c *count) UnmarshalText(text []byte) error {
	t := strings.ToLower(strings.TrimSpace(string(text)))
	factor := int64(1)
	for suffix, f := range map[string]int64{"k": 1e3, "m": 1e6, "g": 1e9} {
		if n, ok := strings.CutSuffix(t, suffix); ok {
			t, factor = n, f
			break
		}
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(t, "_", ""), 64)
	if v := n * float64(factor); err != nil || !(v >= 1 && v < 1<<53) || v != float64(int64(v)) {
		return fmt.Errorf("%q is no number above zero; write one such as 500000, 500k or 2m", text)
	}
	*c = count(n * float64(factor))
	return nil
}

func (c count) MarshalText() ([]byte, error) { return []byte(strconv.FormatInt(int64(c), 10)), nil }

const runsLimitHelp = `Raises or lowers limits of a run that works. A limit of a round or of the run that is
lowered below what is used stops the run at its next step, with a last turn and a
report. Timeouts and what is shown of outputs hold from the next call on, the sandbox's
time to live from its next renewal on, never past the run's end and 3 minutes. Limits
that do not go together are refused, and then none is changed. The change is in the
run's record and its report, with who made it.

  rein runs limit last --max-tokens 2m --max-wall-time 1h`

// limitWant is a limit to be set.
type limitWant struct {
	limit  budget.Limit
	amount int64
}

func (a *app) runsLimitCommand() *cobra.Command {
	var steps, calls, tokens, lines count
	var wall, callTimeout, maxCallTimeout, ttl config.Duration
	var shown config.Size
	var dollars float64
	var asJSON bool
	cmd := &cobra.Command{Use: "limit ID", Short: "raise or lower limits of a run that works", Long: runsLimitHelp, Args: exactly("ID")}
	fl := cmd.Flags()
	name := func(l budget.Limit) string { return strings.TrimPrefix(l.Flag(), "--") }
	number := func(p *count, l budget.Limit, help string) {
		fl.Var(textValue[count, *count]{p, "N"}, name(l), help)
	}
	duration := func(p *config.Duration, l budget.Limit, help string) {
		fl.Var(textValue[config.Duration, *config.Duration]{p, "duration"}, name(l), help)
	}
	duration(&callTimeout, budget.LimitCallTimeout, "timeout of a command that asks for none, from the next call on")
	duration(&maxCallTimeout, budget.LimitMaxCallTimeout, "the most a command may ask for, from the next call on")
	fl.Var(textValue[config.Size, *config.Size]{&shown, "size"}, name(budget.LimitOutputBytes), "bytes of a call's output shown to the model, from the next call on")
	number(&lines, budget.LimitOutputLines, "lines of a call's output shown to the model, from the next call on")
	number(&steps, budget.LimitSteps, "replies of the model")
	number(&calls, budget.LimitToolCalls, "tool calls")
	duration(&wall, budget.LimitWallTime, "time from the start of the run to its end")
	number(&tokens, budget.LimitTokens, "tokens, input and output together, such as 2m")
	fl.Float64Var(&dollars, name(budget.LimitCost), 0, "`DOLLARS` of the run")
	duration(&ttl, budget.LimitTTL, "time to live of the sandbox, from its next renewal on")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := refuseZero(cmd); err != nil {
			return err
		}
		wants := slices.DeleteFunc([]limitWant{
			{budget.LimitCallTimeout, int64(callTimeout)}, {budget.LimitMaxCallTimeout, int64(maxCallTimeout)},
			{budget.LimitOutputBytes, int64(shown)}, {budget.LimitOutputLines, int64(lines)},
			{budget.LimitSteps, int64(steps)}, {budget.LimitToolCalls, int64(calls)}, {budget.LimitWallTime, int64(wall)},
			{budget.LimitTokens, int64(tokens)}, {budget.LimitCost, int64(budget.Dollars(dollars))}, {budget.LimitTTL, int64(ttl)},
		}, func(w limitWant) bool { return w.amount == 0 })
		if len(wants) == 0 {
			return usage("such as --max-tokens 2m", "%s: no limit is given", cmd.CommandPath())
		}
		c, _, err := a.dialRun(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer c.Close()
		return a.setLimits(cmd.Context(), c, wants, asJSON)
	}
	return cmd
}

// setLimits sets limits of a run that works, and prints what they were.
func (a *app) setLimits(ctx context.Context, c *control.Client, wants []limitWant, asJSON bool) error {
	st, err := c.Status(ctx)
	if err != nil {
		return err
	}
	if wants, err = inOrder(st.Limits, wants); err != nil {
		hint := "rein runs limit --help"
		if e, ok := errors.AsType[*budget.InvalidError](err); ok {
			hint = e.Hint()
		}
		return usage(hint, "nothing is changed: %s", err)
	}
	changes := []control.Change{}
	for _, w := range wants {
		ch, err := c.Limit(ctx, w.limit, w.amount)
		if err != nil {
			return fmt.Errorf("%s: %w", w.limit.Flag(), err)
		}
		if changes = append(changes, ch); !asJSON {
			fmt.Fprintf(a.out, "%s: %s → %s\n", cleanLine(string(ch.Limit)), cleanLine(ch.Old), cleanLine(ch.New))
		}
	}
	if asJSON {
		return a.printJSON(changes)
	}
	return nil
}

// inOrder is wants in an order in which the limits go together after each, or
// why they do not after the last.
func inOrder(now []control.Limit, wants []limitWant) ([]limitWant, error) {
	in, all := budget.Limits{}, budget.Limits{}
	for _, l := range now {
		in, _, _ = in.With(l.Name, l.Amount) // together they are in force
	}
	all = in
	for _, w := range wants {
		all, _, _ = all.With(w.limit, w.amount) // judged together
	}
	if err := all.Validate(); err != nil {
		return nil, err
	}
	var order []limitWant
	for len(wants) > 0 {
		i := slices.IndexFunc(wants, func(w limitWant) bool { _, _, err := in.With(w.limit, w.amount); return err == nil })
		i = max(i, 0)
		in, _, _ = in.With(wants[i].limit, wants[i].amount)
		order, wants = append(order, wants[i]), slices.Delete(wants, i, i+1)
	}
	return order, nil
}
