package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/price"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/wrap"
	"github.com/spf13/cobra"
)

const wrapHelp = `Runs a command-line agent that others made inside a sandbox: its files are a copy of
the workspace, it reaches the API of its model and nothing else, it never has the
key, and its requests are counted and limited. At the end there are a report, an
audit log and a patch.

  rein wrap codex -- exec 'repair the test'
  rein wrap claude --workspace . --max-cost 2 --accept 'sh test.sh' -- -p 'repair the test'
  rein wrap claude                       in a terminal, to be typed to
  rein wrap my-agent --no-install -- --task 'repair the test'

AGENT is one of "rein wrap --list", or any command that the sandbox has. What comes
after -- is the agent's own. --explain prints what will be allowed, and what can
receive data, and runs nothing.

The key is read on this host and stays there; inside is a placeholder that is worth
nothing elsewhere. Requests count as steps; when a limit is used up, the next is
answered with the vendor's own error, and the agent ends by itself.

Exit codes are those of "rein run".`

// wrapFlags are the flags of "rein wrap".
type wrapFlags struct {
	place
	vendor, model, baseURL  string
	models, hosted          []string
	urls, dearer            bool
	members                 []string
	keyEnv, keyFile, secret string
	login                   string
	agentVersion            string
	noInstall, headless     bool
	update                  bool
	agentOutput             bool
	workspace               string
	noWorkspace, noIgnore   bool
	acceptance              acceptanceFlags
	artifacts, ask          []string
	keepOutput, asJSON      bool
	limits                  config.Limits
	price                   config.Price
	list, explain           bool
}

// The command's name, and the limits it starts from.
const (
	wrapName   = "wrap"
	wrapPreset = "wrap"
)

func (a *app) wrapCommand() *cobra.Command {
	f := &wrapFlags{}
	cmd := &cobra.Command{Use: wrapName + " AGENT [flags] [-- ARGUMENT...]", Short: "run a command-line agent in a cage", Long: wrapHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			named := args
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				named = args[:at]
			}
			switch {
			case f.list && len(args) == 0, !f.list && len(named) == 1:
				return nil
			case f.list:
				return usage("rein wrap --list", "--list takes no agent")
			case len(named) > 1:
				return usage(fmt.Sprintf("rein wrap %s -- %s", named[0], strings.Join(named[1:], " ")), "what is the agent's own comes after two dashes")
			}
			return usage("rein wrap --list names them", "which agent?")
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.list {
				return a.listAgents(f)
			}
			return a.wrap(cmd, f, args[0], args[1:])
		}}
	f.flags(cmd)
	return cmd
}

func (f *wrapFlags) flags(cmd *cobra.Command) {
	fl := cmd.Flags()
	f.place.flags(cmd)
	f.place.makingFlags(cmd)
	fl.BoolVar(&f.list, "list", false, "list the agents that are known")
	fl.BoolVar(&f.explain, "explain", false, "print what will be allowed and what can receive data, and run nothing")
	fl.StringVar(&f.vendor, "vendor", "", "`NAME` of the model's vendor, for agents that know several (default the first)")
	fl.StringVar(&f.model, "model", "", "`NAME` of the model, as its vendor calls it (default the agent's recipe's)")
	fl.StringVar(&f.baseURL, "base-url", "", "`URL` of the model's API, instead of its vendor's; the agent does not see it")
	fl.StringArrayVar(&f.models, "allow-model", nil, "`NAME`, or NAME*, of a further model that may be asked (repeatable)")
	fl.StringArrayVar(&f.hosted, "allow-hosted", nil, "`TYPE` of a tool that the vendor runs, such as web_search_20250305, that requests may ask for (repeatable)")
	fl.BoolVar(&f.urls, "allow-urls", false, "let the vendor fetch what requests name by a URL")
	fl.BoolVar(&f.dearer, "allow-dearer", false, "let requests ask for what costs more than the model's price: tiers of service, fast modes; --max-cost does not hold then")
	fl.StringArrayVar(&f.members, "allow-member", nil, "`NAME` of a member of requests that rein does not know and that may pass, of an agent newer than rein (repeatable)")
	fl.StringVar(&f.keyEnv, "key-env", "", keyEnvFlagHelp)
	fl.StringVar(&f.keyFile, "key-file", "", "`FILE` with the model's key")
	fl.StringVar(&f.secret, "secret", "", "`NAME` of a secret of the configuration that is the model's key; one that a command makes is withdrawn at the end")
	fl.StringVar(&f.login, "login", "", "`NAME` of another way to sign in than a key; --explain lists those of an agent")
	fl.StringVar(&f.agentVersion, "agent-version", "", "`VERSION` of the agent's package (default the newest)")
	fl.BoolVar(&f.update, "update", false, "ask the registry for the agent's newest version again")
	fl.BoolVar(&f.noInstall, "no-install", false, "use the agent that the sandbox's image has")
	fl.BoolVar(&f.headless, "headless", false, "without a terminal, also where there is one")
	fl.BoolVar(&f.agentOutput, "agent-output", false, "print what the agent prints, masked, instead of the report")
	fl.StringVar(&f.workspace, "workspace", ".", "`DIR` copied in")
	fl.BoolVar(&f.noWorkspace, "no-workspace", false, "copy nothing in")
	fl.BoolVar(&f.noIgnore, "no-ignore", false, "also copy what .gitignore and .reinignore leave out")
	fl.StringArrayVar(&f.acceptance.commands, "accept", nil, "`COMMAND` that exits 0 when the work is good (repeatable)")
	fl.StringVar(&f.acceptance.output, "output", "", "`DIR` of this host that has the workspace's new and changed files, brought up to date while the agent works")
	fl.StringVar(&f.acceptance.file, "accept-file", "", "`FILE` of checks, in YAML: docs/acceptance.md")
	fl.BoolVar(&f.acceptance.fresh, "fresh", false, "run the checks in a sandbox of their own, made from the inputs and the patch")
	fl.StringArrayVar(&f.acceptance.protect, "protect", nil, "`PATTERN`, as in a .gitignore, of workspace files the agent must not change, delete or add to (repeatable)")
	fl.StringArrayVar(&f.artifacts, "artifact", nil, "`PATTERN` of files to bring out (repeatable)")
	fl.StringSliceVar(&f.ask, "ask", nil, "`WAYS` to a person who is asked where a rule says so, instead of the configured: terminal, webhook, socket")
	fl.BoolVar(&f.keepOutput, "keep-output", false, "keep the full output of the agent with the run, masked")
	fl.BoolVar(&f.asJSON, "json", false, "print the report as JSON")
	agentLimitFlags(cmd, &f.limits)
	fl.Var(textValue[config.Price, *config.Price]{&f.price, "in,out"}, "price", "dollars per million tokens of the models, INPUT,OUTPUT[,CACHED[,CACHE_WRITE]]; instead of the configured and the published")
}

