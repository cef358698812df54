package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/run/control"
	"github.com/spf13/cobra"
)

const runsHelp = `What runs left behind, in $XDG_STATE_HOME/rein/runs. ID is a run's id, a unique
beginning of it, or "last".`

func (a *app) runsCommand() *cobra.Command {
	return group("runs", "what runs left behind: reports, records, patches", runsHelp,
		a.runsListCommand(), a.runsShowCommand(), a.runsReportCommand(), a.runsVerifyCommand(), a.runsApplyCommand(),
		a.runsLimitCommand(), a.runsAllowCommand(), a.runsDenyCommand(), a.runsApproveCommand(), a.runsStopCommand(), a.runsRotateCommand(),
		a.runsResumeCommand(), a.runsReplayCommand(), a.runsPruneCommand())
}

func (a *app) runsListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls", Short: "list the runs, newest first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			state, err := a.env.stateDir()
			if err != nil {
				return err
			}
			list, err := run.List(state)
			if err != nil {
				return err
			}
			runs := live(cmd.Context(), list)
			if asJSON {
				return a.printJSON(runs)
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "RUN\tSTARTED\tENDED AS\tACCEPTED\tTASK")
			for _, s := range runs {
				task := s.Task
				if s.Live != nil {
					task = s.Live.Task
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", cleanLine(s.RunID), s.StartedAt.Local().Format("2006-01-02 15:04:05"),
					cleanLine(s.state()), cleanLine(s.Accepted), short(task, 60))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// short is text on one line of at most n characters.
func short(s string, n int) string {
	r := []rune(cleanLine(s))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-1]) + "…"
}

// runDir finds the directory of the run named id.
func (a *app) runDir(id string) (string, error) {
	state, err := a.env.stateDir()
	if err != nil {
		return "", err
	}
	dir, err := run.Find(state, id)
	if err != nil {
		hint := "rein runs ls lists them; \"last\" is the newest"
		if errors.Is(err, run.ErrNoRuns) {
			hint = "rein run gives a task to an agent; its record is kept in " + filepath.Join(state, "runs")
		}
		return "", usage(hint, "%s", err)
	}
	return dir, nil
}

// oneOrNewest are the arguments of a command that reads one run.
func oneOrNewest(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return exactly("one ID or none")(cmd, args)
	}
	return nil
}

// orNewest is the run that the arguments of oneOrNewest name.
func orNewest(args []string) string {
	if len(args) == 0 {
		return "last"
	}
	return args[0]
}

func (a *app) runsShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show [ID]", Short: "print what happened in a run, from its audit log; of the newest without an id", Args: oneOrNewest,
		Long: "Prints the audit log of a run, one event a line, as it was recorded: intents\nbefore effects. The log itself is not judged; that is \"rein runs verify\".",
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := a.runDir(orNewest(args))
			if err != nil {
				return err
			}
			write := a.lineOfRecord()
			if asJSON {
				write = a.jsonOfRecord()
			}
			return a.showAudit(filepath.Join(dir, run.AuditFile), write)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: the records as a list, whole")
	return cmd
}

// showAudit prints the records of an audit log, each as write does it; nil is
// the end.
func (a *app) showAudit(path string, write func(*audit.Record) error) error {
	f, err := os.Open(path)
	if err != nil {
		return absent(path, err)
	}
	defer f.Close()
	for r, err := range audit.Records(f) {
		if audit.ErrorKindOf(err) == audit.ErrorIO {
			return err
		}
		if err != nil {
			fmt.Fprintf(a.err, "warning: %s\n", cleanLine(err.Error()))
			continue
		}
		if err := write(&r); err != nil {
			return err
		}
	}
	return write(nil)
}

// lineOfRecord prints a line for each record.
func (a *app) lineOfRecord() func(*audit.Record) error {
	var first time.Time
	return func(r *audit.Record) error {
		if r == nil {
			return nil
		}
		if first.IsZero() {
			first = r.Time
		}
		line := fmt.Sprintf("%4d %8.3f  %-22s %s", r.Seq, r.Time.Sub(first).Seconds(), cleanLine(string(r.Kind)), short(string(r.Data), 300))
		_, err := fmt.Fprintln(a.out, strings.TrimRight(line, " "))
		return err
	}
}

// jsonOfRecord prints a list, a record at a time: logs can be long.
func (a *app) jsonOfRecord() func(*audit.Record) error {
	before := "["
	return func(r *audit.Record) error {
		if r == nil {
			_, err := fmt.Fprintln(a.out, strings.TrimPrefix(before, ",")+"\n]")
			return err
		}
		data, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.out, "%s\n  %s", before, data)
		before = ","
		return err
	}
}

