package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/tool"
	"github.com/spf13/cobra"
)

const runHelp = `Gives one task to an agent whose tool calls run in a sandbox made for it. The
sandbox is destroyed at the end, on every path; what is left is a report, an audit
log, a patch of the workspace and the artifacts.

  rein run --model script:demo.yaml --workspace . --accept 'sh test.sh' 'repair the test'

TASK is the user's message; "-" reads it from stdin. --workspace is copied in
without ignored files and without files that hold secrets; the original changes
only by "rein runs apply".

Limits come from a preset (quick, standard, long), the configuration and flags,
the later winning. Whatever stops a run names the flag that raises it.

Exit codes: 0 done and accepted, or done without checks · 1 other failure · 2 usage
or configuration · 3 not accepted · 4 a limit was reached · 5 stuck or expired
without progress · 6 needs a human · 7 sandbox lost · 8 model unavailable · 130
interrupted. A limit's code wins over acceptance.`

// runFlags are the flags of "rein run".
type runFlags struct {
	place
	model, baseURL, keyEnv string
	fallback               string
	workspace              string
	noIgnore               bool
	acceptance             acceptanceFlags
	artifacts              []string
	onDenial               string
	ask                    []string
	keepOutput             bool
	noTranscript           bool
	asJSON                 bool
	limits                 config.Limits
	context                config.Context
	price                  config.Price

	resume   bool // a run that there is already
	noReport bool // stdout has something else
}

func (a *app) runCommand() *cobra.Command {
	cmd, _ := a.newRun()
	return cmd
}

// newRun is the command with its flags.
func (a *app) newRun() (*cobra.Command, *runFlags) {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use: "run [flags] TASK", Short: "give a task to an agent in a sandbox", Long: runHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && strings.TrimSpace(args[0]) == "" {
				return usage("say what is to be done", "the TASK is empty")
			}
			if len(args) != 1 {
				return usage("usage: "+cmd.UseLine()+"; quote the task", "%s takes one TASK, not %d argument(s)", cmd.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			task, err := a.readTask(args[0])
			if err != nil {
				return err
			}
			o, m, err := a.runOptions(cmd, f, task)
			if err != nil {
				return err
			}
			if o.Invocation, err = a.invocation(cmd, task); err != nil {
				return err
			}
			return a.run(cmd.Context(), o, m, f)
		},
	}
	fl := cmd.Flags()
	f.place.flags(cmd)
	f.place.makingFlags(cmd)
	fl.StringVar(&f.model, "model", "", modelFlagHelp)
	fl.StringVar(&f.baseURL, "base-url", "", baseURLFlagHelp)
	fl.StringVar(&f.keyEnv, "key-env", "", keyEnvFlagHelp)
	fl.StringVar(&f.fallback, "fallback", "", "`MODEL`, as for --model, that is asked when that one cannot be had")
	fl.StringVar(&f.workspace, "workspace", "", "`DIR` copied in (default none)")
	fl.BoolVar(&f.noIgnore, "no-ignore", false, "also copy what .gitignore and .reinignore leave out")
	fl.StringArrayVar(&f.acceptance.commands, "accept", nil, "`COMMAND` that exits 0 when the work is good (repeatable)")
	fl.StringVar(&f.acceptance.output, "output", "", "`DIR` of this host that has the workspace's new and changed files, up to date after every call")
	fl.StringVar(&f.acceptance.file, "accept-file", "", "`FILE` of checks, in YAML: docs/acceptance.md")
	fl.BoolVar(&f.acceptance.fresh, "fresh", false, "run the checks in a sandbox of their own, made from the inputs and the patch")
	fl.IntVar(&f.acceptance.retry, "retry", 0, "tell the agent which checks failed, up to `N` times")
	fl.StringArrayVar(&f.acceptance.protect, "protect", nil, "`PATTERN`, as in a .gitignore, of workspace files the agent must not change, delete or add to (repeatable)")
	fl.StringArrayVar(&f.artifacts, "artifact", nil, "`PATTERN` of files to bring out (repeatable)")
	fl.StringVar(&f.onDenial, "on-denial", string(agent.StopIfFailed), "`ACTION` when a policy fails a call: stop_if_failed or continue")
	fl.StringSliceVar(&f.ask, "ask", nil, "`WAYS` to a person who is asked where a rule says so, instead of the configured: terminal, webhook, socket")
	fl.BoolVar(&f.keepOutput, "keep-output", false, "keep the full output of calls with the run, masked")
	fl.BoolVar(&f.noTranscript, "no-transcript", false, "do not record the conversation")
	fl.BoolVar(&f.asJSON, "json", false, "print the report as JSON")
	limitFlags(cmd, &f.limits)
	contextFlags(cmd, &f.context)
	fl.Var(textValue[config.Price, *config.Price]{&f.price, "in,out"}, "price", "dollars per million tokens of the model, INPUT,OUTPUT[,CACHED[,CACHE_WRITE]]; instead of the configured and the published")
	return cmd, f
}

