package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/image"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/anthropic"
	"github.com/rein-sh/rein/model/gemini"
	"github.com/rein-sh/rein/model/openai"
	"github.com/rein-sh/rein/model/script"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
	"github.com/rein-sh/rein/sandbox/opensandbox"
	"github.com/rein-sh/rein/secret"
)

// providerSettings is what a provider is made from.
type providerSettings struct {
	target   config.Target
	key      secret.Value // of a remote one
	programs config.Programs
	stateDir string
	images   func() (*image.Store, error)
	makes    bool // sandboxes: a proxy's password is asked for nothing else
	egress   func() (local.Egress, error)
}

// providers is the one table of what creates sandboxes.
var providers = []struct {
	name string
	open func(providerSettings) (sandbox.Provider, error)
}{
	{"local", func(s providerSettings) (sandbox.Provider, error) { return openLocal(s) }},
	{config.RemoteProvider, openOpenSandbox},
}

const hostImage = local.ImageHost

func openLocal(s providerSettings) (*local.Provider, error) {
	o := local.Options{Execd: s.programs.Execd, Runtime: s.target.Runtime, StateDir: s.stateDir}
	if s.target.Runtime == config.DefaultRuntime {
		o.RuntimePath = s.programs.GVisor
	}
	if s.target.Image != hostImage {
		var err error
		if o.Images, err = s.images(); err != nil {
			return nil, err
		}
	}
	if s.makes {
		var err error
		if o.Egress, err = s.egress(); err != nil {
			return nil, err
		}
	}
	return local.New(o)
}

func openOpenSandbox(s providerSettings) (sandbox.Provider, error) {
	o := opensandbox.Options{URL: s.target.URL, Key: s.key, UseServerProxy: s.target.UseServerProxy, EndpointScheme: s.target.EndpointScheme,
		AcceptWeakEgress: s.target.AcceptWeakEgress, AcceptWeakVault: s.target.AcceptWeakVault, Entrypoint: s.target.Entrypoint, StateDir: s.stateDir}
	if !s.target.ServerExecdOnly {
		o.Execd = findExecd(s.programs.Execd)
	}
	return opensandbox.New(o)
}

// findExecd is the path of rein-execd: where the configuration says, beside this
// program, on PATH, or nowhere.
func findExecd(configured string) string {
	if configured != "" {
		return configured
	}
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), "rein-execd")
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			return path
		}
	}
	path, err := exec.LookPath("rein-execd")
	if err != nil {
		return ""
	}
	return path
}

// modelSettings is what a model is made from. key is asked only by those that
// need one.
type modelSettings struct {
	config.Model
	key       secret.Value
	transport http.RoundTripper // nil for the model's own
}

// models is the one table of vendors: the first half of --model's value.
var models = []struct {
	vendor  string
	sep     string // between the vendor and the rest in --model
	address string // the vendor's own; "" for none
	keyEnv  string // the variable with the key for that address, where nothing else is said
	open    func(modelSettings) (model.Model, error)
}{
	{"script", ":", "", "", openScript},
	{"openai", "/", openai.DefaultBaseURL, "OPENAI_API_KEY", openOpenAI(openai.ChatCompletions)},
	{"openai-responses", "/", openai.DefaultBaseURL, "OPENAI_API_KEY", openOpenAI(openai.Responses)},
	{"anthropic", "/", anthropic.DefaultBaseURL, "ANTHROPIC_API_KEY", func(s modelSettings) (model.Model, error) {
		return anthropic.New(anthropic.Options{BaseURL: s.BaseURL, Model: s.Model.Model, Key: s.key, Effort: s.Effort, Transport: s.transport})
	}},
	{"gemini", "/", gemini.DefaultBaseURL, "GEMINI_API_KEY", func(s modelSettings) (model.Model, error) {
		return gemini.New(gemini.Options{BaseURL: s.BaseURL, Model: s.Model.Model, Key: s.key, Effort: s.Effort, Transport: s.transport})
	}},
}

