package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/spf13/cobra"
)

func presetNames() []string { return budget.Presets() }

// defaultPreset holds when nothing names one.
const defaultPreset = "standard"

// limitFlags gives cmd a flag for every limit of package budget, with the
// name a breach of it shows.
func limitFlags(cmd *cobra.Command, l *config.Limits) {
	fl := cmd.Flags()
	name := limitName
	duration := func(p *config.Duration, limit budget.Limit, help string) {
		fl.Var(textValue[config.Duration, *config.Duration]{p, "duration"}, name(limit), help)
	}
	fl.StringVar(&l.Preset, "preset", "", "`NAME` of the limits to start from: "+strings.Join(presetNames(), ", ")+" (default "+defaultPreset+")")
	duration(&l.CallTimeout, budget.LimitCallTimeout, "timeout of a command that asks for none")
	duration(&l.MaxCallTimeout, budget.LimitMaxCallTimeout, "the most a command may ask for")
	fl.Var(textValue[config.Size, *config.Size]{&l.OutputBytes, "size"}, name(budget.LimitOutputBytes), "bytes of a call's output shown to the model")
	fl.IntVar(&l.OutputLines, name(budget.LimitOutputLines), 0, "`N` lines of a call's output shown to the model")
	fl.IntVar(&l.MaxSteps, name(budget.LimitSteps), 0, "`N` replies of the model")
	fl.IntVar(&l.MaxToolCalls, name(budget.LimitToolCalls), 0, "`N` tool calls")
	duration(&l.MaxWallTime, budget.LimitWallTime, "time from the start of the run to its end")
	fl.Var(textValue[count, *count]{(*count)(&l.MaxTokens), "N"}, name(budget.LimitTokens), "`N` tokens, input and output together, such as 500000 or 2m")
	fl.Float64Var(&l.MaxCost, name(budget.LimitCost), 0, "`DOLLARS`; needs the model's price")
	duration(&l.TTL, budget.LimitTTL, "time to live of the sandbox at birth (default from the wall time)")
}

// limitName is the name of a limit's flag.
func limitName(l budget.Limit) string { return strings.TrimPrefix(l.Flag(), "--") }

// agentLimitFlags are those of limitFlags that bound an agent whose calls are its
// own.
func agentLimitFlags(cmd *cobra.Command, l *config.Limits) {
	all := &cobra.Command{}
	limitFlags(all, l)
	for _, limit := range []budget.Limit{budget.LimitSteps, budget.LimitWallTime, budget.LimitTokens, budget.LimitCost, budget.LimitTTL} {
		cmd.Flags().AddFlag(all.Flags().Lookup(limitName(limit)))
	}
	cmd.Flags().Lookup("max-steps").Usage = "`N` requests to models"
	cmd.Flags().StringVar(&l.Preset, "preset", "", "`NAME` of the limits to start from: "+strings.Join(presetNames(), ", ")+" (default "+wrapPreset+")")
}

// refuseZero refuses a limit whose flag was given a zero: there is no "no
// limit", and a zero must not quietly mean the preset's number.
func refuseZero(cmd *cobra.Command) error {
	for _, s := range budget.Standard().List() {
		l := s.Limit
		f := cmd.Flags().Lookup(strings.TrimPrefix(l.Flag(), "--"))
		if f == nil || !f.Changed {
			continue
		}
		if v := f.Value.String(); v == "" || v == "0" || v[0] == '-' {
			return usage(l.Flag()+" takes a number above zero; leave it out for the preset's", "%s: there is no run without a limit", l.Flag())
		}
	}
	return nil
}

// resolveLimits lays flags over the configuration over the preset. A preset
// named by a flag wins over the numbers of the configuration, too.
func resolveLimits(cmd *cobra.Command, file, flags config.Limits) (budget.Limits, error) {
	if err := refuseZero(cmd); err != nil {
		return budget.Limits{}, err
	}
	if flags.Preset != "" {
		file = config.Limits{Preset: flags.Preset}
	}
	merged := overLimits(file, flags)
	usual := defaultPreset
	switch cmd.Name() {
	case wrapName:
		usual = wrapPreset
	case mcpName:
		usual = mcpPreset
	}
	l, ok := budget.Preset(cmp.Or(merged.Preset, usual))
	if !ok {
		return l, usage(config.DidYouMean(merged.Preset, presetNames()), "no preset %q", merged.Preset)
	}
	l = toBudget(merged, l)
	if err := l.Validate(); err != nil {
		hint := "rein run --help lists the limits"
		if e, ok := errors.AsType[*budget.InvalidError](err); ok {
			hint = e.Hint()
		}
		return l, usage(hint, "%s", err)
	}
	return l, nil
}