// caged is all that is decided before anything is made.
type caged struct {
	recipe wrap.Recipe
	vendor *wrap.Vendor
	login  *wrap.Login
	model  string
	args   []string
	config config.Config // with the key as a secret of the target
	file   *config.File
	target config.Target
	name   string // of the target
	limits budget.Limits
	host   *inference.Host
	key    string // the name of the secret; empty: there is none
	made   bool   // the key is made up: none was named
	unsent string // the variable with the vendor's key, which is not for another address
	screen bool
	update bool
	shown  func() error // shows what is left of the agent's output; nil: nothing is
}

// wrap runs an agent, or explains what that would be.
func (a *app) wrap(cmd *cobra.Command, f *wrapFlags, agent string, args []string) error {
	c, err := a.cage(cmd, f, agent, args)
	if err != nil {
		return err
	}
	if f.explain {
		return a.explainAgent(c, f)
	}
	o, w, err := a.wrapOptions(cmd, f, c)
	if err != nil {
		return err
	}
	err = a.run(cmd.Context(), o, w, &runFlags{asJSON: f.asJSON, noReport: f.agentOutput && !c.screen})
	if c.shown != nil {
		err = errors.Join(err, c.shown())
	}
	return err
}

// cage decides what is used. Everything that can be refused without reading a key is
// refused here.
func (a *app) cage(cmd *cobra.Command, f *wrapFlags, agent string, args []string) (*caged, error) {
	if f.noWorkspace && cmd.Flags().Changed("workspace") {
		return nil, usage("leave one of them out", "--no-workspace copies nothing in, and --workspace %s does", f.workspace)
	}
	dir, err := f.workspaceOf()
	if err != nil {
		return nil, err
	}
	if err := checkBaseURL(f.baseURL); err != nil {
		return nil, err
	}
	if f.agentOutput && f.asJSON {
		return nil, usage("rein runs report last --json prints it afterwards", "--agent-output prints no report")
	}
	c := &caged{args: args, update: f.update}
	if c.file, err = a.load(dir); err != nil {
		return nil, tooWide(err)
	}
	if c.name, c.target, err = resolveTarget(c.file.Config, f.place); err != nil {
		return nil, err
	}
	if c.limits, err = resolveLimits(cmd, c.file.Config.Limits, f.limits); err != nil {
		return nil, err
	}
	if c.recipe, err = a.recipe(agent, f); err != nil {
		return nil, err
	}
	c.screen = !f.headless && c.recipe.Interactive != nil && a.hasScreen() && !saysHeadless(c.recipe, args)
	if err := c.choose(f); err != nil {
		return nil, err
	}
	return c, c.bind(f)
}

