package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/lab"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
	"github.com/spf13/cobra"
)

const labHelp = `The experiments show on this machine, with this provider, whether the boundaries
rein promises hold. None needs a model or a network. Several run one after the
other.

  a1   the tool chain without a model: structured results, a failing command's
       exit code and stderr, the sandbox destroyed
  a2   what of 200,000 characters of output reaches the model: bytes produced,
       returned, and in the model's request, beside a file and its tail
  a3   what a failure is: a command that is not there is fixable, a timeout is
       asked about, a lost sandbox and a network rule that a server cannot
       enforce are fatal
  a5   the brakes: an endless loop ends at its timeouts, its sandbox is never
       renewed and is destroyed; work that gets on is renewed, and never past the
       absolute end

Exits 0 when all pass, 1 when one fails, 2 for a usage error.`

// experiments are what "rein lab" runs, by name.
var experiments = []struct {
	name string
	run  func(context.Context, lab.Env) (lab.Result, error)
}{
	{"a1", lab.A1},
	{"a2", lab.A2},
	{"a3", lab.A3},
	{"a5", lab.A5},
}

// labFlags are the flags of "rein lab".
type labFlags struct {
	asJSON          bool
	target, runtime string
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
	return cmd
}

// lab runs the experiments that are named.
func (a *app) lab(cmd *cobra.Command, f *labFlags, names []string) error {
	var known []string
	for _, e := range experiments {
		known = append(known, e.name)
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return usage(cmp.Or(config.DidYouMean(n, known), "the experiments are "+strings.Join(known, ", ")), "no experiment %q", n)
		}
	}
	if len(names) == 0 {
		return usage("the experiments are "+strings.Join(known, ", "), "no experiment is named")
	}
	env, done, err := a.labEnv(cmd.Context(), f)
	if err != nil {
		return err
	}
	defer done()
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
	weak, done, err := weakBackends(p, state)
	return lab.Env{Provider: p, Spec: specOf(t), Masker: masker, StateDir: state, Progress: a.labStep, Weak: weak}, done, err
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
	if !s.Pass {
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
