package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/lab"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
	"github.com/spf13/cobra"
)

const labHelp = `The experiments show on this machine, with this provider, whether the boundaries
rein promises hold. None needs a model or a network; a4 also takes a real model
(--model). Several run one after the other.

  a1   the tool chain without a model: structured results, a failing command's
       exit code and stderr, the sandbox destroyed
  a2   what of 200,000 characters of output reaches the model: bytes produced,
       returned, and in the model's request, beside a file and its tail
  a3   what a failure is: a command that is not there is fixable, a timeout is
       asked about, a lost sandbox and a network rule that a server cannot
       enforce are fatal
  a4   an order in a file to send secrets away: a model that obeys it, one that
       does not; then every way to get out a byte, a key that is not in the
       sandbox, or data with another's key, each with what was tried, expected
       and seen, and servers that say whether anything arrived (within a minute)
  a5   the brakes: an endless loop ends at its timeouts, its sandbox is never
       renewed and is destroyed; work that gets on is renewed, and never past the
       absolute end
  a6   the key boundary of a command-line agent (rein wrap): the keys of its models
       are looked for in all that is inside, while a request with one is under way;
       every way around the gateway to have it pass on what it must not; the budget
       used up; the placeholders dead with the sandbox (within 45 seconds). With
       --agent all of it beside a real agent, installed as rein wrap installs it and
       driven by a scripted model: what tries it is started by the agent, whose
       processes and files are looked through, too, and asks in the agent's protocol
       (within three minutes, and the time of its installation from npm)

Exits 0 when all pass, 1 when one fails, 2 for a usage error.`

// experiments are what "rein lab" runs, by name.
var experiments = []struct {
	name string
	run  func(context.Context, lab.Env) (lab.Result, error)
}{
	{"a1", lab.A1},
	{"a2", lab.A2},
	{"a3", lab.A3},
	{"a4", lab.A4},
	{"a5", lab.A5},
	{"a6", lab.A6},
}

// labFlags are the flags of "rein lab".
type labFlags struct {
	asJSON          bool
	target, runtime string
	model, baseURL  string
	agent           string
}

func (a *app) labCommand() *cobra.Command {
	f := &labFlags{}
	var names []string
	for _, e := range experiments {
		names = append(names, e.name)
	}
	cmd := &cobra.Command{
		Use: "lab [flags] EXPERIMENT...", Short: "the experiments: do the boundaries hold on this machine?", Long: labHelp, ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error { return a.lab(cmd, f, args) },
	}
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the result as JSON; several as an array")
	cmd.Flags().StringVar(&f.target, "target", "", "run it in the target `NAME` of the configuration")
	cmd.Flags().StringVar(&f.runtime, "runtime", "", "run it with this `RUNTIME`: gvisor, runc, or a path")
	cmd.Flags().StringVar(&f.model, "model", "", "a4: also try the model `NAME`, as in rein run, and record what it did")
	cmd.Flags().StringVar(&f.agent, "agent", "", "a6: beside the agent `NAME`: "+strings.Join(lab.Agents(), ", "))
	cmd.Flags().StringVar(&f.baseURL, "base-url", "", "the `URL` of that model's server")
	return cmd
}

// labProbeCommand is what a4 starts in its sandbox.
func (a *app) labProbeCommand() *cobra.Command {
	return &cobra.Command{Use: lab.ProbeCommand, Short: "inside a sandbox of a4: try every way out", Hidden: true, Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return lab.Probe(cmd.Context(), cmd.InOrStdin(), a.out) }}
}

// lab runs the experiments that are named.
func (a *app) lab(cmd *cobra.Command, f *labFlags, names []string) error {
	var known []string
	for _, e := range experiments {
		known = append(known, e.name)
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return usage("the experiments are "+strings.Join(known, ", "), "no experiment %q", n)
		}
	}
	if len(names) == 0 {
		return usage("the experiments are "+strings.Join(known, ", "), "no experiment is named")
	}
	if f.model+f.baseURL != "" && !slices.Contains(names, "a4") {
		return usage("name a4, or leave it out", "only the experiment a4 tries a model")
	}
	if err := f.checkAgent(names); err != nil {
		return err
	}
	env, done, err := a.labEnv(cmd.Context(), f)
	if err != nil {
		return err
	}
	defer done()
	if f.agent != "" {
		if env.Agent, err = a.labAgent(cmd, f); err != nil {
			return err
		}
	}
	var results []lab.Result
	for _, n := range names {
		e := experiments[slices.Index(known, n)]
		r, err := e.run(cmd.Context(), env)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	return a.labResults(results, f.asJSON)
}