// workspaceOf is the directory to copy in; empty: none.
func (f *wrapFlags) workspaceOf() (string, error) {
	if f.noWorkspace {
		return "", nil
	}
	return workspaceDir(f.workspace)
}

// saysHeadless reports whether the user's own arguments ask for no terminal.
func saysHeadless(r wrap.Recipe, args []string) bool {
	return len(args) > 0 && len(r.Headless.Args) > 0 && args[0] == r.Headless.Args[0]
}

// recipe finds an agent; with --no-install any other name is a command that the
// sandbox has.
func (a *app) recipe(agent string, f *wrapFlags) (wrap.Recipe, error) {
	r, err := wrap.Find(agent, a.env.recipeDirs()...)
	if unknown, ok := errors.AsType[*wrap.UnknownError](err); ok {
		if f.noInstall {
			r := wrap.Command([]string{agent})
			r.Name = path.Base(agent)
			return r, nil
		}
		return r, usage(unknown.Hint()+"; a command that the sandbox has is run with --no-install", "no agent %q is known", agent)
	}
	if faults, ok := errors.AsType[*wrap.Error](err); ok {
		return r, usage(faults.Hint(), "%s", err)
	}
	if err != nil {
		return r, err
	}
	if f.agentVersion != "" && r.Install != nil {
		install := *r.Install
		install.Version = f.agentVersion
		r.Install = &install
	}
	return r, nil
}

// choose finds the vendor, the way to sign in and the model.
func (c *caged) choose(f *wrapFlags) error {
	var names []string
	for i, v := range c.recipe.Vendors {
		if f.vendor == "" || v.Name == f.vendor {
			chosen := c.recipe.Vendors[i]
			c.vendor = &chosen
			break
		}
		names = append(names, v.Name)
	}
	switch {
	case c.vendor == nil && f.vendor != "":
		return usage(config.DidYouMean(f.vendor, names), "%s knows no vendor %q", c.recipe.Name, f.vendor)
	case c.vendor == nil && (f.model != "" || f.baseURL != "" || f.keyEnv+f.keyFile+f.secret != ""):
		return usage("write a recipe: docs/wrap.md", "nothing is known of how %s asks a model", c.recipe.Name)
	case c.vendor == nil:
		return nil
	}
	if f.login != "" {
		i := slices.IndexFunc(c.vendor.Logins, func(l wrap.Login) bool { return l.Name == f.login })
		if i < 0 {
			return usage("rein wrap "+c.recipe.Name+" --explain lists them", "%s has no login %q", c.recipe.Name, f.login)
		}
		c.login = &c.vendor.Logins[i]
		if c.login.Refused != "" {
			return usage("use a key", "the login %s of %s cannot be used: %s", f.login, c.recipe.Name, c.login.Refused)
		}
		c.vendor.Variables = []string{c.login.Variable} // a key besides would be used first
	}
	var err error
	c.model, err = c.modelOf(f)
	return err
}

// bind makes the key a secret of the target, and the vendor's host one that is
// metered.
func (c *caged) bind(f *wrapFlags) error {
	c.config = c.file.Config
	if c.vendor == nil {
		return nil
	}
	v := c.vendor
	c.host = &inference.Host{Name: v.Host, Base: v.Base, Upstream: f.baseURL, Calls: v.Calls,
		Rules: inference.Rules{Models: append([]string{c.model}, f.models...), Hosted: f.hosted, URLs: f.urls, Dearer: f.dearer, Members: f.members}}
	for i, m := range c.host.Rules.Models {
		c.host.Rules.Models[i] = c.bare(f, m)
	}
	source, err := c.source(f)
	if err != nil {
		return err
	}
	use := vault.Binding{Host: v.Host, As: v.As, Name: v.Field}
	if c.login != nil {
		use.As = cmp.Or(c.login.As, vault.Bearer)
		if use.As != vault.Header && use.As != vault.Query {
			use.Name = ""
		}
	}
	for _, call := range v.Calls {
		use.Methods = append(use.Methods, call.Methods...)
		use.Paths = append(use.Paths, call.Path)
	}
	slices.Sort(use.Methods)
	use.Methods = slices.Compact(use.Methods)
	source.Use = []vault.Binding{use}
	if len(v.Variables) > 0 {
		source.Variable = v.Variables[0]
	}
	c.config.Secrets = maps.Clone(c.config.Secrets)
	if c.config.Secrets == nil {
		c.config.Secrets = map[string]config.Secret{}
	}
	c.config.Secrets[c.key] = source
	c.target.Secrets = append(slices.Clone(c.target.Secrets), c.key)
	return nil
}

// rates says what models of the chosen vendor cost.
func (c *caged) rates(f *wrapFlags) func(string) (price.Price, bool) {
	return func(model string) (price.Price, bool) {
		m, err := c.priced(f, model)
		return m.Price.Price, err == nil && m.Price.Known
	}
}