func (a *app) runsReportCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "report [ID]", Short: "print a run's report; of the newest without an id",
		Args: oneOrNewest,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := orNewest(args)
			dir, err := a.runDir(id)
			if err != nil {
				return err
			}
			r, err := readReport(cmd.Context(), dir, id)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(r)
			}
			return a.writeReport(r)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// readReport reads the report of the run that was named id.
func readReport(ctx context.Context, dir, id string) (*run.Report, error) {
	r, err := run.ReadReport(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	c, err := control.Dial(ctx, dir)
	if errors.Is(err, control.ErrNotRunning) {
		next := "rein runs resume " + id + " goes on with it"
		if _, err := run.Invocation(dir); err != nil {
			next = cmp.Or(hintOf(err), "begin a new run")
		}
		return nil, withHint(fmt.Errorf("run %s has no report: rein was killed before the run had ended", id), next+"; rein runs show "+id+" prints what happened")
	}
	if err == nil {
		c.Close()
	}
	return nil, withHint(fmt.Errorf("run %s has no report yet: it has not ended", id), "rein runs show "+id+" prints what happened so far")
}

// writeReport prints the report for people. It is made of what models and
// sandboxes wrote, so it is cleaned wherever it goes.
func (a *app) writeReport(r *run.Report) error {
	w := &cleaner{w: a.out}
	return errors.Join(r.WriteMarkdown(w), w.Flush())
}

const applyHelp = `Applies the patch a run brought out to a directory of this host (--dir, default the
current one). Everything is checked before anything is written: a path that leads
outside, or a file that is not as the run found it, is refused and nothing changes.
For files that could run by themselves later (hooks, CI, executables, dotfiles) you
are asked; --yes answers for you.`

// applied is what "rein runs apply --json" prints.
type applied struct {
	Dir     string       `json:"dir"`
	Changes []run.Change `json:"changes"`
}

func (a *app) runsApplyCommand() *cobra.Command {
	var dir string
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use: "apply ID", Short: "apply a run's patch to a directory of this host", Long: applyHelp, Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := a.runDir(args[0])
			if err != nil {
				return err
			}
			if _, err := readReport(cmd.Context(), from, args[0]); err != nil {
				return err
			}
			target, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			if st, err := os.Stat(target); err != nil || !st.IsDir() {
				return usage("name the directory to change", "--dir %s is no directory", dir)
			}
			changes, err := run.Apply(cmd.Context(), from, target, a.confirmer(cmd.Context(), yes))
			if err != nil {
				return withHint(err, hintOr(err, "rein runs report "+args[0]+" lists the files"))
			}
			if asJSON {
				return a.printJSON(applied{target, append([]run.Change{}, changes...)})
			}
			for _, c := range changes {
				fmt.Fprintf(a.out, "%-8s %s\n", cleanLine(c.Kind), cleanLine(c.Path))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "`DIR` to change")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask about hooks, CI files, executables and dotfiles")
	return cmd
}

// hintOr is err's own hint, or another.
func hintOr(err error, other string) string {
	if h := hintOf(err); h != "" {
		return h
	}
	return other
}

// confirmer asks on stderr and reads the answer from stdin. Without a person
// to answer, the answer is no.
func (a *app) confirmer(ctx context.Context, yes bool) func(run.Concern) (bool, error) {
	if yes {
		return func(c run.Concern) (bool, error) {
			a.note("%s: %s (%s)", c.Kind, c.Path, c.Why)
			return true, nil
		}
	}
	answers := bufio.NewReader(a.in)
	return func(c run.Concern) (bool, error) {
		fmt.Fprintf(a.err, "%s: %s (%s)\nwrite it? [y/N] ", cleanLine(c.Kind), cleanLine(c.Path), cleanLine(c.Why))
		answer, err := readLine(ctx, answers)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if answer == "" && errors.Is(err, io.EOF) {
			fmt.Fprintln(a.err)
			return false, withHint(errors.New("there is nobody to answer"), "--yes answers for you")
		}
		return strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes"), nil
	}
}

// readLine reads a line, unless ctx ends first. The reader is then left to the
// end of the process.
func readLine(ctx context.Context, r *bufio.Reader) (string, error) {
	type line struct {
		text string
		err  error
	}
	got := make(chan line, 1)
	go func() {
		text, err := r.ReadString('\n')
		got <- line{strings.TrimSpace(text), err}
	}()
	select {
	case l := <-got:
		return l.text, l.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
