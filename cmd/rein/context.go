package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/history"
)

// contextFlags adds the flags that say what of the conversation a model is
// sent.
func contextFlags(cmd *cobra.Command, c *config.Context) {
	fl := cmd.Flags()
	fl.StringVar(&c.Strategy, "context", "", "`STRATEGY` for older results: reference, summary or structured (default reference)")
	fl.Var(textValue[config.Size, *config.Size]{&c.High, "size"}, "context-high", "replace older results above so much of whole results (default "+config.Size(history.DefaultHigh).String()+")")
	fl.Var(textValue[config.Size, *config.Size]{&c.Low, "size"}, "context-low", "leave so much of whole results then (default "+config.Size(history.DefaultLow).String()+")")
}

// resolveContext lays flags over the configuration. window is how many tokens
// the model takes; 0: not known.
func resolveContext(file, flags config.Context, window int64) (agent.Context, error) {
	if flags.Strategy != "" {
		if all := config.Strategies(); !slices.Contains(all, flags.Strategy) {
			return agent.Context{}, usage(config.DidYouMean(flags.Strategy, all), "--context %q is not known", flags.Strategy)
		}
		file.Strategy = flags.Strategy
	}
	if flags.High > 0 {
		file.High = flags.High
	}
	if flags.Low > 0 {
		file.Low = flags.Low
	}
	if _, err := history.New(file.Options()); err != nil {
		return agent.Context{}, usage("--context-low less than --context-high", "%s", strings.TrimPrefix(err.Error(), "history: "))
	}
	o := file.Options()
	return agent.Context{Strategy: o.Strategy, High: o.High, Low: o.Low, Share: o.Share, Window: window}, nil
}