// labEnv is what the experiments run in. done ends it.
func (a *app) labEnv(ctx context.Context, f *labFlags) (env lab.Env, done func(), err error) {
	file, err := a.load()
	if err != nil {
		return env, nil, err
	}
	_, t, err := resolveTarget(file.Config, place{target: f.target, runtime: f.runtime})
	if err != nil {
		return env, nil, err
	}
	p, err := a.openProvider(ctx, file, t)
	if err != nil {
		return env, nil, err
	}
	state, err := a.env.stateDir()
	if err != nil {
		return env, nil, err
	}
	masker, err := a.masker(ctx, file.Config)
	if err != nil {
		return env, nil, err
	}
	a.sweep(ctx, p)
	env = lab.Env{Provider: p, Spec: specOf(t), Masker: masker, StateDir: state, Progress: a.labStep}
	if env.Model, err = a.labModel(ctx, file.Config, f); err != nil {
		return env, nil, err
	}
	if env.Probe, err = os.Executable(); err != nil {
		return env, nil, err
	}
	if t.Provider == config.DefaultProvider {
		env.Networked = func(n lab.Network) (sandbox.Provider, func(), error) { return a.labNetwork(ctx, file, t, n, state) }
	}
	env.Weak, done, err = weakBackends(p, state)
	return env, done, err
}

// labNetwork is the provider with another way to the network.
func (a *app) labNetwork(ctx context.Context, file *config.File, t config.Target, n lab.Network, state string) (sandbox.Provider, func(), error) {
	other := *file
	other.Config.Egress.Resolvers = []string{n.Resolver.String()}
	var done func()
	if n.Proxy != nil {
		other.Config.Egress.UpstreamProxy = config.UpstreamProxy{URL: n.Proxy.String()}
	}
	if n.CA != nil {
		ca := filepath.Join(state, "lab", "authority-"+rand.Text()+".pem")
		if err := os.WriteFile(ca, n.CA, 0o600); err != nil {
			return nil, nil, err
		}
		done = func() { _ = os.Remove(ca) } // a certificate, and no secret
		other.Config.Egress.UpstreamCA = ca
	}
	p, err := a.openProvider(ctx, &other, t)
	if err != nil && done != nil {
		done()
	}
	return p, done, err
}

// labModel is the real model that a4 tries; nil without --model.
func (a *app) labModel(ctx context.Context, c config.Config, f *labFlags) (model.Model, error) {
	if f.model == "" {
		if f.baseURL != "" {
			return nil, usage("name the model with --model", "--base-url without --model")
		}
		return nil, nil
	}
	m, err := resolveModel(c, f.model, f.baseURL)
	if err != nil {
		return nil, err
	}
	key, err := a.readKey(ctx, modelName(m), m.Key)
	if err != nil {
		return nil, err
	}
	return openModel(m, key, nil)
}

// weakBackends are OpenSandbox servers on loopback that cannot enforce the
// network rule of a sandbox: one takes none, the other stops names only. Their
// sandboxes are those of machines.
func weakBackends(machines sandbox.Provider, stateDir string) (list []lab.Backend, done func(), err error) {
	var ends []func()
	done = func() {
		for _, end := range ends {
			end()
		}
	}
	for _, w := range []struct {
		name   string
		server *opensandboxtest.Server
	}{
		{"a server that takes none", &opensandboxtest.Server{Machines: machines, NoPolicy: true}},
		{"a server that stops names only", &opensandboxtest.Server{Machines: machines, Enforcement: "dns"}},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			done()
			return nil, nil, err
		}
		server := &http.Server{Handler: w.server, ReadHeaderTimeout: 10 * time.Second}
		served := make(chan struct{})
		go func() { defer close(served); _ = server.Serve(l) }() // until it is closed below
		ends = append(ends, func() { _ = server.Close(); <-served })
		p, err := opensandbox.New(opensandbox.Options{URL: "http://" + l.Addr().String(), StateDir: stateDir, CreateTimeout: lab.Limit})
		if err != nil {
			done()
			return nil, nil, err
		}
		ends = append(ends, func() { _ = p.Close() })
		list = append(list, lab.Backend{Name: w.name, Provider: p, Spec: sandbox.Spec{Image: "debian:12"}})
	}
	return list, done, nil
}

func (a *app) labStep(s lab.Step) {
	mark, st := "ok  ", styleGood
	switch {
	case s.NotTried:
		fmt.Fprintf(a.err, "%s %s: %s\n", a.style("skip", styleDim), cleanLine(s.Name), cleanLine(s.Got))
		return
	case !s.Pass:
		mark, st = "FAIL", styleError
	}
	fmt.Fprintf(a.err, "%s %s (%d ms)\n", a.style(mark, st), cleanLine(s.Name), s.DurationMS)
	if !s.Pass {
		fmt.Fprintf(a.err, "     expected %s\n     got      %s\n", cleanLine(s.Expected), cleanLine(s.Got))
	}
}

func (a *app) labResults(results []lab.Result, asJSON bool) error {
	var printed any = results
	if len(results) == 1 {
		printed = results[0]
	}
	pass := true
	if asJSON {
		if err := a.printJSON(printed); err != nil {
			return err
		}
	}
	for _, r := range results {
		verdict := "pass"
		if !r.Pass {
			verdict, pass = "fail", false
		}
		if !asJSON {
			fmt.Fprintf(a.out, "%s %s: %s (%s/%s, %d steps, %d ms)\n", cleanLine(r.Experiment), verdict, cleanLine(r.Title),
				cleanLine(r.Provider), cleanLine(r.Runtime), len(r.Steps), r.DurationMS)
		}
		if r.AuditHead != "" {
			fmt.Fprintf(a.err, "audit %s head %s\n", cleanLine(r.AuditPath), cleanLine(r.AuditHead))
		}
	}
	if !pass {
		return exitStatus(exitFailure)
	}
	return nil
}
