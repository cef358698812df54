package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/spf13/cobra"
)

const configHelp = `The configuration of this host: targets, models, limits. It is read from
$XDG_CONFIG_HOME/rein/config.yaml over /etc/rein/config.yaml, or from --config
alone; never from a workspace or a directory above one, and never from a file
that another user can write. Flags win over it. It holds no secret: a key is
named by the variable, file or command where this host has it.`

func (a *app) configCommand() *cobra.Command {
	return group("config", "the configuration of this host", configHelp,
		a.configInitCommand(), a.configCheckCommand(), a.configSchemaCommand(), a.configShowCommand())
}

func (a *app) configInitCommand() *cobra.Command {
	var unattended bool
	cmd := &cobra.Command{
		Use: "init", Short: "write a commented configuration file", Args: exactly(),
		Long: "Writes a commented configuration file to --config, or to the user's place. An\nexisting file is left alone.\n\n--unattended writes one for runs that nobody watches: narrow tools instead of a\ngeneral shell, and what no rule allows is denied.",
		RunE: func(*cobra.Command, []string) error {
			p := a.places()
			path := p.Explicit
			if path == "" {
				path = p.UserPath()
			}
			if path == "" {
				return usage("set HOME, or name a file with --config", "there is no place for a configuration: neither XDG_CONFIG_HOME nor HOME is set")
			}
			text := config.Example
			if unattended {
				text = config.Unattended
			}
			if err := writeNew(path, text); err != nil {
				return err
			}
			_, err := fmt.Fprintln(a.out, clean(path))
			return err
		},
	}
	cmd.Flags().BoolVar(&unattended, "unattended", false, "write one for runs that nobody watches")
	return cmd
}

// writeNew writes a file that must not exist, with its directories.
func writeNew(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return withHint(err, "name another file with --config")
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usage("edit it, or name another file with --config", "%s exists already", path)
	}
	if err != nil {
		return withHint(err, "name another file with --config")
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// checked is what "rein config check --json" prints. File is empty when there
// is none, and with problems each names its own.
type checked struct {
	OK       bool           `json:"ok"`
	File     string         `json:"file"`
	Problems []checkProblem `json:"problems"`
}

type checkProblem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"` // from 1; 0 when it is about the whole file
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (a *app) configCheckCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "check", Short: "check the configuration and say what is wrong, with the line", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			f, err := a.load()
			if err == nil {
				err = checkFiles(f)
			}
			if asJSON {
				return a.printCheck(f, err)
			}
			if err != nil {
				return err
			}
			name := f.Name
			if name == "" {
				name = "no configuration file: the defaults hold"
			}
			_, err = fmt.Fprintf(a.out, "ok: %s\n", clean(name))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, what is wrong included")
	return cmd
}

// checkFiles looks into the files that a configuration names for every sandbox.
func checkFiles(f *config.File) error {
	_, err := readCA(f.Config.Egress.UpstreamCA)
	if e, ok := errors.AsType[*usageError](err); ok {
		return &config.Error{Problems: []config.Problem{{Position: config.Position{File: f.Name}, Message: "egress.upstream_ca: " + e.message, Hint: e.hint}}}
	}
	return err
}

// printCheck prints that f is well, or what is wrong with it.
func (a *app) printCheck(f *config.File, err error) error {
	if err == nil {
		return a.printJSON(checked{OK: true, File: f.Name, Problems: []checkProblem{}})
	}
	var c checked
	if e, ok := errors.AsType[*config.Error](err); ok {
		for _, p := range e.Problems {
			c.Problems = append(c.Problems, checkProblem{p.File, p.Line, p.Column, p.Message, p.Hint})
		}
	} else if e, ok := errors.AsType[*config.PlaceError](err); ok {
		c.Problems = []checkProblem{{File: e.Path, Message: e.Reason, Hint: e.Hint}}
	} else {
		return err
	}
	return cmp.Or(a.printJSON(c), error(exitStatus(exitUsage)))
}

func (a *app) configSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "print the JSON Schema of the configuration", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			s, err := config.Schema(known())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "%s\n", s)
			return err
		},
	}
}

func (a *app) configShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show", Short: "print the values in force and where each comes from", Args: exactly(),
		Long: "Prints every value in force and where it comes from. Secrets are not read, and\nof a target's environment only the names are shown.",
		RunE: func(*cobra.Command, []string) error {
			f, err := a.load()
			if err != nil {
				return err
			}
			settings := config.Settings(f, effective(f.Config))
			if asJSON {
				return a.printJSON(settings)
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "KEY\tVALUE\tSOURCE")
			for _, s := range settings {
				fmt.Fprintf(w, "%s\t%s\t%s\n", cleanLine(s.Path), cleanLine(s.Value), cleanLine(s.Source))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// effective is c with every default filled in.
func effective(c config.Config) config.Config {
	targets := map[string]config.Target{}
	for name, t := range c.Targets {
		targets[name] = withTargetDefaults(t)
	}
	if _, ok := targets[config.DefaultTargetName]; !ok {
		targets[config.DefaultTargetName] = withTargetDefaults(config.Target{})
	}
	c.Targets = targets
	if c.Target == "" {
		c.Target = config.DefaultTargetName
	}
	c.Limits = effectiveLimits(c.Limits)
	return c
}
