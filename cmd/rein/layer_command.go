package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/wrap/layer"
	"github.com/spf13/cobra"
)

const layerHelp = `Agents' programs, as "rein wrap" has installed them: one layer for each package,
version and target, kept in $XDG_CACHE_HOME/rein/agents and shown read-only in the
sandboxes of runs.

LAYER is a layer's name, a unique beginning of it of 6 characters or more, or the
package it is of, such as @openai/codex or @openai/codex@1.2.3, where one is.`

func (a *app) layerCommand() *cobra.Command {
	return group("layer", "agents' programs that rein wrap has installed", layerHelp,
		a.layerListCommand(), a.layerVerifyCommand(), a.layerRemoveCommand(), a.layerPruneCommand())
}

// layersOf opens the store for what installs nothing.
func (a *app) layersOf() (*layer.Layers, error) {
	f, err := a.load()
	if err != nil {
		return nil, err
	}
	return a.openLayers(f.Config, nil)
}

func (a *app) layerListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls", Short: "list the layers, the last used first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			layers, err := a.layersOf()
			if err != nil {
				return err
			}
			list, err := layers.List(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(list)
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "LAYER\tPACKAGE\tSIZE\tFILES\tUSED\tFOR")
			for _, i := range list {
				used := i.Used.Local().Format("2006-01-02 15:04")
				if i.InUse {
					used = "now"
				}
				if i.Damage != "" {
					a.note("note: %s is damaged (%s); rein layer prune removes it", i.Name, cleanLine(i.Damage))
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", i.Name, cleanLine(packageText(i)), bytesText(i.Bytes), i.Files, used, cleanLine(strings.TrimSpace(i.Base+", Node.js "+i.Node)))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// packageText is what a layer is of, as npm writes it.
func packageText(i layer.Info) string {
	if i.Package == "" {
		return "-"
	}
	text := i.Package + "@" + i.Version
	if i.Newest {
		text += " (newest)"
	}
	return text
}

// leastName is how much of a layer's name is enough.
const leastName = 6

// layerNamed finds the one layer that text is a name of.
func layerNamed(list []layer.Info, text string) (layer.Info, error) {
	var found []layer.Info
	for _, i := range list {
		if i.Name == text {
			return i, nil
		}
		if len(text) >= leastName && strings.HasPrefix(i.Name, text) || i.Package != "" && (text == i.Package || text == i.Package+"@"+i.Version) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return layer.Info{}, usage("rein layer ls", "no layer is named %q", text)
	case 1:
		return found[0], nil
	}
	return layer.Info{}, usage("rein layer ls; name one of them", "%d layers are named %q", len(found), text)
}

// layersNamed are the store, and the layers of it that are named; all of them when
// none is.
func (a *app) layersNamed(ctx context.Context, names []string) (*layer.Layers, []layer.Info, error) {
	layers, err := a.layersOf()
	if err != nil {
		return nil, nil, err
	}
	list, err := layers.List(ctx)
	if err != nil || len(names) == 0 {
		return layers, list, err
	}
	var out []layer.Info
	for _, name := range names {
		i, err := layerNamed(list, name)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, i)
	}
	return layers, out, nil
}

// verified is what "rein layer verify --json" prints of a layer.
type verified struct {
	Name    string `json:"name"`
	Package string `json:"package,omitempty"`
	Version string `json:"version,omitempty"`
	Digest  string `json:"digest,omitempty"`
	OK      bool   `json:"ok"`
	Error   string `json:"error,omitempty"`
}

func (a *app) layerVerifyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "verify [LAYER...]", Short: "compare layers with what was installed",
		Long: `Compares every name, mode, link and byte of layers with their manifests; without a
LAYER, of all. The exit code is 1 when one is not what was installed.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			layers, list, err := a.layersNamed(cmd.Context(), args)
			if err != nil {
				return err
			}
			out, code := []verified{}, 0
			for _, i := range list {
				err := layers.Verify(cmd.Context(), i.Name)
				if ended := context.Cause(cmd.Context()); ended != nil {
					return ended
				}
				v := verified{Name: i.Name, Package: i.Package, Version: i.Version, Digest: i.Digest, OK: err == nil}
				if err != nil {
					v.Error, code = err.Error(), exitFailure
				}
				out = append(out, v)
				if !asJSON {
					a.sayVerified(i, err)
				}
			}
			if asJSON {
				err = a.printJSON(out)
			}
			return errors.Join(err, status(code))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) sayVerified(i layer.Info, err error) {
	if err == nil {
		fmt.Fprintln(a.out, "ok", i.Name, cleanLine(packageText(i)), i.Digest)
		return
	}
	fmt.Fprintln(a.out, "changed", i.Name, cleanLine(packageText(i)))
	fmt.Fprintln(a.err, a.style("rein:", styleError), cleanLine(err.Error()))
	a.sayHint(hintOf(err))
}

func (a *app) layerRemoveCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "rm LAYER...", Short: "remove layers",
		Long: `Removes layers. One that a run uses stays, and that is an error. What is removed is
installed again when it is asked for.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactly("LAYER...")(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			layers, list, err := a.layersNamed(cmd.Context(), args)
			if err != nil {
				return err
			}
			gone := []layer.Info{}
			for _, i := range list {
				if slices.ContainsFunc(gone, func(g layer.Info) bool { return g.Name == i.Name }) {
					continue // named twice
				}
				if err = layers.Remove(cmd.Context(), i.Name); err != nil {
					break
				}
				gone = append(gone, i)
				if !asJSON {
					fmt.Fprintln(a.out, "removed", i.Name, cleanLine(packageText(i)))
				}
			}
			if asJSON {
				err = errors.Join(err, a.printJSON(gone))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) layerPruneCommand() *cobra.Command {
	var asJSON bool
	var older config.Duration
	cmd := &cobra.Command{
		Use: "prune", Short: "remove layers that nobody uses",
		Long: "Removes the layers that no run uses; with --older-than only those that no run has\nused since, and those that are damaged.", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			layers, err := a.layersOf()
			if err != nil {
				return err
			}
			gone, err := layers.Prune(cmd.Context(), time.Duration(older))
			if asJSON {
				return errors.Join(err, a.printJSON(append([]layer.Info{}, gone...)))
			}
			var size int64
			for _, i := range gone {
				size += i.Bytes
				fmt.Fprintln(a.out, "removed", i.Name, cleanLine(packageText(i)))
			}
			if err == nil {
				a.note("%d layers removed, %s", len(gone), bytesText(size))
			}
			return err
		},
	}
	cmd.Flags().Var(textValue[config.Duration, *config.Duration]{&older, "duration"}, "older-than", "only what no run has used since, such as 168h")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