func openOpenAI(api openai.API) func(modelSettings) (model.Model, error) {
	return func(s modelSettings) (model.Model, error) {
		return openai.New(openai.Options{BaseURL: s.BaseURL, Model: s.Model.Model, Key: s.key, API: api, Vendor: s.Vendor, Effort: s.Effort,
			LegacyMaxTokens: s.LegacyMaxTokens, Transport: s.transport})
	}
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
	k := config.Known{Presets: presetNames(), Runtimes: local.Runtimes(), Target: judgeTarget}
	for _, p := range providers {
		k.Providers = append(k.Providers, p.name)
	}
	for _, m := range models {
		k.Vendors = append(k.Vendors, m.vendor)
	}
	return k
}

// openProvider makes the provider of a target, for making sandboxes. Its key is
// read, and masked from then on.
func (a *app) openProvider(ctx context.Context, f *config.File, t config.Target) (sandbox.Provider, error) {
	return a.provider(ctx, f, t, true)
}

// provider is openProvider for making sandboxes, or only for looking after those
// that there are.
func (a *app) provider(ctx context.Context, f *config.File, t config.Target, makes bool) (sandbox.Provider, error) {
	dir, err := a.env.stateDir()
	if err != nil {
		return nil, err
	}
	key, err := a.readKey(ctx, "provider "+t.Provider, t.Key)
	if err != nil {
		return nil, err
	}
	a.providerKeys = append(a.providerKeys, key)
	for _, p := range providers {
		if p.name == t.Provider {
			return p.open(providerSettings{target: t, key: key, programs: f.Config.Programs, stateDir: dir, makes: makes,
				images: func() (*image.Store, error) { return a.openImages(f.Config, a.pullEvents()) },
				egress: func() (local.Egress, error) { return a.egress(ctx, f.Config.Egress) }})
		}
	}
	return nil, usage("known: "+strings.Join(known().Providers, ", "), "no provider %q", t.Provider)
}

// runProvider is openProvider for a run, which is refused before it begins when
// its image is not allowed. One that is resumed has its sandbox, or is told when
// it needs another.
func (a *app) runProvider(ctx context.Context, f *config.File, t config.Target, resumed bool) (sandbox.Provider, error) {
	if t.Provider == config.DefaultProvider && t.Image != hostImage && !resumed {
		images, err := a.openImages(f.Config, nil)
		if err == nil {
			err = images.Check(t.Image)
		}
		if err != nil {
			return nil, err
		}
	}
	return a.openProvider(ctx, f, t)
}

// resolveTarget finds the target that --target, or the configuration, names
// and fills what it leaves out.
func resolveTarget(c config.Config, p place) (string, config.Target, error) {
	named := p.target
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
	if p.runtime != "" {
		if t.Provider == config.RemoteProvider {
			return "", t, usage("leave --runtime out: the server has its own", "target %s: provider %s takes no runtime", named, t.Provider)
		}
		if hint := config.RuntimeHint(p.runtime, local.Runtimes()); hint != "" {
			return "", t, usage(hint, "--runtime %q is not known", p.runtime)
		}
		t.Runtime = p.runtime
	}
	var err error
	if t.Network, err = p.onto(t.Network); err != nil {
		return "", t, err
	}
	if p.image != "" {
		if t.Image, err = absoluteReference(p.image); err != nil {
			return "", t, err
		}
	}
	return named, withTargetDefaults(t), nil
}

func withTargetDefaults(t config.Target) config.Target {
	if t.Provider == "" {
		t.Provider = config.DefaultProvider
	}
	if t.Provider == config.RemoteProvider {
		return t
	}
	if t.Runtime == "" {
		t.Runtime = config.DefaultRuntime
	}
	if t.Image == "" {
		t.Image = hostImage
	}
	if t.Cwd == "" && t.Image == hostImage { // an image has its own
		t.Cwd = "/workspace"
	}
	return t
}

// specOf is what a target's sandbox is made from, without its TTL, and with the
// secrets that were read for it.
func specOf(t config.Target, secrets ...vault.Secret) sandbox.Spec {
	s := sandbox.Spec{Image: t.Image, Cwd: t.Cwd, Env: t.Env, Require: t.Require, Network: t.NetworkOf(), Secrets: secrets, Resources: sandbox.Resources{
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
