package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/openai"
	"github.com/rein-sh/rein/model/script"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
	"github.com/rein-sh/rein/secret"
)

// providerSettings is what a provider is made from.
type providerSettings struct {
	target   config.Target
	programs config.Programs
	stateDir string
}

// providers is the one table of what creates sandboxes.
var providers = []struct {
	name string
	open func(providerSettings) (sandbox.Provider, error)
}{
	{"local", func(s providerSettings) (sandbox.Provider, error) { return openLocal(s) }},
}

func openLocal(s providerSettings) (*local.Provider, error) {
	o := local.Options{Execd: s.programs.Execd, Runtime: s.target.Runtime, StateDir: s.stateDir}
	if s.target.Runtime == config.DefaultRuntime {
		o.RuntimePath = s.programs.GVisor
	}
	return local.New(o)
}

// modelSettings is what a model is made from. key is asked only by those that
// need one.
type modelSettings struct {
	config.Model
	key secret.Value
}

// models is the one table of vendors: the first half of --model's value.
var models = []struct {
	vendor string
	sep    string // between the vendor and the rest in --model
	open   func(modelSettings) (model.Model, error)
}{
	{"script", ":", openScript},
	{"openai", "/", func(s modelSettings) (model.Model, error) {
		return openai.New(openai.Options{BaseURL: s.BaseURL, Model: s.Model.Model, Key: s.key})
	}},
}

func openScript(s modelSettings) (model.Model, error) {
	sc, err := loadScript(s.Model.Model)
	if err != nil {
		return nil, err
	}
	return sc.Model(), nil
}

// loadScript reads a script for a model.
func loadScript(path string) (*script.Script, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, usage("name the script's file, as in --model script:demo.yaml", "the script cannot be read: %s", err)
	}
	sc, err := script.Load(data, path)
	if err != nil {
		hint := "docs/scripts.md describes scripts"
		if e, ok := errors.AsType[*script.SyntaxError](err); ok {
			hint, e.Hint = cmp.Or(e.Hint, hint), "" // said once, on its own line
		}
		return nil, usage(hint, "%s", err)
	}
	return sc, nil
}

// known is what a configuration may name.
func known() config.Known {
	k := config.Known{Presets: presetNames()}
	for _, p := range providers {
		k.Providers = append(k.Providers, p.name)
	}
	for _, m := range models {
		k.Vendors = append(k.Vendors, m.vendor)
	}
	return k
}

// openProvider makes the provider of a target.
func (a *app) openProvider(f *config.File, t config.Target) (sandbox.Provider, error) {
	dir, err := a.env.stateDir()
	if err != nil {
		return nil, err
	}
	for _, p := range providers {
		if p.name == t.Provider {
			return p.open(providerSettings{target: t, programs: f.Config.Programs, stateDir: dir})
		}
	}
	return nil, usage("known: "+strings.Join(known().Providers, ", "), "no provider %q", t.Provider)
}

// resolveModel finds the model that --model, or the configuration, names.
func resolveModel(c config.Config, named, baseURL string) (config.Model, error) {
	if named == "" {
		named = c.Model
	}
	if named == "" {
		return config.Model{}, usage("--model script:FILE needs no key; --model openai/NAME uses any Chat Completions server (--base-url)",
			"no model: neither --model nor the configuration names one")
	}
	m, ok := c.Models[named]
	if !ok {
		for _, v := range models {
			if rest, found := strings.CutPrefix(named, v.vendor+v.sep); found && rest != "" {
				m, ok = config.Model{Vendor: v.vendor, Model: rest}, true
			}
		}
	}
	if m.Vendor == "script" {
		m.Price = config.Price{Known: true} // of nothing
	}
	if !ok {
		return m, usage("script:FILE, openai/NAME, or a name under models: in the configuration", "no model %q", named)
	}
	if baseURL != "" {
		if m.Vendor == "script" {
			return m, usage("leave --base-url out", "a script has no address")
		}
		if u, err := url.Parse(baseURL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return m, usage("such as --base-url https://api.openai.com/v1", "--base-url takes an http or https address")
		}
		m.BaseURL = baseURL
	}
	if m.Vendor == "openai" && m.Key.IsZero() && m.BaseURL == "" {
		m.Key = config.Key{Env: "OPENAI_API_KEY"}
	}
	return m, nil
}

// openModel makes the model; its key, if any, has been read already.
func openModel(m config.Model, key secret.Value) (model.Model, error) {
	for _, v := range models {
		if v.vendor == m.Vendor {
			return v.open(modelSettings{Model: m, key: key})
		}
	}
	return nil, usage("known: "+strings.Join(known().Vendors, ", "), "no vendor %q", m.Vendor)
}

// resolveTarget finds the target that --target, or the configuration, names
// and fills what it leaves out.
func resolveTarget(c config.Config, named, runtime string) (string, config.Target, error) {
	if named == "" {
		named = c.Target
	}
	if named == "" {
		named = config.DefaultTargetName
	}
	t, ok := c.Targets[named]
	if !ok && named != config.DefaultTargetName {
		names := []string{config.DefaultTargetName}
		for n := range c.Targets {
			names = append(names, n)
		}
		slices.Sort(names)
		names = slices.Compact(names)
		return "", t, usage(config.DidYouMean(named, names), "no target %q", named)
	}
	if runtime != "" {
		t.Runtime = runtime
	}
	return named, withTargetDefaults(t), nil
}

func withTargetDefaults(t config.Target) config.Target {
	if t.Provider == "" {
		t.Provider = config.DefaultProvider
	}
	if t.Runtime == "" {
		t.Runtime = config.DefaultRuntime
	}
	if t.Image == "" {
		t.Image = "host"
	}
	if t.Cwd == "" {
		t.Cwd = "/workspace"
	}
	return t
}

// specOf is what a target's sandbox is made from, without its TTL.
func specOf(t config.Target) sandbox.Spec {
	s := sandbox.Spec{Image: t.Image, Cwd: t.Cwd, Env: t.Env, Require: t.Require, Resources: sandbox.Resources{
		CPU: t.Resources.CPU, Memory: int64(t.Resources.Memory), PIDs: t.Resources.PIDs, Disk: int64(t.Resources.Disk)}}
	for _, m := range t.Mounts {
		s.Mounts = append(s.Mounts, sandbox.Mount{Source: m.Source, Target: m.Target, Writable: m.Writable})
	}
	return s
}

// absent reports whether err says that a file is not there, in words for people.
func absent(path string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return usage("check the path", "%s: no such file or directory", filepath.Clean(path))
	}
	return fmt.Errorf("%s: %w", path, err)
}
