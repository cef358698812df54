package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/internal/spelling"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/wrap/layer"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// app is one execution of the command line: the streams and the environment it
// was given, and what the flags of the root say.
type app struct {
	env      environment
	in       io.Reader
	out, err *output
	color    bool // stderr is a terminal that shows colours

	shown     *progress  // of the run that works
	collector *collector // nil: nobody is told of it

	configPath   string
	keyless      bool           // nobody is asked anything: keys are not read
	providerKeys []secret.Value // those read so far
	minted       minting        // those that are to be withdrawn
	layers       []*layer.Layer // in use
	flagKey      string         // the secret that flags name, if one is
	screen       bool           // the terminal is an agent's
}

const rootHelp = `rein runs an AI agent's tool calls inside a sandbox, under hard limits, and
keeps proof of what happened.

  rein probe                             what this host can do
  rein run --model script:demo.yaml ...  give an agent a task
  rein runs report                       what came of it

Results go to stdout, everything else to stderr. Configuration is read from
$XDG_CONFIG_HOME/rein/config.yaml, /etc/rein/config.yaml or --config, never
from the directory you work in.`

// command is the tree of commands, each in the file of its name.
func (a *app) command() *cobra.Command {
	root := group("rein", "run an agent's tool calls in a sandbox, under limits, with proof", rootHelp,
		a.runCommand(), a.wrapCommand(), a.runsCommand(), a.sandboxCommand(), a.imageCommand(), a.layerCommand(), a.probeCommand(), a.labCommand(), a.labProbeCommand(), a.egressCommand(),
		a.configCommand(), a.mcpCommand(), a.modelServerCommand(), a.custodianCommand(), a.versionCommand())
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = buildVersion().Version
	root.SetVersionTemplate("rein {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().StringVar(&a.configPath, "config", "", "read the configuration `FILE` instead of the user's and the machine's")
	root.PersistentPreRunE = refuseEmpty
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(flagHint(cmd, err), "%s: %s", cmd.CommandPath(), flagFault(err))
	})
	return root
}

// group is a command that only has commands.
func group(name, short, long string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Long: long}
	cmd.AddCommand(commands...)
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		var names []string
		for _, c := range commands {
			if !c.Hidden {
				names = append(names, c.Name())
			}
		}
		return usage(config.DidYouMean(args[0], names), "%s: no command %q", cmd.CommandPath(), args[0])
	}
	return cmd
}

// exactly says which arguments a command takes, in its own words.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want := "no argument"
		if len(names) > 0 {
			want = strings.Join(names, " ")
		}
		return usage("usage: "+cmd.UseLine(), "%s takes %s, not %d argument(s)", cmd.CommandPath(), want, len(args))
	}
}

// refuseEmpty refuses a flag that is given nothing, as "$UNSET" gives it: what
// holds without the flag must not quietly take its place.
func refuseEmpty(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && f.Value.Type() == "string" && f.Value.String() == "" {
			err = usage("give it a value, or leave it out", "%s: --%s is empty", cmd.CommandPath(), f.Name)
		}
	})
	return err
}

// flagFault is err without the words of package strconv.
func flagFault(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	if _, ok := errors.AsType[*strconv.NumError](err); ok {
		return fmt.Errorf("--%s: %q is not a number it can take", invalid.GetFlag().Name, invalid.GetValue())
	}
	return fmt.Errorf("--%s: %w", invalid.GetFlag().Name, invalid.Unwrap())
}

// flagHint names the flag that was meant.
func flagHint(cmd *cobra.Command, err error) string {
	if _, word, ok := strings.Cut(err.Error(), "unknown flag: --"); ok {
		if n := spelling.Nearest(word, flagNames(cmd)); n != "" {
			return fmt.Sprintf("did you mean --%s?", n)
		}
	}
	return cmd.CommandPath() + " --help lists the flags"
}

// load reads the configuration. Files in workspaces are not trusted.
func (a *app) load(workspaces ...string) (*config.File, error) {
	return loadFrom(a.places(workspaces...))
}

func loadFrom(p config.Places) (*config.File, error) {
	f, err := config.Load(p)
	if f == nil {
		return nil, err
	}
	if err := config.Validate(f, known()); err != nil { // with those of reading it
		return nil, err
	}
	if err := checkLimits(f); err != nil {
		return nil, err
	}
	return f, nil
}

func (a *app) places(workspaces ...string) config.Places {
	workspaces = slices.DeleteFunc(workspaces, func(w string) bool { return w == "" })
	return config.Places{Explicit: a.configPath, ConfigHome: a.env.configHome(), System: config.SystemPath, Workspaces: workspaces}
}

// printJSON is the one form of --json: an indented object and a newline.
// Characters that would do something to a terminal are escaped.
func (a *app) printJSON(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := a.out.Write(escapeHidden(b.Bytes()))
	return err
}

// escapeHidden escapes what evidence.Hidden names in JSON, where it stands in
// strings only.
func escapeHidden(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch hi, lo := utf16.EncodeRune(r); {
		case !evidence.Hidden(r):
			out = append(out, text[:n]...)
		case hi != utf8.RuneError:
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[n:]
	}
	return out
}

// note prints one line for people.
func (a *app) note(format string, args ...any) {
	fmt.Fprintln(a.err, cleanLine(fmt.Sprintf(format, args...)))
}

type style int

const (
	stylePlain style = iota
	styleError
	styleHint
	styleGood
	styleDim
)

// style colours text for stderr, when that shows colours.
func (a *app) style(text string, s style) string {
	if !a.color || s == stylePlain {
		return text
	}
	st := lipgloss.NewStyle()
	switch s {
	case styleError:
		st = st.Foreground(lipgloss.Red).Bold(true)
	case styleHint:
		st = st.Foreground(lipgloss.Yellow)
	case styleGood:
		st = st.Foreground(lipgloss.Green)
	case styleDim:
		st = st.Faint(true)
	}
	return st.Render(text)
}
