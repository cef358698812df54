package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/internal/mcpserver"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
	"github.com/spf13/cobra"
)

const mcpHelp = `Offers the tools over the Model Context Protocol: on standard input and output, to
the host that has started it, or with --http to any number of clients.

  rein mcp --print-config claude-code    what a host's configuration has to say
  rein mcp --http 127.0.0.1:8377         over HTTP, with a bearer token

Each sandbox that a client makes is a run: --workspace is copied in, and a patch,
a report and an audit log are left when the client has finished, has left, or calls
nothing for --idle. Limits are those of one connection; what the client's model
costs cannot be seen from here.`

// The command's name, and the limits it starts from.
const (
	mcpName   = "mcp"
	mcpPreset = "mcp"
)

// mcpFlags are the flags of "rein mcp".
type mcpFlags struct {
	place
	workspace   string
	noWorkspace bool
	noIgnore    bool
	acceptance  acceptanceFlags
	artifacts   []string
	ask         []string
	keepOutput  bool
	limits      config.Limits
	idle        config.Duration
	sandboxes   int
	printConfig string
	http        httpFlags
}

func (a *app) mcpCommand() *cobra.Command {
	f := &mcpFlags{}
	cmd := &cobra.Command{Use: mcpName + " [flags]", Short: "offer the tools over the Model Context Protocol", Long: mcpHelp,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.printConfig != "" {
				return a.printMCPConfig(cmd, f)
			}
			return a.mcp(cmd, f)
		}}
	fl := cmd.Flags()
	f.place.flags(cmd)
	f.place.makingFlags(cmd)
	fl.StringVar(&f.workspace, "workspace", ".", "`DIR` copied into each sandbox")
	fl.BoolVar(&f.noWorkspace, "no-workspace", false, "copy nothing in")
	fl.BoolVar(&f.noIgnore, "no-ignore", false, "also copy what .gitignore and .reinignore leave out")
	fl.StringArrayVar(&f.acceptance.commands, "accept", nil, "`COMMAND` that exits 0 when the work is good (repeatable)")
	fl.StringVar(&f.acceptance.output, "output", "", "`DIR` of this host that has the workspace's new and changed files, up to date after every call")
	fl.StringVar(&f.acceptance.file, "accept-file", "", "`FILE` of checks, in YAML: docs/acceptance.md")
	fl.BoolVar(&f.acceptance.fresh, "fresh", false, "run the checks in a sandbox of their own, made from the inputs and the patch")
	fl.IntVar(&f.acceptance.retry, "retry", 0, "tell the client which checks failed, up to `N` times")
	fl.StringArrayVar(&f.acceptance.protect, "protect", nil, "`PATTERN`, as in a .gitignore, of workspace files the client must not change, delete or add to (repeatable)")
	fl.StringArrayVar(&f.artifacts, "artifact", nil, "`PATTERN` of files to bring out (repeatable)")
	fl.StringSliceVar(&f.ask, "ask", nil, "`WAYS` to a person, besides the client's own, who is asked where a rule says so: webhook, socket")
	fl.BoolVar(&f.keepOutput, "keep-output", false, "keep the full output of calls with the run, masked")
	fl.Var(textValue[config.Duration, *config.Duration]{&f.idle, "duration"}, "idle", "how long nothing may be called before a sandbox ends (default 30m)")
	fl.IntVar(&f.sandboxes, "sandboxes", mcpserver.DefaultSandboxes, "`N` sandboxes a client may make, one after the other")
	fl.StringVar(&f.printConfig, "print-config", "", "print what the configuration of `HOST` needs: "+hostNames())
	f.http.flags(cmd)
	callLimitFlags(cmd, &f.limits)
	return cmd
}

// mcp serves until the client has gone, or rein is told to end.
func (a *app) mcp(cmd *cobra.Command, f *mcpFlags) error {
	if err := f.http.check(); err != nil {
		return err
	}
	o, err := a.mcpOptions(cmd, f)
	if err != nil {
		return err
	}
	a.sweep(cmd.Context(), o.Run.Provider)
	p := a.newProgress()
	a.shown, o.Events = p, p.event
	defer p.end()
	o.Ended = a.mcpEnded
	s, err := mcpserver.New(o)
	if err != nil {
		return err
	}
	defer s.Close()
	if f.http.address != "" {
		return a.serveMCP(cmd.Context(), s, f)
	}
	in, ok := a.in.(io.ReadCloser)
	if !ok {
		in = io.NopCloser(a.in)
	}
	err = s.Serve(cmd.Context(), in, notClosed{a.out.Writer})
	if errors.Is(err, context.Canceled) || cmd.Context().Err() != nil {
		return nil // it was told to end, and has
	}
	return err
}

// notClosed is standard output, which is not for the library to close.
type notClosed struct{ io.Writer }

func (notClosed) Close() error { return nil }

// mcpEnded says what became of a run.
func (a *app) mcpEnded(r *run.Report, err error) {
	if r == nil {
		a.note("%s", cleanLine(err.Error()))
		return
	}
	a.note("run %s: %s", r.RunID, cleanLine(r.Conclusion))
	if err != nil {
		a.note("run %s: %s", r.RunID, cleanLine(err.Error()))
	}
	if !r.Cleanup.OK {
		a.note("the sandbox of run %s may still be there: %s", r.RunID, cleanLine(r.Cleanup.Error))
	}
	a.note("audit head %s", audit.Head(r.AuditHead))
}