// checkLimits judges the limits of a configuration, which must hold by
// themselves, without flags.
func checkLimits(f *config.File) error {
	l, ok := budget.Preset(cmp.Or(f.Config.Limits.Preset, defaultPreset))
	if !ok {
		return nil // Validate has said so
	}
	l = toBudget(f.Config.Limits, l)
	if e, ok := errors.AsType[*budget.InvalidError](l.Validate()); ok {
		key := "limits." + string(e.Limit)
		return f.Fault(key, "set "+key, "%s %s", e.Value, e.Reason)
	}
	if i := tooSlow(f.Config.Tools, l); i >= 0 {
		return f.Fault(fmt.Sprintf("tools.custom[%d].timeout", i), "write a shorter one, or raise limits.max_call_timeout",
			"%s is more than any call may take, %s", f.Config.Tools.Custom[i].Timeout, config.Duration(l.MaxCallTimeout))
	}
	return nil
}

// tooSlow is the first narrow tool whose own timeout no call may have, -1 for
// none.
func tooSlow(t config.Tools, l budget.Limits) int {
	return slices.IndexFunc(t.Custom, func(c config.CustomTool) bool { return time.Duration(c.Timeout) > l.MaxCallTimeout })
}

// checkTools refuses narrow tools that would fail in every call, because flags
// leave a call less time than theirs.
func checkTools(t config.Tools, l budget.Limits) error {
	i := tooSlow(t, l)
	if i < 0 {
		return nil
	}
	return usage("raise "+budget.LimitMaxCallTimeout.Flag()+", or shorten its timeout in the configuration",
		"the tool %s has %s for a call, more than any may take, %s", t.Custom[i].Name, t.Custom[i].Timeout, config.Duration(l.MaxCallTimeout))
}

// overLimits is base with what over sets.
func overLimits(base, over config.Limits) config.Limits {
	return config.Limits{
		Preset:         cmp.Or(over.Preset, base.Preset),
		CallTimeout:    cmp.Or(over.CallTimeout, base.CallTimeout),
		MaxCallTimeout: cmp.Or(over.MaxCallTimeout, base.MaxCallTimeout),
		OutputBytes:    cmp.Or(over.OutputBytes, base.OutputBytes),
		OutputLines:    cmp.Or(over.OutputLines, base.OutputLines),
		MaxSteps:       cmp.Or(over.MaxSteps, base.MaxSteps),
		MaxToolCalls:   cmp.Or(over.MaxToolCalls, base.MaxToolCalls),
		MaxWallTime:    cmp.Or(over.MaxWallTime, base.MaxWallTime),
		MaxTokens:      cmp.Or(over.MaxTokens, base.MaxTokens),
		MaxCost:        cmp.Or(over.MaxCost, base.MaxCost),
		TTL:            cmp.Or(over.TTL, base.TTL),
	}
}

// toBudget is preset with what c sets.
func toBudget(c config.Limits, preset budget.Limits) budget.Limits {
	return budget.Limits{
		CallTimeout:    cmp.Or(time.Duration(c.CallTimeout), preset.CallTimeout),
		MaxCallTimeout: cmp.Or(time.Duration(c.MaxCallTimeout), preset.MaxCallTimeout),
		OutputBytes:    cmp.Or(int(c.OutputBytes), preset.OutputBytes),
		OutputLines:    cmp.Or(c.OutputLines, preset.OutputLines),
		MaxSteps:       cmp.Or(c.MaxSteps, preset.MaxSteps),
		MaxToolCalls:   cmp.Or(c.MaxToolCalls, preset.MaxToolCalls),
		MaxWallTime:    cmp.Or(time.Duration(c.MaxWallTime), preset.MaxWallTime),
		MaxTokens:      cmp.Or(c.MaxTokens, preset.MaxTokens),
		MaxCost:        cmp.Or(budget.Dollars(c.MaxCost), preset.MaxCost),
		TTL:            cmp.Or(time.Duration(c.TTL), preset.TTL),
	}
}

// effectiveLimits is what holds when no flag says otherwise.
func effectiveLimits(c config.Limits) config.Limits {
	c.Preset = cmp.Or(c.Preset, defaultPreset)
	l, ok := budget.Preset(c.Preset)
	if !ok {
		return c
	}
	l = toBudget(c, l)
	return config.Limits{
		Preset: c.Preset, CallTimeout: config.Duration(l.CallTimeout), MaxCallTimeout: config.Duration(l.MaxCallTimeout),
		OutputBytes: config.Size(l.OutputBytes), OutputLines: l.OutputLines, MaxSteps: l.MaxSteps, MaxToolCalls: l.MaxToolCalls,
		MaxWallTime: config.Duration(l.MaxWallTime), MaxTokens: l.MaxTokens, MaxCost: l.MaxCost.Float(), TTL: config.Duration(l.TTL),
	}
}

// checkPrice refuses a cost limit that could not be counted.
func checkPrice(m config.Model, l budget.Limits) error {
	if m.Price.Known || l.MaxCost == 0 {
		return nil
	}
	return usage("--price INPUT,OUTPUT in dollars per million tokens; --price 0,0 counts tokens only",
		"the price of %s is not known, so the limit of %s could not be kept", fmt.Sprintf("%s/%s", m.Vendor, m.Model), l.MaxCost)
}