// What the flags that name a model say, here and for "rein probe".
const (
	modelFlagHelp   = "`MODEL`: script:FILE, openai/NAME, openai-responses/NAME, anthropic/NAME, gemini/NAME, or a name of the configuration"
	baseURLFlagHelp = "`URL` of the model's API; up to and including /v1 for openai"
	keyEnvFlagHelp  = "`VARIABLE` of the environment with the model's key"
)

// maxTask bounds a task read from stdin, in bytes.
const maxTask = 1 << 20

func (a *app) readTask(arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	data, err := io.ReadAll(io.LimitReader(a.in, maxTask+1))
	if err != nil {
		return "", fmt.Errorf("read the task from stdin: %w", err)
	}
	if len(data) > maxTask || strings.TrimSpace(string(data)) == "" {
		return "", usage("write the task to stdin, at most 1 MiB", "there is no task of a usable size on stdin")
	}
	return string(data), nil
}

// runOptions turns flags and configuration into what package run takes. All
// that can be refused is refused here, before anything is created.
func (a *app) runOptions(cmd *cobra.Command, f *runFlags, task string) (o run.Options, worker run.Worker, err error) {
	workspace, err := workspaceDir(f.workspace)
	if err != nil {
		return o, nil, err
	}
	file, err := a.load(workspace)
	if err != nil {
		return o, nil, err
	}
	name, target, err := resolveTarget(file.Config, f.place)
	if err != nil {
		return o, nil, err
	}
	m, err := f.chosen(file.Config)
	if err != nil {
		return o, nil, err
	}
	limits, err := resolveLimits(cmd, file.Config.Limits, f.limits)
	if err != nil {
		return o, nil, err
	}
	if err := checkTools(file.Config.Tools, limits); err != nil {
		return o, nil, err
	}
	checked, err := a.acceptance(target, f.acceptance)
	if err != nil {
		return o, nil, err
	}
	if err := checkPrice(m, limits); err != nil {
		return o, nil, err
	}
	key, err := a.readKey(cmd.Context(), m.Vendor+"/"+m.Model, m.Key)
	if err != nil {
		return o, nil, err
	}
	back, err := a.resolveFallback(cmd.Context(), file.Config, m, f.fallback, limits)
	if err != nil {
		return o, nil, err
	}
	if worker, err = newWorker(m, key, back, file.Config.Context, f); err != nil {
		return o, nil, err
	}
	provider, err := a.runProvider(cmd.Context(), file, target, f.resume)
	if err != nil {
		return o, nil, err
	}
	asks, err := a.approval(cmd.Context(), file.Config, f.ask, target.Network)
	if err != nil {
		return o, nil, err
	}
	narrow, err := file.Config.Tools.Tools()
	if err != nil {
		return o, nil, err
	}
	if a.collector, err = a.openCollector(cmd.Context(), file.Config.Telemetry); err != nil {
		return o, nil, err
	}
	secrets, masker, err := a.secrets(cmd.Context(), file.Config, target, key, back.key)
	if err != nil {
		return o, nil, err
	}
	state, err := a.env.stateDir()
	if err != nil {
		return o, nil, err
	}
	hash, err := configHash(target, m, back.config, limits, file.Config.Context, f.context, file.Config.Search, file.Config.Sessions, file.Config.Approval, file.Config.Tools, file.Config.SecretsOf(target))
	if err != nil {
		return o, nil, err
	}
	return run.Options{
		Task: task, Provider: provider, Target: run.Target{Name: name, Spec: specOf(target, secrets...)}, Secrets: a.secretsOf(file.Config, target), Limits: limits,
		Workspace: run.Workspace{Dir: workspace, NoIgnore: f.noIgnore}, Accept: checked.checks, Protect: checked.protect, Fresh: checked.fresh, Retry: checked.retry, Output: checked.output,
		Artifacts: f.artifacts, StateDir: state, Masker: masker, KeepOutput: f.keepOutput, NoTranscript: f.noTranscript,
		Search: file.Config.Search, Sessions: tool.Sessions{Max: file.Config.Sessions.Max, Calls: file.Config.Sessions.Calls, Age: time.Duration(file.Config.Sessions.Age)},
		Approval: asks, Tools: narrow, NoShell: !file.Config.Tools.Shell(),
		Telemetry: a.collector.record(),
		Version:   buildVersion().Version, Model: modelName(m), PriceSource: priceSource(m, back.config), ConfigHash: hash, Control: true,
		Notices: slices.Concat(networkNotices(target.Network, asks, file.Config.Approval.Rules), hostNotices(target, file.Config.Egress)),
	}, worker, nil
}

