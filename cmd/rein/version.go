package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionInfo is what "rein version --json" prints.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	GVisor   string `json:"gvisor,omitempty"`
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "print the version", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			if asJSON {
				return a.printJSON(v)
			}
			_, err := fmt.Fprintf(a.out, "rein %s %s\n", v.Version, v.Go)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// buildVersion is what the linker recorded.
func buildVersion() versionInfo {
	v := versionInfo{Version: "(devel)", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	for _, d := range info.Deps {
		if d.Path == "gvisor.dev/gvisor" {
			v.GVisor = d.Version
		}
	}
	return v
}