func (c *caged) priced(f *wrapFlags, model string) (config.Model, error) {
	m := config.Model{Vendor: c.vendor.Name, Model: model, BaseURL: f.baseURL}
	if f.price.Known {
		m.Price = sourced(f.price, "--price")
		return m, nil
	}
	return priced(c.config, m)
}

// wrapOptions makes what package run takes, and reads the key.
func (a *app) wrapOptions(cmd *cobra.Command, f *wrapFlags, c *caged) (o run.Options, w run.Worker, err error) {
	ctx := cmd.Context()
	workspace, err := f.workspaceOf()
	if err != nil {
		return o, nil, err
	}
	checked, err := a.acceptance(c.target, f.acceptance)
	if err != nil {
		return o, nil, err
	}
	metered, source := (*run.Metered)(nil), ""
	if c.vendor != nil {
		m, err := c.priced(f, c.model)
		if err == nil {
			err = checkPrice(m, c.limits)
		}
		if err != nil {
			return o, nil, err
		}
		metered, source = &run.Metered{Rate: c.rates(f)}, priceSource(m, config.Model{})
		if err := a.keyOf(c, f); err != nil {
			return o, nil, err
		}
	}
	a.screen = c.screen
	asks, err := a.approval(ctx, c.file.Config, f.ask, c.target.Network)
	if err != nil {
		return o, nil, err
	}
	if a.collector, err = a.openCollector(ctx, c.file.Config.Telemetry); err != nil {
		return o, nil, err
	}
	secrets, masker, err := a.secrets(ctx, c.config, c.target)
	if err != nil {
		return o, nil, err
	}
	state, err := a.env.stateDir()
	if err != nil {
		return o, nil, err
	}
	provider, err := a.runProvider(ctx, c.file, c.target, false)
	if err != nil {
		return o, nil, err
	}
	spec := specOf(c.target, secrets...)
	if c.host != nil {
		spec.Models = []inference.Host{*c.host}
	}
	info, bin, err := a.layer(ctx, provider, &spec, c, f, masker)
	if err != nil {
		return o, nil, err
	}
	hash, err := configHash(c.target, c.recipe, c.host, c.limits, c.model)
	if err != nil {
		return o, nil, err
	}
	wo := wrap.Options{Fits: a.fits(), Recipe: c.recipe, Vendor: c.vendor, Args: c.args, Model: c.model, Bin: bin}
	if c.key != "" {
		wo.Variable = c.config.Secrets[c.key].Variable
	}
	if c.screen {
		wo.Terminal = a.agentTerminal
	}
	if f.agentOutput { // to a terminal only what draws nothing but text
		var flushOut, flushErr func() error
		wo.Output, flushOut = a.out.raw()
		wo.Errors, flushErr = a.err.raw()
		c.shown = func() error { return errors.Join(flushOut(), flushErr()) }
	}
	if w, err = wrap.New(wo); err != nil {
		return o, nil, err
	}
	return run.Options{
		Task: taskOf(c, masker), Provider: provider, Target: run.Target{Name: c.name, Spec: spec}, Secrets: a.secretsOf(c.config, c.target), Limits: c.limits,
		Workspace: run.Workspace{Dir: workspace, NoIgnore: f.noIgnore}, Accept: checked.checks, Protect: checked.protect, Fresh: checked.fresh, Output: checked.output,
		Artifacts: f.artifacts, StateDir: state, Masker: masker, KeepOutput: f.keepOutput, NoTranscript: true, Approval: asks,
		Attended: c.screen, Telemetry: a.collector.record(), Metered: metered, Agent: info, Version: buildVersion().Version, Model: c.modelName(), PriceSource: source, ConfigHash: hash, Control: true,
		Notices: c.notices(checked, networkNotices(c.target.Network, asks, c.file.Config.Approval.Rules)),
	}, w, nil
}

func (c *caged) modelName() string {
	if c.vendor == nil {
		return ""
	}
	return c.vendor.Name + "/" + c.model
}

func (c *caged) notices(checked acceptance, list []string) []string {
	if checked.retry > 0 {
		list = append(list, "retry: of the checks has no effect: an agent that has ended is told nothing")
	}
	switch {
	case c.unsent != "":
		list = append(list, fmt.Sprintf("the key in %[1]s is not sent to another address than its vendor's: requests carry one that is made up; --key-env %[1]s has it sent", c.unsent))
	case c.made:
		list = append(list, "no key was named: requests carry one that is made up")
	}
	return list
}

// taskOf is the command line, which has the task somewhere in it.
func taskOf(c *caged, m *secret.Masker) string {
	return evidence.Cut(m.String(strings.Join(append([]string{c.recipe.Name}, c.args...), " ")), 4<<10)
}