// chosen is the model that the flags, or the configuration, name.
func (f *runFlags) chosen(c config.Config) (config.Model, error) {
	m, err := resolveModel(c, f.model, f.baseURL)
	if f.keyEnv != "" {
		m.Key = config.Key{Env: f.keyEnv}
	}
	if f.price.Known {
		m.Price = sourced(f.price, "--price")
	}
	return m, err
}

// workspaceDir is the absolute path of --workspace, which must be a directory.
func workspaceDir(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	st, err := os.Stat(abs)
	if err != nil {
		return "", absent(dir, err)
	}
	if !st.IsDir() {
		return "", usage("--workspace takes the directory to copy in", "%s is not a directory", dir)
	}
	return abs, nil
}

func newWorker(m config.Model, key secret.Value, back fallback, sent config.Context, f *runFlags) (run.Worker, error) {
	choice := agent.OnDenial(f.onDenial)
	if choice != agent.StopIfFailed && choice != agent.GoOn {
		return nil, usage(fmt.Sprintf("--on-denial %s or %s", agent.StopIfFailed, agent.GoOn), "--on-denial %q is not known", f.onDenial)
	}
	within, err := resolveContext(sent, f.context, m.ContextWindow)
	if err != nil {
		return nil, err
	}
	opened, err := openModel(m, key, nil)
	if err != nil {
		return nil, err
	}
	o := agent.Options{Model: opened, OnDenial: choice, Context: within}
	if m.Price.Known {
		o.Price = &m.Price.Price
	}
	back.apply(&o)
	return agent.New(o)
}

func modelName(m config.Model) string { return m.Vendor + "/" + m.Model }

func checks(commands []string) []run.Check {
	var out []run.Check
	for _, c := range commands {
		out = append(out, run.Check{Name: short(c, 60), Shell: c})
	}
	return out
}

// configHash is the SHA-256 of the settings in force; none of them is secret.
func configHash(settings ...any) (string, error) {
	data, err := json.Marshal(settings)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// run does the run and says what came of it: the report on stdout, the head of
// the audit log on the last line of stderr.
func (a *app) run(ctx context.Context, o run.Options, w run.Worker, f *runFlags) error {
	a.sweep(ctx, o.Provider)
	o.Notices = append(o.Notices, a.unattended(o)...)
	if o.ID == "" {
		o.ID = run.NewID()
	}
	a.minted.of(filepath.Join(o.StateDir, "runs", o.ID))
	p := a.newProgress()
	a.shown, o.Events = p, p.event
	report, err := doing(f)(ctx, o, w)
	p.end()
	a.collector.end(a.err, o.Masker)
	if report == nil {
		if e, ok := errors.AsType[*run.UsageError](err); ok {
			return usage(e.Hint(), "%s: %s", e.Field, e.Reason)
		}
		return err
	}
	told := err
	switch {
	case f.noReport:
	case f.asJSON:
		err = errors.Join(err, a.printJSON(report))
	default:
		err = errors.Join(err, a.writeReport(report))
	}
	if !readerGone(err) { // who has all it wanted need not be told so instead of the end
		told = err
	}
	a.sayEnd(report, masked(o.Masker, told))
	fmt.Fprintf(a.err, "audit head %s\n", audit.Head(report.AuditHead))
	if report.ExitCode == 0 && err != nil {
		return exitStatus(exitFailure)
	}
	return status(report.ExitCode)
}

// masked is err with the known secrets out of its text. Its hint stays.
func masked(m *secret.Masker, err error) error {
	if err == nil {
		return nil
	}
	return withHint(errors.New(m.String(err.Error())), m.String(cmp.Or(hintOf(err), usualHint(err))))
}

// sayEnd prints why a run did not end well, and what can be done.
func (a *app) sayEnd(r *run.Report, err error) {
	hint := cmp.Or(r.Hint, hintOf(err))
	switch {
	case r.Brake != nil:
		fmt.Fprintf(a.err, "%s limit %s reached: %s\n", a.style("rein:", styleError), cleanLine(r.Brake.Limit), cleanLine(r.Brake.Amounts()))
		if r.Brake.Flag != "" {
			hint = r.Brake.Flag + " raises it"
		}
	case err != nil:
		what, _, _ := strings.Cut(err.Error(), "\n") // the report has all of it
		fmt.Fprintln(a.err, a.style("rein:", styleError), cleanLine(what))
	case r.ExitCode != 0:
		fmt.Fprintln(a.err, a.style("rein:", styleError), cleanLine(r.Conclusion))
	default:
		fmt.Fprintln(a.err, a.style(cleanLine(r.Conclusion), styleGood))
	}
	a.sayHint(hint)
	if !r.Cleanup.OK {
		fmt.Fprintf(a.err, "%s the sandbox may still be there: %s\n", a.style("rein:", styleError), cleanLine(r.Cleanup.Error))
		a.sayHint(r.Cleanup.Remedy)
	}
}
