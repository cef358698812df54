package main

import (
	"context"
	"slices"
	"strings"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/lab"
	"github.com/rein-sh/rein/run"
	"github.com/spf13/cobra"
)

// checkAgent refuses what --agent cannot be.
func (f *labFlags) checkAgent(experiments []string) error {
	known := lab.Agents()
	switch {
	case f.agent == "":
	case !slices.Contains(experiments, "a6"):
		return usage("name a6, or leave it out", "only the experiment a6 is tried beside an agent")
	case !slices.Contains(known, f.agent):
		return usage("the agents are "+strings.Join(known, ", "), "a6 cannot be tried beside the agent %q", f.agent)
	}
	return nil
}

// labKey is the variable with the key of an agent's model, of no environment but this
// one.
const labKey = "REIN_LAB_KEY"

// labAgent installs the agent that a6 is tried beside, as rein wrap does.
func (a *app) labAgent(cmd *cobra.Command, f *labFlags) (*lab.Agent, error) {
	c, err := a.labCage(cmd, f, lab.AgentRun{})
	if err != nil {
		return nil, err
	}
	p, err := a.runProvider(cmd.Context(), c.file, c.target, false)
	if err != nil {
		return nil, err
	}
	spec := specOf(c.target)
	if _, _, err := a.installed(cmd.Context(), p, &spec, c, &run.AgentInfo{}, nil); err != nil {
		return nil, err
	}
	return &lab.Agent{Name: f.agent, Vendor: *c.vendor, Model: c.model, Make: func(ctx context.Context, o lab.AgentRun) (run.Options, run.Worker, error) {
		a.env[labKey] = o.Key
		c, err := a.labCage(cmd, f, o)
		if err != nil {
			return run.Options{}, nil, err
		}
		return a.wrapOptions(cmd, f.wrapped(o), c)
	}}, nil
}

// labCage is the cage of that agent, of whose target the network and the other secrets
// are left out.
func (a *app) labCage(cmd *cobra.Command, f *labFlags, o lab.AgentRun) (*caged, error) {
	c, err := a.cage(cmd, f.wrapped(o), f.agent, o.Args)
	if err != nil {
		return nil, err
	}
	if c.vendor == nil || c.recipe.Install == nil || len(c.vendor.Variables) == 0 {
		return nil, usage("move "+c.recipe.From+" away", "the recipe of %s has no package, or no model's vendor with a key", f.agent)
	}
	c.target.Network, c.target.Secrets = config.Target{}.Network, []string{c.key}
	return c, nil
}

// wrapped are the flags of rein wrap that say the same.
func (f *labFlags) wrapped(o lab.AgentRun) *wrapFlags {
	w := &wrapFlags{baseURL: o.BaseURL, keyEnv: labKey, headless: true, noWorkspace: true}
	w.target, w.runtime = f.target, f.runtime
	w.limits.Preset = wrapPreset
	w.price = config.Price{Known: true}
	w.price.Input, w.price.Output = 1, 2
	return w
}
