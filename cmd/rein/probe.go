package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/sandbox"
	"github.com/spf13/cobra"
)

const probeHelp = `Says what sandboxes on this host can do: each capability, for each runtime, and
who enforces it. What is missing comes with the remedy to paste. Nothing is
changed, and no sandbox is created.

With --model it asks that model one tiny question instead, and says in words what
is wrong: the key, the quota, the name, the address, the certificate, the clock.

Exits 1 when the runtime of the target cannot create a sandbox here, 8 when the
model does not answer.`

func (a *app) probeCommand() *cobra.Command {
	var asJSON bool
	var target, runtime, named, baseURL, keyEnv string
	cmd := &cobra.Command{
		Use: "probe", Short: "what this host can do, why not, and the exact remedy", Long: probeHelp, Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case named == "" && baseURL+keyEnv != "":
				return usage("name the model with --model", "--base-url and --key-env go with --model")
			case named != "" && target+runtime != "":
				return usage("probe one after the other", "--model asks a model; --target and --runtime are about sandboxes")
			case named != "":
				return a.probeModel(cmd.Context(), named, baseURL, keyEnv, asJSON)
			}
			f, err := a.load()
			if err != nil {
				return err
			}
			_, t, err := resolveTarget(f.Config, place{target: target, runtime: runtime})
			if err != nil {
				return err
			}
			reports := a.probeAll(cmd, f, t, runtime == "")
			if asJSON {
				err = a.printJSON(reports)
			} else {
				err = a.printProbe(reports)
			}
			if err == nil && !reports[0].Usable {
				return exitStatus(exitFailure)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&target, "target", "", "probe for the target `NAME` of the configuration")
	cmd.Flags().StringVar(&named, "model", "", modelFlagHelp)
	cmd.Flags().StringVar(&baseURL, "base-url", "", baseURLFlagHelp)
	cmd.Flags().StringVar(&keyEnv, "key-env", "", keyEnvFlagHelp)
	cmd.Flags().StringVar(&runtime, "runtime", "", "probe this `RUNTIME` only: gvisor, runc, or a path")
	return cmd
}

// probeAll probes the target's runtime first and, for comparison, the other
// usual ones. A provider that cannot be opened is a report too.
func (a *app) probeAll(cmd *cobra.Command, f *config.File, t config.Target, others bool) []sandbox.Report {
	runtimes := []string{t.Runtime}
	if others && t.Provider == config.DefaultProvider {
		for _, r := range []string{"gvisor", "runc"} {
			if !slices.Contains(runtimes, r) {
				runtimes = append(runtimes, r)
			}
		}
	}
	var reports []sandbox.Report
	for _, r := range runtimes {
		t.Runtime = r
		report := sandbox.Report{Provider: t.Provider, Runtime: r}
		p, err := a.openProvider(cmd.Context(), f, t)
		if err == nil {
			report, err = p.Probe(cmd.Context())
		}
		if err != nil {
			report.Provider, report.Runtime, report.Usable = t.Provider, r, false
			report.Problems = append(report.Problems, sandbox.Problem{What: err.Error(), Remedy: hintOf(err), Fatal: true})
		}
		reports = append(reports, report)
	}
	return reports
}

// printProbe prints capabilities down, runtimes across; in each cell who
// enforces it.
func (a *app) printProbe(reports []sandbox.Report) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 3, ' ', 0)
	fmt.Fprint(w, "CAPABILITY")
	for _, r := range reports {
		fmt.Fprintf(w, "\t%s", strings.ToUpper(cleanLine(strings.TrimSuffix(r.Provider+"/"+r.Runtime, "/"))))
	}
	fmt.Fprint(w, "\nusable")
	for _, r := range reports {
		fmt.Fprintf(w, "\t%s", yesNo(r.Usable))
	}
	fmt.Fprintln(w)
	for _, c := range sandbox.Capabilities {
		fmt.Fprint(w, string(c))
		for _, r := range reports {
			fmt.Fprintf(w, "\t%s", cell(r, c))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return a.printProblems(reports)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// cell is one capability of one runtime.
func cell(r sandbox.Report, c sandbox.Capability) string {
	i := slices.IndexFunc(r.Abilities, func(ab sandbox.Ability) bool { return ab.Capability == c })
	switch {
	case i < 0 && !r.Usable:
		return "-"
	case i < 0:
		return "no"
	}
	ab := r.Abilities[i]
	by := cleanLine(ab.EnforcedBy)
	switch {
	case !ab.Available && by != "" && by != "nobody":
		return "no (" + by + ")"
	case !ab.Available:
		return "no"
	case by != "":
		return by
	}
	return "yes"
}

// printProblems prints once what is missing and how to mend it.
func (a *app) printProblems(reports []sandbox.Report) error {
	said := map[string]bool{}
	say := func(what, remedy string) {
		if what == "" || said[what+remedy] {
			return
		}
		if len(said) == 0 {
			fmt.Fprintln(a.out)
		}
		said[what+remedy] = true
		fmt.Fprintf(a.out, "%s\n", cleanLine(what))
		if remedy != "" {
			fmt.Fprintf(a.out, "    %s\n", strings.ReplaceAll(strings.TrimSpace(clean(remedy)), "\n", "\n    "))
		}
	}
	for _, r := range reports {
		for _, p := range r.Problems {
			severity := "reduced"
			if p.Fatal {
				severity = "unusable"
			}
			say(r.Runtime+" "+severity+": "+p.What, p.Remedy)
		}
		for _, ab := range r.Abilities {
			if ab.Reason != "" {
				say(fmt.Sprintf("%s %s: %s", r.Runtime, ab.Capability, ab.Reason), ab.Remedy)
			}
		}
	}
	return nil
}
