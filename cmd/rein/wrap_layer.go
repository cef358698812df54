package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/wrap/layer"
)

// credential is what the registry of agents wants to know, read when something is
// installed. It is a key that is never shown.
func (a *app) credential(of config.Agents) layer.Credential {
	if of.Key.IsZero() {
		return layer.Credential{}
	}
	return layer.Credential{User: of.User, Read: func(ctx context.Context) (secret.Value, error) {
		value, err := a.readSecret(ctx, "the registry of agents", "agents: key:", of.Key)
		if err == nil {
			a.providerKeys = append(a.providerKeys, value)
		}
		return value, err
	}}
}

// openLayers opens the store of agents' programs; m may be nil.
func (a *app) openLayers(c config.Config, m *secret.Masker) (*layer.Layers, error) {
	dir := c.Agents.Dir
	if dir == "" {
		cache, err := a.env.cacheDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(cache, "agents")
	}
	state, err := a.env.stateDir()
	if err != nil {
		return nil, err
	}
	o := layer.Options{Dir: dir, Records: filepath.Join(state, "sandboxes"), Registry: c.Agents.Registry, Credential: a.credential(c.Agents), Masker: m}
	for _, text := range c.Agents.Allow {
		r, err := parseTarget(text)
		if err != nil {
			return nil, usage(hintOf(err), "agents: allow: %s: %s", text, err)
		}
		o.Allow = append(o.Allow, r)
	}
	return layer.Open(o)
}

// installed has the agent's layer in the sandbox's spec. It is in use until rein
// ends. m is told of the registry's key; it may be nil.
func (a *app) installed(ctx context.Context, provider sandbox.Provider, spec *sandbox.Spec, c *caged, info *run.AgentInfo, m *secret.Masker) (*run.AgentInfo, string, error) {
	layers, err := a.openLayers(c.file.Config, m)
	if err != nil {
		return nil, "", err
	}
	i := c.recipe.Install
	l, err := layers.Get(ctx, layer.Package{Name: i.Package, Version: i.Version, Update: c.update, Scripts: i.Scripts, Node: i.Node},
		layer.Target{Provider: provider, Spec: *spec}, a.sayInstall)
	if err != nil {
		if e, ok := errors.AsType[*layer.Error](err); ok && (e.Kind == layer.KindInvalid || e.Kind == layer.KindNode) {
			return nil, "", usage(e.Hint(), "%s", err)
		}
		return nil, "", err
	}
	a.layers = append(a.layers, l)
	if program := c.recipe.Command[0]; !l.Has(program) {
		return nil, "", usage("check command: of the recipe", "%s %s has no program %s", l.Package, l.Version, program)
	}
	spec.Mounts = append(spec.Mounts, l.Mount())
	info.Package, info.Version, info.Layer = l.Package, l.Version, l.Digest
	return info, l.Bin(), nil
}

// sayInstall shows an installation, a line for each thing that happens.
func (a *app) sayInstall(p layer.Progress) {
	what := map[layer.Stage]string{
		layer.StageWait: "waiting for another rein that installs it", layer.StageSandbox: "making a sandbox for the installation",
		layer.StageInstall: "installing", layer.StageScripts: "running the install scripts that its recipe names", layer.StageDone: "installed",
	}[p.Stage]
	if what != "" {
		a.note("%-8s %s %s", "agent", what, cleanLine(p.Package))
	}
}

// fits judges a sandbox by the layer that is in use; nil without one.
func (a *app) fits() func(sandbox.Info, string) error {
	if len(a.layers) == 0 {
		return nil
	}
	return a.layers[len(a.layers)-1].Fits
}

// layer has the agent's program in the sandbox: mounted, or as its image has it.
func (a *app) layer(ctx context.Context, provider sandbox.Provider, spec *sandbox.Spec, c *caged, f *wrapFlags, m *secret.Masker) (*run.AgentInfo, string, error) {
	info := &run.AgentInfo{Name: c.recipe.Name}
	if c.recipe.Install == nil || f.noInstall {
		return info, "", nil
	}
	return a.installed(ctx, provider, spec, c, info, m)
}
