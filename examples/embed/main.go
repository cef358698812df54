// Command embed shows rein's packages in another program: it creates a
// sandbox, runs a command and reads a file in it, then gives a task to an agent
// and checks the result. The model is a script, so no key is needed; any
// model.Model takes its place.
//
// rein's binaries must be at hand, because each sandbox has a host process of
// its own: go run . -bin DIR names their directory.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/model/script"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
)

//go:embed greet.yaml
var greet []byte

func main() {
	bin := flag.String("bin", "../../bin", "directory of rein-keep, rein-execd and rein-runsc")
	runtime := flag.String("runtime", "gvisor", "gvisor or runc")
	flag.Parse()
	if err := embed(context.Background(), *bin, *runtime); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		if hint := sandbox.HintOf(err); hint != "" {
			fmt.Fprintln(os.Stderr, "hint:", hint)
		}
		os.Exit(1)
	}
}

func embed(ctx context.Context, bin, runtime string) (err error) {
	state, err := os.MkdirTemp("", "embed.")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(state)) }()

	o := local.Options{
		Keep:     filepath.Join(bin, "rein-keep"),
		Execd:    filepath.Join(bin, "rein-execd"),
		Runtime:  runtime,
		StateDir: state,
	}
	if runtime == "gvisor" {
		o.RuntimePath = filepath.Join(bin, "rein-runsc")
	}
	provider, err := local.New(o)
	if err != nil {
		return err
	}
	if err := commands(ctx, provider, filepath.Join(state, "audit.jsonl")); err != nil {
		return err
	}
	return task(ctx, provider, state)
}

// commands uses a sandbox directly. What is done in it is recorded in the log
// it was made with.
func commands(ctx context.Context, provider sandbox.Provider, record string) (err error) {
	log, err := audit.Create(record, audit.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()

	sb, err := sandbox.Create(ctx, provider, sandbox.Spec{TTL: 2 * time.Minute}, sandbox.Options{Log: log})
	if err != nil {
		return err
	}
	// Closing would only release our connection; Kill ends the sandbox.
	defer func() { err = errors.Join(err, sb.Kill(context.WithoutCancel(ctx)), sb.Close()) }()

	// An error means that rein could not run it. How the program ended is in
	// the result.
	result, err := sb.Run(ctx, sandbox.Command{Shell: "echo hello from $(uname -s) >greeting; echo oops >&2; exit 3", Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	if result.ExitCode == nil || *result.ExitCode != 3 || result.OK() {
		return fmt.Errorf("want exit code 3, got %+v", result.Outcome)
	}
	file, err := sb.ReadFile(ctx, "greeting", sandbox.ReadOptions{})
	if err != nil {
		return err
	}
	fmt.Printf("sandbox %s: exit code %d, wrote %q\n", sb.ID(), *result.ExitCode, file.Data)
	return nil
}

// task gives a task to an agent and judges it by a check, not by its word.
func task(ctx context.Context, provider sandbox.Provider, state string) error {
	decisions, err := script.Load(greet, "greet.yaml")
	if err != nil {
		return err
	}
	worker, err := agent.New(agent.Options{Model: decisions.Model()})
	if err != nil {
		return err
	}
	report, err := run.Do(ctx, run.Options{
		Task:      "Write a greeting to hello.txt.",
		Provider:  provider,
		StateDir:  state,
		Accept:    []run.Check{{Name: "greeting", Shell: "grep -q hello hello.txt"}},
		Artifacts: []string{"hello.txt"},
		Model:     decisions.Model().Name(),
	}, worker)
	if err != nil {
		return err
	}
	if report.Reason != run.Done || report.Accepted != "yes" || !report.Cleanup.OK || len(report.Artifacts) != 1 {
		return errors.Join(errors.New("the run is not as expected"), report.WriteMarkdown(os.Stderr))
	}
	text, err := os.ReadFile(report.Artifacts[0].Path)
	if err != nil {
		return err
	}
	fmt.Printf("run %s: %s; artifact %q; sandbox gone: %v\n", report.RunID, report.Conclusion, text, report.Cleanup.OK)
	return nil
}