// mcpOptions turns flags and configuration into what package mcpserver takes.
func (a *app) mcpOptions(cmd *cobra.Command, f *mcpFlags) (o mcpserver.Options, err error) {
	workspace := ""
	if !f.noWorkspace {
		if workspace, err = workspaceDir(f.workspace); err != nil {
			return o, err
		}
	}
	file, err := a.load(workspace)
	if err != nil {
		return o, err
	}
	name, target, err := resolveTarget(file.Config, f.place)
	if err != nil {
		return o, err
	}
	limits, err := resolveLimits(cmd, file.Config.Limits, f.limits)
	if err != nil {
		return o, err
	}
	if err := checkTools(file.Config.Tools, limits); err != nil {
		return o, err
	}
	if slices.Contains(f.ask, config.AskTerminal) {
		return o, usage("--ask socket waits for rein runs approve, from another terminal", "there is no terminal to ask at: standard input is the client's")
	}
	checked, err := a.acceptance(target, f.acceptance)
	if err != nil {
		return o, err
	}
	asks, err := a.approval(cmd.Context(), file.Config, f.ask, target.Network)
	if err != nil {
		return o, err
	}
	narrow, err := file.Config.Tools.Tools()
	if err != nil {
		return o, err
	}
	provider, err := a.runProvider(cmd.Context(), file, target, false)
	if err != nil {
		return o, err
	}
	if a.collector, err = a.openCollector(cmd.Context(), file.Config.Telemetry); err != nil {
		return o, err
	}
	if err := unrevoked(file.Config, target); err != nil {
		return o, err
	}
	secrets, masker, err := a.secrets(cmd.Context(), file.Config, target)
	if err != nil {
		return o, err
	}
	state, err := a.env.stateDir()
	if err != nil {
		return o, err
	}
	hash, err := configHash(target, limits, file.Config.Search, file.Config.Sessions, file.Config.Approval, file.Config.Tools, file.Config.SecretsOf(target))
	if err != nil {
		return o, err
	}
	return mcpserver.Options{
		Run: run.Options{
			Provider: provider, Target: run.Target{Name: name, Spec: specOf(target, secrets...)}, Secrets: a.secretsOf(file.Config, target), Limits: limits,
			Workspace: run.Workspace{Dir: workspace, NoIgnore: f.noIgnore}, Accept: checked.checks, Protect: checked.protect, Fresh: checked.fresh, Retry: checked.retry, Output: checked.output,
			Artifacts: f.artifacts, StateDir: state, Masker: masker, KeepOutput: f.keepOutput, NoTranscript: true,
			Search: file.Config.Search, Sessions: tool.Sessions{Max: file.Config.Sessions.Max, Calls: file.Config.Sessions.Calls, Age: time.Duration(file.Config.Sessions.Age)},
			Approval: asks, Tools: narrow, NoShell: !file.Config.Tools.Shell(),
			Telemetry: a.collector.record(),
			Version:   buildVersion().Version, ConfigHash: hash, Control: true,
			Notices: slices.Concat(networkNotices(target.Network, asks, file.Config.Approval.Rules), hostNotices(target, file.Config.Egress)),
		},
		Cwd: cmp.Or(target.Cwd, "/workspace"), Idle: time.Duration(f.idle), Sandboxes: f.sandboxes, Version: buildVersion().Version,
	}, nil
}

// unrevoked refuses keys that are made for a sandbox and withdrawn with it: there are
// several sandboxes here, one after the other and at a time, and one key for all.
func unrevoked(c config.Config, t config.Target) error {
	for _, name := range t.Secrets {
		if len(c.Secrets[name].Revoke) > 0 {
			return usage("leave revoke: out, or the secret out of this target",
				"the key of the secret %s is withdrawn when its sandbox ends (revoke:), and rein mcp would give it to several", name)
		}
	}
	return nil
}

// callLimitFlags are those of limitFlags that bound a client whose model is its own.
func callLimitFlags(cmd *cobra.Command, l *config.Limits) {
	all := &cobra.Command{}
	limitFlags(all, l)
	for _, limit := range []budget.Limit{budget.LimitCallTimeout, budget.LimitMaxCallTimeout, budget.LimitOutputBytes, budget.LimitOutputLines,
		budget.LimitToolCalls, budget.LimitWallTime, budget.LimitTTL} {
		cmd.Flags().AddFlag(all.Flags().Lookup(limitName(limit)))
	}
	cmd.Flags().Lookup(limitName(budget.LimitToolCalls)).Usage = "`N` calls within one connection"
	cmd.Flags().Lookup(limitName(budget.LimitWallTime)).Usage = "time from the beginning of a connection to its end"
	cmd.Flags().StringVar(&l.Preset, "preset", "", "`NAME` of the limits to start from (default "+mcpPreset+")")
}

// exeName is this program as a host can start it.
func exeName() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("where this program is: %w", err)
	}
	return exe, nil
}
