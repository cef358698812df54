package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rein-sh/rein/run"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const resumeRunHelp = `Goes on with a run whose rein was killed, or died with its machine's power, before
it could end it. One process can; it takes the audit log, the transcript and the
budgets up where they end. The wall clock has run on meanwhile.

The command, the flags and the configuration are those the run was begun with. A
call that was under way is asked about by its id: its result is adopted, or waited
for, or the model is told that its outcome is not known. Where the sandbox is gone
(it lives to its deadline), the report is made of what is on record, and says what
is lost. Where the work had not begun, the run begins anew.

Exit codes are those of "rein run".`

// invocation is how a run was begun, for whoever goes on with it.
type invocation struct {
	Dir    string   `json:"dir"` // the working directory
	Config string   `json:"config,omitempty"`
	Args   []string `json:"args"` // flags, one each
	Task   string   `json:"task"`
}

// invocation describes the command line in force. It holds no key: flags name
// where keys are.
func (a *app) invocation(cmd *cobra.Command, task string) (json.RawMessage, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	in := invocation{Dir: dir, Config: a.configPath, Task: task, Args: []string{}}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if cmd.InheritedFlags().Lookup(f.Name) != nil {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			in.Args = append(in.Args, "--"+f.Name+"="+v)
		}
	})
	return json.Marshal(in)
}

// begun makes what a run was begun with again.
func (a *app) begun(ctx context.Context, dir string) (o run.Options, w run.Worker, f *runFlags, err error) {
	data, err := run.Invocation(dir)
	if err != nil {
		return o, nil, nil, err
	}
	var in invocation
	if err := json.Unmarshal(data, &in); err != nil {
		return o, nil, nil, fmt.Errorf("how the run was begun cannot be read: %w", err)
	}
	if err := os.Chdir(in.Dir); err != nil { // its paths may be relative
		return o, nil, nil, fmt.Errorf("the run was begun in a directory that is not there any more: %w", err)
	}
	if a.configPath == "" {
		a.configPath = in.Config
	}
	cmd, f := a.newRun()
	cmd.SetContext(ctx)
	if err := cmd.ParseFlags(in.Args); err != nil {
		return o, nil, nil, fmt.Errorf("the flags the run was begun with: %w", err)
	}
	o, w, err = a.runOptions(cmd, f, in.Task)
	o.ID = filepath.Base(dir)
	return o, w, f, err
}

func (a *app) runsResumeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "resume ID", Short: "go on with a run whose rein was killed", Long: resumeRunHelp, Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := a.runDir(args[0])
			if err != nil {
				return err
			}
			if _, err := run.ReadReport(dir); !errors.Is(err, fs.ErrNotExist) {
				return usage("rein runs report "+filepath.Base(dir), "run %s has ended", filepath.Base(dir))
			}
			o, w, f, err := a.begun(cmd.Context(), dir)
			if err != nil {
				return err
			}
			f.asJSON, f.resume = asJSON, true
			return a.run(cmd.Context(), o, w, f)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return cmd
}

// doing is what is done with the options of a run.
func doing(f *runFlags) func(context.Context, run.Options, run.Worker) (*run.Report, error) {
	if !f.resume {
		return run.Do
	}
	return func(ctx context.Context, o run.Options, w run.Worker) (*run.Report, error) {
		return run.Resume(ctx, o, w.(run.Resumer)) // the loop is one
	}
}
